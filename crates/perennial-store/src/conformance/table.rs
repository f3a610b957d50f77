//! What a table does, whatever the rules above it.
#![allow(clippy::missing_panics_doc, reason = "a test fails by a panic")]
#![allow(clippy::unused_async, reason = "every test is run in the same way")]

/// Expands to every test of the suite for tables; takes an expression that makes a fresh
/// [`Fixture`](crate::conformance::Fixture) of a table.
#[macro_export]
macro_rules! table_conformance {
    ($make:expr) => {
        $crate::__conformance_tests! {
            table, $make,
            a_missing_row_is_none
            what_is_put_is_what_is_got
            a_put_replaces_the_whole_row
            an_update_touches_only_what_it_names
            a_single_update_returns_the_row_and_nothing_else_does
            removing_nothing_is_fine
            a_failed_condition_carries_the_row_and_changes_nothing
            a_transaction_happens_whole_or_not_at_all
            conditions_have_dynamodb_s_meaning
            numbers_keep_38_digits
            adding_to_what_is_no_number_names_the_row
            rows_up_to_the_limit_fit_and_larger_ones_are_refused
            a_query_gives_a_partition_in_order
            a_query_pages_both_ways
            a_query_of_odd_and_long_keys_is_in_order
            a_query_s_limits_are_checked
            a_commit_changes_the_change_counter
            concurrent_additions_all_count
            concurrent_conditional_puts_have_one_winner
            concurrent_transfers_keep_the_sum
        }
    };
}

use super::{Fixture, in_threads};
use crate::table::{Consistency, Page, Query};
use crate::{ErrorKind, ItemTable, ItemTableExt as _};
use perennial_core::expr::{Comparison, Condition, Update};
use perennial_core::item::{Item, Kind, MAX_ITEM_BYTES, Value};
use perennial_core::key::RowKey;
use perennial_core::number::Number;
use perennial_core::transaction::{Committed, Op, Rejected, TransactResult, Transaction};
use std::collections::{BTreeMap, BTreeSet};

type Table = Fixture<dyn ItemTable>;

fn key(sk: &str) -> RowKey {
    RowKey::new("p", sk).expect("a valid key")
}

fn row(sk: &str) -> Item {
    Item::new().with("pk", "p").with("sk", sk)
}

fn put(item: Item) -> Op {
    Op::put(item).expect("an item with a key")
}

fn transaction(ops: impl IntoIterator<Item = Op>) -> Transaction {
    Transaction::new(ops.into_iter().collect()).expect("a valid transaction")
}

async fn run(table: &dyn ItemTable, ops: impl IntoIterator<Item = Op>) -> TransactResult {
    table.transact(&transaction(ops)).await.expect("the table works")
}

async fn commit(table: &dyn ItemTable, ops: impl IntoIterator<Item = Op>) -> Committed {
    match run(table, ops).await {
        TransactResult::Committed(committed) => committed,
        TransactResult::Rejected(rejected) => panic!("rejected: {rejected:?}"),
    }
}

async fn reject(table: &dyn ItemTable, ops: impl IntoIterator<Item = Op>) -> Rejected {
    match run(table, ops).await {
        TransactResult::Rejected(rejected) => rejected,
        TransactResult::Committed(_) => panic!("committed"),
    }
}

async fn get(table: &dyn ItemTable, sk: &str) -> Option<Item> {
    let strong = table.get(&key(sk), Consistency::Strong).await.expect("the table works");
    // Nothing else writes, so in the end the other kind of read says the same.
    table.get(&key(sk), Consistency::Eventual).await.expect("the table works");
    strong
}

async fn query(table: &dyn ItemTable, query: &Query) -> Page {
    table.query(query).await.expect("the table works")
}

fn sks(items: &[Item]) -> Vec<&str> {
    items.iter().filter_map(|item| item.get("sk").and_then(Value::as_s)).collect()
}

/// A row that was never written is not there.
pub async fn a_missing_row_is_none(table: &Table) {
    assert_eq!(get(&**table, "a").await, None);
    commit(&**table, [put(row("a"))]).await;
    assert_eq!(get(&**table, "b").await, None);
    let other = RowKey::new("q", "a").expect("a valid key");
    assert_eq!(table.get(&other, Consistency::Strong).await.expect("the table works"), None);
}

