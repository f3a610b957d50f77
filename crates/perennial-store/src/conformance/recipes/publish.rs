//! Publishing, rolling back, lost answers and garbage: rules 5, 7, 8, 13 and 14.

use super::*;

/// META and LOCK change together.
pub async fn rule_05_recipe_a_publishes_and_releases_at_once(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    let mut page = generation(1, at(0));
    page.headers = vec![Header::new("content-type", "text/html"), Header::new("x-raw", vec![0xff])];
    page.tags = BTreeSet::from([Tag::new("post:42").expect("a tag")]);
    page.tag_sequence = Some(3);
    page.body_bytes = Some(5);
    let published = run(&**table, &publish(&lease, page.clone(), Revision::Absent, at(1))).await;
    assert_eq!(published, Published::Done { version: 1 });
    assert_eq!(get(&**table, &entry().lock()).await, None);
    let meta = meta(&**table).await;
    assert_eq!((meta.version, meta.current), (Some(1), None));
    assert_eq!(meta.generation, Generation { token: Some(token(1)), ..page });
}

/// History is a query, a hit is one read, and a reader that knows only the seeds is served.
pub async fn rule_05_recipe_b_keeps_history_and_copies_the_version_onto_meta(table: &Table) {
    let mut ids = Vec::new();
    for round in 0..3 {
        ids.push(regenerate_version(&**table, u8::try_from(round).unwrap_or(0) + 1, at(round * 100)).await);
    }
    let meta = meta(&**table).await;
    assert_eq!((meta.version, meta.current.as_ref()), (Some(3), ids.last()));
    let query = Query::new(entry().pk(), "VER#").descending();
    let history = insist(|| table.query_all(query.clone(), 100)).await.expect("the table works");
    let history: Vec<Version> =
        history.into_iter().map(|item| Version::from_item(item).expect("a VER# row")).collect();
    assert_eq!(
        history.iter().map(|version| &version.id).collect::<Vec<_>>(),
        ids.iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(history[0].generation, meta.generation);
    assert_eq!(get(&**table, &entry().lock()).await, None);
    // An id that is taken is refused, and nothing changes.
    let seen = revision(&**table).await;
    let lease = held(&**table, 9, at(400)).await;
    let again =
        Publish { version: Some(ids[0].clone()), ..publish(&lease, generation(9, at(400)), seen, at(401)) };
    assert_eq!(run(&**table, &again).await, Published::VersionTaken);
    assert_eq!(self::meta(&**table).await, meta);
}

/// Expired, stolen, or taken again by somebody else: the token decides.
pub async fn rule_05_a_late_holder_publishes_nothing(table: &Table) {
    let late = held(&**table, 1, at(0)).await;
    let expired = publish(&late, generation(1, at(0)), Revision::Absent, at(6));
    assert_eq!(run(&**table, &expired).await, Published::LeaseLost);
    held(&**table, 2, at(6)).await;
    // Its own clock says that there is time left, and still the other's lease is what counts.
    let stolen = publish(&late, generation(1, at(0)), Revision::Absent, at(1));
    assert_eq!(run(&**table, &stolen).await, Published::LeaseLost);
    assert_eq!(get(&**table, &entry().meta()).await, None);
    let lock: Lock = row(&**table, &entry().lock()).await.expect("the other's lease is there");
    assert_eq!(lock.token, token(2));
}

/// Whatever the clocks say, an older generation does not replace a newer one.
pub async fn rule_05_generated_at_never_goes_back(table: &Table) {
    regenerate(&**table, 1, at(100)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(50)).await;
    let older = publish(&lease, generation(2, at(50)), seen, at(51));
    assert_eq!(run(&**table, &older).await, Published::Superseded);
    assert_eq!(meta(&**table).await.generation.generated_at, at(100).seconds());
}

/// META is updated, not replaced.
pub async fn rule_05_attributes_of_others_survive_and_old_ones_of_ours_do_not(table: &Table) {
    regenerate_version(&**table, 1, at(0)).await;
    write(
        &**table,
        Op::update(entry().meta(), Update::new().set("team", "growth").set("flags", Value::L(vec![]))),
    )
    .await;
    invalidate(&**table, at(1)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(2)).await;
    let bare = Generation::new(BodyKey::new("b/2").expect("a key"), at(2).seconds(), Window::from_seconds(5));
    run(&**table, &publish(&lease, bare.clone(), seen, at(3))).await;
    let found = meta(&**table).await;
    assert_eq!(found.generation, Generation { token: Some(token(2)), ..bare });
    assert_eq!((found.current, found.invalidated_at, found.held_until), (None, None, None));
    assert_eq!(found.other, Item::new().with("team", "growth").with("flags", Value::L(vec![])));
}

/// Both saw the same page; the version lets one through.
pub async fn rule_05_two_publishers_of_one_pointer_have_one_winner(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let seen = revision(&**table).await;
    let first = held(&**table, 2, at(100)).await;
    let one = run(&**table, &publish(&first, generation(2, at(100)), seen.clone(), at(101))).await;
    assert_eq!(one, Published::Done { version: 2 });
    let second = held(&**table, 3, at(101)).await;
    let other = run(&**table, &publish(&second, generation(3, at(101)), seen, at(102))).await;
    assert_eq!(other, Published::Superseded);
    assert_eq!(meta(&**table).await.generation.token, Some(token(2)));
}

/// Workers with and without history, and a foreign one that puts META whole, on one page.
pub async fn rule_05_recipes_a_and_b_mix_on_one_page(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    regenerate_version(&**table, 2, at(100)).await;
    regenerate(&**table, 3, at(200)).await;
    let meta_row = meta(&**table).await;
    assert_eq!((meta_row.version, meta_row.current), (Some(3), None));
    let foreign = Item::new()
        .with("pk", entry().pk())
        .with("sk", "META")
        .with("s3_key", "foreign/1.html")
        .with("generated_at", at(300).seconds())
        .with("revalidate_seconds", 60_i64);
    put(&**table, foreign).await;
    assert!(is_fresh(&**table, at(310)).await, "a foreign META with no optional fields is served");
    let id = regenerate_version(&**table, 4, at(400)).await;
    let meta_row = meta(&**table).await;
    assert_eq!((meta_row.version, meta_row.current), (Some(1), Some(id)));
}

/// Without a version, `generated_at` tells one foreign page from the next.
pub async fn rule_05_a_foreign_page_that_changed_is_noticed(table: &Table) {
    let foreign = |began: Timestamp| {
        Item::new()
            .with("pk", entry().pk())
            .with("sk", "META")
            .with("s3_key", "foreign/1.html")
            .with("generated_at", began.seconds())
            .with("revalidate_seconds", 60_i64)
    };
    put(&**table, foreign(at(0))).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 1, at(100)).await;
    let publish = publish(&lease, generation(1, at(100)), seen, at(101));
    put(&**table, foreign(at(1))).await;
    assert_eq!(run(&**table, &publish).await, Published::Superseded, "another page");
    put(&**table, foreign(at(0)).with("version", 1_i64)).await;
    assert_eq!(run(&**table, &publish).await, Published::Superseded, "one of ours");
    put(&**table, foreign(at(0))).await;
    assert!(matches!(run(&**table, &publish).await, Published::Done { .. }), "the page that was seen");
}

