//! The journal of a process: what it did to its files, and what it was told by the store, in order.
//!
//! `tests/shim/shim.rs` writes what was done; the process itself adds what it was told.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// One thing that happened.
#[derive(Clone)]
pub enum Event {
    /// Bytes were written; durably, if the file was opened so.
    Write { inode: u64, at: usize, bytes: Vec<u8>, synced: bool },
    /// A file was made longer or shorter.
    Resize { inode: u64, length: usize },
    /// A file or a directory was synced.
    Sync { inode: u64 },
    /// Syncing it failed.
    SyncFailed { inode: u64 },
    /// A file was made.
    Create { inode: u64, path: String },
    /// A directory was made.
    MakeDir { inode: u64, path: String },
    /// A name was taken away.
    Remove { path: String },
    /// A file got another name.
    Rename { from: String, to: String },
    /// A file got a further name.
    Link { from: String, to: String },
    /// A worker was told that its next step is done.
    Acknowledged { worker: usize },
    /// A worker, or whoever opened the store, was given an error.
    Refused { text: String },
}

impl Event {
    pub fn is_acknowledgement(&self) -> bool {
        matches!(self, Self::Acknowledged { .. })
    }
}

const ACKNOWLEDGED: u64 = 20;
const REFUSED: u64 = 21;

impl fmt::Debug for Event {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { inode, at, bytes, synced } => {
                let how = if *synced { " durably" } else { "" };
                write!(f, "write of {} bytes at {at} to {inode}{how}", bytes.len())
            }
            Self::Resize { inode, length } => write!(f, "resize of {inode} to {length}"),
            Self::Sync { inode } => write!(f, "sync of {inode}"),
            Self::SyncFailed { inode } => write!(f, "failed sync of {inode}"),
            Self::Create { inode, path } => write!(f, "create {path} as {inode}"),
            Self::MakeDir { inode, path } => write!(f, "mkdir {path} as {inode}"),
            Self::Remove { path } => write!(f, "remove {path}"),
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Self::Link { from, to } => write!(f, "link {from} to {to}"),
            Self::Acknowledged { worker } => write!(f, "worker {worker} is told that it is done"),
            Self::Refused { text } => write!(f, "refused: {text}"),
        }
    }
}

/// Reads a journal.
pub fn read(path: &Path) -> Vec<Event> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while !rest.is_empty() {
        let mut number = || u64::from_le_bytes(rest.split_off(..8).unwrap().try_into().unwrap());
        let (kind, inode, position, flag, length) = (number(), number(), number(), number(), number());
        let bytes = rest.split_off(..usize::try_from(length).unwrap()).unwrap();
        events.push(event(kind, inode, usize::try_from(position).unwrap(), flag == 1, bytes));
    }
    events
}

fn event(kind: u64, inode: u64, position: usize, flag: bool, bytes: &[u8]) -> Event {
    let text = || String::from_utf8(bytes.to_vec()).unwrap();
    let paths = || text().split_once('\0').map(|(from, to)| (from.into(), to.into())).unwrap();
    match kind {
        1 => Event::Write { inode, at: position, bytes: bytes.to_vec(), synced: flag },
        2 => Event::Resize { inode, length: position },
        3 => Event::Sync { inode },
        4 => Event::SyncFailed { inode },
        5 => Event::Create { inode, path: text() },
        6 => Event::MakeDir { inode, path: text() },
        7 => Event::Remove { path: text() },
        8 => {
            let (from, to) = paths();
            Event::Rename { from, to }
        }
        9 => {
            let (from, to) = paths();
            Event::Link { from, to }
        }
        ACKNOWLEDGED => Event::Acknowledged { worker: position },
        REFUSED => Event::Refused { text: text() },
        _ => panic!("a record of kind {kind}"),
    }
}

/// Lets a process add to its own journal.
#[derive(Debug, Clone)]
pub struct Pen(std::sync::Arc<File>);

impl Pen {
    /// The journal that the environment names.
    pub fn of_this_process() -> Self {
        let path = std::env::var_os("SHIM_JOURNAL").unwrap();
        Self(std::sync::Arc::new(OpenOptions::new().append(true).open(path).unwrap()))
    }

    /// Says that a worker was told that its next step is done.
    pub fn acknowledged(&self, worker: usize) {
        self.note(ACKNOWLEDGED, worker, "");
    }

    /// Says that somebody was given an error.
    pub fn refused(&self, error: &perennial_store::Error) {
        self.note(REFUSED, 0, &format!("{:?}: {error}", error.kind()));
    }

    /// One write, so that it can't mix with another record.
    fn note(&self, kind: u64, position: usize, text: &str) {
        let numbers = [kind, 0, position as u64, 0, text.len() as u64];
        let mut record: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        record.extend_from_slice(text.as_bytes());
        (&*self.0).write_all(&record).unwrap();
    }
}
