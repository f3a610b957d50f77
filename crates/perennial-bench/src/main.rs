//! Benchmarks of Perennial. Every figure stands beside what it is measured against, taken in the same run, and every
//! answer is checked while it is counted: a wrong one ends the program.
//!
//! A benchmark tells; it does not judge. Lines say what was expected and whether this run met it, and the exit code
//! does not depend on that.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this program's job is to print")]

mod measure;
mod random;
mod report;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
Benchmarks of Perennial: figures and ratios, each beside what it is measured against.

Usage: perennial-bench store [OPTIONS]

store    the embedded table beside the same work done raw on its engine

Run `perennial-bench store --help` for its options.";

/// Why the program ends without a benchmark having run.
enum Stop {
    /// Help was asked for.
    Help(&'static str),
    /// The arguments make no sense.
    Usage(String),
    /// Something needed is not there.
    Failed(String),
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let command = args.next();
    match run(command.as_ref().and_then(|command| command.to_str()), args.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Help(usage)) => {
            println!("{usage}");
            ExitCode::SUCCESS
        }
        Err(Stop::Usage(problem)) => {
            eprintln!("perennial-bench: {problem}; see --help");
            ExitCode::from(2)
        }
        Err(Stop::Failed(problem)) => {
            eprintln!("perennial-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Option<&str>, args: Vec<OsString>) -> Result<(), Stop> {
    match command {
        Some("store") => store::run(args),
        Some(store::MEMORY_CHILD) => store::memory_child(&args),
        Some(store::WRITER_CHILD) => store::writer_child(&args),
        Some("--help" | "-h" | "help") => Err(Stop::Help(USAGE)),
        Some(other) => Err(Stop::Usage(format!("unknown command {other:?}"))),
        None => Err(Stop::Usage("no command given".into())),
    }
}
