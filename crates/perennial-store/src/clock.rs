//! The time, from the one place that asks the machine for it.

use perennial_core::time::Timestamp;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time. Tests and simulations bring their own.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one home of the system clock")]
    fn now(&self) -> Timestamp {
        timestamp(SystemTime::now())
    }
}

/// A point in time of the file system's, in milliseconds since the epoch.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let millis = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    };
    Timestamp::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_the_epoch_do_not_panic() {
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(2)).seconds(), -2);
        assert!(SystemClock.now() > Timestamp::from_seconds(1_700_000_000));
    }
}