/// A META that can't be read is an error to its reader, and no obstacle to its next generation.
pub async fn rule_05_a_malformed_meta_is_replaced(table: &Table) {
    let broken = Item::new().with("pk", entry().pk()).with("sk", "META");
    for broken in [
        broken.clone(),
        broken.clone().with("generated_at", "1e100".parse::<Number>().expect("a number")),
        broken.clone().with("generated_at", "yesterday"),
        broken.clone().with("version", "three").with("generated_at", Value::Null),
        broken
            .with("s3_key", "../../etc/passwd")
            .with("generated_at", 1_i64)
            .with("revalidate_seconds", 1_i64),
    ] {
        put(&**table, broken.clone()).await;
        let key = entry().meta();
        let error = insist(|| table.get_row::<Meta>(&key, Consistency::Strong)).await;
        let error = error.expect_err("it is malformed");
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("row META of TENANT#acme#CACHE#"), "{error}");
        let published = regenerate(&**table, 1, at(0)).await;
        assert_eq!(published, Published::Done { version: 1 }, "{broken:?}");
        assert!(is_fresh(&**table, at(1)).await);
    }
}

async fn rollback_to(table: &dyn ItemTable, id: &VersionId, hold: Duration, now: Timestamp) -> Rollback {
    Rollback {
        entry: entry(),
        to: row(table, &entry().version(id)).await.expect("there is such a version"),
        seen: revision(table).await,
        tag_sequence: None,
        hold,
        now,
    }
}