/// Every kind of value comes back as it was.
pub async fn what_is_put_is_what_is_got(table: &Table) {
    let item = row("a")
        .with("s", "text ü \u{1F600} \0")
        .with("empty", "")
        .with("n", "-12.5".parse::<Number>().expect("a number"))
        .with("b", Value::B(vec![0, 255, 10]))
        .with("true", Value::Bool(true))
        .with("false", Value::Bool(false))
        .with("null", Value::Null)
        .with("l", Value::L(vec!["x".into(), 1_i64.into(), Value::L(vec![])]))
        .with("m", Value::M(BTreeMap::from([("k".into(), Value::M(BTreeMap::new()))])))
        .with("ss", Value::Ss(BTreeSet::from(["a".into(), "b".into()])))
        .with("ns", Value::Ns(BTreeSet::from([1_i64.into(), Number::from(-2_i64)])))
        .with("bs", Value::Bs(BTreeSet::from([vec![1], vec![2]])));
    commit(&**table, [put(item.clone())]).await;
    assert_eq!(get(&**table, "a").await, Some(item));
}

/// A put leaves nothing of the row before.
pub async fn a_put_replaces_the_whole_row(table: &Table) {
    commit(&**table, [put(row("a").with("x", 1_i64))]).await;
    commit(&**table, [put(row("a").with("y", 2_i64))]).await;
    assert_eq!(get(&**table, "a").await, Some(row("a").with("y", 2_i64)));
}

/// An update makes the row if need be, and leaves other attributes alone.
pub async fn an_update_touches_only_what_it_names(table: &Table) {
    commit(&**table, [Op::update(key("a"), Update::new().set("x", 1_i64).set("y", 2_i64).add("n", 5_u64))])
        .await;
    assert_eq!(get(&**table, "a").await, Some(row("a").with("x", 1_i64).with("y", 2_i64).with("n", 5_i64)));
    commit(
        &**table,
        [Op::update(key("a"), Update::new().set("x", "new").remove("y").remove("absent").add("n", 2_u64))],
    )
    .await;
    assert_eq!(get(&**table, "a").await, Some(row("a").with("x", "new").with("n", 7_i64)));
    commit(&**table, [Op::update(key("b"), Update::new().remove("absent"))]).await;
    assert_eq!(get(&**table, "b").await, Some(row("b")));
}

/// Only one update alone tells the row as it is now.
pub async fn a_single_update_returns_the_row_and_nothing_else_does(table: &Table) {
    let add = |sk| Op::update(key(sk), Update::new().add("n", 1_u64));
    assert_eq!(commit(&**table, [add("a")]).await.row, Some(row("a").with("n", 1_i64)));
    assert_eq!(commit(&**table, [add("a")]).await.row, Some(row("a").with("n", 2_i64)));
    assert_eq!(commit(&**table, [add("a"), add("b")]).await.row, None);
    assert_eq!(commit(&**table, [put(row("c"))]).await.row, None);
    assert_eq!(commit(&**table, [Op::delete(key("c"))]).await.row, None);
}

/// Deleting a row that is not there succeeds.
pub async fn removing_nothing_is_fine(table: &Table) {
    commit(&**table, [Op::delete(key("a"))]).await;
    commit(&**table, [put(row("a"))]).await;
    commit(&**table, [Op::delete(key("a"))]).await;
    assert_eq!(get(&**table, "a").await, None);
}

/// A rejection says which operation, and what its condition met.
pub async fn a_failed_condition_carries_the_row_and_changes_nothing(table: &Table) {
    let there = row("a").with("x", 1_i64);
    commit(&**table, [put(there.clone())]).await;
    for op in [
        put(row("a").with("x", 2_i64)),
        Op::update(key("a"), Update::new().set("x", 2_i64)),
        Op::delete(key("a")),
    ] {
        let rejected = reject(&**table, [op.when(Condition::row_absent())]).await;
        assert_eq!(rejected.failures.len(), 1);
        assert_eq!(rejected.of(0).and_then(|failure| failure.row.clone()), Some(there.clone()));
        assert_eq!(get(&**table, "a").await, Some(there.clone()));
    }
    let rejected = reject(&**table, [Op::check(key("none"), Condition::row_exists())]).await;
    assert_eq!(rejected.of(0).map(|failure| failure.row.clone()), Some(None));
}

