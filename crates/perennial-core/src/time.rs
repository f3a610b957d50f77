//! Points in time, as values: the core has no clock.

use core::fmt;
use core::time::Duration;

/// Whole seconds since the epoch, as rows keep them.
pub type Seconds = i64;

/// A point in time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the epoch.
    pub const fn from_seconds(seconds: Seconds) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down: what rows and conditions use as now.
    pub const fn seconds(self) -> Seconds {
        self.0.div_euclid(1000)
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.seconds(), self.0.rem_euclid(1000))
    }
}

/// The whole seconds of a duration, rounded up.
pub fn ceil_seconds(duration: Duration) -> Seconds {
    let extra = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(extra)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn seconds_are_rounded_down_and_durations_up() {
        assert_eq!(Timestamp::from_millis(1999).seconds(), 1);
        assert_eq!(Timestamp::from_millis(-1).seconds(), -1);
        assert_eq!(ceil_seconds(Duration::from_millis(900)), 1);
        assert_eq!(ceil_seconds(Duration::from_secs(5)), 5);
        assert_eq!(ceil_seconds(Duration::ZERO), 0);
        assert_eq!(Timestamp::from_millis(1234).to_string(), "1.234");
    }

    #[test]
    fn far_times_do_not_overflow() {
        assert_eq!(Timestamp::from_millis(i64::MAX).plus(Duration::MAX).millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        assert_eq!(ceil_seconds(Duration::MAX), i64::MAX);
    }
}