/// Fresh by the seeds' own rule until the hold ends, then regenerated as ever.
pub async fn rule_05_a_rollback_holds_and_then_ends(table: &Table) {
    let old = regenerate_version(&**table, 1, at(0)).await;
    regenerate_version(&**table, 2, at(100)).await;
    let rollback = rollback_to(&**table, &old, Duration::from_secs(1000), at(200)).await;
    let rollback = Rollback { tag_sequence: Some(9), ..rollback };
    let RolledBack::Done { held_until } = run(&**table, &rollback).await else { panic!("not done") };
    let held_meta = meta(&**table).await;
    assert_eq!((held_meta.current.as_ref(), held_meta.version), (Some(&old), Some(3)));
    assert_eq!(held_meta.held_until, Some(held_until));
    assert_eq!(
        held_meta.generation.tag_sequence,
        Some(9),
        "what was invalidated before does not end the hold"
    );
    assert_eq!(run(&**table, &rollback).await, RolledBack::Done { held_until }, "the first answer was lost");
    assert_eq!(meta(&**table).await, held_meta);
    assert_eq!(held_meta.generation.body, generation(1, at(0)).body);
    assert_eq!(held_meta.generation.generated_at, at(0).seconds());
    assert!(held_meta.generation.ttl > Some(held_until), "it is not collected during its hold");
    assert!(is_fresh(&**table, at(1199)).await);
    assert!(!is_fresh(&**table, at(1202)).await);
    regenerate_version(&**table, 3, at(1300)).await;
    let meta_row = meta(&**table).await;
    assert_eq!((meta_row.held_until, meta_row.version), (None, Some(4)));
}

/// A version whose clock was ahead is held for the time stated, and no longer.
pub async fn rule_05_a_rollback_to_a_version_dated_ahead_ends_in_time(table: &Table) {
    let old = regenerate_version(&**table, 1, at(86_400)).await;
    let rollback = rollback_to(&**table, &old, Duration::from_secs(60), at(10)).await;
    assert!(matches!(run(&**table, &rollback).await, RolledBack::Done { .. }));
    assert!(is_fresh(&**table, at(60)).await && !is_fresh(&**table, at(72)).await);
}

/// What was being made when somebody rolled back is not published over it.
pub async fn rule_05_a_rollback_stops_a_regeneration_under_way(table: &Table) {
    let old = regenerate_version(&**table, 1, at(0)).await;
    regenerate_version(&**table, 2, at(100)).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 3, at(200)).await;
    let rollback = rollback_to(&**table, &old, Duration::from_secs(1000), at(201)).await;
    assert!(matches!(run(&**table, &rollback).await, RolledBack::Done { .. }));
    let published = run(&**table, &publish(&lease, generation(3, at(200)), seen, at(202))).await;
    assert_eq!(published, Published::LeaseLost);
    assert_eq!(meta(&**table).await.current, Some(old));
    // An invalidation ends the hold.
    invalidate(&**table, at(203)).await;
    assert!(!is_fresh(&**table, at(204)).await);
    assert_eq!(meta(&**table).await.held_until, None);
}

/// A version that was collected can't be rolled back to, nor can a page that changed meanwhile.
pub async fn rule_05_a_rollback_needs_its_version_and_the_page_it_saw(table: &Table) {
    let old = regenerate_version(&**table, 1, at(0)).await;
    let rollback = rollback_to(&**table, &old, Duration::from_secs(10), at(50)).await;
    regenerate_version(&**table, 2, at(100)).await;
    assert_eq!(run(&**table, &rollback).await, RolledBack::Superseded);
    let rollback = rollback_to(&**table, &old, Duration::from_secs(10), at(150)).await;
    // The same id with another body is not the version that was looked at.
    write(&**table, Op::update(entry().version(&old), Update::new().set("s3_key", "other/body"))).await;
    assert_eq!(run(&**table, &rollback).await, RolledBack::VersionGone);
    write(&**table, Op::delete(entry().version(&old))).await;
    assert_eq!(run(&**table, &rollback).await, RolledBack::VersionGone);
}

