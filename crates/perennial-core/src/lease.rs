//! The lease on an entry: who may regenerate it now.
//!
//! A lease is held iff `lease_expires_at > now`. Expiry lets others in; the token, which every write of the holder
//! checks, is what keeps a late holder out. So a wrong clock costs a render, never a page.

use crate::expr::{Comparison, Condition, Update};
use crate::idempotency::Attempt;
use crate::item::{Item, Kind, Value};
use crate::key::{Entry, LeaseToken};
use crate::number::Number;
use crate::publish::Revision;
use crate::schema::{Lock, Row, attr};
use crate::time::{Seconds, Timestamp, ceil_seconds};
use crate::transaction::{Op, TransactResult, Transaction};
use crate::{Recipe, RecipeError};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// How long after its expiry a lease row is left for garbage collection.
pub const TTL_BUFFER: Seconds = 3600;

/// A lease that we hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The entry that may be regenerated.
    pub entry: Entry,
    /// What shows that we hold it.
    pub token: LeaseToken,
    /// Until when, unless it is refreshed.
    pub expires_at: Seconds,
}

impl Lease {
    /// When a holder should refresh next: after a third of the lease, so that two refreshes may fail.
    pub fn refresh_after(duration: Duration) -> Duration {
        duration / 3
    }
}

/// When a lease taken now for this long ends: rounded up from the whole second and one second more, so that the
/// holder never has less than it asked for.
pub fn expiry(now: Timestamp, duration: Duration) -> Seconds {
    now.seconds().saturating_add(ceil_seconds(duration)).saturating_add(1)
}

/// The lease is ours and has not run out.
pub(crate) fn held_by(token: &LeaseToken, now: Timestamp) -> Condition {
    has_token(token).and(Condition::compare(attr::LEASE_EXPIRES_AT, Comparison::Greater, now.seconds()))
}

fn has_token(token: &LeaseToken) -> Condition {
    Condition::equals(attr::LEASE_TOKEN, token.as_str())
}

/// The lease is free, or is ours already because the answer to an earlier try was lost. A row without a numeric
/// expiry is free too: by the rule nobody holds it, and it must not wedge the page.
fn is_free(mine: &LeaseToken, now: Timestamp, expires_at: Seconds) -> Condition {
    Condition::row_absent()
        .or(Condition::compare(attr::LEASE_EXPIRES_AT, Comparison::LessOrEqual, now.seconds()))
        .or(Condition::HasKind(attr::LEASE_EXPIRES_AT.into(), Kind::N).not())
        .or(has_token(mine).and(ends_by(expires_at)))
}

/// The lease does not end later than that: a request that arrives late must not shorten what a later one extended.
fn ends_by(expires_at: Seconds) -> Condition {
    Condition::compare(attr::LEASE_EXPIRES_AT, Comparison::Greater, expires_at).not()
}

/// Takes the lease of an entry.
#[derive(Debug, Clone)]
pub struct Acquire {
    /// The entry.
    pub entry: Entry,
    /// A new token, made before the first try and kept for its retries.
    pub token: LeaseToken,
    /// How long the lease is wanted for.
    pub duration: Duration,
    /// Now.
    pub now: Timestamp,
    /// Who asks, for logs.
    pub owner: Option<String>,
    /// Take it only if META is still what was read. Without this, a worker that read META just before another
    /// published would render the page once more.
    ///
    /// It must be given when there was no META: with it the request is a transaction with a token, which runs once even
    /// if it arrives twice. An invalidation of a page that has no META can only take the lease away, and a first try
    /// that arrived after that would bring it back. (Where there is a META, its version keeps such a worker out.)
    pub unless_changed: Option<Revision>,
}

/// What came of trying to take a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// It is ours.
    Held {
        /// The lease.
        lease: Lease,
        /// How many renders in a row failed before; unknown when the lease was taken together with other rows.
        failures: Option<u64>,
    },
    /// Somebody else has it, or a cool-down runs.
    Busy(Busy),
    /// META is not what it was: read it again.
    Changed,
}

/// Why the lease can't be had now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// When to try again at the latest.
    pub until: Seconds,
    /// The last render failed, and nobody works on the page until then: there is nothing to wait for.
    pub cooling_down: bool,
    /// How many renders in a row have failed.
    pub failures: u64,
}

impl Busy {
    /// Reads what a refused LOCK row says. Only the expiry is needed, so a row with other damage still answers.
    pub(crate) fn from_row(row: Option<&Item>) -> Self {
        let number = |name| row.and_then(|row| row.get(name)).and_then(Value::as_n);
        Self {
            until: number(attr::LEASE_EXPIRES_AT).map_or(0, Number::ceil),
            cooling_down: number(attr::FAILED_AT).is_some(),
            failures: number(attr::FAILURES).and_then(Number::to_u64).unwrap_or(0),
        }
    }
}

impl Acquire {
    const LOCK: usize = 0;
    const META: usize = 1;

    fn lease(&self) -> Lease {
        Lease {
            entry: self.entry.clone(),
            token: self.token.clone(),
            expires_at: expiry(self.now, self.duration),
        }
    }

