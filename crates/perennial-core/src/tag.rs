//! Invalidating a tag: one counter update and one row, however many pages carry it, and no clock.
//!
//! [`Advance`] the tenant's counter, which gives a number; [`Raise`] the tag's row to it; then acknowledge. A
//! generation records the counter as it was before it began, so it is stale iff one of its tags has a larger number.

use crate::expr::{Comparison, Condition, Update};
use crate::key::{Tag, Tenant, counter_row, tag_row};
use crate::schema::{Row, RowError, Sequence, attr};
use crate::transaction::{Op, TransactResult, Transaction};
use crate::{Recipe, RecipeError};

/// Advances a tenant's counter by one. The outcome is the new number; a lost answer costs a number, nothing else.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The tenant, or none.
    pub tenant: Option<Tenant>,
}

impl Recipe for Advance {
    type Outcome = u64;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let update = Update::new().add(attr::SEQUENCE, 1_u64);
        Ok(Transaction::single(Op::update(counter_row(self.tenant.as_ref()), update))?)
    }

    fn outcome(&self, result: TransactResult) -> Result<u64, RecipeError> {
        let row = match result {
            TransactResult::Committed(committed) => committed.row,
            TransactResult::Rejected(_) => None,
        };
        let key = counter_row(self.tenant.as_ref());
        let row =
            row.ok_or_else(|| RowError::new(&key, "the table did not return the row after its update"))?;
        Ok(Sequence::from_item(row)?.sequence)
    }
}

/// Raises a tag's row to a number, never lowers it.
#[derive(Debug, Clone)]
pub struct Raise {
    /// The tenant, or none.
    pub tenant: Option<Tenant>,
    /// The tag.
    pub tag: Tag,
    /// The number that [`Advance`] gave.
    pub to: u64,
}

/// What came of raising a tag's row. Either way nothing made before is fresh any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// It has the number.
    Done,
    /// A later invalidation of the tag, or this one before its answer was lost, had set it already.
    AlreadyThere,
}

impl Recipe for Raise {
    type Outcome = Raised;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let update = Update::new().set(attr::SEQUENCE, self.to).set(attr::TAG, self.tag.as_str());
        let higher = Condition::compare(attr::SEQUENCE, Comparison::GreaterOrEqual, self.to);
        let op = Op::update(tag_row(self.tenant.as_ref(), &self.tag), update).when(higher.not());
        Ok(Transaction::single(op)?)
    }

    fn outcome(&self, result: TransactResult) -> Result<Raised, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => Raised::Done,
            TransactResult::Rejected(_) => Raised::AlreadyThere,
        })
    }
}
