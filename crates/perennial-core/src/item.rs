//! Attribute values and items, as DynamoDB knows them.

use crate::number::Number;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The largest item, names and values counted, in bytes (400 KB).
pub const MAX_ITEM_BYTES: usize = 400 * 1024;
/// The deepest nesting of lists and maps.
pub const MAX_DEPTH: usize = 32;

/// One attribute's value.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// A string.
    S(String),
    /// A number.
    N(Number),
    /// Bytes.
    B(Vec<u8>),
    /// True or false.
    Bool(bool),
    /// The null value.
    Null,
    /// A list of values of any kind.
    L(Vec<Value>),
    /// A map from names to values of any kind.
    M(BTreeMap<String, Value>),
    /// A set of strings, never empty.
    Ss(BTreeSet<String>),
    /// A set of numbers, never empty.
    Ns(BTreeSet<Number>),
    /// A set of byte strings, never empty.
    Bs(BTreeSet<Vec<u8>>),
}

/// The kind of a value, by DynamoDB's short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are DynamoDB's and stand for themselves")]
pub enum Kind {
    S,
    N,
    B,
    Bool,
    Null,
    L,
    M,
    Ss,
    Ns,
    Bs,
}

impl Kind {
    /// DynamoDB's name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::N => "N",
            Self::B => "B",
            Self::Bool => "BOOL",
            Self::Null => "NULL",
            Self::L => "L",
            Self::M => "M",
            Self::Ss => "SS",
            Self::Ns => "NS",
            Self::Bs => "BS",
        }
    }
}

/// Why a value can't be part of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A set without members.
    #[error("a set may not be empty; leave the attribute out instead")]
    EmptySet,
    /// Nesting beyond [`MAX_DEPTH`].
    #[error("values may be nested at most {MAX_DEPTH} deep")]
    TooDeep,
}

impl Value {
    /// The kind of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::S(_) => Kind::S,
            Self::N(_) => Kind::N,
            Self::B(_) => Kind::B,
            Self::Bool(_) => Kind::Bool,
            Self::Null => Kind::Null,
            Self::L(_) => Kind::L,
            Self::M(_) => Kind::M,
            Self::Ss(_) => Kind::Ss,
            Self::Ns(_) => Kind::Ns,
            Self::Bs(_) => Kind::Bs,
        }
    }

    /// The text of a string value.
    pub fn as_s(&self) -> Option<&str> {
        if let Self::S(text) = self { Some(text) } else { None }
    }

    /// The number of a number value.
    pub fn as_n(&self) -> Option<Number> {
        if let Self::N(number) = self { Some(*number) } else { None }
    }

    /// The bytes that DynamoDB counts for the value.
    pub fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.size(),
            Self::B(bytes) => bytes.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::L(values) => 3 + values.iter().map(|v| 1 + v.size()).sum::<usize>(),
            Self::M(map) => 3 + map.iter().map(|(name, v)| 1 + name.len() + v.size()).sum::<usize>(),
            Self::Ss(set) => set.iter().map(String::len).sum(),
            Self::Ns(set) => set.iter().map(|n| n.size()).sum(),
            Self::Bs(set) => set.iter().map(Vec::len).sum(),
        }
    }

    /// Checks what the types alone can't: no empty set, no nesting beyond the limit.
    pub fn validate(&self) -> Result<(), ValueError> {
        self.validate_at(0)
    }

    fn validate_at(&self, depth: usize) -> Result<(), ValueError> {
        if depth > MAX_DEPTH {
            return Err(ValueError::TooDeep);
        }
        let empty = match self {
            Self::Ss(set) => set.is_empty(),
            Self::Ns(set) => set.is_empty(),
            Self::Bs(set) => set.is_empty(),
            Self::L(values) => return values.iter().try_for_each(|v| v.validate_at(depth + 1)),
            Self::M(map) => return map.values().try_for_each(|v| v.validate_at(depth + 1)),
            _ => false,
        };
        if empty { Err(ValueError::EmptySet) } else { Ok(()) }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::S(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::S(text)
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::N(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::N(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::N(number.into())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S(text) => write!(f, "{text:?}"),
            Self::N(number) => write!(f, "{number}"),
            Self::B(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Null => f.write_str("null"),
            Self::L(values) => f.debug_list().entries(values).finish(),
            Self::M(map) => f.debug_map().entries(map).finish(),
            Self::Ss(set) => f.debug_set().entries(set).finish(),
            Self::Ns(set) => f.debug_set().entries(set).finish(),
            Self::Bs(set) => f.debug_set().entries(set).finish(),
        }
    }
}

/// An attribute's name; the names that this crate knows cost no allocation.
pub type Name = Cow<'static, str>;

/// A row: attributes by name, `pk` and `sk` among them.
///
/// A sorted vector rather than a tree: rows have a dozen attributes, and reading one is the hot path.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Item {
    attributes: Vec<(Name, Value)>,
}

impl Item {
    /// An item without attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// An item without attributes and with room for some.
    pub fn with_capacity(attributes: usize) -> Self {
        Self { attributes: Vec::with_capacity(attributes) }
    }

    /// An item of attributes that are in the order of their names, each name once. The caller has seen to that; it
    /// is checked in debug builds only.
    pub fn from_sorted(attributes: Vec<(Name, Value)>) -> Self {
        debug_assert!(attributes.is_sorted_by(|a, b| a.0 < b.0), "names are sorted and unique");
        Self { attributes }
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.attributes.binary_search_by(|(other, _)| other.as_ref().cmp(name))
    }

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).ok().map(|index| &self.attributes[index].1)
    }

    /// Sets an attribute and returns what was there.
    pub fn insert(&mut self, name: impl Into<Name>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        // Attributes mostly arrive in order, from a stored row.
        if self.attributes.last().is_none_or(|(last, _)| last.as_ref() < name.as_ref()) {
            self.attributes.push((name, value));
            return None;
        }
        match self.position(&name) {
            Ok(index) => Some(core::mem::replace(&mut self.attributes[index].1, value)),
            Err(index) => {
                self.attributes.insert(index, (name, value));
                None
            }
        }
    }

    /// [`Item::insert`], for building an item in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<Name>, value: impl Into<Value>) -> Self {
        self.insert(name, value);
        self
    }

    /// Removes an attribute and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.position(name).ok().map(|index| self.attributes.remove(index).1)
    }

    /// The attributes in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.attributes.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// How many attributes there are.
    pub fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The bytes that DynamoDB counts for the item.
    pub fn size(&self) -> usize {
        self.attributes.iter().map(|(name, value)| name.len() + value.size()).sum()
    }
}

