//! Deletes rows whose `ttl` has passed, in small batches, from a thread of its own.
//!
//! Of all processes on a directory, one sweeps in each interval. A pass looks at all rows, a thousand at a time in a
//! read transaction of its own, and deletes what it finds by small writes between those of others. A row is looked at
//! again when it is deleted, so one that was given a later `ttl` meanwhile stays.

use super::codec;
use super::files::{Files, engine};
use super::writer::{Applied, Failure, Writer};
use crate::{Clock, ErrorKind, Result, thread};
use perennial_core::time::{Seconds, Timestamp};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many rows are looked at in one read transaction.
const LOOK: usize = 1000;
/// How many rows are deleted in one write.
const DELETE: usize = 100;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows looked at.
    pub rows: u64,
    /// Rows deleted.
    pub deleted: u64,
}

/// Deletes every row whose `ttl` lies before now.
pub(super) fn sweep(files: &Files, writer: &Writer, now: Seconds, stop: impl Fn() -> bool) -> Result<Swept> {
    // Readers that died without a word would keep deleted pages from being used again.
    files
        .env
        .clear_stale_readers()
        .map_err(|error| engine(&files.path, "clear stale readers of", error, ErrorKind::Busy))?;
    let mut swept = Swept::default();
    let mut after = None;
    while !stop() {
        let look = look(files, after.as_deref(), now)?;
        swept.rows += look.rows;
        for keys in look.expired.chunks(DELETE) {
            swept.deleted += delete_some(writer, keys, now)?;
        }
        match look.last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    Ok(swept)
}

/// What one read transaction found.
struct Look {
    rows: u64,
    expired: Vec<Vec<u8>>,
    /// Where to go on; nothing at the end.
    last: Option<Vec<u8>>,
}

fn look(files: &Files, after: Option<&[u8]>, now: Seconds) -> Result<Look> {
    let failed = |error| engine(&files.path, "sweep", error, ErrorKind::Busy);
    let txn = files.env.read_txn().map_err(failed)?;
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let rows = files.rows.range(&txn, &(start, Bound::<&[u8]>::Unbounded)).map_err(failed)?;
    let mut look = Look { rows: 0, expired: Vec::new(), last: None };
    for row in rows.take(LOOK) {
        let (key, bytes) = row.map_err(failed)?;
        look.rows += 1;
        if is_expired(bytes, now) {
            look.expired.push(key.to_vec());
        }
        if look.rows == LOOK as u64 {
            look.last = Some(key.to_vec());
        }
    }
    Ok(look)
}

fn is_expired(bytes: &[u8], now: Seconds) -> bool {
    codec::peek_ttl(bytes).is_some_and(|ttl| ttl < now)
}

/// Deletes these rows; fewer at a time where the room that deleting needs is short.
fn delete_some(writer: &Writer, keys: &[Vec<u8>], now: Seconds) -> Result<u64> {
    match delete(writer, keys.to_vec(), now) {
        Err(error) if error.kind() == ErrorKind::Full && keys.len() > 1 => {
            let (first, second) = keys.split_at(keys.len() / 2);
            Ok(delete_some(writer, first, now)? + delete_some(writer, second, now)?)
        }
        deleted => deleted,
    }
}

fn delete(writer: &Writer, keys: Vec<Vec<u8>>, now: Seconds) -> Result<u64> {
    writer.run_blocking(move |files, txn| {
        let mut deleted = 0;
        for key in &keys {
            // A damaged row is left for its reader to report: its `ttl` may be the damage.
            let expired = |bytes: &[u8]| is_expired(bytes, now) && codec::decode(bytes).is_ok();
            if files.rows.get(txn, key)?.is_some_and(expired) {
                files.rows.delete(txn, key)?;
                deleted += 1;
            }
        }
        Ok::<_, Failure>(Applied { answer: deleted as u64, rows: deleted, bytes: 0 })
    })
}

/// The thread that sweeps; it ends when this is dropped.
pub(super) struct Sweeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Starts the thread: one sweep in each interval, in whichever process comes first.
    pub fn start(files: Files, writer: Writer, every: Duration, clock: Arc<dyn Clock>) -> Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::spawn("perennial-sweeper", move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                if let Err(error) = turn(&files, &writer, every, clock.now(), &stopped) {
                    tracing::warn!(%error, "a sweep of expired rows failed; the next one goes on");
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // The thread notices that the other end is gone.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sweeps, unless another process has done so in this interval.
fn turn(
    files: &Files,
    writer: &Writer,
    every: Duration,
    now: Timestamp,
    stopped: &Receiver<()>,
) -> Result<()> {
    if !claim(writer, every, now)? {
        return Ok(());
    }
    let stop = || !matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    let swept = sweep(files, writer, now.seconds(), stop)?;
    tracing::debug!(swept.rows, swept.deleted, "swept expired rows");
    Ok(())
}

/// Takes the turn of this interval, if nobody has. A clock that was set back waits for no turn in the future.
fn claim(writer: &Writer, every: Duration, now: Timestamp) -> Result<bool> {
    writer.run_blocking(move |files, txn| {
        let last = files.info.get(txn, b"swept")?.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        let last = last.map(|bytes| Timestamp::from_millis(i64::from_le_bytes(bytes)));
        // Half an interval of slack: timers of several processes are never quite in step.
        if last.is_some_and(|last| last <= now && now.since(last) < every / 2) {
            return Ok::<_, Failure>(Applied { answer: false, rows: 0, bytes: 0 });
        }
        files.info.put(txn, b"swept", &now.millis().to_le_bytes())?;
        Ok(Applied { answer: true, rows: 1, bytes: 8 })
    })
}
