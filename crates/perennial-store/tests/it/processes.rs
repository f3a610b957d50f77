//! Several processes on one directory.

use crate::children::{self, Reporter};
use perennial_core::key::{CacheKey, Entry, LeaseToken, PkScheme};
use perennial_core::lease::{Acquire, Acquired, Lease, Release};
use perennial_core::schema::Lock;
use perennial_core::time::Timestamp;
use perennial_store::conformance::block_on;
use perennial_store::table::Consistency;
use perennial_store::{EmbeddedTable, ItemTable as _, ItemTableExt as _};
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

const PROCESSES: usize = 4;
const LEASES: u64 = 10_000;
const NOW: Timestamp = Timestamp::from_seconds(1_763_200_000);

fn entry() -> Entry {
    CacheKey::new("/contended").entry(PkScheme::Hashed).unwrap()
}

fn token(round: u64) -> LeaseToken {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&std::process::id().to_le_bytes());
    bytes[8..].copy_from_slice(&round.to_le_bytes());
    LeaseToken::from_random(bytes)
}

/// Tries until it holds the lease; nobody's runs out here, as the time stands still.
async fn acquire(table: &EmbeddedTable, round: u64) -> Lease {
    let acquire = Acquire {
        entry: entry(),
        token: token(round),
        duration: Duration::from_secs(5),
        now: NOW,
        owner: None,
        unless_changed: None,
    };
    loop {
        if let Acquired::Held { lease, .. } = table.run(&acquire).await.unwrap() {
            return lease;
        }
    }
}

#[test]
fn role_contender() {
    let Some(dir) = children::role("processes::role_contender") else { return };
    let table = EmbeddedTable::open(dir.join("table")).unwrap();
    // The judge: the kernel lets one process at a time have this lock.
    let judge = File::create(dir.join("judge")).unwrap();
    block_on(async {
        for round in 0..LEASES / PROCESSES as u64 {
            let lease = acquire(&table, round).await;
            judge.try_lock().expect("nobody else holds the lease");
            let lock: Lock = table.get_row(&entry().lock(), Consistency::Strong).await.unwrap().unwrap();
            assert_eq!(lock.token, lease.token);
            judge.unlock().unwrap();
            table.run(&Release { lease }).await.unwrap();
        }
    });
    println!("contended {LEASES}");
}

#[test]
fn four_processes_contend_for_one_lease_and_never_two_hold_it() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Reporter::start(children::command("processes::role_contender", dir.path()));
    let mut contenders: Vec<Reporter> = (0..PROCESSES).map(|_| start()).collect();
    for contender in &mut contenders {
        assert!(contender.next("contended ").is_some(), "a contender found two holders, or failed");
    }
    assert!(contenders.into_iter().all(Reporter::wait));
    let table = EmbeddedTable::open(dir.path().join("table")).unwrap();
    assert_eq!(block_on(table.get(&entry().lock(), Consistency::Strong)).unwrap(), None);
}

#[test]
fn role_echo() {
    let Some(dir) = children::role("processes::role_echo") else { return };
    let table = EmbeddedTable::open(dir).unwrap();
    block_on(acquire(&table, 1));
    println!("echo acquired");
    std::io::stdout().flush().unwrap();
    // Until the parent closes its end.
    std::io::stdin().lines().for_each(drop);
}

/// What one process commits, another sees at once: the row, and that something has changed.
#[test]
fn a_commit_is_seen_by_other_processes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let table = EmbeddedTable::open(&path).unwrap();
    let before = table.change_counter();
    let mut command = children::command("processes::role_echo", &path);
    let mut other = Reporter::start({
        command.stdin(std::process::Stdio::piped());
        command
    });
    assert_eq!(other.next("echo ").as_deref(), Some("acquired"));
    assert_ne!(table.change_counter(), before);
    assert!(block_on(table.get(&entry().lock(), Consistency::Strong)).unwrap().is_some());
}