impl IntoIterator for Item {
    type Item = (Name, Value);
    type IntoIter = alloc::vec::IntoIter<(Name, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.attributes.into_iter()
    }
}

impl<N: Into<Name>, V: Into<Value>> FromIterator<(N, V)> for Item {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(attributes: I) -> Self {
        let mut item = Self::new();
        for (name, value) in attributes {
            item.insert(name, value);
        }
        item
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn attributes_are_found_whatever_order_they_came_in() {
        let mut item = Item::new().with("m", "1").with("a", "2").with("z", "3");
        assert_eq!(item.insert("a", "4"), Some("2".into()));
        assert_eq!(item.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "m", "z"]);
        assert_eq!(item.get("a"), Some(&"4".into()));
        assert_eq!(item.remove("m"), Some("1".into()));
        assert_eq!((item.get("m"), item.len()), (None, 2));
    }

    #[test]
    fn sizes_follow_dynamodb() {
        let item = Item::new()
            .with("pk", "ab")
            .with("n", 123_i64)
            .with("l", Value::L(vec![Value::Null, "x".into()]));
        // pk+ab 4, n+3 (two digits a byte, and one) 4, l + list 3 + (1+1) + (1+1) = 8
        assert_eq!(item.size(), 4 + 4 + 8);
    }

    #[test]
    fn empty_sets_and_deep_nesting_are_refused() {
        assert_eq!(Value::Ss(BTreeSet::new()).validate(), Err(ValueError::EmptySet));
        assert_eq!(Value::L(vec![Value::Bs(BTreeSet::new())]).validate(), Err(ValueError::EmptySet));
        let nested = |depth| (0..depth).fold(Value::Null, |inner, _| Value::L(vec![inner]));
        assert_eq!(nested(MAX_DEPTH).validate(), Ok(()));
        assert_eq!(nested(MAX_DEPTH + 1).validate(), Err(ValueError::TooDeep));
    }
}
