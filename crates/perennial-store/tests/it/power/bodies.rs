//! Bodies on a local disk, when the power goes, the disk is full, or syncs fail.

use super::journal::{Event, Pen};
use super::{Cut, Images, Recording, play_judge, relieve, without};
use crate::children;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use perennial_core::body_key::BodyKey;
use perennial_store::body::{BodyAttributes, BodyStream, Found};
use perennial_store::conformance::{block_on, in_threads};
use perennial_store::faulty::SplitMix64;
use perennial_store::{BodyStore as _, DiskBodies, Error};
use std::fs;
use std::ops::Range;
use std::path::Path;

const WORKERS: usize = 3;
/// How many bodies each worker writes or deletes.
const STEPS: usize = 20;

fn key(worker: usize, body: usize) -> BodyKey {
    BodyKey::new(format!("worker/{worker}/{body}")).unwrap()
}

/// A body's bytes: of many lengths, around those of sectors, of pages and of what is read at once.
fn bytes(worker: usize, body: usize) -> Vec<u8> {
    let length = match (worker, body) {
        (0, 12) => 1_200_000,
        (1, 13) => 300_000,
        _ => [0, 1, 100, 511, 513, 4_000, 4_096, 9_000, 40_000][(worker + body) % 9],
    };
    let mut random = SplitMix64((worker * 1000 + body) as u64);
    let mut bytes: Vec<u8> = (0..=length / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

fn pieces(bytes: &[u8]) -> BodyStream {
    let pieces: Vec<_> = bytes.chunks(70_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

fn attributes() -> BodyAttributes {
    BodyAttributes { content_type: Some("text/html".into()), ..BodyAttributes::default() }
}

/// What a worker does in a step.
enum Step {
    Put(usize),
    Delete(usize),
}

impl Step {
    /// Mostly it writes a new body; now and then it deletes one, or writes one again.
    fn of(step: usize) -> Self {
        match step % 6 {
            4 => Self::Delete(step - 2),
            5 => Self::Put(step - 1 - step / 6 % 3),
            _ => Self::Put(step),
        }
    }

    async fn take(self, bodies: &DiskBodies, worker: usize) -> Result<(), Error> {
        match self {
            Self::Put(body) => {
                let stream = pieces(&bytes(worker, body));
                bodies.put(&key(worker, body), &attributes(), stream).await.map(drop)
            }
            Self::Delete(body) => bodies.delete(&key(worker, body)).await,
        }
    }
}

/// Whether a body is there after so many steps.
fn is_there(body: usize, steps: usize) -> bool {
    let last = (0..steps).rev().find_map(|step| match Step::of(step) {
        Step::Put(put) if put == body => Some(true),
        Step::Delete(deleted) if deleted == body => Some(false),
        _ => None,
    });
    last.unwrap_or(false)
}

/// Takes a worker's steps until one is refused. Gives how many are done.
async fn work(bodies: &DiskBodies, worker: usize, steps: Range<usize>, pen: &Pen) -> usize {
    for step in steps.clone() {
        if let Err(error) = Step::of(step).take(bodies, worker).await {
            pen.refused(&error);
            return step;
        }
        pen.acknowledged(worker);
    }
    steps.end
}

/// All workers at once, each from where it was up to this step. Gives how many steps each has done.
fn work_together(bodies: &DiskBodies, done: &[usize], end: usize, pen: &Pen) -> Vec<usize> {
    let (bodies, done, pen) = (bodies.clone(), done.to_vec(), pen.clone());
    let mut done = in_threads(WORKERS, move |worker| {
        let (bodies, start, pen) = (bodies.clone(), done[worker], pen.clone());
        async move { (worker, work(&bodies, worker, start..end, &pen).await) }
    });
    done.sort_unstable();
    done.into_iter().map(|(_, done)| done).collect()
}

#[test]
fn role_writer() {
    let Some(dir) = children::role("power::bodies::role_writer") else { return };
    let bodies = DiskBodies::open(dir).unwrap();
    assert_eq!(work_together(&bodies, &[0; WORKERS], STEPS, &Pen::of_this_process()), [STEPS; WORKERS]);
}

/// Reads a body: whether it is there, and that it is what was written.
async fn read(bodies: &DiskBodies, worker: usize, body: usize) -> Result<bool, String> {
    match bodies.get(&key(worker, body)).await.map_err(|error| format!("it can't be read: {error}"))? {
        Found::Missing => Ok(false),
        Found::Damaged(damage) => Err(damage.to_string()),
        Found::Body(found) if found.attributes != attributes() => {
            Err(format!("wrong: {:?}", found.attributes))
        }
        Found::Body(found) => {
            let read = found.into_bytes().await.map_err(|error| error.to_string())?;
            if read == bytes(worker, body) { Ok(true) } else { Err("wrong bytes".into()) }
        }
    }
}

/// Whether a worker's bodies are what `acknowledged` steps made of them, or up to `most` steps. Gives how many there
/// are.
async fn check_worker(
    bodies: &DiskBodies,
    worker: usize,
    acknowledged: usize,
    most: usize,
) -> Result<usize, String> {
    let mut count = 0;
    for body in 0..STEPS {
        let about = |problem: String| {
            format!("body {body} of worker {worker}, {acknowledged} acknowledged: {problem}")
        };
        let found = read(bodies, worker, body).await.map_err(about)?;
        if !(acknowledged..=most).any(|steps| is_there(body, steps) == found) {
            return Err(about(format!("there: {found}")));
        }
        count += usize::from(found);
    }
    Ok(count)
}

fn check_workers(bodies: &DiskBodies, acknowledged: &[usize], may_be_more: bool) -> Result<usize, String> {
    let check = |worker: usize| {
        let acknowledged = acknowledged.get(worker).copied().unwrap_or(0);
        block_on(check_worker(bodies, worker, acknowledged, acknowledged + usize::from(may_be_more)))
    };
    (0..WORKERS).map(check).sum()
}

/// The store opens, has all that was acknowledged and nothing by halves, shows as much, and goes on.
fn check(dir: &Path, acknowledged: &[usize]) -> Result<(), String> {
    let bodies = DiskBodies::open(dir).map_err(|error| format!("it can't be opened: {error}"))?;
    let readable = check_workers(&bodies, acknowledged, true)?;
    let listed = block_on(bodies.list(None, 1000)).map_err(|error| error.to_string())?.bodies.len();
    if listed != readable {
        return Err(format!("{listed} bodies are listed, {readable} can be read"));
    }
    let new = block_on(bodies.put(&key(WORKERS, 0), &attributes(), pieces(&bytes(WORKERS, 0))));
    new.map_err(|error| format!("it takes no more: {error}"))?;
    if block_on(read(&bodies, WORKERS, 0))? { Ok(()) } else { Err("a new body is not there".into()) }
}

const CHECKER: &str = "power::bodies::role_checker";

#[test]
fn role_checker() {
    let Some(dir) = children::role(CHECKER) else { return };
    play_judge(&dir, check);
}

fn recorded() -> Recording {
    Recording::of("power::bodies::role_writer", "")
}

#[test]
fn power_cut_bodies() {
    let recording = recorded();
    assert_eq!(recording.count(Event::is_acknowledgement), WORKERS * STEPS);
    Images::new().cut(&recording, &Cut::many(&recording.events, 0, 96)).assert_fine(CHECKER);
}

/// At every moment while a store is made.
#[test]
fn power_cut_new_bodies() {
    let recording = recorded();
    let made = recording.first(Event::is_acknowledgement).unwrap();
    Images::new().cut(&recording, &Cut::all(made, 6)).assert_fine(CHECKER);
}

/// The checks above can fail: they do when syncs are taken out of the journal.
#[test]
fn power_cut_bodies_without_syncs_is_noticed() {
    let mut recording = recorded();
    let all = std::mem::take(&mut recording.events);
    let is_dir = |event: &Event| {
        let Event::Sync { inode: synced } = event else { return false };
        *synced == recording.root
            || all.iter().any(|event| matches!(event, Event::MakeDir { inode, .. } if inode == synced))
    };
    for (what, events) in [
        ("any", without(&all, |_| true)),
        ("of files", without(&all, |event| !is_dir(event))),
        ("of directories", without(&all, is_dir)),
    ] {
        recording.events = events;
        let cuts = Cut::many(&recording.events, 0, 24);
        let violations = Images::new().cut(&recording, &cuts).violations(CHECKER);
        assert!(!violations.is_empty(), "without syncs {what}, nothing is found wrong");
    }
}

/// Files that are there but belong to no body.
fn leftovers(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("tmp")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Fills the disk, sees what still works, gets room, and goes on.
#[test]
fn role_filler() {
    let Some(dir) = children::role("power::bodies::role_filler") else { return };
    let pen = Pen::of_this_process();
    let bodies = DiskBodies::open(&dir).unwrap_or_else(|error| {
        pen.refused(&error);
        assert_eq!(leftovers(&dir), [""; 0]);
        relieve();
        DiskBodies::open(&dir).unwrap()
    });
    let done = work_together(&bodies, &[0; WORKERS], STEPS, &pen);
    assert_eq!(leftovers(&dir), [""; 0]);
    check_workers(&bodies, &done, false).unwrap();
    relieve();
    assert_eq!(work_together(&bodies, &done, STEPS, &pen), [STEPS; WORKERS]);
    check_workers(&bodies, &[STEPS; WORKERS], false).unwrap();
}

#[test]
fn full_disk_bodies() {
    for mode in ["full", "short", "cow"] {
        for blocks in [0, 1, 2, 3, 5, 9, 20, 100] {
            let recording = Recording::of("power::bodies::role_filler", &format!("{mode} {}", blocks * 4096));
            let refusals = recording.refusals();
            assert!(!refusals.is_empty(), "{blocks} blocks are not enough");
            for text in refusals {
                assert!(
                    text.starts_with("Full: can't write ") && text.contains("/store/"),
                    "{blocks} blocks: {text}"
                );
                assert!(text.contains("hint: make room on the disk"), "{blocks} blocks: {text}");
            }
        }
    }
}

/// Goes on after errors: a body that was not put can be put again, and deleting what is gone is fine.
#[test]
fn role_stubborn_writer() {
    let Some(dir) = children::role("power::bodies::role_stubborn_writer") else { return };
    let pen = Pen::of_this_process();
    match DiskBodies::open(&dir) {
        Ok(bodies) => {
            let done = work_together(&bodies, &[0; WORKERS], 8, &pen);
            work_together(&bodies, &done, 8, &pen);
        }
        Err(error) => pen.refused(&error),
    }
}

#[test]
fn failing_sync_bodies() {
    Images::of_failing_syncs("power::bodies::role_stubborn_writer", 16).assert_fine(CHECKER);
}
