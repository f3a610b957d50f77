//! `store`: the embedded table beside the same work done raw on its engine.

mod args;
mod memory;
mod open;
mod raw;
mod reads;
mod rows;
mod writes;

pub use memory::{CHILD as MEMORY_CHILD, child as memory_child};
pub use open::{CHILD as WRITER_CHILD, child as writer_child};

use crate::Stop;
use crate::report::{grouped, print_head};
use args::Settings;
use perennial_store::table::embedded::Options;
use perennial_store::{EmbeddedTable, ItemTable};
use raw::Raw;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Runs the benchmark.
pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let settings = Settings::parse(args)?;
    let dir = directory(&settings)?;
    print_facts(&settings, dir.path());
    let bench = Bench::new(&settings, dir.path());
    println!("rows {} bytes long (META, as stored)\n", bench.raw.value_bytes());
    print_head();
    reads::points(&bench);
    reads::queries(&bench);
    writes::run(&bench);
    drop(bench);
    let large = dir.path().join("large");
    rows::build(&open_quiet(&large), settings.open_rows, rows::Insert::Sorted);
    open::run(&settings, &large);
    memory::run(&settings, dir.path(), &large);
    dir.close().map_err(|error| Stop::Failed(format!("can't remove the files: {error}")))
}

/// A fresh directory, which goes when the program ends.
fn directory(settings: &Settings) -> Result<TempDir, Stop> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("perennial-bench-");
    let made = match &settings.dir {
        None => builder.tempdir(),
        Some(dir) => std::fs::create_dir_all(dir).and_then(|()| builder.tempdir_in(dir)),
    };
    made.map_err(|error| Stop::Failed(format!("can't make a directory for the files: {error}")))
}

/// What the figures depend on.
fn print_facts(settings: &Settings, dir: &Path) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let rows = grouped(settings.rows.into());
    let large = grouped(settings.open_rows.into());
    let rounds = settings.rounds;
    println!("{cores} cores, {rows} rows ({large} for open), medians of {rounds} interleaved rounds");
    if cfg!(debug_assertions) {
        println!("this is a debug build: run with --release for figures that mean something");
    }
    if settings.dir.is_some() {
        println!("files in {} until the end", dir.display());
    }
}

/// A table to measure, and its twin, which the engine alone works on.
pub(crate) struct Bench<'a> {
    settings: &'a Settings,
    table: Arc<dyn ItemTable>,
    raw: Raw,
    /// Runs the tasks of many writers.
    runtime: Runtime,
}

impl<'a> Bench<'a> {
    fn new(settings: &'a Settings, dir: &Path) -> Self {
        let (ours, raws) = (dir.join("table"), dir.join("raw"));
        let table = open_quiet(&ours);
        rows::build(&table, settings.rows, rows::Insert::Shuffled);
        rows::build_versions(&table, settings.versioned);
        // The raw side reads what a lease looks like from this one.
        writes::lease_sample(&table);
        let raw = Raw::copy(&ours, &raws);
        let runtime = tokio::runtime::Builder::new_multi_thread().build();
        Self { settings, table, raw, runtime: runtime.expect("a runtime starts") }
    }
}

/// Opens a table that does not sweep: a sweep would fall into one side of a round.
fn open_quiet(dir: &Path) -> Arc<dyn ItemTable> {
    let table: EmbeddedTable = Options::default().sweep_every(None).open(dir).expect("the table opens");
    Arc::new(table)
}

/// Runs a future to its end in this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime starts").block_on(future)
}

/// Starts this program again with a hidden command.
fn this_program(command: &str, dir: &Path) -> std::process::Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = std::process::Command::new(program);
    child.arg(command).arg(dir);
    child
}