    /// The operation on LOCK. An update, not a put: the count of failures and what others keep there survive.
    pub(crate) fn lock_op(&self) -> Op {
        let expires_at = self.lease().expires_at;
        let update = Update::new()
            .set(attr::LEASE_TOKEN, self.token.as_str())
            .set(attr::LEASE_EXPIRES_AT, expires_at)
            .set(attr::TTL, expires_at.saturating_add(TTL_BUFFER))
            .set_or_remove(attr::OWNER, self.owner.as_deref())
            .remove(attr::FAILED_AT);
        Op::update(self.entry.lock(), update).when(is_free(&self.token, self.now, expires_at))
    }

    /// The check of META, when one is asked for.
    pub(crate) fn meta_op(&self) -> Option<Op> {
        let seen = self.unless_changed.as_ref()?;
        Some(Op::check(self.entry.meta(), seen.condition()))
    }

    /// The lease, once the operations have happened.
    pub(crate) fn held(&self) -> Lease {
        self.lease()
    }

    /// The lease, if the row that refused us shows that it is ours already, and for longer.
    pub(crate) fn held_already(&self, row: Option<&Item>) -> Option<Lease> {
        ours(row?, &self.token, self.now).map(|expires_at| Lease { expires_at, ..self.lease() })
    }
}

/// Until when a LOCK row gives the lease to this token, if it does.
fn ours(row: &Item, token: &LeaseToken, now: Timestamp) -> Option<Seconds> {
    let held = row.get(attr::LEASE_TOKEN).and_then(Value::as_s) == Some(token.as_str());
    let expires_at = row.get(attr::LEASE_EXPIRES_AT).and_then(Value::as_n).map(Number::ceil);
    expires_at.filter(|at| held && *at > now.seconds())
}

impl Recipe for Acquire {
    type Outcome = Acquired;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let ops = core::iter::once(self.lock_op()).chain(self.meta_op());
        Ok(Transaction::new(ops.collect())?.once("acquire", &self.token))
    }

    fn outcome(&self, result: TransactResult) -> Result<Acquired, RecipeError> {
        Ok(match result {
            TransactResult::Committed(committed) => {
                let failures = committed.row.map(|row| Busy::from_row(Some(&row)).failures);
                Acquired::Held { lease: self.held(), failures }
            }
            TransactResult::Rejected(rejected) if rejected.of(Self::META).is_some() => Acquired::Changed,
            TransactResult::Rejected(rejected) => {
                let row = rejected.of(Self::LOCK).and_then(|failure| failure.row.as_ref());
                match self.held_already(row) {
                    Some(lease) => Acquired::Held { lease, failures: Some(Busy::from_row(row).failures) },
                    None => Acquired::Busy(Busy::from_row(row)),
                }
            }
        })
    }
}

/// Keeps a lease during a long render.
#[derive(Debug, Clone)]
pub struct Refresh {
    /// The lease.
    pub lease: Lease,
    /// How long it is wanted for, from now.
    pub duration: Duration,
    /// Now.
    pub now: Timestamp,
}

/// What came of refreshing a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refreshed {
    /// It is still ours, until later.
    Held(Lease),
    /// It is not ours any more: stop the render, nothing may be published.
    Lost,
}

impl Refresh {
    /// The new expiry; a clock that was set back never shortens a lease.
    fn expires_at(&self) -> Seconds {
        expiry(self.now, self.duration).max(self.lease.expires_at)
    }
}

impl Recipe for Refresh {
    type Outcome = Refreshed;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let update = Update::new()
            .set(attr::LEASE_EXPIRES_AT, self.expires_at())
            .set(attr::TTL, self.expires_at().saturating_add(TTL_BUFFER));
        let held = held_by(&self.lease.token, self.now).and(ends_by(self.expires_at()));
        Ok(Transaction::single(Op::update(self.lease.entry.lock(), update).when(held))?)
    }

    fn outcome(&self, result: TransactResult) -> Result<Refreshed, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => {
                Refreshed::Held(Lease { expires_at: self.expires_at(), ..self.lease.clone() })
            }
            TransactResult::Rejected(rejected) => {
                // Ours, and for longer than we asked: a later refresh came first.
                let row = rejected.of(0).and_then(|failure| failure.row.as_ref());
                match row.and_then(|row| ours(row, &self.lease.token, self.now)) {
                    Some(expires_at) => Refreshed::Held(Lease { expires_at, ..self.lease.clone() }),
                    None => Refreshed::Lost,
                }
            }
        })
    }
}

/// Gives a lease back without having published.
#[derive(Debug, Clone)]
pub struct Release {
    /// The lease.
    pub lease: Lease,
}

/// What came of giving a lease back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It is free.
    Done,
    /// It was not ours any more, which is just as well.
    NotHeld,
}

impl Recipe for Release {
    type Outcome = Released;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        Ok(Transaction::single(Op::delete(self.lease.entry.lock()).when(has_token(&self.lease.token)))?)
    }

    fn outcome(&self, result: TransactResult) -> Result<Released, RecipeError> {
        Ok(match result {
            TransactResult::Committed(_) => Released::Done,
            TransactResult::Rejected(_) => Released::NotHeld,
        })
    }
}

