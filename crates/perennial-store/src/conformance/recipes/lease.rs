//! Freshness, leases, cool-downs and waiting: rules 1 to 4, 11 and 12.

use super::*;

/// Rows past their `ttl`, and rows without one, are as good as any.
pub async fn rule_01_ttl_decides_nothing(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    for ttl in [None, Some(0_i64), Some(at(1).seconds())] {
        write(&**table, Op::update(entry().meta(), Update::new().set_or_remove("ttl", ttl))).await;
        assert!(is_fresh(&**table, at(WINDOW - 1)).await, "{ttl:?}");
        assert!(!is_fresh(&**table, at(WINDOW + 1)).await, "{ttl:?}");
    }
    held(&**table, 2, at(2)).await;
    write(&**table, Op::update(entry().lock(), Update::new().set("ttl", 0_i64))).await;
    assert!(matches!(run(&**table, &acquire(3, at(3))).await, Acquired::Busy(_)));
}

/// A render of 4 s that began at 0 is fresh for the window from 0, not from 4.
pub async fn rule_02_generated_at_is_when_the_regeneration_began(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    run(&**table, &publish(&lease, generation(1, at(0)), Revision::Absent, at(4))).await;
    assert_eq!(meta(&**table).await.generation.generated_at, at(0).seconds());
    assert!(!is_fresh(&**table, at(WINDOW + 1)).await);
}

/// A generation dated an hour ahead can be replaced once it is invalidated, and time does not go back.
pub async fn rule_02_a_clock_that_was_ahead_does_not_stop_the_page(table: &Table) {
    regenerate(&**table, 1, at(3600)).await;
    invalidate(&**table, at(1)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(2)).await;
    let before = get(&**table, &entry().meta()).await;
    let mut generation = generation(2, at(2));
    (generation.generated_at, generation.window) = date(at(2), generation.window, before.as_ref());
    generation.ttl = None;
    let published = run(&**table, &publish(&lease, generation, seen, at(3))).await;
    assert!(matches!(published, Published::Done { .. }), "{published:?}");
    assert_eq!(meta(&**table).await.generation.generated_at, at(3600).seconds());
    assert!(is_fresh(&**table, at(4)).await);
    assert!(!is_fresh(&**table, at(2 + WINDOW)).await, "the wrong clock is not inherited");
    // The same where the row that is ahead can't be read, and is ahead by far: milliseconds for seconds.
    let ahead =
        Item::new().with("pk", entry().pk()).with("sk", "META").with("s3_key", "s3://bucket/key.html");
    put(&**table, ahead.with("generated_at", at(0).millis()).with("revalidate_seconds", 60_i64)).await;
    let before = get(&**table, &entry().meta()).await;
    let lease = held(&**table, 3, at(100)).await;
    let mut generation = self::generation(3, at(100));
    (generation.generated_at, generation.window) = date(at(100), generation.window, before.as_ref());
    generation.ttl = None;
    let published = run(&**table, &publish(&lease, generation, Revision::of(before.as_ref()), at(101))).await;
    assert!(matches!(published, Published::Done { .. }), "{published:?}");
    assert!(is_fresh(&**table, at(101)).await && !is_fresh(&**table, at(100 + WINDOW)).await);
}

/// Free iff `lease_expires_at <= now`.
pub async fn rule_03_a_lease_is_held_until_its_expiry_and_not_at_it(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    assert_eq!(lease.expires_at, at(0).seconds() + 6, "rounded up, and one more");
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!((lock.expires_at, lock.ttl), (lease.expires_at, Some(lease.expires_at + 3600)));
    let just_before = Timestamp::from_millis(lease.expires_at * 1000 - 1);
    for now in [at(0), at(3), just_before] {
        let Acquired::Busy(busy) = run(&**table, &acquire(2, now)).await else { panic!("two holders") };
        assert_eq!((busy.until, busy.cooling_down), (lease.expires_at, false));
    }
    let next = held(&**table, 2, Timestamp::from_seconds(lease.expires_at)).await;
    assert_eq!(next.token, token(2));
}

