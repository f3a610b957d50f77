//! Which bodies are garbage: those that no row points at, once nothing can come to point at them.

use crate::body_key::BodyKey;
use crate::item::{Item, Value};
use crate::key::{META, VERSION_PREFIX};
use crate::schema::attr;
use crate::time::Timestamp;
use core::time::Duration;

/// The shortest time that a body is left alone.
pub const MIN_GRACE: Duration = Duration::from_hours(24);

/// How long a body that nothing points at is left alone: longer than any render, so that none that is about to be
/// published is deleted.
pub fn grace(longest_lease: Duration) -> Duration {
    MIN_GRACE.max(longest_lease.saturating_mul(10))
}

/// Whether a body may be deleted: it is older than the grace, and none of its entry's rows points at it.
///
/// `rows` are all rows of the entry, read consistently after the body was found old enough. A row whose pointer can't
/// be read counts as pointing at everything.
pub fn is_garbage<'a>(
    body: &BodyKey,
    written: Timestamp,
    now: Timestamp,
    grace: Duration,
    rows: impl IntoIterator<Item = &'a Item>,
) -> bool {
    now.since(written) > grace && !rows.into_iter().any(|row| points_at(row, body))
}

fn points_at(row: &Item, body: &BodyKey) -> bool {
    let sk = row.get(attr::SK).and_then(Value::as_s).unwrap_or_default();
    if sk != META && !sk.starts_with(VERSION_PREFIX) {
        return false;
    }
    match row.get(attr::S3_KEY) {
        Some(Value::S(key)) => key == body.as_str(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sk: &str, body: &str) -> Item {
        Item::new().with("pk", "CACHE#1").with("sk", sk).with("s3_key", body)
    }

    #[test]
    fn rule_13_only_old_bodies_that_nothing_points_at_are_garbage() {
        let body = BodyKey::new("a/1").unwrap();
        let (written, grace) = (Timestamp::from_seconds(1_000), grace(Duration::from_secs(30)));
        let old = written.plus(grace + Duration::from_secs(1));
        let garbage = |now, rows: &[Item]| is_garbage(&body, written, now, grace, rows);
        assert!(garbage(old, &[]));
        assert!(garbage(old, &[row("META", "a/2"), row("VER#1", "a/0")]));
        assert!(!garbage(written.plus(grace), &[]), "within the grace");
        assert!(!garbage(old, &[row("META", "a/1")]));
        assert!(!garbage(old, &[row("META", "a/2"), row("VER#1", "a/1")]));
        // An idempotency record does not keep its result alive; a row that can't be read keeps everything.
        assert!(garbage(old, &[row("REQ#1", "a/1")]));
        assert!(!garbage(old, &[Item::new().with("sk", "META")]));
    }

    #[test]
    fn rule_13_the_grace_outlasts_any_render() {
        assert_eq!(grace(Duration::from_secs(5)), MIN_GRACE);
        assert_eq!(grace(Duration::from_hours(24)), MIN_GRACE * 10);
    }
}
