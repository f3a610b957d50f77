//! Regenerating once per key: the `REQ#` row beside the lease.
//!
//! Beginning is one transaction for both rows, so that no row says STARTED while nobody works. A row whose attempt's
//! lease has run out, or that says FAILED, is taken over; a completed one is replayed; other inputs under one key are
//! refused.

use crate::body_key::BodyKey;
use crate::digest::sha256_parts;
use crate::expr::{Comparison, Condition, Update};
use crate::item::Item;
use crate::key::{IdempotencyKey, LeaseToken};
use crate::lease::{Acquire, Busy, Lease};
use crate::schema::{Request, RequestStatus, Row, RowError, attr};
use crate::time::{Seconds, Timestamp};
use crate::transaction::{Op, Rejected, TransactResult, Transaction};
use crate::{Recipe, RecipeError};
use alloc::string::String;
use alloc::vec::Vec;

/// The digest of a request's inputs: everything that must be the same when the key is.
///
/// Each input is a name and a value; the order of the list does not matter.
pub fn request_hash<'a>(inputs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut inputs: Vec<_> = inputs.into_iter().collect();
    inputs.sort_unstable();
    sha256_parts(inputs.iter().flat_map(|(name, value)| [name.as_bytes(), value]))
}

/// One attempt at an idempotent request: its lease, and what its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The lease that it works under.
    pub lease: Lease,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The digest of the inputs.
    pub request_hash: String,
    /// When garbage collection may delete the row.
    pub ttl: Seconds,
}

impl Attempt {
    /// Ours to finish: the row names our attempt, or garbage collection took it early.
    fn is_ours(&self) -> Condition {
        let ours = Condition::equals(attr::STATUS, RequestStatus::Started.as_str())
            .and(Condition::equals(attr::ATTEMPT_TOKEN, self.lease.token.as_str()));
        Condition::row_absent().or(ours)
    }

    /// Ends the attempt. The row is written whole, in case garbage collection took it.
    fn finish(&self, status: RequestStatus) -> Update {
        Update::new()
            .set(attr::STATUS, status.as_str())
            .set(attr::REQUEST_HASH, self.request_hash.as_str())
            .set(attr::TTL, self.ttl)
            .remove(attr::ATTEMPT_EXPIRES_AT)
    }

    pub(crate) fn complete_op(&self, result: &BodyKey) -> Op {
        let update = self
            .finish(RequestStatus::Completed)
            .set(attr::RESULT_S3_KEY, result.as_str())
            .set(attr::ATTEMPT_TOKEN, self.lease.token.as_str());
        Op::update(self.lease.entry.request(&self.key), update).when(self.is_ours())
    }

    pub(crate) fn fail_op(&self) -> Op {
        let update = self.finish(RequestStatus::Failed).remove(attr::ATTEMPT_TOKEN);
        Op::update(self.lease.entry.request(&self.key), update).when(self.is_ours())
    }
}

/// Begins an idempotent regeneration: the `REQ#` row and the lease, together.
#[derive(Debug, Clone)]
pub struct Begin {
    /// The lease to take with it.
    pub acquire: Acquire,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The digest of the inputs: see [`request_hash`].
    pub request_hash: String,
    /// When garbage collection may delete the row.
    pub ttl: Seconds,
    /// The token of this worker's own attempt before, when that lost its lease to an invalidation and begins
    /// again: it need not wait for itself.
    pub previous: Option<LeaseToken>,
}

/// What came of beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It is ours to do.
    Started(Attempt),
    /// It was done before; this was the result, where it was recorded.
    Replay {
        /// The body.
        result: Option<BodyKey>,
    },
    /// The same key was used with other inputs. Refuse the request.
    Conflict,
    /// Somebody works on it, at the most until then without a refresh.
    InProgress {
        /// When to look again at the latest.
        until: Seconds,
    },
    /// The lease can't be had now: another request regenerates the entry, or a cool-down runs.
    Busy(Busy),
    /// META is not what it was: read it again.
    Changed,
}

impl Begin {
    const REQUEST: usize = 0;
    const LOCK: usize = 1;
    const META: usize = 2;

