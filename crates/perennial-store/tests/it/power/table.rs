//! The table of one machine, when the power goes, the disk is full, or syncs fail.

use super::journal::{Event, Pen};
use super::{Cut, Images, Recording, play_judge, relieve, without};
use crate::children;
use futures_util::future::join_all;
use perennial_core::expr::Update;
use perennial_core::item::{Item, Value};
use perennial_core::key::RowKey;
use perennial_core::transaction::{Op, Transaction};
use perennial_store::conformance::{block_on, in_threads};
use perennial_store::faulty::SplitMix64;
use perennial_store::table::Query;
use perennial_store::table::embedded::Options;
use perennial_store::{EmbeddedTable, Error, ItemTable, ItemTableExt as _, MemoryTable};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// Workers in each thread, so that several wait at once and share a commit.
const TOGETHER: usize = 4;
const WORKERS: usize = 2 * TOGETHER;
/// How many transactions each worker runs.
const STEPS: usize = 40;
/// In how many places each worker writes.
const SLOTS: u64 = 6;
/// The two partitions of a worker, which must always say the same.
const HALVES: [&str; 2] = ["left", "right"];

fn partition(half: &str, worker: usize) -> String {
    format!("{half}-{worker}")
}

/// What a worker does in its next step: the same to both partitions. Rows come, change and go, small ones and ones of
/// several pages, so that pages are given back and used again.
fn transaction(worker: usize, step: usize) -> Transaction {
    let mut random = SplitMix64((worker * 1000 + step) as u64);
    let slot = format!("slot-{}", random.next() % SLOTS);
    let what = random.next() % 10;
    let length = [10, 300, 900, 2500, 9000][usize::try_from(random.next() % 5).unwrap()];
    let filler = format!("{worker}.{step} ").repeat(length / 4);
    let ops = HALVES.map(|half| {
        let (pk, counter) = (partition(half, worker), step as u64);
        match what {
            0..5 => {
                let item = Item::new().with("pk", pk).with("sk", slot.as_str());
                Op::put(item.with("counter", counter).with("filler", filler.as_str())).unwrap()
            }
            5..8 => {
                Op::update(RowKey::new(pk, slot.as_str()).unwrap(), Update::new().set("counter", counter))
            }
            _ => Op::delete(RowKey::new(pk, slot.as_str()).unwrap()),
        }
    });
    Transaction::new(ops.into()).unwrap()
}

fn open(dir: &Path) -> Result<EmbeddedTable, Error> {
    Options::default().max_bytes(4 << 20).sweep_every(None).open(dir)
}

/// Takes a worker's steps until one is refused. Gives how many are done.
async fn work(table: &EmbeddedTable, worker: usize, steps: Range<usize>, pen: &Pen) -> usize {
    for step in steps.clone() {
        if let Err(error) = table.transact(&transaction(worker, step)).await {
            pen.refused(&error);
            return step;
        }
        pen.acknowledged(worker);
    }
    steps.end
}

/// All workers at once, each from where it was up to this step. Gives how many steps each has done.
fn work_together(table: &EmbeddedTable, done: &[usize], end: usize, pen: &Pen) -> Vec<usize> {
    let (table, done, pen) = (table.clone(), done.to_vec(), pen.clone());
    let mut done = in_threads(WORKERS / TOGETHER, move |thread| {
        let (table, done, pen) = (table.clone(), done.clone(), pen.clone());
        async move {
            let workers = thread * TOGETHER..(thread + 1) * TOGETHER;
            let run = |worker: usize| work(&table, worker, done[worker]..end, &pen);
            (thread, join_all(workers.map(run)).await)
        }
    });
    done.sort();
    done.into_iter().flat_map(|(_, done)| done).collect()
}

#[test]
fn role_writer() {
    let Some(dir) = children::role("power::table::role_writer") else { return };
    let table = open(&dir).unwrap();
    let done = work_together(&table, &[0; WORKERS], STEPS, &Pen::of_this_process());
    assert_eq!(done, [STEPS; WORKERS]);
}

/// The rows of a partition.
fn rows(table: &dyn ItemTable, half: &str, worker: usize) -> Result<Vec<Item>, String> {
    let found = block_on(table.query_all(Query::new(partition(half, worker), ""), 1000));
    found.map_err(|error| format!("the rows of worker {worker} can't be read: {error}"))
}

