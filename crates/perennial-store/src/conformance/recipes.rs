//! The rules of the contract, as rows show them. Each test is named after its rule.
//!
//! Every recipe is run so that it is run again when its answer was lost, so the suite passes on a table that loses,
//! repeats, refuses and delays.
#![allow(clippy::wildcard_imports, reason = "the parts of the suite share one vocabulary")]
#![allow(clippy::missing_panics_doc, reason = "a test fails by a panic")]
#![allow(clippy::unused_async, reason = "every test is run in the same way")]

/// Expands to every test of the suite for recipes; takes an expression that makes a fresh
/// [`Fixture`](crate::conformance::Fixture) of a table.
#[macro_export]
macro_rules! recipe_conformance {
    ($make:expr) => {
        $crate::__conformance_tests! {
            recipes, $make,
            rule_01_ttl_decides_nothing
            rule_02_generated_at_is_when_the_regeneration_began
            rule_02_a_clock_that_was_ahead_does_not_stop_the_page
            rule_03_a_lease_is_held_until_its_expiry_and_not_at_it
            rule_03_only_the_holder_refreshes_and_only_in_time
            rule_03_releasing_what_was_lost_is_no_error
            rule_03_a_lost_answer_does_not_lock_the_holder_out
            rule_03_a_foreign_lease_is_respected_and_its_attributes_kept
            rule_03_a_lock_that_breaks_the_types_does_not_wedge_the_page
            rule_03_of_many_one_gets_the_lease
            rule_03_a_page_that_changed_since_it_was_read_is_not_rendered_again
            rule_04_a_refused_refresh_means_that_nothing_is_published
            rule_05_recipe_a_publishes_and_releases_at_once
            rule_05_recipe_b_keeps_history_and_copies_the_version_onto_meta
            rule_05_a_late_holder_publishes_nothing
            rule_05_generated_at_never_goes_back
            rule_05_attributes_of_others_survive_and_old_ones_of_ours_do_not
            rule_05_two_publishers_of_one_pointer_have_one_winner
            rule_05_recipes_a_and_b_mix_on_one_page
            rule_05_a_foreign_page_that_changed_is_noticed
            rule_05_a_malformed_meta_is_replaced
            rule_05_a_rollback_holds_and_then_ends
            rule_05_a_rollback_to_a_version_dated_ahead_ends_in_time
            rule_05_a_rollback_stops_a_regeneration_under_way
            rule_05_a_rollback_needs_its_version_and_the_page_it_saw
            rule_06_begin_takes_record_and_lease_together
            rule_06_a_completed_key_is_replayed_and_never_done_again
            rule_06_other_inputs_are_refused_whatever_the_status
            rule_06_a_live_attempt_is_in_progress
            rule_06_a_dead_attempt_is_taken_over_and_can_not_finish
            rule_06_a_failed_attempt_is_taken_over_after_the_cool_down
            rule_06_an_attempt_whose_record_is_not_its_own_finishes_nothing
            rule_06_a_foreign_record_without_an_attempt_is_taken_over_when_nobody_works
            rule_06_a_worker_that_lost_its_lease_does_not_wait_for_itself
            rule_06_garbage_collection_of_the_record_does_not_stop_the_publish
            rule_06_a_record_that_breaks_the_types_is_named
            rule_07_a_lost_publish_is_settled_by_reading_meta
            rule_07_a_repeated_publish_is_done_once
            rule_08_equal_bytes_keep_their_body_and_the_row_is_written
            rule_09_a_render_begun_before_the_invalidation_is_not_published
            rule_09_an_entry_being_made_for_the_first_time_is_invalidated_too
            rule_09_an_invalidation_holds_whatever_the_clocks_say
            rule_09_a_lease_brought_back_by_a_delayed_request_does_not_help
            rule_09_a_foreign_reader_sees_the_page_stale
            rule_10_a_tag_makes_pages_stale_that_began_before
            rule_10_a_tag_s_row_never_goes_down
            rule_10_tenants_and_tags_do_not_meet
            rule_10_counting_and_tag_rows_never_expire
            rule_11_a_failed_render_keeps_the_page_and_leaves_a_cool_down
            rule_11_failures_in_a_row_are_counted_until_one_succeeds
            rule_12_a_waiter_knows_until_when_and_gets_in_then
            rule_13_the_rows_of_an_entry_tell_its_garbage
            rule_14_the_same_key_of_two_tenants_has_rows_of_its_own
        }
    };
}

mod idempotency;
mod invalidation;
mod lease;
mod publish;

pub use idempotency::*;
pub use invalidation::*;
pub use lease::*;
pub use publish::*;

use super::{Fixture, in_threads};
use crate::table::{Consistency, Query};
use crate::{ErrorKind, ItemTable, ItemTableExt as _, Result};
use perennial_core::Recipe;
use perennial_core::body_key::BodyKey;
use perennial_core::expr::Update;
use perennial_core::freshness::{self, Freshness, StaleReason};
use perennial_core::garbage;
use perennial_core::idempotency::{Attempt, Begin, Begun, request_hash};
use perennial_core::invalidate::{Invalidate, Invalidated};
use perennial_core::item::{Item, Value};
use perennial_core::key::{
    CacheKey, Entry, IdempotencyKey, LeaseToken, PkScheme, RowKey, Tag, Tenant, VersionId, counter_row,
    tag_row,
};
use perennial_core::lease::{Acquire, Acquired, CoolDown, CooledDown, Lease, Refresh, Refreshed, Release};
use perennial_core::number::Number;
use perennial_core::publish::{Publish, Published, Revision, Rollback, RolledBack, date};
use perennial_core::schema::{
    Generation, Header, Lock, Meta, Request, RequestStatus, Row, Sequence, Version, Window,
};
use perennial_core::tag::{Advance, Raise};
use perennial_core::time::Timestamp;
use perennial_core::transaction::{Op, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

type Table = Fixture<dyn ItemTable>;

/// The time at which every test begins.
const START: Timestamp = Timestamp::from_millis(1_763_200_000_250);
const LEASE: Duration = Duration::from_secs(5);
const WINDOW: u64 = 60;

fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn entry() -> Entry {
    CacheKey::new("/posts/42").with_tenant("acme").entry(PkScheme::Hashed).expect("a valid key")
}

fn token(name: u8) -> LeaseToken {
    LeaseToken::from_random([name; 16])
}

/// Makes a call until it is neither refused nor unsettled, as every caller of the store must.
async fn insist<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<T> {
    for _ in 0..100 {
        match call().await {
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unsettled) => {}
            settled => return settled,
        }
    }
    call().await
}