    fn now(&self) -> Timestamp {
        self.acquire.now
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            lease: self.acquire.held(),
            key: self.key.clone(),
            request_hash: self.request_hash.clone(),
            ttl: self.ttl,
        }
    }

    fn request_op(&self) -> Op {
        let attempt = self.attempt();
        let update = Update::new()
            .set(attr::REQUEST_HASH, self.request_hash.as_str())
            .set(attr::STATUS, RequestStatus::Started.as_str())
            .set(attr::TTL, self.ttl)
            .set(attr::ATTEMPT_TOKEN, attempt.lease.token.as_str())
            .set(attr::ATTEMPT_EXPIRES_AT, attempt.lease.expires_at)
            .remove(attr::RESULT_S3_KEY);
        Op::update(self.acquire.entry.request(&self.key), update).when(self.is_available())
    }

    /// Nobody asked before, or the same was asked and whoever tried has failed, died, or is us.
    fn is_available(&self) -> Condition {
        let status = |status: RequestStatus| Condition::equals(attr::STATUS, status.as_str());
        let alive = Condition::compare(attr::ATTEMPT_EXPIRES_AT, Comparison::Greater, self.now().seconds());
        let mut abandoned = alive.not();
        for token in core::iter::once(&self.acquire.token).chain(&self.previous) {
            abandoned = abandoned.or(Condition::equals(attr::ATTEMPT_TOKEN, token.as_str()));
        }
        let may_take_over = status(RequestStatus::Failed).or(status(RequestStatus::Started).and(abandoned));
        Condition::row_absent()
            .or(Condition::equals(attr::REQUEST_HASH, self.request_hash.as_str()).and(may_take_over))
    }

    fn rejected(&self, rejected: &Rejected) -> Result<Begun, RowError> {
        if let Some(row) = rejected.of(Self::REQUEST).and_then(|failure| failure.row.as_ref()) {
            return self.refused_request(row);
        }
        if rejected.of(Self::META).is_some() {
            return Ok(Begun::Changed);
        }
        let row = rejected.of(Self::LOCK).and_then(|failure| failure.row.as_ref());
        Ok(match self.acquire.held_already(row) {
            Some(lease) => Begun::Started(Attempt { lease, ..self.attempt() }),
            None => Begun::Busy(Busy::from_row(row)),
        })
    }

    fn refused_request(&self, row: &Item) -> Result<Begun, RowError> {
        let request = Request::from_item(row.clone())?;
        if request.request_hash != self.request_hash {
            return Ok(Begun::Conflict);
        }
        Ok(match request.status {
            RequestStatus::Completed => Begun::Replay { result: request.result },
            // FAILED is never refused by itself; a row that is, is as good as in progress: look again.
            RequestStatus::Started | RequestStatus::Failed => Begun::InProgress {
                until: request.attempt_expires_at.unwrap_or_else(|| self.now().seconds()),
            },
        })
    }
}

impl Recipe for Begin {
    type Outcome = Begun;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let ops = [self.request_op(), self.acquire.lock_op()];
        let ops = ops.into_iter().chain(self.acquire.meta_op());
        Ok(Transaction::new(ops.collect())?.once("begin", &self.acquire.token))
    }

    fn outcome(&self, result: TransactResult) -> Result<Begun, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => Begun::Started(self.attempt()),
            TransactResult::Rejected(rejected) => self.rejected(&rejected)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_input_and_not_on_their_order() {
        let hash = |inputs: &[(&str, &[u8])]| request_hash(inputs.iter().copied());
        assert_eq!(hash(&[("a", b"1"), ("b", b"2")]), hash(&[("b", b"2"), ("a", b"1")]));
        assert_ne!(hash(&[("a", b"1"), ("b", b"2")]), hash(&[("a", b"2"), ("b", b"1")]));
        assert_ne!(hash(&[("a", b"1b")]), hash(&[("a", b"1"), ("b", b"")]));
        assert_ne!(hash(&[("ab", b"c")]), hash(&[("a", b"bc")]));
    }
}