/// Records a failed render: the lease stays as a cool-down, so that nobody tries at once, and waiters see why.
#[derive(Debug, Clone)]
pub struct CoolDown {
    /// The lease of the attempt that failed.
    pub lease: Lease,
    /// A new token for the cool-down: the failed attempt must not be able to publish under it.
    pub marker: LeaseToken,
    /// How long to leave the page alone: see [`cool_down_delay`].
    pub delay: Duration,
    /// Now.
    pub now: Timestamp,
    /// The idempotent request that failed with it.
    pub request: Option<Attempt>,
}

/// What came of recording a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CooledDown {
    /// Nobody regenerates the page until then.
    Until(Seconds),
    /// The lease was not ours any more, so the failure concerns nobody.
    LeaseLost,
    /// The lease is ours, but the idempotent request is not: record the failure without it.
    RequestLost,
}

impl CoolDown {
    const LOCK: usize = 0;

    /// Rounded as a lease is: never shorter than asked for.
    fn until(&self) -> Seconds {
        expiry(self.now, self.delay)
    }
}

impl Recipe for CoolDown {
    type Outcome = CooledDown;

    fn transaction(&self) -> Result<Transaction, RecipeError> {
        let update = Update::new()
            .set(attr::LEASE_TOKEN, self.marker.as_str())
            .set(attr::LEASE_EXPIRES_AT, self.until())
            .set(attr::TTL, self.until().saturating_add(TTL_BUFFER))
            .set(attr::FAILED_AT, self.now.seconds())
            .add(attr::FAILURES, 1_u64);
        let mut ops: Vec<Op> = Vec::new();
        ops.push(Op::update(self.lease.entry.lock(), update).when(has_token(&self.lease.token)));
        ops.extend(self.request.as_ref().map(Attempt::fail_op));
        let part = if self.request.is_some() { "fail" } else { "cool down" };
        Ok(Transaction::new(ops)?.once(part, &self.marker))
    }

    fn outcome(&self, result: TransactResult) -> Result<CooledDown, RecipeError> {
        let rejected = match result {
            TransactResult::Committed(_) => return Ok(CooledDown::Until(self.until())),
            TransactResult::Rejected(rejected) => rejected,
        };
        let Some(failure) = rejected.of(Self::LOCK) else { return Ok(CooledDown::RequestLost) };
        // Our own marker means that an earlier try did it and its answer was lost.
        Ok(match failure.row.clone().map(Lock::from_item) {
            Some(Ok(lock)) if lock.token == self.marker => CooledDown::Until(lock.expires_at),
            _ => CooledDown::LeaseLost,
        })
    }
}

/// How long a page that has failed this often in a row is left alone: three times as long each time, from `first` up to
/// `most`, and up to a tenth less, by `random`, so that pages that failed together don't come back together. From a
/// second to five minutes this makes at most 20 tries in the first hour.
pub fn cool_down_delay(failures: u64, first: Duration, most: Duration, random: u32) -> Duration {
    let steps = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
    let full = first.saturating_mul(3_u32.pow(steps)).min(most);
    full.saturating_sub((full / 10).mul_f64(f64::from(random) / f64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_03_a_holder_never_has_less_than_it_asked_for() {
        for (millis, duration_ms) in [(42, 900), (999, 1), (0, 5_000), (500, 500), (1, 0)] {
            let now = Timestamp::from_millis(1_763_200_000_000 + millis);
            let duration = Duration::from_millis(duration_ms);
            let until = Timestamp::from_seconds(expiry(now, duration));
            assert!(until.since(now) >= duration, "{millis} {duration_ms}");
            assert!(until.since(now) <= duration + Duration::from_secs(2), "{millis} {duration_ms}");
        }
    }

    #[test]
    fn rule_11_delays_double_stay_within_bounds_and_differ() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(300));
        let delay = |failures, random| cool_down_delay(failures, first, most, random);
        assert_eq!(delay(1, 0), first);
        assert_eq!(delay(2, 0), Duration::from_secs(3));
        assert_eq!(delay(4, 0), Duration::from_secs(27));
        assert_eq!(delay(4, u32::MAX), Duration::from_millis(24_300));
        for failures in [0, 1, 9, 10, 60, u64::MAX] {
            for random in [0, 1, u32::MAX / 3, u32::MAX] {
                assert!((first * 9 / 10..=most).contains(&delay(failures, random)), "{failures} {random}");
            }
        }
        assert_ne!(delay(5, 7), delay(5, 700_000_000));
        // A page that always fails: at most 20 tries in an hour, however the dice fall.
        let (mut tries, mut at) = (0, Duration::ZERO);
        while at < Duration::from_secs(3600) {
            tries += 1;
            at += delay(tries, u32::MAX);
        }
        assert!(tries <= 20, "{tries}");
    }

    #[test]
    fn rule_04_the_heartbeat_comes_at_a_third_of_the_lease() {
        assert_eq!(Lease::refresh_after(Duration::from_secs(6)), Duration::from_secs(2));
    }
}