/// Whether a worker's rows are what `acknowledged` steps made of them, or one more step, where that may have happened.
fn check_worker(
    table: &EmbeddedTable,
    worker: usize,
    acknowledged: usize,
    may_be_more: bool,
) -> Result<(), String> {
    let [left, right] = HALVES.map(|half| rows(table, half, worker));
    let (left, right) = (left?, right?);
    let says = |rows: &[Item]| -> Vec<(Option<Value>, Option<Value>)> {
        rows.iter().map(|row| (row.get("sk").cloned(), row.get("counter").cloned())).collect()
    };
    if says(&left) != says(&right) {
        return Err(format!("worker {worker}: half a transaction: {:?} and {:?}", says(&left), says(&right)));
    }
    let model = MemoryTable::new();
    let most = if may_be_more { (acknowledged + 1).min(STEPS) } else { acknowledged };
    for step in 0..=most {
        if step >= acknowledged
            && rows(&model, HALVES[0], worker)? == left
            && rows(&model, HALVES[1], worker)? == right
        {
            return Ok(());
        }
        block_on(model.transact(&transaction(worker, step))).map_err(|error| error.to_string())?;
    }
    Err(format!(
        "worker {worker}: {acknowledged} steps were acknowledged, but these rows are there: {:?}",
        says(&left)
    ))
}

fn check_workers(table: &EmbeddedTable, acknowledged: &[usize], may_be_more: bool) -> Result<(), String> {
    let of = |worker: usize| acknowledged.get(worker).copied().unwrap_or(0);
    (0..WORKERS).try_for_each(|worker| check_worker(table, worker, of(worker), may_be_more))
}

/// Writes some more, over several pages, so that whatever is wrong with free pages would do harm.
fn write_more(table: &EmbeddedTable) -> Result<(), String> {
    for round in 0..6_u64 {
        let item = Item::new().with("pk", "more").with("sk", format!("{}", round % 3));
        let item = item.with("filler", "x".repeat(5000)).with("round", round);
        let put = Transaction::single(Op::put(item.clone()).unwrap()).unwrap();
        block_on(table.transact(&put)).map_err(|error| format!("it takes no more writes: {error}"))?;
        let found =
            block_on(table.query_all(Query::new("more", ""), 10)).map_err(|error| error.to_string())?;
        if !found.contains(&item) {
            return Err(format!("a new row is not there: {found:?}"));
        }
    }
    Ok(())
}

/// The table opens, has all that was acknowledged and nothing by halves, and goes on.
fn check(dir: &Path, acknowledged: &[usize]) -> Result<(), String> {
    let reopen = || open(dir).map_err(|error| format!("it can't be opened: {:?}: {error}", error.kind()));
    let table = reopen()?;
    check_workers(&table, acknowledged, true)?;
    write_more(&table)?;
    check_workers(&table, acknowledged, true)?;
    drop(table);
    check_workers(&reopen()?, acknowledged, true)
}

const CHECKER: &str = "power::table::role_checker";

#[test]
fn role_checker() {
    let Some(dir) = children::role(CHECKER) else { return };
    play_judge(&dir, check);
}

fn recorded() -> Recording {
    Recording::of("power::table::role_writer", "")
}

/// Where the table is made, and the first transaction done.
fn made(recording: &Recording) -> usize {
    recording.first(Event::is_acknowledgement).unwrap()
}

/// How often a page was written over, those not counted that name the others.
fn pages_used_again(recording: &Recording) -> usize {
    let mut written = BTreeSet::new();
    recording.count(|event| match event {
        Event::Write { inode, at, synced: false, .. } => !written.insert((*inode, *at)),
        _ => false,
    })
}

#[test]
fn power_cut_table() {
    let recording = recorded();
    let acknowledged = recording.count(Event::is_acknowledgement);
    let commits = recording.count(|event| matches!(event, Event::Write { synced: true, .. }));
    assert_eq!(acknowledged, WORKERS * STEPS);
    assert!(commits < acknowledged, "{commits} commits: some are shared");
    assert!(pages_used_again(&recording) > 100, "pages are given back and used again");
    let cuts = Cut::many(&recording.events, made(&recording), 144);
    Images::new().cut(&recording, &cuts).assert_fine(CHECKER);
}

