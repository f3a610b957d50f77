use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

fn row() -> Item {
    Item::new().with("pk", "p").with("n", 10_i64).with("s", "10").with("b", Value::B(b"10".to_vec()))
}

#[test]
fn a_missing_attribute_makes_every_comparison_false() {
    let row = row();
    for how in [
        Comparison::Equal,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ] {
        let condition = Condition::compare("missing", how, 1_i64);
        assert!(!condition.holds(Some(&row)), "{how:?}");
        assert!(!condition.holds(None), "{how:?}");
        assert!(condition.not().holds(None), "{how:?}");
    }
}

#[test]
fn numbers_compare_by_value_and_kinds_never_mix() {
    let row = row();
    assert!(Condition::compare("n", Comparison::Greater, 9_i64).holds(Some(&row)));
    assert!(Condition::equals("n", "1e1".parse::<Number>().unwrap()).holds(Some(&row)));
    // As text, "10" would be below "9".
    assert!(Condition::compare("s", Comparison::Less, "9").holds(Some(&row)));
    for name in ["n", "s", "b"] {
        let kinds = [Value::from(10_i64), "10".into(), Value::B(b"10".to_vec())];
        let equal = kinds.iter().filter(|v| Condition::equals(name, (*v).clone()).holds(Some(&row))).count();
        let at_least = kinds
            .iter()
            .filter(|v| Condition::compare(name, Comparison::GreaterOrEqual, (*v).clone()).holds(Some(&row)));
        assert_eq!((equal, at_least.count()), (1, 1), "{name}");
    }
}

#[test]
fn what_every_backend_refuses_is_refused_before_any_row_is_met() {
    let bool_order = Condition::compare("a", Comparison::Less, Value::Bool(true));
    assert_eq!(bool_order.validate(), Err(ExprError::Unordered { name: "a".into(), kind: Kind::Bool }));
    assert_eq!(Condition::All(vec![]).validate(), Err(ExprError::EmptyList));
    assert_eq!(Condition::exists("").validate(), Err(ExprError::EmptyName));
    let many = Condition::Any(vec![Condition::exists("a"); 100]);
    assert_eq!(many.validate(), Err(ExprError::TooComplex));
    let many = (0..101).fold(Update::new(), |update, n| update.remove(n.to_string()));
    assert_eq!(many.validate(), Err(ExprError::TooComplex));
    assert_eq!(Update::new().validate(), Err(ExprError::EmptyUpdate));
    assert_eq!(Update::new().set("a", 1_i64).remove("a").validate(), Err(ExprError::Twice("a".into())));
    assert_eq!(Update::new().set("pk", "x").validate(), Err(ExprError::KeyAttribute("pk".into())));
    let empty = Update::new().set("t", Value::Ss(BTreeSet::new()));
    assert_eq!(
        empty.validate().unwrap_err().to_string(),
        "the value of `t`: a set may not be empty; leave the attribute out instead"
    );
}

#[test]
fn an_update_touches_only_what_it_names() {
    let mut item = row().with("other", "kept");
    Update::new()
        .set("s", "new")
        .remove("b")
        .remove("absent")
        .add("n", 5_u64)
        .add("count", 1_u64)
        .apply(&mut item)
        .unwrap();
    let expected = Item::new()
        .with("pk", "p")
        .with("n", 15_i64)
        .with("s", "new")
        .with("other", "kept")
        .with("count", 1_i64);
    assert_eq!(item, expected);
}

#[test]
fn adding_to_a_string_names_the_attribute_and_its_kind() {
    let error = Update::new().add("s", 1_u64).apply(&mut row()).unwrap_err();
    assert_eq!(error.to_string(), "`s` is of kind S, and only a number (N) can be added to");
}

// The evaluator against a naive model: values as tagged strings, numbers as scaled integers, conditions as truth
// tables over a plain map.

#[derive(Debug, Clone)]
enum Plain {
    Text(String),
    Hundredths(i64),
    Bytes(Vec<u8>),
    Flag(bool),
}

fn plain() -> impl Strategy<Value = Plain> {
    prop_oneof![
        "[0-2]{0,2}".prop_map(Plain::Text),
        (-300i64..300).prop_map(Plain::Hundredths),
        proptest::collection::vec(0u8..3, 0..3).prop_map(Plain::Bytes),
        any::<bool>().prop_map(Plain::Flag),
    ]
}

