//! How a generation becomes the current one, and how an earlier one becomes current again.
//!
//! A publish is one transaction: META gets the new generation, LOCK goes, and with them the version row (recipe B)
//! and the idempotency row (if there is one). LOCK is checked by its own conditional delete. META must still be
//! what the worker read before it rendered: that, besides the lease, keeps out whatever was overtaken.

use crate::expr::{Comparison, Condition};
use crate::idempotency::Attempt;
use crate::item::{Item, Value};
use crate::key::{Entry, VersionId};
use crate::lease::{Lease, held_by};
use crate::number::Number;
use crate::schema::{Generation, Row, Version, Window, attr};
use crate::time::{Seconds, Timestamp, ceil_seconds};
use crate::transaction::{Op, Rejected, TransactResult, Transaction};
use crate::{Recipe, RecipeError};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// What a worker saw of META before it rendered, and expects to be there still when it publishes.
///
/// Every write of ours raises `version`. Rows that others wrote have none; there `generated_at` has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    /// There was no META.
    Absent,
    /// META had this `version`.
    Version(Value),
    /// META had no `version`, and this `generated_at`, if any.
    Unversioned(Option<Value>),
}

impl Revision {
    /// The revision of a META row as it was read, well-formed or not.
    pub fn of(meta: Option<&Item>) -> Self {
        match meta {
            None => Self::Absent,
            Some(row) => match row.get(attr::VERSION) {
                Some(version) => Self::Version(version.clone()),
                None => Self::Unversioned(row.get(attr::GENERATED_AT).cloned()),
            },
        }
    }

    /// That META is still so.
    pub(crate) fn condition(&self) -> Condition {
        let unversioned = || Condition::row_exists().and(Condition::exists(attr::VERSION).not());
        match self {
            Self::Absent => Condition::row_absent(),
            Self::Version(version) => Condition::equals(attr::VERSION, version.clone()),
            Self::Unversioned(Some(at)) => {
                unversioned().and(Condition::equals(attr::GENERATED_AT, at.clone()))
            }
            Self::Unversioned(None) => unversioned().and(Condition::exists(attr::GENERATED_AT).not()),
        }
    }

    /// The version of what comes after it.
    pub fn next(&self) -> u64 {
        match self {
            Self::Version(Value::N(number)) => number.to_u64().map_or(1, |version| version.saturating_add(1)),
            _ => 1,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Version(version) => write!(f, "version {version:?}"),
            Self::Unversioned(Some(at)) => write!(f, "generated at {at:?}"),
            Self::Unversioned(None) => f.write_str("unversioned"),
        }
    }
}

/// The last `generated_at` that is taken for a date. It leaves room for a writer that takes milliseconds for seconds;
/// what lies beyond is no date, and does not keep a page from being made anew.
const LATEST: Seconds = 1_000_000_000_000_000;

/// The `generated_at` and the window of a generation that begins now and is to be fresh for this long.
///
/// `generated_at` is the time, but never before that of the row that it replaces, readable or not: had that one's
/// clock been ahead, the page could otherwise not be published until ours caught up. The window is then shorter by as
/// much (it may be negative), so that freshness ends when it should.
pub fn date(now: Timestamp, window: Window, replaces: Option<&Item>) -> (Seconds, Window) {
    let before = replaces.and_then(|row| row.get(attr::GENERATED_AT)).and_then(Value::as_n).map(Number::ceil);
    let generated_at = now.seconds().max(before.filter(|at| *at <= LATEST).unwrap_or(0));
    (generated_at, window.plus(now.seconds().saturating_sub(generated_at)))
}

/// Makes a generation the current one.
#[derive(Debug, Clone)]
pub struct Publish {
    /// The lease that it was made under.
    pub lease: Lease,
    /// The generation. Its body is in the store already. The lease's token is recorded with it.
    pub generation: Generation,
    /// What META was before the render.
    pub seen: Revision,
    /// Now.
    pub now: Timestamp,
    /// Recipe B: also keep the generation as this version. Recipe A without.
    pub version: Option<VersionId>,
    /// The idempotent request that this completes.
    pub request: Option<Attempt>,
}

/// What came of publishing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is the current generation; META has this version now.
    Done {
        /// META's version.
        version: u64,
    },
    /// The lease was not ours any more.
    LeaseLost,
    /// META is not what was seen before the render: invalidated, rolled back, or newer.
    Superseded,
    /// A version of that id exists.
    VersionTaken,
    /// The idempotent request belongs to another attempt now.
    RequestLost,
}

impl Publish {
    const META: usize = 0;
    const LOCK: usize = 1;
    const VERSION: usize = 2;

    /// The generation with the lease's token on it.
    fn stamped(&self) -> Generation {
        Generation { token: Some(self.lease.token.clone()), ..self.generation.clone() }
    }

    /// Whether a META row is what this publish writes: how a lost answer is settled, by a consistent read.
    ///
    /// When it is not, run the publish again. Do not delete the body, whatever the answer: a delayed request may
    /// still arrive. The sweep deletes it once nothing can.
    pub fn is_current(&self, meta: Option<&Item>) -> bool {
        let token = meta.and_then(|row| row.get(attr::GENERATION)).and_then(Value::as_s);
        token == Some(self.lease.token.as_str())
    }

    fn version_row(&self) -> Option<Version> {
        let id = self.version.clone()?;
        let key = self.lease.entry.version(&id);
        Some(Version { key, id, generation: self.stamped(), other: Item::new() })
    }

