//! Doing a request once: rule 6.

use super::*;

/// No record says STARTED while nobody works.
pub async fn rule_06_begin_takes_record_and_lease_together(table: &Table) {
    let other = held(&**table, 9, at(0)).await;
    let Begun::Busy(busy) = run(&**table, &begin(1, at(1))).await else { panic!("two holders") };
    assert_eq!(busy.until, other.expires_at);
    assert_eq!(get(&**table, &entry().request(&idempotency_key())).await, None);
    run(&**table, &Release { lease: other }).await;
    let attempt = started(&**table, 1, at(2)).await;
    let record = request(&**table).await;
    assert_eq!((record.status, record.attempt_token.as_ref()), (RequestStatus::Started, Some(&token(1))));
    assert_eq!(record.attempt_expires_at, Some(attempt.lease.expires_at));
    let lock: Lock = row(&**table, &entry().lock()).await.expect("there is a LOCK");
    assert_eq!(lock.token, token(1));
    // The same worker asks again after a lost answer.
    started(&**table, 1, at(2)).await;
    // A page that changed since it was read is not rendered again.
    let stale = Acquire { unless_changed: Some(Revision::Absent), ..acquire(3, at(100)) };
    regenerate(&**table, 2, at(50)).await;
    let key = IdempotencyKey::new("another").expect("a key");
    assert_eq!(run(&**table, &Begin { acquire: stale, key, ..begin(3, at(100)) }).await, Begun::Changed);
}

/// COMPLETED with its result; begun again it gives that result and takes no lease.
pub async fn rule_06_a_completed_key_is_replayed_and_never_done_again(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    assert!(matches!(complete(&**table, &attempt, 1, at(1)).await, Published::Done { .. }));
    let record = request(&**table).await;
    assert_eq!((record.status, record.attempt_expires_at), (RequestStatus::Completed, None));
    assert_eq!(record.result, Some(generation(1, at(1)).body));
    for now in [at(2), at(1000)] {
        let replay = run(&**table, &begin(2, now)).await;
        assert_eq!(replay, Begun::Replay { result: Some(generation(1, at(1)).body) });
    }
    assert_eq!(get(&**table, &entry().lock()).await, None);
}

/// Fail closed.
pub async fn rule_06_other_inputs_are_refused_whatever_the_status(table: &Table) {
    let other =
        |name, now| Begin { request_hash: request_hash([("page", b"43".as_slice())]), ..begin(name, now) };
    let attempt = started(&**table, 1, at(0)).await;
    assert_eq!(run(&**table, &other(2, at(1))).await, Begun::Conflict);
    assert_eq!(run(&**table, &other(2, at(100))).await, Begun::Conflict, "also when the attempt is dead");
    let attempt = Attempt { lease: held(&**table, 1, at(1)).await, ..attempt };
    complete(&**table, &attempt, 1, at(1)).await;
    assert_eq!(run(&**table, &other(2, at(200))).await, Begun::Conflict);
    let failed = Update::new().set("status", "FAILED");
    write(&**table, Op::update(entry().request(&idempotency_key()), failed)).await;
    assert_eq!(run(&**table, &other(2, at(300))).await, Begun::Conflict);
}

/// STARTED and alive: wait, or serve stale.
pub async fn rule_06_a_live_attempt_is_in_progress(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    let outcome = run(&**table, &begin(2, at(3))).await;
    assert_eq!(outcome, Begun::InProgress { until: attempt.lease.expires_at });
    // Its heartbeat keeps the lease, though the record still has the first expiry: it is not taken over.
    run(&**table, &Refresh { lease: attempt.lease.clone(), duration: LEASE, now: at(4) }).await;
    assert!(matches!(run(&**table, &begin(2, at(7))).await, Begun::Busy(_)));
    assert_eq!(request(&**table).await.attempt_token, Some(token(1)));
}

/// A worker died: the next one takes over, and the dead one coming back finds itself shut out.
pub async fn rule_06_a_dead_attempt_is_taken_over_and_can_not_finish(table: &Table) {
    let dead = started(&**table, 1, at(0)).await;
    let attempt = started(&**table, 2, Timestamp::from_seconds(dead.lease.expires_at)).await;
    assert_eq!(complete(&**table, &dead, 1, at(7)).await, Published::LeaseLost);
    assert!(matches!(complete(&**table, &attempt, 2, at(8)).await, Published::Done { .. }));
    assert_eq!(request(&**table).await.result, Some(generation(2, at(8)).body));
}

