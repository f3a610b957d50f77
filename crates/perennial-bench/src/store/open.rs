//! Opening a large table: after it was closed, and after a process that wrote to it was killed.

use super::args::Settings;
use super::{block_on, rows, this_program};
use crate::Stop;
use crate::measure::{Samples, timed};
use crate::random::Random;
use crate::report::{Line, grouped};
use perennial_core::item::{Item, Value};
use perennial_core::key::Entry;
use perennial_core::schema::attr;
use perennial_store::table::Consistency;
use perennial_store::{EmbeddedTable, ItemTable};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// The hidden command that opens a table and writes until it is killed.
pub const CHILD: &str = "store-writer-child";

/// How long opening may take.
const EXPECTED: Duration = Duration::from_secs(1);
/// Writes that the child has had acknowledged before it is killed.
const WRITES: usize = 30;
/// Rows among which the child's writes go round; not among those that are read.
const WRITTEN: u64 = 1000;

/// Measures opening the table in `dir`, first read included.
pub fn run(settings: &Settings, dir: &Path) {
    let mut random = Random::new(6);
    let (mut closed, mut killed) = (Samples::default(), Samples::default());
    for _ in 0..settings.rounds {
        let (elapsed, table) = open(dir, &rows::entry(random.below(settings.open_rows)));
        closed.push(elapsed.as_secs_f64());
        drop(table);
        let acknowledged = kill_a_writer(dir);
        let (elapsed, table) = open(dir, &rows::entry(random.below(settings.open_rows)));
        killed.push(elapsed.as_secs_f64());
        check(&table, acknowledged);
    }
    let rows = grouped(settings.open_rows.into());
    print(&format!("open and read, {rows} rows"), &closed);
    print("  after SIGKILL of a writer", &killed);
}

fn print(what: &str, seconds: &Samples) {
    let median = seconds.median();
    Line::new(what)
        .ours(format!("{:.1} ms", median * 1000.0))
        .expected("< 1 s", median < EXPECTED.as_secs_f64())
        .print();
}

fn open(dir: &Path, first: &Entry) -> (Duration, EmbeddedTable) {
    let key = first.meta();
    let (elapsed, (table, item)) = timed(|| {
        let table = EmbeddedTable::open(dir).expect("the table opens");
        let item = block_on(table.get(&key, Consistency::Strong)).expect("a read works");
        (table, item)
    });
    assert!(item.is_some_and(|item| rows::is_row(&item, &key)), "{key} was read");
    (elapsed, table)
}

/// Starts a process that writes to the table, kills it amid that, and gives its last write that was acknowledged.
fn kill_a_writer(dir: &Path) -> u64 {
    let mut child = this_program(CHILD, dir).stdout(Stdio::piped()).spawn().expect("the writer starts");
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut lines = output.lines().map(|line| line.expect("the writer's output can be read"));
    let mut complete: Vec<String> = lines.by_ref().take(WRITES).collect();
    assert_eq!(complete.len(), WRITES, "the writer ended by itself");
    child.kill().expect("the writer can be killed");
    child.wait().expect("the writer has ended");
    complete.extend(lines);
    let last = complete.iter().rev().find_map(|line| line.strip_suffix('.')?.parse().ok());
    last.expect("the writer told its writes")
}

/// Checks that an acknowledged write survived.
fn check(table: &EmbeddedTable, acknowledged: u64) {
    let key = written(acknowledged).meta();
    let item = block_on(table.get(&key, Consistency::Strong)).expect("a read works");
    let number = item.as_ref().and_then(|item| item.get(attr::VERSION));
    assert_eq!(number, Some(&acknowledged.into()), "an acknowledged write was lost");
}

/// Where a write of the child goes.
fn written(number: u64) -> Entry {
    Entry::from_pk(format!("WRITTEN#{}", number % WRITTEN)).expect("the key is valid")
}

/// The child: writes, and tells the number of each write once it is acknowledged. It ends when nobody listens.
pub fn child(args: &[OsString]) -> Result<(), Stop> {
    let [dir] = args else { return Err(Stop::Usage(format!("{CHILD} takes a directory"))) };
    let table = EmbeddedTable::open(dir).map_err(|error| Stop::Failed(error.to_string()))?;
    let mut output = std::io::stdout();
    block_on(async {
        for number in 0_u64.. {
            let key = written(number).meta();
            let row = Item::new().with(attr::PK, key.pk()).with(attr::SK, key.sk());
            rows::put(&table, vec![row.with(attr::VERSION, Value::from(number))]).await;
            // The full stop shows that the line is whole.
            if writeln!(output, "{number}.").is_err() {
                break;
            }
        }
    });
    Ok(())
}
