//! Transactions: up to 100 conditional writes that happen together or not at all.
//!
//! The constructor refuses what the strictest backend refuses, so that no backend accepts what another rejects.
//! [`Transaction::evaluate`] is the one place where a transaction meets rows, for every backend that has them at
//! hand; DynamoDB does the same on its side.

use crate::digest::sha256_parts;
use crate::expr::{Condition, ExprError, Update, UpdateError, validate_attribute};
use crate::item::{Item, MAX_ITEM_BYTES};
use crate::key::{KeyError, LeaseToken, RowKey};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// The most operations in one transaction.
pub const MAX_OPERATIONS: usize = 100;
/// The longest token of a transaction.
pub const MAX_TOKEN_BYTES: usize = 36;
/// The most bytes of all items in one transaction.
pub const MAX_TRANSACTION_BYTES: usize = 4 * 1024 * 1024;

/// One operation on one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    key: RowKey,
    condition: Option<Condition>,
    kind: OpKind,
}

/// What an operation does once its condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpKind {
    /// Replaces the whole row.
    Put(Item),
    /// Changes a row, and makes it when it is not there.
    Update(Update),
    /// Removes the row; removing nothing is fine.
    Delete,
    /// Does nothing beyond checking the condition.
    Check,
}

impl Op {
    /// Replaces a row by this item, which names its own key.
    pub fn put(item: Item) -> Result<Self, TransactionError> {
        let part = |name: &'static str| {
            let value = item.get(name).ok_or(TransactionError::NoKey(name))?;
            value.as_s().map(String::from).ok_or(TransactionError::NoKey(name))
        };
        let key = RowKey::new(part("pk")?, part("sk")?)?;
        Ok(Self { key, condition: None, kind: OpKind::Put(item) })
    }

    /// Changes a row, and makes it when it is not there.
    pub fn update(key: RowKey, update: Update) -> Self {
        Self { key, condition: None, kind: OpKind::Update(update) }
    }

    /// Removes a row.
    pub fn delete(key: RowKey) -> Self {
        Self { key, condition: None, kind: OpKind::Delete }
    }

    /// Only checks a row.
    pub fn check(key: RowKey, condition: Condition) -> Self {
        Self { key, condition: Some(condition), kind: OpKind::Check }
    }

    /// The operation happens only if this holds.
    #[must_use]
    pub fn when(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// The row.
    pub fn key(&self) -> &RowKey {
        &self.key
    }

    /// What must hold of the row.
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }

    /// What it does.
    pub fn kind(&self) -> &OpKind {
        &self.kind
    }

    fn validate(&self) -> Result<usize, TransactionError> {
        let invalid = |source| TransactionError::Expression { row: self.key.clone(), source };
        self.condition.as_ref().map_or(Ok(()), Condition::validate).map_err(invalid)?;
        match &self.kind {
            OpKind::Put(item) => {
                for (name, value) in item.iter() {
                    validate_attribute(&String::from(name).into(), value).map_err(invalid)?;
                }
                check_size(&self.key, item.size())
            }
            OpKind::Update(update) => {
                update.validate().map_err(invalid)?;
                let set = update.actions().map(|(name, action)| match action {
                    crate::expr::Action::Set(value) => name.len() + value.size(),
                    _ => name.len(),
                });
                check_size(&self.key, set.sum())
            }
            OpKind::Delete | OpKind::Check => Ok(0),
        }
    }
}

fn check_size(row: &RowKey, bytes: usize) -> Result<usize, TransactionError> {
    if bytes > MAX_ITEM_BYTES {
        return Err(TransactionError::ItemTooLarge { row: row.clone(), bytes });
    }
    Ok(bytes)
}

/// Why a transaction can't be made, or can't be applied to the rows that it met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// No operation.
    #[error("a transaction needs at least one operation")]
    Empty,
    /// More than [`MAX_OPERATIONS`].
    #[error("a transaction takes at most {MAX_OPERATIONS} operations, not {0}; split it")]
    TooMany(usize),
    /// More than [`MAX_TRANSACTION_BYTES`].
    #[error("a transaction takes at most {MAX_TRANSACTION_BYTES} bytes, not {0}; split it")]
    TooLarge(usize),
    /// Two operations on one row, which DynamoDB refuses.
    #[error("row {0} occurs twice; a transaction may touch a row only once")]
    SameRow(RowKey),
    /// An item without a string `pk` or `sk`.
    #[error("an item to put has no string attribute `{0}`")]
    NoKey(&'static str),
    /// A key outside of the limits.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A row beyond [`MAX_ITEM_BYTES`].
    #[error("row {row} would have {bytes} bytes; at most {MAX_ITEM_BYTES} are allowed")]
    ItemTooLarge {
        /// The row.
        row: RowKey,
        /// Its size in bytes.
        bytes: usize,
    },
    /// A condition or an update that is not valid.
    #[error("row {row}: {source}")]
    Expression {
        /// The row.
        row: RowKey,
        /// What is wrong.
        source: ExprError,
    },
    /// An update that does not fit the row that it met.
    #[error("row {row}: {source}; {}", row.repair())]
    Update {
        /// The row.
        row: RowKey,
        /// What is wrong.
        source: UpdateError,
    },
}

