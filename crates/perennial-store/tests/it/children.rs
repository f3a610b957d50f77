//! Tests that need processes of their own: a test of this binary is run again in a child, where it plays a role.
//!
//! A role is an ordinary test that does nothing unless it was started by another.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "PERENNIAL_TEST_ROLE";
const DIR: &str = "PERENNIAL_TEST_DIR";

/// A command that runs the role, on this directory.
pub fn command(role: &str, dir: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", role, "--nocapture", "--test-threads=1"]).env(ROLE, role).env(DIR, dir);
    command
}

/// The directory to play the role on, if this process was started for it.
pub fn role(role: &str) -> Option<std::path::PathBuf> {
    (env::var(ROLE).ok()? == role).then(|| env::var_os(DIR).unwrap().into())
}

/// A child that tells what it does, line by line. It is killed when this is dropped.
pub struct Reporter {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Reporter {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// What the next line says behind `label`; other lines, the test runner's, are passed over.
    pub fn next(&mut self, label: &str) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            // A line that was cut short by a kill was never said.
            if self.lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some((_, rest)) = line.rsplit_once(label) {
                return Some(rest.trim().into());
            }
        }
    }

    /// Kills it with SIGKILL; what it has said before can still be read.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; whether that was a good one.
    pub fn wait(mut self) -> bool {
        while self.next("\u{0}").is_some() {}
        self.child.wait().unwrap().success()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