/// Ours or not ours, a consistent read tells; and running it again tells the same.
pub async fn rule_07_a_lost_publish_is_settled_by_reading_meta(table: &Table) {
    let lease = held(&**table, 1, at(0)).await;
    let publish = publish(&lease, generation(1, at(0)), Revision::Absent, at(1));
    assert!(!publish.is_current(get(&**table, &entry().meta()).await.as_ref()));
    run(&**table, &publish).await;
    assert!(publish.is_current(get(&**table, &entry().meta()).await.as_ref()));
    // An invalidation since does not make it less published; a later generation does.
    invalidate(&**table, at(2)).await;
    assert!(publish.is_current(get(&**table, &entry().meta()).await.as_ref()));
    regenerate(&**table, 2, at(3)).await;
    assert!(!publish.is_current(get(&**table, &entry().meta()).await.as_ref()));
}

/// A repeat finds its own traces, and changes nothing.
pub async fn rule_07_a_repeated_publish_is_done_once(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    let id = VersionId::for_generation(at(0), &token(1));
    let publish = publish(&attempt.lease, generation(1, at(0)), Revision::Absent, at(1));
    let publish = Publish { version: Some(id), request: Some(attempt), ..publish };
    for _ in 0..3 {
        assert_eq!(run(&**table, &publish).await, Published::Done { version: 1 });
    }
    assert_eq!(meta(&**table).await.version, Some(1));
    // Once another has published, the repeat does not claim to be current.
    regenerate(&**table, 2, at(100)).await;
    assert_eq!(run(&**table, &publish).await, Published::LeaseLost);
}

/// The pointer stays, the dates move on.
pub async fn rule_08_equal_bytes_keep_their_body_and_the_row_is_written(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    let first = meta(&**table).await;
    let seen = revision(&**table).await;
    let lease = held(&**table, 2, at(100)).await;
    let same_bytes = Generation { body: first.generation.body.clone(), ..generation(2, at(100)) };
    run(&**table, &publish(&lease, same_bytes, seen, at(101))).await;
    let second = meta(&**table).await;
    assert_eq!(second.generation.body, first.generation.body);
    assert_eq!(second.generation.generated_at, at(100).seconds());
    assert!(is_fresh(&**table, at(150)).await);
    // Two generations never share a body key otherwise.
    assert_ne!(entry().body_key(at(0), &token(1)), entry().body_key(at(0), &token(2)));
}

/// Current and kept versions point at their bodies; those of replaced and unpublished generations are garbage.
pub async fn rule_13_the_rows_of_an_entry_tell_its_garbage(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    regenerate_version(&**table, 2, at(100)).await;
    regenerate_version(&**table, 3, at(200)).await;
    let grace = garbage::grace(LEASE);
    let now = at(300).plus(grace);
    let rows = insist(|| table.query_all(Query::new(entry().pk(), ""), 1000)).await.expect("the table works");
    let is_garbage = |body: &BodyKey| garbage::is_garbage(body, at(250), now, grace, &rows);
    assert!(is_garbage(&generation(1, at(0)).body), "replaced under recipe A");
    assert!(!is_garbage(&generation(2, at(100)).body), "kept as a version");
    assert!(!is_garbage(&generation(3, at(200)).body), "current");
    assert!(is_garbage(&entry().body_key(at(201), &token(9))), "never published");
    assert_eq!(
        generation(1, at(0)).body.pk().as_deref(),
        Some(entry().pk()),
        "the sweep finds the rows by the key"
    );
}

/// No tenant ever gets another's bytes.
pub async fn rule_14_the_same_key_of_two_tenants_has_rows_of_its_own(table: &Table) {
    regenerate(&**table, 1, at(0)).await;
    for scheme in [PkScheme::Hashed, PkScheme::Raw] {
        for other in [CacheKey::new("/posts/42"), CacheKey::new("/posts/42").with_tenant("acme2")] {
            let other = other.entry(scheme).expect("a valid key");
            assert_eq!(get(&**table, &other.meta()).await, None);
            assert_ne!(other.body_key(at(0), &token(1)), entry().body_key(at(0), &token(1)));
        }
    }
}