/// Up to [`MAX_OPERATIONS`] operations on different rows that happen together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    ops: Vec<Op>,
    token: Option<String>,
}

impl Transaction {
    /// Checks the operations against DynamoDB's limits.
    pub fn new(ops: Vec<Op>) -> Result<Self, TransactionError> {
        if ops.is_empty() {
            return Err(TransactionError::Empty);
        }
        if ops.len() > MAX_OPERATIONS {
            return Err(TransactionError::TooMany(ops.len()));
        }
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for op in &ops {
            bytes += op.validate()?;
            if !seen.insert(&op.key) {
                return Err(TransactionError::SameRow(op.key.clone()));
            }
        }
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(TransactionError::TooLarge(bytes));
        }
        Ok(Self { ops, token: None })
    }

    /// Names the attempt that this transaction belongs to and its part in it. Whoever runs the same recipe again after a
    /// lost answer sends the same token, and a table that answers over a network (DynamoDB's `ClientRequestToken`)
    /// then runs it once, also when the first request arrives after the second. The same token goes with the same
    /// contents: run the same recipe again, not one with another time.
    #[must_use]
    pub(crate) fn once(self, part: &str, attempt: &LeaseToken) -> Self {
        let mut token = sha256_parts([part, attempt.as_str()]);
        token.truncate(MAX_TOKEN_BYTES);
        Self { token: Some(token), ..self }
    }

    /// The token that makes it happen once, if it belongs to an attempt.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// A transaction of one operation.
    pub fn single(op: Op) -> Result<Self, TransactionError> {
        Self::new(alloc::vec![op])
    }

    /// The operations, in the order given.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// What the transaction does to the rows as they are now; `row` gives each, and is asked once for each key.
    ///
    /// Every failed condition is reported, not only the first. An error of `row` is passed on.
    pub fn evaluate<E: From<TransactionError>>(
        &self,
        mut row: impl FnMut(&RowKey) -> Result<Option<Item>, E>,
    ) -> Result<Evaluation, E> {
        let mut failures = Vec::new();
        let mut rows = Vec::with_capacity(self.ops.len());
        for (index, op) in self.ops.iter().enumerate() {
            let found = if op.condition.is_some() || matches!(op.kind, OpKind::Update(_)) {
                row(&op.key)?
            } else {
                None
            };
            if op.condition.as_ref().is_some_and(|condition| !condition.holds(found.as_ref())) {
                failures.push(Failure { op: index, row: found });
            } else {
                rows.push(found);
            }
        }
        if !failures.is_empty() {
            return Ok(Evaluation::Reject(Rejected { failures }));
        }
        let writes = self.ops.iter().zip(rows).filter_map(|(op, row)| op.write(row).transpose());
        Ok(Evaluation::Commit(writes.collect::<Result<_, _>>()?))
    }
}

impl Op {
    /// What is written once all conditions hold.
    fn write(&self, row: Option<Item>) -> Result<Option<Write>, TransactionError> {
        Ok(match &self.kind {
            OpKind::Put(item) => Some(Write { key: self.key.clone(), row: Some(item.clone()) }),
            OpKind::Delete => Some(Write { key: self.key.clone(), row: None }),
            OpKind::Check => None,
            OpKind::Update(update) => {
                let mut item =
                    row.unwrap_or_else(|| Item::new().with("pk", self.key.pk()).with("sk", self.key.sk()));
                update
                    .apply(&mut item)
                    .map_err(|source| TransactionError::Update { row: self.key.clone(), source })?;
                check_size(&self.key, item.size())?;
                Some(Write { key: self.key.clone(), row: Some(item) })
            }
        })
    }
}

/// What a transaction comes to, given the rows as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluation {
    /// Every condition holds; these rows change.
    Commit(Vec<Write>),
    /// At least one condition does not hold; nothing changes.
    Reject(Rejected),
}

/// A row's new content, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The row.
    pub key: RowKey,
    /// What it becomes; `None` removes it.
    pub row: Option<Item>,
}

/// The answer to a transaction. That it was rejected is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactResult {
    /// All of it happened.
    Committed(Committed),
    /// None of it happened: some condition did not hold.
    Rejected(Rejected),
}

/// All of it happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// The row as it is now, when the transaction was a single update; `None` for any other. (DynamoDB returns
    /// rows from `UpdateItem`, not from transactions.)
    pub row: Option<Item>,
}

/// None of it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The operations whose conditions did not hold, at least one.
    pub failures: Vec<Failure>,
}

/// An operation whose condition did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation's place in the transaction.
    pub op: usize,
    /// The row that its condition met; `None` when there was none.
    pub row: Option<Item>,
}

impl Rejected {
    /// The failure of this operation, if it is among those that failed.
    pub fn of(&self, op: usize) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.op == op)
    }
}