/// One failed condition keeps everything from happening; each failure is reported.
pub async fn a_transaction_happens_whole_or_not_at_all(table: &Table) {
    commit(&**table, [put(row("a").with("x", 1_i64)), put(row("b"))]).await;
    let ops = |x: i64| {
        [
            Op::update(key("a"), Update::new().set("x", 9_i64)),
            Op::delete(key("b")),
            put(row("c")).when(Condition::row_absent()),
            Op::check(key("d"), Condition::row_absent()),
        ]
        .map(|op| if op.key().sk() == "a" { op.when(Condition::equals("x", x)) } else { op })
    };
    let rejected = reject(&**table, ops(2)).await;
    assert_eq!(rejected.failures.iter().map(|failure| failure.op).collect::<Vec<_>>(), [0]);
    assert_eq!(get(&**table, "a").await, Some(row("a").with("x", 1_i64)));
    assert_eq!((get(&**table, "b").await, get(&**table, "c").await), (Some(row("b")), None));
    commit(&**table, ops(1)).await;
    assert_eq!(get(&**table, "a").await, Some(row("a").with("x", 9_i64)));
    assert_eq!((get(&**table, "b").await, get(&**table, "c").await), (None, Some(row("c"))));
    let rejected = reject(
        &**table,
        [
            put(row("c")).when(Condition::row_absent()),
            put(row("d")),
            Op::check(key("e"), Condition::row_exists()),
        ],
    )
    .await;
    assert_eq!(rejected.failures.iter().map(|failure| failure.op).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(get(&**table, "d").await, None);
}

/// Missing attributes, kinds and order: the table's evaluator agrees with DynamoDB's.
pub async fn conditions_have_dynamodb_s_meaning(table: &Table) {
    let item = row("a")
        .with("n", 10_i64)
        .with("s", "10")
        .with("t", Value::Ss(BTreeSet::from(["x".into(), "y".into()])));
    commit(&**table, [put(item)]).await;
    let compare = |name: &'static str, how, value: Value| Condition::compare(name, how, value);
    let cases = [
        (compare("n", Comparison::Greater, 9_i64.into()), true),
        (compare("n", Comparison::GreaterOrEqual, 10_i64.into()), true),
        (compare("n", Comparison::LessOrEqual, "9.99".parse::<Number>().expect("a number").into()), false),
        (compare("n", Comparison::Equal, "1e1".parse::<Number>().expect("a number").into()), true),
        (compare("n", Comparison::Equal, "10".into()), false),
        (compare("s", Comparison::Less, "9".into()), true),
        (compare("s", Comparison::Greater, 1_i64.into()), false),
        (compare("absent", Comparison::Less, 1_i64.into()), false),
        (compare("absent", Comparison::Equal, Value::Null), false),
        (compare("absent", Comparison::GreaterOrEqual, 0_i64.into()).not(), true),
        (Condition::equals("t", Value::Ss(BTreeSet::from(["y".into(), "x".into()]))), true),
        (Condition::HasKind("n".into(), Kind::N), true),
        (Condition::HasKind("n".into(), Kind::S), false),
        (Condition::HasKind("absent".into(), Kind::N), false),
        (Condition::exists("s").and(Condition::exists("absent")), false),
        (Condition::exists("s").or(Condition::exists("absent")), true),
        (Condition::exists("absent").not().and(Condition::equals("s", "10")), true),
    ];
    for (condition, expected) in cases {
        let check = [Op::check(key("a"), condition.clone())];
        let held = matches!(run(&**table, check).await, TransactResult::Committed(_));
        assert_eq!(held, expected, "{condition:?}");
    }
}

/// No number loses a digit, neither kept nor compared nor added.
pub async fn numbers_keep_38_digits(table: &Table) {
    let long: Number = "12345678901234567890123456789012345678".parse().expect("a number");
    commit(&**table, [put(row("a").with("n", long))]).await;
    let longer: Number = "12345678901234567890123456789012345679".parse().expect("a number");
    reject(&**table, [Op::check(key("a"), Condition::equals("n", longer))]).await;
    let added = commit(&**table, [Op::update(key("a"), Update::new().add("n", 1_u64))]).await;
    assert_eq!(added.row.and_then(|row| row.get("n").and_then(Value::as_n)), Some(longer));
}

/// An update that does not fit the row is an error, and changes nothing.
pub async fn adding_to_what_is_no_number_names_the_row(table: &Table) {
    commit(&**table, [put(row("a").with("n", "text"))]).await;
    let bad = Op::update(key("a"), Update::new().add("n", 1_u64));
    let error = table.transact(&transaction([put(row("b")), bad])).await.expect_err("it can't be added");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("row a of p"), "{error}");
    assert_eq!(get(&**table, "b").await, None);
}

