//! The arguments of `store`.

use crate::Stop;
use std::ffi::OsString;
use std::path::PathBuf;

const USAGE: &str = "\
The embedded table beside the same work done raw on its engine.

Usage: perennial-bench store [OPTIONS]

  --rows N     rows of the table that is read and written (default 100,000; at least 1,000);
               opening is measured with ten times as many
  --rounds N   rounds, whose median is told (default 7)
  --dir DIR    use the disk of this directory; the files are removed at the end
               (default: the system's directory for temporary files)
  --quick      small numbers, to see that it works: 5,000 rows, 20,000 for opening, 3 rounds
  --help       this text";

/// The fewest rows: each of a round's writers takes some of its own.
const MIN_ROWS: u32 = 1000;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Rows that are read and written.
    pub rows: u32,
    /// Rows of the table that is opened.
    pub open_rows: u32,
    /// Entries with ten versions each.
    pub versioned: u32,
    /// How often everything is measured.
    pub rounds: usize,
    /// Reads of each thread in a round.
    pub reads: usize,
    /// Queries in a round.
    pub queries: usize,
    /// Changes of a single writer in a round.
    pub writes: usize,
    /// Changes of each of many writers in a round.
    pub writes_each: usize,
    /// Reads before memory is looked at.
    pub memory_reads: u32,
    /// Where the files go.
    pub dir: Option<PathBuf>,
}

impl Settings {
    /// Reads the arguments.
    pub fn parse(args: Vec<OsString>) -> Result<Self, Stop> {
        let (mut rows, mut rounds, mut dir, mut quick) = (None, None, None, false);
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--rows") => rows = Some(number("--rows", args.next())?),
                Some("--rounds") => rounds = Some(number("--rounds", args.next())?),
                Some("--dir") => dir = Some(value("--dir", args.next())?.into()),
                Some("--quick") => quick = true,
                Some("--help" | "-h") => return Err(Stop::Help(USAGE)),
                _ => return Err(Stop::Usage(format!("unknown argument {:?}", arg.to_string_lossy()))),
            }
        }
        let usual = if quick { Self::quick() } else { Self::full() };
        usual.with(rows, rounds, dir)
    }

    fn with(self, rows: Option<u32>, rounds: Option<u32>, dir: Option<PathBuf>) -> Result<Self, Stop> {
        let factor = self.open_rows / self.rows;
        let rows = rows.unwrap_or(self.rows);
        if rows < MIN_ROWS {
            return Err(Stop::Usage(format!("--rows is {rows}; it must be at least {MIN_ROWS}")));
        }
        let Some(open_rows) = rows.checked_mul(factor) else {
            return Err(Stop::Usage(format!(
                "--rows is {rows}; at most {} can be opened",
                u32::MAX / factor
            )));
        };
        let rounds = rounds.map_or(self.rounds, |rounds| rounds as usize);
        if rounds == 0 {
            return Err(Stop::Usage("--rounds is 0; it must be at least 1".into()));
        }
        let writes_each = self.writes_each.min((rows as usize - 1) / super::writes::MANY);
        Ok(Self { rows, open_rows, rounds, writes_each, dir, ..self })
    }

    fn full() -> Self {
        Self {
            rows: 100_000,
            open_rows: 1_000_000,
            versioned: 3000,
            rounds: 7,
            reads: 200_000,
            queries: 40_000,
            writes: 500,
            writes_each: 64,
            memory_reads: 100_000,
            dir: None,
        }
    }

    fn quick() -> Self {
        Self {
            rows: 5000,
            open_rows: 20_000,
            versioned: 200,
            rounds: 3,
            reads: 20_000,
            queries: 5000,
            writes: 50,
            writes_each: 16,
            memory_reads: 20_000,
            dir: None,
        }
    }
}

fn value(name: &str, value: Option<OsString>) -> Result<OsString, Stop> {
    value.ok_or_else(|| Stop::Usage(format!("{name} needs a value")))
}

fn number(name: &str, given: Option<OsString>) -> Result<u32, Stop> {
    let given = value(name, given)?;
    let number = given.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Stop::Usage(format!("{name} is {:?}; it must be a number", given.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Settings, Stop> {
        Settings::parse(args.iter().map(OsString::from).collect())
    }

    fn settings(args: &[&str]) -> Settings {
        parse(args).unwrap_or_else(|_| panic!("{args:?} are valid"))
    }

    fn problem(args: &[&str]) -> String {
        match parse(args) {
            Err(Stop::Usage(problem)) => problem,
            _ => panic!("{args:?} are not valid"),
        }
    }

    #[test]
    fn what_is_given_replaces_what_is_usual_in_any_order() {
        assert_eq!(settings(&[]), Settings::full());
        let quick = Settings { rows: 2000, open_rows: 8000, rounds: 5, ..Settings::quick() };
        assert_eq!(settings(&["--rows", "2000", "--quick", "--rounds", "5"]), quick);
        assert_eq!(settings(&["--dir", "/x"]).dir, Some("/x".into()));
    }

    #[test]
    fn writers_never_share_a_row() {
        assert_eq!(settings(&["--rows", "1000"]).writes_each, 15);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(problem(&["--row"]), "unknown argument \"--row\"");
        assert_eq!(problem(&["--rows"]), "--rows needs a value");
        assert_eq!(problem(&["--rows", "many"]), "--rows is \"many\"; it must be a number");
        assert_eq!(problem(&["--rows", "9"]), "--rows is 9; it must be at least 1000");
        assert_eq!(
            problem(&["--rows", "4000000000"]),
            "--rows is 4000000000; at most 429496729 can be opened"
        );
        assert_eq!(problem(&["--rounds", "0"]), "--rounds is 0; it must be at least 1");
        assert!(matches!(parse(&["--help"]), Err(Stop::Help(_))));
    }
}
