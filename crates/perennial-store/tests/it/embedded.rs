//! What is special about the embedded table: it closes and opens again, sweeps, and keeps its file in bounds.

use perennial_core::expr::{Condition, Update};
use perennial_core::item::Item;
use perennial_core::key::RowKey;
use perennial_core::time::Timestamp;
use perennial_core::transaction::{Op, TransactResult, Transaction};
use perennial_store::conformance::{block_on, in_threads};
use perennial_store::table::Consistency;
use perennial_store::table::embedded::{Options, Swept};
use perennial_store::{Clock, EmbeddedTable, ErrorKind, ItemTable as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

fn key(sk: &str) -> RowKey {
    RowKey::new("p", sk).unwrap()
}

fn row(sk: &str) -> Item {
    Item::new().with("pk", "p").with("sk", sk)
}

fn put(table: &EmbeddedTable, items: impl IntoIterator<Item = Item>) {
    let ops = items.into_iter().map(|item| Op::put(item).unwrap()).collect();
    block_on(table.transact(&Transaction::new(ops).unwrap())).unwrap();
}

fn has(table: &EmbeddedTable, sk: &str) -> bool {
    block_on(table.get(&key(sk), Consistency::Strong)).unwrap().is_some()
}

/// The room that the file takes on the disk; its length includes holes.
fn bytes_on_disk(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("rows.mdb")).unwrap().blocks() * 512
}

#[test]
fn rows_are_there_after_closing_and_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let table = EmbeddedTable::open(dir.path()).unwrap();
        assert_eq!(table.len().unwrap(), round);
        put(&table, [row(&round.to_string())]);
        let clone = table.clone();
        drop(table);
        assert!(has(&clone, &round.to_string()), "a clone keeps it open");
    }
    let format = std::fs::read_to_string(dir.path().join("FORMAT")).unwrap();
    assert_eq!(format, "perennial table, format 1\n");
}

#[test]
fn opening_twice_in_one_process_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let _table = EmbeddedTable::open(dir.path()).unwrap();
    let error = EmbeddedTable::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains("hint: clone the table"), "{error}");
}

#[test]
fn what_was_asked_before_the_table_closes_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(dir.path()).unwrap();
    block_on(async {
        for index in 0..50 {
            // Whoever asked does not wait for the answer.
            let transaction = Transaction::single(Op::put(row(&index.to_string())).unwrap()).unwrap();
            let mut asked = Box::pin(table.transact(&transaction));
            let waker = std::task::Waker::noop();
            let _ = asked.as_mut().poll(&mut std::task::Context::from_waker(waker));
        }
    });
    drop(table);
    assert_eq!(EmbeddedTable::open(dir.path()).unwrap().len().unwrap(), 50);
}

#[test]
fn a_sweep_deletes_exactly_what_is_past_its_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(dir.path()).unwrap();
    for chunk in (0..2_500_i64).collect::<Vec<_>>().chunks(100) {
        put(&table, chunk.iter().map(|n| row(&format!("{n:04}")).with("ttl", *n)));
    }
    let odd = [row("none"), row("text").with("ttl", "1"), row("future").with("ttl", i64::MAX)];
    put(&table, odd);
    let swept = block_on(table.sweep(Timestamp::from_seconds(1_000))).unwrap();
    assert_eq!(swept, Swept { rows: 2_503, deleted: 1_000 });
    assert!(!has(&table, "0999") && has(&table, "1000") && has(&table, "2499"));
    assert!(has(&table, "none") && has(&table, "text") && has(&table, "future"));
    let again = block_on(table.sweep(Timestamp::from_seconds(1_000))).unwrap();
    assert_eq!(again, Swept { rows: 1_503, deleted: 0 });
}

#[test]
fn a_row_that_gets_a_later_ttl_during_a_sweep_stays() {
    let dir = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(dir.path()).unwrap();
    for round in 0..20 {
        put(&table, (0..100).map(|n| row(&format!("{n}")).with("ttl", 5_i64)));
        let results = in_threads(2, {
            let table = table.clone();
            move |index| {
                let table = table.clone();
                async move {
                    if index == 0 {
                        table.sweep(Timestamp::from_seconds(10)).await.unwrap();
                    } else {
                        let later = Update::new().set("ttl", 100_i64);
                        let op = Op::update(key("50"), later);
                        table.transact(&Transaction::single(op).unwrap()).await.unwrap();
                    }
                }
            }
        });
        assert_eq!(results.len(), 2);
        // Swept before or after the update, the row is there: made anew, or spared.
        assert!(has(&table, "50"), "round {round}");
    }
}

#[derive(Debug, Default)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn the_table_sweeps_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = Options::default().sweep_every(Some(Duration::from_millis(5))).clock(clock.clone());
    let table = options.open(dir.path()).unwrap();
    put(&table, [row("old").with("ttl", 1_000_i64), row("new").with("ttl", 3_000_i64)]);
    clock.0.store(2_000, Ordering::SeqCst);
    // Bounded by the test runner; a sweep comes every few milliseconds.
    while has(&table, "old") {
        std::thread::yield_now();
    }
    assert!(has(&table, "new"));
}