async fn run<R: Recipe + Sync>(table: &dyn ItemTable, recipe: &R) -> R::Outcome {
    insist(|| table.run(recipe)).await.expect("the recipe runs")
}

async fn write(table: &dyn ItemTable, op: Op) {
    let transaction = Transaction::single(op).expect("a valid transaction");
    insist(|| table.transact(&transaction)).await.expect("the table works");
}

async fn put(table: &dyn ItemTable, item: Item) {
    write(table, Op::put(item).expect("an item with a key")).await;
}

async fn get(table: &dyn ItemTable, key: &RowKey) -> Option<Item> {
    insist(|| table.get(key, Consistency::Strong)).await.expect("the table works")
}

async fn row<R: Row>(table: &dyn ItemTable, key: &RowKey) -> Option<R> {
    get(table, key).await.map(|item| R::from_item(item).expect("a well-formed row"))
}

async fn meta(table: &dyn ItemTable) -> Meta {
    row(table, &entry().meta()).await.expect("there is a META")
}

async fn revision(table: &dyn ItemTable) -> Revision {
    Revision::of(get(table, &entry().meta()).await.as_ref())
}

fn acquire(name: u8, now: Timestamp) -> Acquire {
    Acquire { entry: entry(), token: token(name), duration: LEASE, now, owner: None, unless_changed: None }
}

async fn held(table: &dyn ItemTable, name: u8, now: Timestamp) -> Lease {
    match run(table, &acquire(name, now)).await {
        Acquired::Held { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

/// A generation that began then, with a body of its own.
fn generation(name: u8, began: Timestamp) -> Generation {
    Generation {
        etag: Some(format!("\"{name}\"")),
        ttl: Some(began.seconds() + 86_400),
        status: Some(200),
        ..Generation::new(
            entry().body_key(began, &token(name)),
            began.seconds(),
            Window::from_seconds(WINDOW),
        )
    }
}

fn publish(lease: &Lease, generation: Generation, seen: Revision, now: Timestamp) -> Publish {
    Publish { lease: lease.clone(), generation, seen, now, version: None, request: None }
}

/// A whole regeneration, recipe A: read, lease, publish.
async fn regenerate(table: &dyn ItemTable, name: u8, now: Timestamp) -> Published {
    let seen = revision(table).await;
    let lease = held(table, name, now).await;
    run(table, &publish(&lease, generation(name, now), seen, now)).await
}

/// The same, recipe B.
async fn regenerate_version(table: &dyn ItemTable, name: u8, now: Timestamp) -> VersionId {
    let seen = revision(table).await;
    let lease = held(table, name, now).await;
    let id = VersionId::for_generation(now, &token(name));
    let publish = Publish { version: Some(id.clone()), ..publish(&lease, generation(name, now), seen, now) };
    assert!(matches!(run(table, &publish).await, Published::Done { .. }));
    id
}

async fn marks(table: &dyn ItemTable, tags: &BTreeSet<Tag>, tenant: Option<&Tenant>) -> Vec<Sequence> {
    let mut marks = Vec::new();
    for tag in tags {
        marks.extend(row::<Sequence>(table, &tag_row(tenant, tag)).await);
    }
    marks
}

async fn is_fresh(table: &dyn ItemTable, now: Timestamp) -> bool {
    let meta = meta(table).await;
    let marks = marks(table, &meta.generation.tags, None).await;
    matches!(freshness::assess(&meta, &marks, now), Freshness::Fresh { .. })
}

async fn invalidate(table: &dyn ItemTable, now: Timestamp) {
    let mut present = true;
    for _ in 0..10 {
        match run(table, &Invalidate { entry: entry(), present, now }).await {
            Invalidated::Done => return,
            Invalidated::Retry { present: other } => present = other,
        }
    }
    panic!("META comes and goes though nobody writes");
}

fn idempotency_key() -> IdempotencyKey {
    IdempotencyKey::new("req-7f3a").expect("a key")
}

fn begin(name: u8, now: Timestamp) -> Begin {
    Begin {
        acquire: acquire(name, now),
        key: idempotency_key(),
        request_hash: request_hash([("page", b"42".as_slice())]),
        ttl: now.seconds() + 86_400,
        previous: None,
    }
}

async fn started(table: &dyn ItemTable, name: u8, now: Timestamp) -> Attempt {
    match run(table, &begin(name, now)).await {
        Begun::Started(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

async fn request(table: &dyn ItemTable) -> Request {
    row(table, &entry().request(&idempotency_key())).await.expect("there is a REQ#")
}

async fn complete(table: &dyn ItemTable, attempt: &Attempt, name: u8, now: Timestamp) -> Published {
    let seen = revision(table).await;
    let publish = publish(&attempt.lease, generation(name, now), seen, now);
    run(table, &Publish { request: Some(attempt.clone()), ..publish }).await
}