/// At every moment while a table is made.
#[test]
fn power_cut_new_table() {
    let recording = recorded();
    let cuts = Cut::all(made(&recording), 24);
    Images::new().cut(&recording, &cuts).assert_fine(CHECKER);
}

/// The checks above can fail: they do when syncs are taken out of the journal.
#[test]
fn power_cut_table_without_syncs_is_noticed() {
    let mut recording = recorded();
    let is_sync = |event: &Event| matches!(event, Event::Sync { .. });
    let all = std::mem::take(&mut recording.events);
    for (what, events) in [
        ("any", without(&all, |_| true)),
        ("of pages", without(&all, is_sync)),
        ("of the page that names the others", without(&all, |event| !is_sync(event))),
    ] {
        recording.events = events;
        let cuts = Cut::many(&recording.events, made(&recording), 36);
        let violations = Images::new().cut(&recording, &cuts).violations(CHECKER);
        assert!(!violations.is_empty(), "without syncs {what}, nothing is found wrong");
    }
}

/// Fills the disk, sees what still works, gets room, and goes on. With `reopen`, it opens the table anew in between.
fn fill(dir: &Path, reopen: bool) {
    let pen = Pen::of_this_process();
    let mut table = open(dir).unwrap_or_else(|error| {
        pen.refused(&error);
        relieve();
        open(dir).unwrap()
    });
    let done = work_together(&table, &[0; WORKERS], STEPS, &pen);
    if reopen {
        drop(table);
        table = open(dir).unwrap();
    }
    // It can be read at once, and what was refused has not happened.
    check_workers(&table, &done, false).unwrap();
    relieve();
    assert_eq!(work_together(&table, &done, STEPS, &pen), [STEPS; WORKERS]);
    check_workers(&table, &[STEPS; WORKERS], false).unwrap();
    drop(table);
    check_workers(&open(dir).unwrap(), &[STEPS; WORKERS], false).unwrap();
}

#[test]
fn role_filler() {
    let Some(dir) = children::role("power::table::role_filler") else { return };
    fill(&dir, false);
}

#[test]
fn role_reopening_filler() {
    let Some(dir) = children::role("power::table::role_reopening_filler") else { return };
    fill(&dir, true);
}

/// Room for so many blocks, from too few to make a table to nearly enough for all.
const ROOM: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 8, 16, 60];

fn assert_full(role: &str, mode: &str) {
    for blocks in ROOM {
        let recording = Recording::of(role, &format!("{mode} {}", blocks * 4096));
        let refusals = recording.refusals();
        assert!(!refusals.is_empty(), "{blocks} blocks are not enough");
        for text in refusals {
            assert!(text.starts_with("Full: ") && text.contains("/store/"), "{blocks} blocks: {text}");
            assert!(text.contains("hint: make room on the disk"), "{blocks} blocks: {text}");
        }
    }
}

#[test]
fn full_disk_table() {
    assert_full("power::table::role_filler", "full");
}

/// The engine writes several pages at once, and of those a nearly full disk takes some.
#[test]
fn full_disk_table_with_short_writes() {
    assert_full("power::table::role_filler", "short");
}

/// A file system that never writes in place. There the engine may find no room even for the page that names the
/// others; then it wants to be opened again, but has lost nothing.
#[test]
fn full_disk_table_on_copy_on_write() {
    for blocks in ROOM {
        let recording =
            Recording::of("power::table::role_reopening_filler", &format!("cow {}", blocks * 4096));
        let refusals = recording.refusals();
        assert!(!refusals.is_empty(), "{blocks} blocks are not enough");
        for text in refusals {
            let is_clear = text.starts_with("Full: ") || text.contains("hint: a write failed half-way");
            assert!(is_clear && text.contains("/store/"), "{blocks} blocks: {text}");
        }
    }
}

/// Goes on after errors: a step sets what it sets whatever was there, so it can be taken again.
#[test]
fn role_stubborn_writer() {
    let Some(dir) = children::role("power::table::role_stubborn_writer") else { return };
    let pen = Pen::of_this_process();
    match open(&dir) {
        Ok(table) => {
            let done = work_together(&table, &[0; WORKERS], 8, &pen);
            work_together(&table, &done, 8, &pen);
        }
        Err(error) => pen.refused(&error),
    }
}

#[test]
fn failing_sync_table() {
    Images::of_failing_syncs("power::table::role_stubborn_writer", 20).assert_fine(CHECKER);
}