/// 400 KB and not a byte more, also when an update makes it so.
pub async fn rows_up_to_the_limit_fit_and_larger_ones_are_refused(table: &Table) {
    let room = MAX_ITEM_BYTES - row("a").size() - 1;
    commit(&**table, [put(row("a").with("x", "y".repeat(room)))]).await;
    assert_eq!(get(&**table, "a").await.map(|item| item.size()), Some(MAX_ITEM_BYTES));
    let grow = transaction([Op::update(key("a"), Update::new().set("z", "1"))]);
    let error = table.transact(&grow).await.expect_err("it is too large");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(get(&**table, "a").await.map(|item| item.size()), Some(MAX_ITEM_BYTES));
}

async fn fill(table: &dyn ItemTable, names: &[&str]) {
    for names in names.chunks(50) {
        commit(table, names.iter().map(|sk| put(row(sk)))).await;
    }
}

/// Rows of one partition, of one prefix, by sort key.
pub async fn a_query_gives_a_partition_in_order(table: &Table) {
    assert_eq!(query(&**table, &Query::new("p", "")).await, Page::default());
    fill(&**table, &["VER#2", "META", "VER#1", "LOCK", "VER#10", "VES"]).await;
    commit(&**table, [put(Item::new().with("pk", "p2").with("sk", "VER#0"))]).await;
    commit(&**table, [put(Item::new().with("pk", "o").with("sk", "VER#9"))]).await;
    let all = query(&**table, &Query::new("p", "")).await;
    assert_eq!(sks(&all.items), ["LOCK", "META", "VER#1", "VER#10", "VER#2", "VES"]);
    assert_eq!(sks(&query(&**table, &Query::new("p", "VER#")).await.items), ["VER#1", "VER#10", "VER#2"]);
    assert_eq!(
        sks(&query(&**table, &Query::new("p", "VER#").descending()).await.items),
        ["VER#2", "VER#10", "VER#1"]
    );
    assert_eq!(query(&**table, &Query::new("p", "NONE#")).await.items, []);
    assert_eq!(query(&**table, &Query::new("none", "")).await.items, []);
}

