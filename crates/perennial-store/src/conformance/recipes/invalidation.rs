//! Invalidating an entry or a tag: rules 9 and 10.

use super::*;

/// What was read before the purge is not published after it; the worker begins again.
pub async fn rule_09_a_render_begun_before_the_invalidation_is_not_published(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(100)).await;
    invalidate(&**table, at(101)).await;
    let published = run(&**table, &publish(&lease, generation(2, at(100)), seen, at(102))).await;
    assert_eq!(published, Published::LeaseLost);
    assert!(!is_fresh(&**table, at(102)).await);
    assert!(matches!(regenerate(&**table, 3, at(103)).await, Published::Done { .. }));
    assert!(is_fresh(&**table, at(104)).await);
    assert_eq!(meta(&**table).await.invalidated_at, None);
}

/// There is no META to mark; the lease goes all the same, and no META comes into being.
pub async fn rule_09_an_entry_being_made_for_the_first_time_is_invalidated_too(table: &Table) {
    invalidate(&**table, at(0)).await;
    let lease = held(&**table, 1, at(1)).await;
    let absent = Invalidate { entry: entry(), present: false, now: at(2) };
    assert_eq!(run(&**table, &absent).await, Invalidated::Done);
    assert_eq!(get(&**table, &entry().meta()).await, None);
    let published = run(&**table, &publish(&lease, generation(1, at(1)), Revision::Absent, at(3))).await;
    assert_eq!(published, Published::LeaseLost);
    regenerate(&**table, 2, at(4)).await;
    assert_eq!(run(&**table, &absent).await, Invalidated::Retry { present: true });
    assert!(is_fresh(&**table, at(5)).await, "the wrong form changes nothing");
}

/// The page was dated by a clock that was ahead of the one that invalidates it.
pub async fn rule_09_an_invalidation_holds_whatever_the_clocks_say(table: &Table) {
    regenerate(&**table, 1, at(86_400)).await;
    invalidate(&**table, at(1)).await;
    assert!(!is_fresh(&**table, at(2)).await && !is_fresh(&**table, at(86_401)).await);
    let before = get(&**table, &entry().meta()).await;
    let lease = held(&**table, 2, at(3)).await;
    let mut page = generation(2, at(3));
    (page.generated_at, page.window) = date(at(3), page.window, before.as_ref());
    page.ttl = None;
    run(&**table, &publish(&lease, page, Revision::of(before.as_ref()), at(4))).await;
    assert!(is_fresh(&**table, at(5)).await);
    invalidate(&**table, at(6)).await;
    assert!(!is_fresh(&**table, at(7)).await && !is_fresh(&**table, at(1000)).await);
}

/// A first try of the acquire arrives once more after the purge, and makes the old token's lease anew.
pub async fn rule_09_a_lease_brought_back_by_a_delayed_request_does_not_help(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(100)).await;
    invalidate(&**table, at(101)).await;
    run(&**table, &acquire(2, at(100))).await;
    let published = run(&**table, &publish(&lease, generation(2, at(100)), seen, at(102))).await;
    assert_eq!(published, Published::Superseded);
    assert!(!is_fresh(&**table, at(102)).await);
}

/// `revalidate_seconds = 0`, which every reader understands.
pub async fn rule_09_a_foreign_reader_sees_the_page_stale(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    invalidate(&**table, at(1)).await;
    let item = get(&**table, &entry().meta()).await.expect("there is a META");
    assert_eq!(item.get("revalidate_seconds"), Some(&0_i64.into()));
    let meta = Meta::from_item(item).expect("a META row");
    let stale = freshness::assess(&meta, &[], at(2));
    assert_eq!(stale, Freshness::Stale(StaleReason::Invalidated { at: at(1).seconds() }));
}

async fn invalidate_tag(table: &dyn ItemTable, tenant: Option<&Tenant>, tag: &Tag) -> u64 {
    let to = run(table, &Advance { tenant: tenant.cloned() }).await;
    run(table, &Raise { tenant: tenant.cloned(), tag: tag.clone(), to }).await;
    to
}

/// The counter as a regeneration reads it before it renders.
async fn counter(table: &dyn ItemTable, tenant: Option<&Tenant>) -> u64 {
    row::<Sequence>(table, &counter_row(tenant)).await.map_or(0, |row| row.sequence)
}