/// `lease_token = :t AND lease_expires_at > :now`.
pub async fn rule_03_only_the_holder_refreshes_and_only_in_time(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    let refresh = |lease: &Lease, now| Refresh { lease: lease.clone(), duration: LEASE, now };
    let Refreshed::Held(longer) = run(&**table, &refresh(&lease, at(3))).await else { panic!("lost") };
    assert_eq!(longer.expires_at, at(3).seconds() + 6);
    let thief = Lease { token: token(2), ..longer.clone() };
    assert_eq!(run(&**table, &refresh(&thief, at(4))).await, Refreshed::Lost);
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!(lock.ttl, Some(longer.expires_at + 3600));
    // A first try that arrives late shortens nothing: neither a refresh nor the acquire itself.
    assert_eq!(run(&**table, &refresh(&lease, at(1))).await, Refreshed::Held(longer.clone()));
    assert_eq!(held(&**table, 1, at(0)).await, longer);
    // A clock that was set back does not shorten the lease.
    assert_eq!(run(&**table, &refresh(&longer, at(1))).await, Refreshed::Held(longer.clone()));
    let late = Timestamp::from_seconds(longer.expires_at);
    assert_eq!(run(&**table, &refresh(&longer, late)).await, Refreshed::Lost);
}

/// Losing that race leaves the other's lease alone.
pub async fn rule_03_releasing_what_was_lost_is_no_error(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    let next = held(&**table, 2, at(10)).await;
    run(&**table, &Release { lease: lease.clone() }).await;
    let lock: Lock = row(&**table, &entry().lock()).await.expect("the other's lease is there");
    assert_eq!(lock.token, next.token);
    run(&**table, &Release { lease: next }).await;
    assert_eq!(get(&**table, &entry().lock()).await, None);
    run(&**table, &Release { lease }).await;
}

/// The same token asks again and has it; another does not.
pub async fn rule_03_a_lost_answer_does_not_lock_the_holder_out(table: &Table) {
    held(&**table, 1, at(0)).await;
    held(&**table, 1, at(1)).await;
    assert!(matches!(run(&**table, &acquire(2, at(1))).await, Acquired::Busy(_)));
}