impl Evaluation {
    /// The writes and the answer, as a backend needs them.
    pub fn into_writes(self, transaction: &Transaction) -> Result<(Vec<Write>, Committed), Rejected> {
        match self {
            Self::Reject(rejected) => Err(rejected),
            Self::Commit(writes) => {
                let row = match transaction.ops() {
                    [Op { kind: OpKind::Update(_), .. }] => writes[0].row.clone(),
                    _ => None,
                };
                Ok((writes, Committed { row }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Value;
    use alloc::string::ToString;
    use alloc::vec;

    fn key(sk: &str) -> RowKey {
        RowKey::new("p", sk).unwrap()
    }

    fn key_of(item: &Item) -> RowKey {
        key(item.get("sk").and_then(Value::as_s).unwrap())
    }

    fn evaluate(transaction: &Transaction, rows: &[Item]) -> Result<Evaluation, TransactionError> {
        transaction.evaluate(|key| Ok(rows.iter().find(|row| key_of(row) == *key).cloned()))
    }

    fn row(sk: &str, n: i64) -> Item {
        Item::new().with("pk", "p").with("sk", sk).with("n", n)
    }

    #[test]
    fn two_operations_on_one_item_are_refused() {
        let check = Op::check(key("LOCK"), Condition::row_exists());
        let refused = Transaction::new(vec![check, Op::delete(key("LOCK"))]);
        assert_eq!(refused, Err(TransactionError::SameRow(key("LOCK"))));
    }

    #[test]
    fn limits_are_dynamodb_s() {
        assert_eq!(Transaction::new(vec![]), Err(TransactionError::Empty));
        let many = |n: usize| (0..n).map(|i| Op::delete(key(&i.to_string()))).collect();
        assert!(Transaction::new(many(100)).is_ok());
        assert_eq!(Transaction::new(many(101)), Err(TransactionError::TooMany(101)));
        let big = |sk: &str, bytes: usize| Op::put(row(sk, 1).with("b", "x".repeat(bytes))).unwrap();
        assert!(matches!(
            Transaction::single(big("a", MAX_ITEM_BYTES)),
            Err(TransactionError::ItemTooLarge { .. })
        ));
        let large = (0..11).map(|i| big(&i.to_string(), 400_000)).collect();
        assert!(matches!(Transaction::new(large), Err(TransactionError::TooLarge(_))));
        assert_eq!(Op::put(Item::new().with("pk", "p")), Err(TransactionError::NoKey("sk")));
        assert_eq!(Op::put(Item::new().with("pk", 1_i64)), Err(TransactionError::NoKey("pk")));
    }

    #[test]
    fn an_update_that_would_outgrow_the_row_is_refused() {
        let update = Op::update(key("a"), Update::new().set("more", "x".repeat(300_000)));
        let rows = [row("a", 1).with("b", "x".repeat(200_000))];
        let result = evaluate(&Transaction::single(update).unwrap(), &rows);
        assert!(matches!(result, Err(TransactionError::ItemTooLarge { .. })));
    }

    #[test]
    fn all_or_nothing_and_every_failure_is_reported_with_its_row() {
        let transaction = Transaction::new(vec![
            Op::put(row("a", 2)).unwrap(),
            Op::update(key("b"), Update::new().add("n", 1_u64)).when(Condition::equals("n", 7_i64)),
            Op::delete(key("c")).when(Condition::row_exists()),
        ])
        .unwrap();
        let rejected = Rejected {
            failures: vec![Failure { op: 1, row: Some(row("b", 1)) }, Failure { op: 2, row: None }],
        };
        assert_eq!(evaluate(&transaction, &[row("b", 1)]), Ok(Evaluation::Reject(rejected)));

        let committed = evaluate(&transaction, &[row("b", 7), row("c", 1)]).unwrap();
        let Evaluation::Commit(writes) = committed else { panic!("{committed:?}") };
        let rows: Vec<_> = writes.into_iter().map(|write| write.row).collect();
        assert_eq!(rows, [Some(row("a", 2)), Some(row("b", 8)), None]);
    }

    #[test]
    fn rule_07_an_attempt_s_transaction_has_one_token() {
        let (one, other) = (LeaseToken::from_random([1; 16]), LeaseToken::from_random([2; 16]));
        let token = |part, attempt| {
            let plain = Transaction::single(Op::delete(key("a"))).unwrap();
            assert_eq!(plain.token(), None);
            plain.once(part, attempt).token().unwrap().to_string()
        };
        assert_eq!(token("publish", &one), token("publish", &one));
        assert_ne!(token("publish", &one), token("acquire", &one));
        assert_ne!(token("publish", &one), token("publish", &other));
        assert_eq!(token("publish", &one).len(), MAX_TOKEN_BYTES);
    }

    #[test]
    fn an_update_makes_the_row_it_does_not_find() {
        let transaction = Transaction::single(Op::update(key("a"), Update::new().add("n", 3_u64))).unwrap();
        let (_, committed) = evaluate(&transaction, &[]).unwrap().into_writes(&transaction).unwrap();
        assert_eq!(committed.row, Some(row("a", 3)));
    }
}
