//! Memory of a process that reads a table: it must not grow with the table.

use super::args::Settings;
use super::{block_on, open_quiet, rows, this_program};
use crate::Stop;
use crate::measure::Samples;
use crate::random::Random;
use crate::report::{Line, grouped};
use perennial_store::table::Consistency;
use perennial_store::{EmbeddedTable, ItemTable};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The hidden command that opens a table, reads, and tells its memory.
pub const CHILD: &str = "store-memory-child";

/// How much more a process may have at most rows than at fewest, in KiB.
const EXPECTED_GROWTH: f64 = 1024.0;

/// Measures the anonymous memory of processes that read tables of three sizes; `large` is the largest.
pub fn run(settings: &Settings, dir: &Path, large: &Path) {
    let sizes = [settings.rows / 10, settings.rows, settings.open_rows];
    let dirs: [PathBuf; 3] = [dir.join("small"), dir.join("middle"), large.into()];
    for (dir, rows) in dirs.iter().zip(sizes).take(2) {
        rows::build(&open_quiet(dir), rows, rows::Insert::Sorted);
    }
    let mut memory: [Samples; 3] = Default::default();
    for _ in 0..settings.rounds {
        for ((samples, dir), rows) in memory.iter_mut().zip(&dirs).zip(sizes) {
            let Some(anonymous) = measure(dir, rows, settings.memory_reads) else {
                return Line::new("anonymous memory").remark("this system does not tell").print();
            };
            samples.push(anonymous);
        }
    }
    print(settings, &memory, sizes);
}

fn print(settings: &Settings, memory: &[Samples; 3], sizes: [u32; 3]) {
    let reads = grouped(settings.memory_reads.into());
    println!("anonymous memory of a process that opened a table and read {reads} times");
    for (samples, rows) in memory.iter().zip(sizes) {
        let what = format!("  {} rows", grouped(rows.into()));
        Line::new(what).ours(format!("{:.2} MiB", samples.median() / 1024.0)).print();
    }
    let growth = memory[2].median() - memory[0].median();
    Line::new("  the most rows over the fewest")
        .ours(format!("{:+.2} MiB", growth / 1024.0))
        .expected("<= 1 MiB", growth <= EXPECTED_GROWTH)
        .print();
}

/// The anonymous memory of a fresh process, in KiB, if the system tells it.
fn measure(dir: &Path, rows: u32, reads: u32) -> Option<f64> {
    let numbers = [rows, reads].map(|number| number.to_string());
    let output = this_program(CHILD, dir).args(numbers).output().expect("the reader starts");
    assert!(output.status.success(), "the reader failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// The child: reads random rows, and tells its anonymous memory.
pub fn child(args: &[OsString]) -> Result<(), Stop> {
    let number = |arg: &OsString| arg.to_str()?.parse().ok();
    let parsed = match args {
        [dir, rows, reads] => number(rows).zip(number(reads)).map(|numbers| (dir, numbers)),
        _ => None,
    };
    let Some((dir, (rows, reads))) = parsed else {
        return Err(Stop::Usage(format!("{CHILD} takes a directory, rows and reads")));
    };
    let table = EmbeddedTable::open(dir).map_err(|error| Stop::Failed(error.to_string()))?;
    block_on(read(&table, rows, reads));
    println!("{}", anonymous().unwrap_or_default());
    Ok(())
}

async fn read(table: &dyn ItemTable, rows: u32, reads: u32) {
    let mut random = Random::new(7);
    for _ in 0..reads {
        let key = rows::entry(random.below(rows)).meta();
        let item = table.get(&key, Consistency::Strong).await.expect("a read works");
        assert!(item.is_some_and(|item| rows::is_row(&item, &key)), "{key} was read");
    }
}

/// This process's anonymous memory in KiB, as text.
fn anonymous() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next().map(String::from)
}
