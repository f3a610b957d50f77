//! The two clocks of a page: until when it is fresh, and until when its rows are kept.
//!
//! Fresh iff `now < generated_at + revalidate_seconds` and no invalidation is newer. `ttl` decides nothing here: it
//! is garbage collection, which may run early, late or never.

use crate::key::Tag;
use crate::schema::{Meta, Sequence};
use crate::time::{Seconds, Timestamp, ceil_seconds};
use alloc::borrow::ToOwned;
use core::time::Duration;

/// How long after its retention a row is left for garbage collection.
pub const TTL_BUFFER: Seconds = 3600;

/// Whether a page may be served as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// It may, until then unless it is invalidated.
    Fresh {
        /// The end of its window.
        until: Timestamp,
    },
    /// It is to be regenerated.
    Stale(StaleReason),
}

/// Why a page is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaleReason {
    /// Its window has passed.
    Expired {
        /// When.
        at: Timestamp,
    },
    /// The entry was invalidated.
    Invalidated {
        /// When.
        at: Seconds,
    },
    /// One of its tags was invalidated after it began.
    Tag(Tag),
}

/// The end of a page's window.
pub fn fresh_until(meta: &Meta) -> Timestamp {
    let window = meta.generation.window.millis();
    Timestamp::from_millis(meta.generation.began().millis().saturating_add(window))
}

/// Whether a page is fresh. `marks` are the rows of its tags, those that exist; rows of other tags don't matter.
pub fn assess<'a>(meta: &Meta, marks: impl IntoIterator<Item = &'a Sequence>, now: Timestamp) -> Freshness {
    // Whatever the dates say: they are of two clocks. The next generation of ours removes the mark.
    if let Some(at) = meta.invalidated_at {
        return Freshness::Stale(StaleReason::Invalidated { at });
    }
    let until = fresh_until(meta);
    if now >= until {
        return Freshness::Stale(StaleReason::Expired { at: until });
    }
    let seen = meta.generation.tag_sequence.unwrap_or(0);
    let mut newer =
        marks.into_iter().filter(|mark| mark.sequence > seen).filter_map(|mark| mark.tag.as_ref());
    match newer.find(|tag| meta.generation.tags.contains(*tag)) {
        Some(tag) => Freshness::Stale(StaleReason::Tag(tag.to_owned())),
        None => Freshness::Fresh { until },
    }
}

/// The `ttl` of a generation: its retention, or its window where that is longer, and a buffer.
pub fn ttl(generated_at: Seconds, window: Duration, retention: Duration) -> Seconds {
    generated_at.saturating_add(ceil_seconds(retention.max(window))).saturating_add(TTL_BUFFER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_key::BodyKey;
    use crate::item::Item;
    use crate::key::{CacheKey, PkScheme, tag_row};
    use crate::schema::{Generation, Window};

    fn meta(window: Window, tags: &[&str], seen: u64) -> Meta {
        let entry = CacheKey::new("/").entry(PkScheme::Hashed).unwrap();
        let mut generation = Generation::new(BodyKey::new("b").unwrap(), 1_000, window);
        generation.tags = tags.iter().map(|tag| Tag::new(*tag).unwrap()).collect();
        generation.tag_sequence = Some(seen);
        let other = Item::new();
        Meta {
            key: entry.meta(),
            generation,
            version: None,
            current: None,
            invalidated_at: None,
            held_until: None,
            other,
        }
    }

    fn mark(tag: &str, sequence: u64) -> Sequence {
        let tag = Tag::new(tag).unwrap();
        Sequence { key: tag_row(None, &tag), tag: Some(tag), sequence, other: Item::new() }
    }

    fn is_fresh(meta: &Meta, marks: &[Sequence], millis: i64) -> bool {
        matches!(assess(meta, marks, Timestamp::from_millis(millis)), Freshness::Fresh { .. })
    }

    #[test]
    fn rule_01_fresh_before_the_end_of_the_window_and_not_at_it() {
        let page = meta(Window::from_seconds(60), &[], 0);
        assert!(is_fresh(&page, &[], 1_059_999));
        assert!(!is_fresh(&page, &[], 1_060_000));
        assert!(!is_fresh(&meta(Window::ZERO, &[], 0), &[], 1_000_000));
        assert!(is_fresh(&meta(Window::forever(), &[], 0), &[], 1_000_000 + 500 * 31_557_600_000));
    }

    #[test]
    fn rule_01_a_fraction_of_a_second_counts() {
        let page = meta(Window::from_number("59.5".parse().unwrap()), &[], 0);
        assert!(is_fresh(&page, &[], 1_059_499));
        assert!(!is_fresh(&page, &[], 1_059_500));
        assert_eq!(Window::from_duration(Duration::from_millis(59_500)), page.generation.window);
        assert_eq!(Window::from_duration(Duration::ZERO), Window::ZERO);
    }

    #[test]
    fn rule_01_ttl_decides_nothing() {
        let mut page = meta(Window::from_seconds(60), &[], 0);
        for ttl in [None, Some(0), Some(1_001), Some(i64::MAX)] {
            page.generation.ttl = ttl;
            assert!(is_fresh(&page, &[], 1_030_000));
            assert!(!is_fresh(&page, &[], 1_070_000));
        }
    }

    #[test]
    fn rule_01_an_invalidated_page_is_stale_whatever_its_window() {
        let mut page = meta(Window::from_seconds(60), &[], 0);
        page.invalidated_at = Some(1_001);
        let stale = assess(&page, &[], Timestamp::from_millis(1_002_000));
        assert_eq!(stale, Freshness::Stale(StaleReason::Invalidated { at: 1_001 }));
        // Also when the generation is dated after it: the two clocks may differ.
        page.generation.generated_at = 5_000;
        assert!(!is_fresh(&page, &[], 1_003_000));
    }

    #[test]
    fn rule_10_stale_iff_one_of_its_tags_has_a_larger_number() {
        let page = meta(Window::from_seconds(60), &["a", "b"], 5);
        assert!(is_fresh(&page, &[mark("a", 5), mark("b", 1)], 1_000_000));
        assert!(!is_fresh(&page, &[mark("a", 5), mark("b", 6)], 1_000_000));
        // Another page's tag does not matter, nor hides one that does.
        assert!(is_fresh(&page, &[mark("c", 9)], 1_000_000));
        assert!(!is_fresh(&page, &[mark("c", 9), mark("b", 6)], 1_000_000));
    }

    #[test]
    fn the_second_clock_outlasts_the_first() {
        let day = Duration::from_secs(86_400);
        assert_eq!(ttl(1_000, Duration::from_secs(60), day), 1_000 + 86_400 + TTL_BUFFER);
        assert_eq!(ttl(1_000, day * 2, day), 1_000 + 2 * 86_400 + TTL_BUFFER);
    }
}
