//! Conditions and updates as values, and the one evaluator of both.
//!
//! The semantics are DynamoDB's: a missing attribute makes every comparison false, numbers compare by value, and
//! values of different kinds are never equal nor ordered. There is no "not equal": DynamoDB calls it true for a
//! missing attribute, which surprises; write [`Condition::not`] of [`Condition::equals`] and mean it.

use crate::item::{Item, Kind, Name, Value, ValueError};
use crate::number::{Number, NumberError};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// What must hold of a row, or of its absence, for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The attribute is there, whatever its value.
    Exists(Name),
    /// The attribute is there and is of this kind.
    HasKind(Name, Kind),
    /// The attribute is there and compares so with the value.
    Compare(Name, Comparison, Value),
    /// All of them hold.
    All(Vec<Condition>),
    /// At least one of them holds.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
}

/// How an attribute is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The same kind and value.
    Equal,
    /// Below the value; strings, numbers and bytes only.
    Less,
    /// Not above the value; strings, numbers and bytes only.
    LessOrEqual,
    /// Above the value; strings, numbers and bytes only.
    Greater,
    /// Not below the value; strings, numbers and bytes only.
    GreaterOrEqual,
}

/// Why a condition or an update is not a valid one, whatever row it meets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// An attribute without a name.
    #[error("an attribute name is empty")]
    EmptyName,
    /// An attribute name beyond DynamoDB's limit.
    #[error("an attribute name has {0} bytes; at most 65,535 are allowed")]
    LongName(usize),
    /// An order asked of a kind that has none.
    #[error("`{name}` is compared by order with a value of kind {}, which has none", kind.name())]
    Unordered {
        /// The attribute.
        name: String,
        /// The kind of the value.
        kind: Kind,
    },
    /// `All` or `Any` of nothing.
    #[error("a list of conditions is empty")]
    EmptyList,
    /// One attribute named twice in an update.
    #[error("`{0}` is changed twice in one update")]
    Twice(String),
    /// An update of `pk` or `sk`.
    #[error("`{0}` is part of the row's key and can't be changed")]
    KeyAttribute(String),
    /// A value that no row may hold.
    #[error("the value of `{name}`: {source}")]
    Value {
        /// The attribute.
        name: String,
        /// What is wrong with the value.
        source: ValueError,
    },
    /// More operators than DynamoDB takes in one expression.
    #[error("a condition or an update has more than {MAX_OPERATORS} operators")]
    TooComplex,
    /// An update that changes nothing, which DynamoDB refuses in a transaction.
    #[error("an update changes nothing")]
    EmptyUpdate,
}

/// The most operators in one condition, and actions in one update: what fits into DynamoDB's 4 KB of expression, with
/// room for every placeholder.
pub const MAX_OPERATORS: usize = 100;

impl Condition {
    /// The row is there. (Every row has a `pk`.)
    pub fn row_exists() -> Self {
        Self::Exists("pk".into())
    }

    /// The row is not there.
    pub fn row_absent() -> Self {
        Self::not(Self::row_exists())
    }

    /// The attribute is there.
    pub fn exists(name: impl Into<Name>) -> Self {
        Self::Exists(name.into())
    }

    /// The attribute has this value.
    pub fn equals(name: impl Into<Name>, value: impl Into<Value>) -> Self {
        Self::Compare(name.into(), Comparison::Equal, value.into())
    }

    /// The attribute compares so with the value.
    pub fn compare(name: impl Into<Name>, comparison: Comparison, value: impl Into<Value>) -> Self {
        Self::Compare(name.into(), comparison, value.into())
    }

    /// Both hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::All(mut all) => {
                all.push(other);
                Self::All(all)
            }
            one => Self::All(alloc::vec![one, other]),
        }
    }

    /// At least one holds.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Any(mut any) => {
                any.push(other);
                Self::Any(any)
            }
            one => Self::Any(alloc::vec![one, other]),
        }
    }

    /// It does not hold.
    #[allow(clippy::should_implement_trait, reason = "it reads as DynamoDB's NOT, beside `and` and `or`")]
    pub fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Whether the condition holds of a row, or of its absence.
    pub fn holds(&self, row: Option<&Item>) -> bool {
        let attribute = |name: &Name| row.and_then(|row| row.get(name));
        match self {
            Self::Exists(name) => attribute(name).is_some(),
            Self::HasKind(name, kind) => attribute(name).is_some_and(|value| value.kind() == *kind),
            Self::Compare(name, how, value) => {
                attribute(name).is_some_and(|found| compares(found, *how, value))
            }
            Self::All(conditions) => conditions.iter().all(|c| c.holds(row)),
            Self::Any(conditions) => conditions.iter().any(|c| c.holds(row)),
            Self::Not(condition) => !condition.holds(row),
        }
    }

    /// Checks what every backend refuses, whatever row the condition would meet.
    pub fn validate(&self) -> Result<(), ExprError> {
        let mut operators = 0;
        self.validate_counting(&mut operators)
    }

    fn validate_counting(&self, operators: &mut usize) -> Result<(), ExprError> {
        *operators += 1;
        if *operators > MAX_OPERATORS {
            return Err(ExprError::TooComplex);
        }
        match self {
            Self::Exists(name) | Self::HasKind(name, _) => validate_name(name),
            Self::Compare(name, how, value) => {
                validate_attribute(name, value)?;
                let ordered = matches!(value.kind(), Kind::S | Kind::N | Kind::B);
                if *how != Comparison::Equal && !ordered {
                    return Err(ExprError::Unordered { name: name.as_ref().into(), kind: value.kind() });
                }
                Ok(())
            }
            Self::All(conditions) | Self::Any(conditions) if conditions.is_empty() => {
                Err(ExprError::EmptyList)
            }
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().try_for_each(|c| c.validate_counting(operators))
            }
            Self::Not(condition) => condition.validate_counting(operators),
        }
    }
}