#[test]
fn the_file_does_not_grow_when_rows_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(dir.path()).unwrap();
    let mut sizes = Vec::new();
    for round in 0..60_i64 {
        for chunk in (0..500).collect::<Vec<_>>().chunks(100) {
            let filler = "x".repeat(usize::try_from(round * 53 % 700).unwrap());
            put(
                &table,
                chunk
                    .iter()
                    .map(|n| row(&format!("{round}-{n}")).with("ttl", round).with("f", filler.as_str())),
            );
        }
        block_on(table.sweep(Timestamp::from_seconds(round))).unwrap();
        assert_eq!(table.len().unwrap(), 500, "one round's rows are left");
        sizes.push(bytes_on_disk(dir.path()));
    }
    let (early, late) = (sizes[19], sizes[59]);
    assert!(late <= early * 3 / 2, "it grew from {early} to {late}");
}

#[test]
fn a_full_table_says_so_and_goes_on_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let table = Options::default().max_bytes(1 << 20).open(dir.path()).unwrap();
    let mut written = 0;
    let error = loop {
        let item = row(&format!("{written:05}")).with("ttl", 1_i64).with("f", "x".repeat(1000));
        match block_on(table.transact(&Transaction::single(Op::put(item).unwrap()).unwrap())) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(
        error.to_string().contains("rows.mdb") && error.to_string().contains("raise `max_bytes`"),
        "{error}"
    );
    assert!(written > 100);
    assert_eq!(table.len().unwrap(), written, "what was acknowledged is there");
    block_on(table.transact(&Transaction::single(Op::delete(key("00000"))).unwrap())).unwrap();
    drop(table);
    // With more room it goes on where it was.
    let table = Options::default().max_bytes(4 << 20).open(dir.path()).unwrap();
    assert_eq!(table.len().unwrap(), written - 1);
    put(&table, [row("more").with("f", "x".repeat(1000))]);
}

/// Deleting needs room before it gives any back.
#[test]
fn a_full_table_can_be_swept_and_written_again() {
    for max_bytes in [1 << 20, 8 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let table = Options::default().max_bytes(max_bytes).open(dir.path()).unwrap();
        let mut written = 0_u64;
        let fill = |n: u64| {
            (0..100).map(move |i| row(&format!("{n:05}-{i:02}")).with("ttl", 1_i64).with("f", "x".repeat(40)))
        };
        loop {
            let ops = fill(written).map(|item| Op::put(item).unwrap()).collect();
            match block_on(table.transact(&Transaction::new(ops).unwrap())) {
                Ok(_) => written += 1,
                Err(error) => break assert_eq!(error.kind(), ErrorKind::Full),
            }
        }
        assert_eq!(table.len().unwrap(), written * 100);
        // One transaction larger than what is kept for deleting does not take it.
        let large = row("large").with("f", "x".repeat(390_000));
        let large = block_on(table.transact(&Transaction::single(Op::put(large).unwrap()).unwrap()));
        assert_eq!(large.unwrap_err().kind(), ErrorKind::Full);
        // What needs no more room goes on: a refusal is an answer, and a row can be changed in place.
        let change = Op::update(key("00000-00"), Update::new().set("ttl", 0_i64));
        block_on(table.transact(&Transaction::single(change).unwrap())).unwrap();
        let refused = Op::put(row("00000-00")).unwrap().when(Condition::row_absent());
        let refused = block_on(table.transact(&Transaction::single(refused).unwrap())).unwrap();
        assert!(matches!(refused, TransactResult::Rejected(_)));
        let swept = block_on(table.sweep(Timestamp::from_seconds(2))).unwrap();
        assert_eq!(swept.deleted, written * 100, "{max_bytes}");
        for n in 0..written {
            put(&table, fill(n));
        }
    }
}

/// Without room behind its last page the file could look cut off: the engine leaves pages unwritten.
#[test]
fn the_file_is_longer_than_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(dir.path()).unwrap();
    for round in 0..30 {
        put(&table, (0..10).map(|n| row(&n.to_string()).with("f", "x".repeat((round * 7_919) % 380_000))));
        let length = std::fs::metadata(dir.path().join("rows.mdb")).unwrap().len();
        assert!(length > bytes_on_disk(dir.path()) + (16 << 20), "{length} in round {round}");
    }
}

#[test]
fn one_write_too_large_for_the_room_left_does_not_take_others_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let table = Options::default().max_bytes(1 << 20).open(dir.path()).unwrap();
    let outcomes = in_threads(16, {
        let table = table.clone();
        move |index| {
            let table = table.clone();
            async move {
                let size = if index % 4 == 0 { 390_000 } else { 10 };
                let item = row(&index.to_string()).with("f", "x".repeat(size));
                let done = table.transact(&Transaction::single(Op::put(item).unwrap()).unwrap()).await;
                (size, done.map(drop).map_err(|error| error.kind()))
            }
        }
    });
    assert!(outcomes.iter().filter(|(size, _)| *size == 10).all(|(_, done)| done.is_ok()), "{outcomes:?}");
    assert!(outcomes.contains(&(390_000, Err(ErrorKind::Full))), "{outcomes:?}");
}