/// Pages of any size give every row once, in either direction, also when asked to go on from outside the prefix.
pub async fn a_query_pages_both_ways(table: &Table) {
    let names: Vec<String> = (0..23).map(|index| format!("VER#{index:02}")).collect();
    fill(&**table, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    fill(&**table, &["META", "ZZZ"]).await;
    for limit in [1, 2, 7, 22, 23, 24, 1000] {
        let up = Query::new("p", "VER#").limit(limit);
        let down = up.clone().descending();
        let found = table.query_all(up, 100).await.expect("the table works");
        assert_eq!(sks(&found), names, "{limit}");
        let found = table.query_all(down, 100).await.expect("the table works");
        assert_eq!(sks(&found), names.iter().rev().collect::<Vec<_>>(), "{limit}");
    }
    let after = |sk: &str, query: Query| Query { after: Some(sk.into()), ..query };
    let (up, down) = (Query::new("p", "VER#"), Query::new("p", "VER#").descending());
    for (query_from, expected) in [
        (after("VER#21", up.clone()), vec!["VER#22"]),
        (after("VER#215", up.clone()), vec!["VER#22"]),
        (after("VER#01", down.clone()), vec!["VER#00"]),
        (after("VER#005", down.clone()), vec!["VER#00"]),
        (after("VER#22", up.clone()), vec![]),
        (after("ZZZ", up.clone()), vec![]),
        (after("A", down.clone()), vec![]),
        (after("VER#", down.clone()), vec![]),
    ] {
        assert_eq!(sks(&query(&**table, &query_from).await.items), expected, "{query_from:?}");
    }
    assert_eq!(query(&**table, &after("A", up)).await.items.len(), 23);
    assert_eq!(query(&**table, &after("ZZZ", down)).await.items.len(), 23);
}

/// The order is that of the UTF-8 bytes, for keys of any length that a row may have.
pub async fn a_query_of_odd_and_long_keys_is_in_order(table: &Table) {
    let long = "k".repeat(400);
    let mut names: Vec<String> =
        ["a", "a\0", "a\u{1}", "ab", "A", "ü", "\u{10FFFF}", "~", "%", "#"].map(String::from).to_vec();
    names.extend((0..30).map(|index| format!("{long}{:02}", (index * 7) % 30)));
    names.extend(["k".repeat(340), "k".repeat(339), "k".repeat(341), format!("{long}{}", "x".repeat(624))]);
    for pk in ["p".to_string(), "p".repeat(2048)] {
        let items = names.iter().map(|sk| Item::new().with("pk", pk.as_str()).with("sk", sk.as_str()));
        commit(&**table, items.map(put)).await;
        let mut sorted = names.clone();
        sorted.sort();
        for limit in [1, 3, 100] {
            let up = Query::new(pk.as_str(), "").limit(limit);
            let found = table.query_all(up.clone(), 1000).await.expect("the table works");
            assert_eq!(sks(&found), sorted, "{limit}");
            let found = table.query_all(up.descending(), 1000).await.expect("the table works");
            assert_eq!(sks(&found), sorted.iter().rev().collect::<Vec<_>>(), "{limit}");
        }
        let found = table
            .query_all(Query::new(pk.as_str(), format!("{long}1")).limit(3), 1000)
            .await
            .expect("the table works");
        assert_eq!(found.len(), 10);
        let key = RowKey::new(pk.as_str(), format!("{long}07")).expect("a valid key");
        assert!(table.get(&key, Consistency::Strong).await.expect("the table works").is_some());
    }
}

/// A query that no backend could answer is refused by all.
pub async fn a_query_s_limits_are_checked(table: &Table) {
    for bad in [
        Query::new("p", "").limit(0),
        Query::new("p", "").limit(1001),
        Query::new("", ""),
        Query::new("p".repeat(2049), ""),
        Query::new("p", "s".repeat(1025)),
    ] {
        let error = table.query(&bad).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

/// Where a table has a change counter, every commit moves it.
pub async fn a_commit_changes_the_change_counter(table: &Table) {
    let Some(before) = table.change_counter() else { return };
    commit(&**table, [put(row("a"))]).await;
    let after = table.change_counter();
    assert_ne!(after, Some(before));
    get(&**table, "a").await;
    assert_eq!(table.change_counter(), after, "a read is no change");
}

/// No addition is lost, and each gets a number of its own.
pub async fn concurrent_additions_all_count(table: &Table) {
    let shared = table.shared();
    let numbers = in_threads(8, move |_| {
        let table = shared.clone();
        async move {
            let mut numbers = Vec::new();
            for _ in 0..25 {
                let committed = commit(&*table, [Op::update(key("n"), Update::new().add("n", 1_u64))]).await;
                numbers.extend(committed.row.and_then(|row| row.get("n").and_then(Value::as_n)?.to_u64()));
            }
            numbers
        }
    });
    let mut numbers: Vec<u64> = numbers.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=200).collect::<Vec<u64>>());
}

/// Of many who put a row that must not be there, one does.
pub async fn concurrent_conditional_puts_have_one_winner(table: &Table) {
    for round in 0..20 {
        let shared = table.shared();
        let won = in_threads(4, move |index| {
            let table = shared.clone();
            async move {
                let sk = format!("{round}");
                let op = put(row(&sk).with("by", index as u64)).when(Condition::row_absent());
                let won = matches!(run(&*table, [op]).await, TransactResult::Committed(_));
                won.then_some(index as u64)
            }
        });
        let winners: Vec<u64> = won.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        let found = get(&**table, &round.to_string()).await.and_then(|row| row.get("by").cloned());
        assert_eq!(found, Some(winners[0].into()));
    }
}

/// Transactions over two rows, from many threads: what one loses the other gains, and none goes below zero.
pub async fn concurrent_transfers_keep_the_sum(table: &Table) {
    commit(&**table, [put(row("a").with("n", 50_i64)), put(row("b").with("n", 50_i64))]).await;
    let shared = table.shared();
    in_threads(4, move |index| {
        let table = shared.clone();
        async move {
            let (from, to) = if index % 2 == 0 { ("a", "b") } else { ("b", "a") };
            for _ in 0..50 {
                let enough = Condition::compare("n", Comparison::GreaterOrEqual, 7_i64);
                let take = Op::update(key(from), Update::new().add("n", Number::from(-7_i64))).when(enough);
                run(&*table, [take, Op::update(key(to), Update::new().add("n", 7_u64))]).await;
            }
        }
    });
    let mut sum = 0;
    for sk in ["a", "b"] {
        let n = get(&**table, sk)
            .await
            .and_then(|row| row.get("n").and_then(Value::as_n))
            .map_or(-1, Number::floor);
        assert!(n >= 0, "{sk} {n}");
        sum += n;
    }
    assert_eq!(sum, 100);
}