async fn publish_tagged(table: &dyn ItemTable, name: u8, tags: &[&Tag], seen_tags: u64, now: Timestamp) {
    let seen = revision(table).await;
    let lease = held(table, name, now).await;
    let tags = tags.iter().map(|tag| (*tag).clone()).collect();
    let generation = Generation { tags, tag_sequence: Some(seen_tags), ..generation(name, now) };
    assert!(matches!(run(table, &publish(&lease, generation, seen, now)).await, Published::Done { .. }));
}

/// One counter and one row, and no clock: what counts is what the render saw before it began.
pub async fn rule_10_a_tag_makes_pages_stale_that_began_before(table: &Table) {
    let tag = Tag::new("post:42").expect("a tag");
    let other = Tag::new("post:43").expect("a tag");
    publish_tagged(&**table, 1, &[&tag], counter(&**table, None).await, at(0)).await;
    assert!(is_fresh(&**table, at(1)).await);
    invalidate_tag(&**table, None, &other).await;
    assert!(is_fresh(&**table, at(1)).await, "another tag");
    // A render reads the counter, the tag is invalidated, the render publishes: stale at once.
    let seen = counter(&**table, None).await;
    invalidate_tag(&**table, None, &tag).await;
    assert!(!is_fresh(&**table, at(1)).await);
    publish_tagged(&**table, 2, &[&tag], seen, at(100)).await;
    assert!(!is_fresh(&**table, at(101)).await, "it began before the invalidation");
    // Begun after it, even by a clock that is behind: fresh.
    publish_tagged(&**table, 3, &[&tag, &other], counter(&**table, None).await, at(200)).await;
    assert!(is_fresh(&**table, at(201)).await);
}

/// Two invalidations of one tag, raised in the wrong order.
pub async fn rule_10_a_tag_s_row_never_goes_down(table: &Table) {
    let tag = Tag::new("post:42").expect("a tag");
    let first = run(&**table, &Advance { tenant: None }).await;
    let second = run(&**table, &Advance { tenant: None }).await;
    assert!(second > first);
    for to in [second, first] {
        run(&**table, &Raise { tenant: None, tag: tag.clone(), to }).await;
    }
    let mark: Sequence = row(&**table, &tag_row(None, &tag)).await.expect("there is a tag row");
    assert_eq!((mark.sequence, mark.tag), (second, Some(tag)));
    let shared: Arc<dyn ItemTable> = table.shared();
    let numbers = in_threads(4, move |_| {
        let table = shared.clone();
        async move { invalidate_tag(&*table, None, &Tag::new("post:42").expect("a tag")).await }
    });
    let mark: Sequence = row(&**table, &mark.key).await.expect("there is a tag row");
    assert_eq!(Some(mark.sequence), numbers.iter().max().copied());
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "each has a number of its own");
}

/// Each tenant has a counter of its own, and each tag a partition of its own.
pub async fn rule_10_tenants_and_tags_do_not_meet(table: &Table) {
    let acme = Tenant::new("acme").expect("a tenant");
    let tag = Tag::new("post:42").expect("a tag");
    invalidate_tag(&**table, Some(&acme), &tag).await;
    assert_eq!(counter(&**table, None).await, 0);
    assert_eq!(get(&**table, &tag_row(None, &tag)).await, None);
    let partitions = [
        counter_row(None),
        counter_row(Some(&acme)),
        tag_row(None, &tag),
        tag_row(Some(&acme), &tag),
        tag_row(None, &Tag::new("post:43").expect("a tag")),
        entry().meta(),
    ];
    let distinct: BTreeSet<&str> = partitions.iter().map(RowKey::pk).collect();
    assert_eq!(distinct.len(), partitions.len());
}

/// Garbage collection must not forget an invalidation.
pub async fn rule_10_counting_and_tag_rows_never_expire(table: &Table) {
    let tag = Tag::new("post:42").expect("a tag");
    invalidate_tag(&**table, None, &tag).await;
    for key in [counter_row(None), tag_row(None, &tag)] {
        assert_eq!(get(&**table, &key).await.expect("there is such a row").get("ttl"), None);
    }
}