    fn meta_op(&self) -> Result<Op, RecipeError> {
        let key = self.lease.entry.meta();
        let generation = self.stamped();
        generation.check_ours(&key)?;
        let update = generation
            .update()
            .set(attr::VERSION, self.seen.next())
            .set_or_remove(attr::CURRENT_SK, self.version.as_ref().map(VersionId::sk))
            .remove(attr::INVALIDATED_AT)
            .remove(attr::HELD_UNTIL);
        let newer = Condition::compare(attr::GENERATED_AT, Comparison::Greater, generation.generated_at)
            .and(Condition::compare(attr::GENERATED_AT, Comparison::LessOrEqual, LATEST));
        Ok(Op::update(key, update).when(self.seen.condition().and(newer.not())))
    }

    fn rejected(&self, rejected: &Rejected) -> Published {
        // On a repeat after a lost answer, META is what we wrote and LOCK is gone.
        if rejected.of(Self::META).is_some_and(|failure| self.is_current(failure.row.as_ref())) {
            return Published::Done { version: self.seen.next() };
        }
        if rejected.of(Self::LOCK).is_some() {
            Published::LeaseLost
        } else if rejected.of(Self::META).is_some() {
            Published::Superseded
        } else if self.version.is_some() && rejected.of(Self::VERSION).is_some() {
            Published::VersionTaken
        } else {
            Published::RequestLost
        }
    }
}

impl Recipe for Publish {
    type Outcome = Published;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let entry = &self.lease.entry;
        let mut ops: Vec<Op> = Vec::with_capacity(4);
        ops.push(self.meta_op()?);
        ops.push(Op::delete(entry.lock()).when(held_by(&self.lease.token, self.now)));
        if let Some(version) = self.version_row() {
            ops.push(Op::put(version.to_item()?)?.when(Condition::row_absent()));
        }
        ops.extend(self.request.as_ref().map(|attempt| attempt.complete_op(&self.generation.body)));
        Ok(Transaction::new(ops)?.once("publish", &self.lease.token))
    }

    fn outcome(&self, result: TransactResult) -> Result<Published, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => Published::Done { version: self.seen.next() },
            TransactResult::Rejected(rejected) => self.rejected(&rejected),
        })
    }
}

/// Makes an earlier version the current generation again, and holds it: for the time stated, the seeds' own rule
/// calls it fresh. A regeneration under way loses its lease.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// The entry.
    pub entry: Entry,
    /// The version row, as read.
    pub to: Version,
    /// What META was when it was read.
    pub seen: Revision,
    /// The tag counter now: what was invalidated before does not end the hold, what is invalidated later does.
    pub tag_sequence: Option<u64>,
    /// How long to hold it.
    pub hold: Duration,
    /// Now.
    pub now: Timestamp,
}

/// What came of rolling back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolledBack {
    /// The version is current, and fresh until then.
    Done {
        /// The end of the hold.
        held_until: Seconds,
    },
    /// META is not what was read: read it again and decide anew.
    Superseded,
    /// The version row is gone.
    VersionGone,
}

impl Rollback {
    const META: usize = 0;
    const VERSION: usize = 1;

    /// Whether META is what this rollback writes: a repeat after a lost answer finds that.
    fn is_current(&self, meta: &Item) -> bool {
        let expected: [(&str, Value); 3] = [
            (attr::VERSION, self.seen.next().into()),
            (attr::CURRENT_SK, self.to.id.sk().into()),
            (attr::HELD_UNTIL, self.held_until().into()),
        ];
        expected.iter().all(|(name, value)| meta.get(name) == Some(value))
    }

    fn held_until(&self) -> Seconds {
        self.now.plus(self.hold).seconds().saturating_add(1)
    }

    /// The version's generation, with a window that ends with the hold and a `ttl` that does not come before.
    fn generation(&self) -> Generation {
        let held = self.held_until().saturating_sub(self.to.generation.generated_at);
        let ttl = self
            .to
            .generation
            .ttl
            .map(|ttl| ttl.max(self.held_until().saturating_add(ceil_seconds(self.hold))));
        Generation {
            // Negative where the version's clock was ahead: the hold ends when it was said to.
            window: Window::ZERO.plus(held),
            tag_sequence: self.tag_sequence.or(self.to.generation.tag_sequence),
            ttl,
            ..self.to.generation.clone()
        }
    }
}

impl Recipe for Rollback {
    type Outcome = RolledBack;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let update = self
            .generation()
            .update()
            .set(attr::VERSION, self.seen.next())
            .set(attr::CURRENT_SK, self.to.id.sk())
            .set(attr::HELD_UNTIL, self.held_until())
            .remove(attr::INVALIDATED_AT);
        let same_body =
            Condition::row_exists().and(Condition::equals(attr::S3_KEY, self.to.generation.body.as_str()));
        Ok(Transaction::new(alloc::vec![
            Op::update(self.entry.meta(), update).when(self.seen.condition()),
            Op::check(self.entry.version(&self.to.id), same_body),
            Op::delete(self.entry.lock()),
        ])?)
    }

    fn outcome(&self, result: TransactResult) -> Result<RolledBack, RecipeError> {
        let done = RolledBack::Done { held_until: self.held_until() };
        let TransactResult::Rejected(rejected) = result else { return Ok(done) };
        let meta = rejected.of(Self::META).and_then(|failure| failure.row.as_ref());
        Ok(if meta.is_some_and(|meta| self.is_current(meta)) {
            done
        } else if rejected.of(Self::VERSION).is_some() {
            RolledBack::VersionGone
        } else {
            RolledBack::Superseded
        })
    }
}