/// FAILED is tried again, once the page's cool-down is over.
pub async fn rule_06_a_failed_attempt_is_taken_over_after_the_cool_down(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    let fail = CoolDown {
        lease: attempt.lease.clone(),
        marker: token(99),
        delay: Duration::from_secs(8),
        now: at(1),
        request: Some(attempt.clone()),
    };
    assert_eq!(run(&**table, &fail).await, CooledDown::Until(at(10).seconds()));
    let record = request(&**table).await;
    assert_eq!((record.status, record.attempt_token), (RequestStatus::Failed, None));
    assert_eq!(complete(&**table, &attempt, 1, at(2)).await, Published::LeaseLost);
    let Begun::Busy(busy) = run(&**table, &begin(2, at(3))).await else { panic!("no cool-down") };
    assert!(busy.cooling_down);
    // A result that an earlier attempt left is not this one's.
    let left = Update::new().set("result_s3_key", "old/result");
    write(&**table, Op::update(entry().request(&idempotency_key()), left)).await;
    let attempt = started(&**table, 2, at(10)).await;
    assert_eq!(request(&**table).await.result, None);
    assert!(matches!(complete(&**table, &attempt, 2, at(10)).await, Published::Done { .. }));
}

/// The lease is ours and the record is not, or is done: nothing is published, and the cool-down goes on without it.
pub async fn rule_06_an_attempt_whose_record_is_not_its_own_finishes_nothing(table: &Table) {
    for (name, stolen) in [
        (1, Update::new().set("attempt_token", token(77).as_str())),
        (2, Update::new().set("status", "COMPLETED")),
        (3, Update::new().set("status", "FAILED")),
    ] {
        write(&**table, Op::delete(entry().request(&idempotency_key()))).await;
        let now = at(u64::from(name) * 100);
        let attempt = started(&**table, name, now).await;
        write(&**table, Op::update(entry().request(&idempotency_key()), stolen)).await;
        assert_eq!(complete(&**table, &attempt, name, now).await, Published::RequestLost);
        assert_eq!(get(&**table, &entry().meta()).await, None);
        let fail = CoolDown {
            lease: attempt.lease.clone(),
            marker: token(90 + name),
            delay: Duration::from_secs(8),
            now,
            request: Some(attempt),
        };
        assert_eq!(run(&**table, &fail).await, CooledDown::RequestLost);
        assert!(matches!(run(&**table, &CoolDown { request: None, ..fail }).await, CooledDown::Until(_)));
    }
}

/// A service that follows the seeds writes no attempt; its LOCK then tells whether it works.
pub async fn rule_06_a_foreign_record_without_an_attempt_is_taken_over_when_nobody_works(table: &Table) {
    let foreign = Item::new()
        .with("pk", entry().pk())
        .with("sk", idempotency_key().sk())
        .with("request_hash", begin(1, at(0)).request_hash)
        .with("status", "STARTED")
        .with("ttl", at(86_400).seconds())
        .with("trace", "abc");
    put(&**table, foreign).await;
    let worker = held(&**table, 9, at(0)).await;
    assert!(matches!(run(&**table, &begin(1, at(1))).await, Begun::Busy(_)));
    run(&**table, &Release { lease: worker }).await;
    let attempt = started(&**table, 1, at(2)).await;
    complete(&**table, &attempt, 1, at(3)).await;
    let record = request(&**table).await;
    assert_eq!(record.status, RequestStatus::Completed);
    assert_eq!(record.other, Item::new().with("trace", "abc"));
}

/// Its lease was taken by an invalidation; it begins again at once.
pub async fn rule_06_a_worker_that_lost_its_lease_does_not_wait_for_itself(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    invalidate(&**table, at(1)).await;
    assert_eq!(complete(&**table, &attempt, 1, at(1)).await, Published::LeaseLost);
    assert!(matches!(run(&**table, &begin(2, at(2))).await, Begun::InProgress { .. }), "others wait");
    let again = Begin { previous: Some(token(1)), ..begin(3, at(2)) };
    let Begun::Started(attempt) = run(&**table, &again).await else { panic!("it waits for itself") };
    assert!(matches!(complete(&**table, &attempt, 3, at(3)).await, Published::Done { .. }));
}

/// The record vanished early: the page is published and the record is there again.
pub async fn rule_06_garbage_collection_of_the_record_does_not_stop_the_publish(table: &Table) {
    let attempt = started(&**table, 1, at(0)).await;
    write(&**table, Op::delete(entry().request(&idempotency_key()))).await;
    assert!(matches!(complete(&**table, &attempt, 1, at(1)).await, Published::Done { .. }));
    let record = request(&**table).await;
    assert_eq!((record.status, record.request_hash), (RequestStatus::Completed, attempt.request_hash));
}

/// An error names the row; the page itself goes on without the key.
pub async fn rule_06_a_record_that_breaks_the_types_is_named(table: &Table) {
    put(
        &**table,
        Item::new().with("pk", entry().pk()).with("sk", idempotency_key().sk()).with("status", 5_i64),
    )
    .await;
    let begin = begin(1, at(0));
    let error = insist(|| table.run(&begin)).await.expect_err("it is malformed");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("row REQ#req-7f3a of TENANT#acme#CACHE#"), "{error}");
    assert!(matches!(regenerate(&**table, 1, at(1)).await, Published::Done { .. }));
}