/// A LOCK written by another service blocks us, frees us when it ends, and keeps what we do not know.
pub async fn rule_03_a_foreign_lease_is_respected_and_its_attributes_kept(table: &Table) {
    let foreign = Item::new()
        .with("pk", entry().pk())
        .with("sk", "LOCK")
        .with("lease_token", "1b4e28ba-2fa1-4d3b-a3f5-ef19b5a7633b")
        .with("lease_expires_at", at(10).seconds())
        .with("region", "eu-west-1");
    put(&**table, foreign).await;
    let Acquired::Busy(busy) = run(&**table, &acquire(1, at(9))).await else { panic!("two holders") };
    assert_eq!(busy.until, at(10).seconds());
    held(&**table, 1, at(10)).await;
    let lock = get(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!(lock.get("region"), Some(&"eu-west-1".into()));
    // Who asks is on record, and goes with the lease.
    let owned = Acquire { owner: Some("web-1".into()), ..acquire(2, at(20)) };
    assert!(matches!(run(&**table, &owned).await, Acquired::Held { .. }));
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!(lock.owner.as_deref(), Some("web-1"));
    held(&**table, 3, at(40)).await;
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!(lock.owner, None);
}

/// Without a numeric expiry nobody holds it.
pub async fn rule_03_a_lock_that_breaks_the_types_does_not_wedge_the_page(table: &Table) {
    for broken in [Value::Null, "soon".into(), Value::Bool(true)] {
        let lock = Item::new().with("pk", entry().pk()).with("sk", "LOCK").with("lease_token", 5_i64);
        put(&**table, lock.with("lease_expires_at", broken)).await;
        let lease = held(&**table, 1, at(0)).await;
        run(&**table, &Release { lease }).await;
    }
    put(&**table, Item::new().with("pk", entry().pk()).with("sk", "LOCK")).await;
    held(&**table, 1, at(0)).await;
}

/// Many at once: one holder, and all others learn until when.
pub async fn rule_03_of_many_one_gets_the_lease(table: &Table) {
    for round in 0..10_u64 {
        let shared = table.shared();
        let now = at(round * 100);
        let outcomes = in_threads(8, move |index| {
            let table = shared.clone();
            async move { run(&*table, &acquire(u8::try_from(index).unwrap_or(0) + 1, now)).await }
        });
        let held: Vec<_> =
            outcomes.iter().filter(|outcome| matches!(outcome, Acquired::Held { .. })).collect();
        assert_eq!(held.len(), 1, "{outcomes:?}");
    }
}

/// Two read a stale page; one publishes; the other must not begin.
pub async fn rule_03_a_page_that_changed_since_it_was_read_is_not_rendered_again(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let seen = revision(&**table).await;
    regenerate(&**table, 2, at(100)).await;
    let late = Acquire { unless_changed: Some(seen), ..acquire(3, at(101)) };
    assert_eq!(run(&**table, &late).await, Acquired::Changed);
    assert_eq!(get(&**table, &entry().lock()).await, None);
    let now = Acquire { unless_changed: Some(revision(&**table).await), ..acquire(3, at(101)) };
    assert!(matches!(run(&**table, &now).await, Acquired::Held { .. }));
    // A page that did not exist, and does now.
    let other = CacheKey::new("/other").entry(PkScheme::Hashed).expect("a valid key");
    let first = Acquire { entry: other, unless_changed: Some(Revision::Absent), ..acquire(4, at(0)) };
    assert!(matches!(run(&**table, &first).await, Acquired::Held { .. }));
}

/// Once a refresh is refused, the publish is too.
pub async fn rule_04_a_refused_refresh_means_that_nothing_is_published(table: &Table) {
    let slow = held(&**table, 1, at(0)).await;
    held(&**table, 2, at(10)).await;
    assert_eq!(
        run(&**table, &Refresh { lease: slow.clone(), duration: LEASE, now: at(11) }).await,
        Refreshed::Lost
    );
    let published = run(&**table, &publish(&slow, generation(1, at(0)), Revision::Absent, at(11))).await;
    assert_eq!(published, Published::LeaseLost);
    assert_eq!(get(&**table, &entry().meta()).await, None);
}

fn cool_down(lease: &Lease, marker: u8, delay: u64, now: Timestamp) -> CoolDown {
    CoolDown {
        lease: lease.clone(),
        marker: token(marker),
        delay: Duration::from_secs(delay),
        now,
        request: None,
    }
}

/// The old page stays; nobody tries until the cool-down is over; whoever waits is told that it failed.
pub async fn rule_11_a_failed_render_keeps_the_page_and_leaves_a_cool_down(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let before = meta(&**table).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(100)).await;
    for _ in 0..2 {
        // The second time as if the first answer had been lost.
        let cooled = run(&**table, &cool_down(&lease, 99, 10, at(101))).await;
        assert_eq!(cooled, CooledDown::Until(at(112).seconds()));
    }
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!((lock.failures, lock.ttl), (1, Some(lock.expires_at + 3600)));
    assert_eq!(meta(&**table).await, before);
    let Acquired::Busy(busy) = run(&**table, &acquire(3, at(102))).await else { panic!("no cool-down") };
    assert_eq!((busy.until, busy.cooling_down, busy.failures), (at(112).seconds(), true, 1));
    // The attempt that failed can't publish after all.
    let zombie = publish(&lease, generation(2, at(100)), seen, at(102));
    assert_eq!(run(&**table, &zombie).await, Published::LeaseLost);
    assert_eq!(run(&**table, &cool_down(&lease, 98, 10, at(102))).await, CooledDown::LeaseLost);
    assert!(matches!(regenerate(&**table, 4, at(112)).await, Published::Done { .. }));
}

/// The count outlives a cool-down, so that the next can be longer; a success ends it.
pub async fn rule_11_failures_in_a_row_are_counted_until_one_succeeds(table: &Table) {
    for failures in 0..4_u64 {
        let name = u8::try_from(failures).unwrap_or(0);
        let now = at(failures * 100);
        let outcome = run(&**table, &acquire(name + 1, now)).await;
        let Acquired::Held { lease, failures: before } = outcome else { panic!("{outcome:?}") };
        assert_eq!(before, Some(failures));
        let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
        assert_eq!(lock.failed_at, None, "somebody works: this is no cool-down");
        run(&**table, &cool_down(&lease, name + 100, 5, now)).await;
    }
    assert!(matches!(regenerate(&**table, 50, at(1000)).await, Published::Done { .. }));
    let Acquired::Held { failures, .. } = run(&**table, &acquire(51, at(1001))).await else { panic!("busy") };
    assert_eq!(failures, Some(0));
}

/// The refusal itself says when to try again, and trying then works although the holder has died.
pub async fn rule_12_a_waiter_knows_until_when_and_gets_in_then(table: &Table) {
    held(&**table, 1, at(0)).await;
    let Acquired::Busy(busy) = run(&**table, &acquire(2, at(1))).await else { panic!("two holders") };
    let then = Timestamp::from_seconds(busy.until);
    assert!(then.since(at(1)) <= LEASE + Duration::from_secs(2), "the wait is bounded");
    assert!(matches!(run(&**table, &acquire(2, then)).await, Acquired::Held { .. }));
}