impl Plain {
    fn value(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            // Written in one of the spellings that DynamoDB takes, to exercise parsing too.
            Self::Hundredths(n) if n % 2 == 0 => Value::N(alloc::format!("{n}E-2").parse().unwrap()),
            Self::Hundredths(n) => {
                let sign = if *n < 0 { "-" } else { "" };
                Value::N(alloc::format!("{sign}{}.{:02}0", n.abs() / 100, n.abs() % 100).parse().unwrap())
            }
            Self::Bytes(bytes) => Value::B(bytes.clone()),
            Self::Flag(flag) => Value::Bool(*flag),
        }
    }

    fn is_ordered(&self) -> bool {
        !matches!(self, Self::Flag(_))
    }

    /// -1, 0, 1, or nothing when the two can't be compared.
    fn order(&self, other: &Self) -> Option<i32> {
        let sign = |less: bool, equal: bool| {
            Some(if equal {
                0
            } else if less {
                -1
            } else {
                1
            })
        };
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => sign(a.as_bytes() < b.as_bytes(), a == b),
            (Self::Hundredths(a), Self::Hundredths(b)) => sign(a < b, a == b),
            (Self::Bytes(a), Self::Bytes(b)) => sign(a < b, a == b),
            (Self::Flag(a), Self::Flag(b)) if a == b => Some(0),
            _ => None,
        }
    }
}

#[derive(Debug, Clone)]
enum Formula {
    Exists(u8),
    Compare(u8, usize, Plain),
    All(Vec<Formula>),
    Any(Vec<Formula>),
    Not(Box<Formula>),
}

const OPERATORS: [(Comparison, [i32; 2]); 5] = [
    (Comparison::Equal, [0, 0]),
    (Comparison::Less, [-1, -1]),
    (Comparison::LessOrEqual, [-1, 0]),
    (Comparison::Greater, [1, 1]),
    (Comparison::GreaterOrEqual, [1, 0]),
];

fn name(index: u8) -> Name {
    ["a", "b", "c"][usize::from(index)].into()
}

impl Formula {
    fn condition(&self) -> Condition {
        match self {
            Self::Exists(index) => Condition::exists(name(*index)),
            Self::Compare(index, operator, value) => {
                Condition::compare(name(*index), OPERATORS[*operator].0, value.value())
            }
            Self::All(formulas) => Condition::All(formulas.iter().map(Self::condition).collect()),
            Self::Any(formulas) => Condition::Any(formulas.iter().map(Self::condition).collect()),
            Self::Not(formula) => formula.condition().not(),
        }
    }

    fn truth(&self, row: &BTreeMap<u8, Plain>) -> bool {
        match self {
            Self::Exists(index) => row.contains_key(index),
            Self::Compare(index, operator, value) => {
                match row.get(index).and_then(|found| found.order(value)) {
                    Some(order) => OPERATORS[*operator].1.contains(&order),
                    None => false,
                }
            }
            Self::All(formulas) => !formulas.iter().any(|f| !f.truth(row)),
            Self::Any(formulas) => !formulas.iter().all(|f| !f.truth(row)),
            Self::Not(formula) => !formula.truth(row),
        }
    }
}

fn formula() -> impl Strategy<Value = Formula> {
    let leaf = prop_oneof![
        (0u8..3).prop_map(Formula::Exists),
        (0u8..3, 0usize..5, plain()).prop_map(|(index, operator, value)| {
            Formula::Compare(index, if value.is_ordered() { operator } else { 0 }, value)
        }),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Formula::All),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Formula::Any),
            inner.prop_map(|formula| Formula::Not(Box::new(formula))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn the_evaluator_agrees_with_a_naive_model(
        formula in formula(), row in proptest::collection::btree_map(0u8..3, plain(), 0..3),
    ) {
        let item: Item = row.iter().map(|(index, value)| (name(*index), value.value())).collect();
        let condition = formula.condition();
        prop_assert_eq!(condition.validate(), Ok(()));
        prop_assert_eq!(condition.holds(Some(&item)), formula.truth(&row));
        prop_assert_eq!(condition.holds(None), formula.truth(&BTreeMap::new()));
    }
}
