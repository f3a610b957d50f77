//! A writer that acknowledges over a pipe is killed again and again. Nothing acknowledged may be lost, and no
//! transaction may be half there.

use crate::children::{self, Reporter};
use perennial_core::expr::{Comparison, Condition, Update};
use perennial_core::item::Value;
use perennial_core::key::RowKey;
use perennial_core::transaction::{Op, TransactResult, Transaction};
use perennial_store::conformance::{block_on, in_threads};
use perennial_store::faulty::SplitMix64;
use perennial_store::table::Consistency;
use perennial_store::{EmbeddedTable, ItemTable as _};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const WRITERS: usize = 4;
const KILLS: usize = 210;

fn key(writer: usize, half: &str) -> RowKey {
    RowKey::new(format!("{half}-{writer}"), "ROW").unwrap()
}

/// Two rows in two partitions, which must always say the same.
fn step(writer: usize, n: u64) -> Transaction {
    let lower = Condition::compare("n", Comparison::Less, n);
    let update = |half| {
        // Of changing length, so that pages come and go.
        let filler = "x".repeat(usize::try_from(n * 37 % 900).unwrap());
        Op::update(key(writer, half), Update::new().set("n", n).set("filler", filler))
    };
    let first = update("a").when(Condition::row_absent().or(lower));
    Transaction::new(vec![first, update("b")]).unwrap()
}

async fn number(table: &EmbeddedTable, writer: usize, half: &str) -> u64 {
    let row = table.get(&key(writer, half), Consistency::Strong).await.unwrap();
    row.and_then(|row| row.get("n").and_then(Value::as_n)).map_or(0, |n| n.to_u64().unwrap())
}

#[test]
fn role_writer() {
    let Some(dir) = children::role("crash::role_writer") else { return };
    let table = EmbeddedTable::open(dir).unwrap();
    in_threads(WRITERS, move |writer| {
        let table = table.clone();
        async move {
            for n in number(&table, writer, "a").await + 1.. {
                let done = table.transact(&step(writer, n)).await.unwrap();
                assert!(matches!(done, TransactResult::Committed(_)));
                // One write of one line, so that lines of several threads do not mix.
                std::io::stdout().write_all(format!("acknowledged {writer} {n}\n").as_bytes()).unwrap();
                std::io::stdout().flush().unwrap();
            }
        }
    });
}

/// Reads an acknowledgement and remembers it.
fn note(line: &str, acknowledged: &mut [u64; WRITERS]) {
    let mut words = line.split(' ');
    let writer: usize = words.next().unwrap().parse().unwrap();
    let n = words.next().unwrap().parse().unwrap();
    assert!(n > acknowledged[writer], "a writer goes on where it was");
    acknowledged[writer] = n;
}

#[allow(
    clippy::disallowed_methods,
    reason = "that it reopens within a second is promised, and measured here"
)]
fn open_in_time(dir: &Path) -> EmbeddedTable {
    let start = Instant::now();
    let table = EmbeddedTable::open(dir).unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?} to open", start.elapsed());
    table
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let mut random = SplitMix64(7);
    let mut acknowledged = [0; WRITERS];
    for kill in 0..KILLS {
        let mut writer = Reporter::start(children::command("crash::role_writer", &path));
        // From none, which is while it opens, to some dozens.
        for _ in 0..random.next() % 40 {
            note(&writer.next("acknowledged ").expect("it writes until it is killed"), &mut acknowledged);
        }
        writer.kill();
        while let Some(line) = writer.next("acknowledged ") {
            note(&line, &mut acknowledged);
        }
        let table = open_in_time(&path);
        for (writer, acknowledged) in acknowledged.iter_mut().enumerate() {
            let (a, b) = (block_on(number(&table, writer, "a")), block_on(number(&table, writer, "b")));
            assert_eq!(a, b, "kill {kill}: half a transaction");
            assert!(a >= *acknowledged, "kill {kill}: {acknowledged} was acknowledged, {a} is there");
            // At most the one that was under way is there besides.
            assert!(a <= *acknowledged + 1, "kill {kill}: {acknowledged} was acknowledged, {a} is there");
            *acknowledged = a;
        }
    }
    assert!(acknowledged.iter().all(|n| *n > 100), "the writers wrote: {acknowledged:?}");
}

/// A process that dies with the engine's lock in its hand does not stop the others.
#[test]
fn a_killed_process_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    // Another name for the same role would write to the same rows: here, one process lives and others die.
    let table = EmbeddedTable::open(&path).unwrap();
    for round in 0..20 {
        let mut victim = Reporter::start(children::command("crash::role_writer", &path));
        for _ in 0..10 {
            victim.next("acknowledged ").expect("it writes until it is killed");
        }
        victim.kill();
        let survivor = WRITERS + 1;
        let done = block_on(table.transact(&step(survivor, round + 1))).unwrap();
        assert!(matches!(done, TransactResult::Committed(_)));
        assert_eq!(block_on(number(&table, survivor, "b")), round + 1);
    }
}