/// Compares two values; false when they are of different kinds.
fn compares(found: &Value, how: Comparison, value: &Value) -> bool {
    let order = match (found, value) {
        (Value::S(a), Value::S(b)) => a.cmp(b),
        (Value::N(a), Value::N(b)) => a.cmp(b),
        (Value::B(a), Value::B(b)) => a.cmp(b),
        _ => return how == Comparison::Equal && found == value,
    };
    match how {
        Comparison::Equal => order.is_eq(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn validate_name(name: &Name) -> Result<(), ExprError> {
    match name.len() {
        0 => Err(ExprError::EmptyName),
        length @ 65_536.. => Err(ExprError::LongName(length)),
        _ => Ok(()),
    }
}

/// Checks an attribute's name and its value.
pub(crate) fn validate_attribute(name: &Name, value: &Value) -> Result<(), ExprError> {
    validate_name(name)?;
    value.validate().map_err(|source| ExprError::Value { name: name.as_ref().into(), source })
}

/// How a row changes: attributes are set, removed or counted up; all others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    actions: Vec<(Name, Action)>,
}

/// What happens to one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It gets this value.
    Set(Value),
    /// It goes.
    Remove,
    /// The number is added to it; a missing attribute counts as zero.
    Add(Number),
}

/// Why an update can't be applied to the row that it met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Adding to something that is not a number.
    #[error("`{name}` is of kind {}, and only a number (N) can be added to", kind.name())]
    NotANumber {
        /// The attribute.
        name: String,
        /// The kind that it has.
        kind: Kind,
    },
    /// The sum is out of range.
    #[error("`{name}`: {source}")]
    Number {
        /// The attribute.
        name: String,
        /// What is wrong with the sum.
        source: NumberError,
    },
}

impl Update {
    /// An update that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an attribute.
    #[must_use]
    pub fn set(mut self, name: impl Into<Name>, value: impl Into<Value>) -> Self {
        self.actions.push((name.into(), Action::Set(value.into())));
        self
    }

    /// Sets an attribute when there is a value for it, and removes it when there is none.
    #[must_use]
    pub fn set_or_remove(self, name: impl Into<Name>, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self.remove(name),
        }
    }

    /// Removes an attribute.
    #[must_use]
    pub fn remove(mut self, name: impl Into<Name>) -> Self {
        self.actions.push((name.into(), Action::Remove));
        self
    }

    /// Adds to a number.
    #[must_use]
    pub fn add(mut self, name: impl Into<Name>, number: impl Into<Number>) -> Self {
        self.actions.push((name.into(), Action::Add(number.into())));
        self
    }

    /// What happens to which attribute, in the order given.
    pub fn actions(&self) -> impl ExactSizeIterator<Item = (&str, &Action)> {
        self.actions.iter().map(|(name, action)| (name.as_ref(), action))
    }

    /// Changes a row.
    pub fn apply(&self, row: &mut Item) -> Result<(), UpdateError> {
        for (name, action) in &self.actions {
            match action {
                Action::Set(value) => drop(row.insert(name.clone(), value.clone())),
                Action::Remove => drop(row.remove(name)),
                Action::Add(number) => {
                    let sum = add(name, row.get(name), *number)?;
                    row.insert(name.clone(), sum);
                }
            }
        }
        Ok(())
    }

    /// Checks what every backend refuses, whatever row the update would meet.
    pub fn validate(&self) -> Result<(), ExprError> {
        match self.actions.len() {
            0 => return Err(ExprError::EmptyUpdate),
            1..=MAX_OPERATORS => {}
            _ => return Err(ExprError::TooComplex),
        }
        for (index, (name, action)) in self.actions.iter().enumerate() {
            validate_name(name)?;
            if matches!(name.as_ref(), "pk" | "sk") {
                return Err(ExprError::KeyAttribute(name.as_ref().into()));
            }
            if self.actions[..index].iter().any(|(other, _)| other == name) {
                return Err(ExprError::Twice(name.as_ref().into()));
            }
            if let Action::Set(value) = action {
                validate_attribute(name, value)?;
            }
        }
        Ok(())
    }
}

/// The sum of an attribute, zero when missing, and a number.
fn add(name: &Name, found: Option<&Value>, number: Number) -> Result<Number, UpdateError> {
    let found = match found {
        None => Number::ZERO,
        Some(Value::N(found)) => *found,
        Some(other) => {
            return Err(UpdateError::NotANumber { name: name.as_ref().into(), kind: other.kind() });
        }
    };
    found.checked_add(number).map_err(|source| UpdateError::Number { name: name.as_ref().into(), source })
}

#[cfg(test)]
mod tests;
