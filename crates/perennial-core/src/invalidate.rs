//! Invalidating one entry, whatever its tags.

use crate::expr::{Condition, Update};
use crate::key::Entry;
use crate::schema::{Window, attr};
use crate::time::Timestamp;
use crate::transaction::{Op, TransactResult, Transaction};
use crate::{Recipe, RecipeError};

/// Marks an entry stale and takes the lease from whoever regenerates it, in one transaction: what was read before
/// the invalidation can't be published after it.
///
/// META must not come into being by this, so there are two forms, for an entry that has a META and for one that is
/// only now being made for the first time. Begin with either; [`Invalidated::Retry`] says when to use the other.
#[derive(Debug, Clone)]
pub struct Invalidate {
    /// The entry.
    pub entry: Entry,
    /// Whether META is thought to be there.
    pub present: bool,
    /// Now, to be recorded; it decides nothing.
    pub now: Timestamp,
}

/// What came of invalidating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalidated {
    /// Nothing made before is fresh any more.
    Done,
    /// META was not as thought: run this form instead.
    Retry {
        /// Whether META is there.
        present: bool,
    },
}

impl Recipe for Invalidate {
    type Outcome = Invalidated;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let meta = if self.present {
            // `version` rises, so that a publish that saw the row before is refused even if a delayed request
            // should bring its lease back.
            let update = Update::new()
                .set(attr::REVALIDATE_SECONDS, Window::ZERO.number())
                .set(attr::INVALIDATED_AT, self.now.seconds())
                .add(attr::VERSION, 1_u64)
                .remove(attr::HELD_UNTIL);
            Op::update(self.entry.meta(), update).when(Condition::row_exists())
        } else {
            Op::check(self.entry.meta(), Condition::row_absent())
        };
        Ok(Transaction::new(alloc::vec![meta, Op::delete(self.entry.lock())])?)
    }

    fn outcome(&self, result: TransactResult) -> Result<Invalidated, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => Invalidated::Done,
            TransactResult::Rejected(_) => Invalidated::Retry { present: !self.present },
        })
    }
}
