//! The one thread that writes: many transactions share one commit, and so one sync.
//!
//! The engine has one writer at a time, in one process or several, and each commit waits for the disk. So writes queue
//! up here while a commit is under way, and the next commit takes all of them. Nobody is answered before the commit
//! that has their write is durable.

use super::files::{Files, engine, or_full};
use crate::{Error, ErrorKind, Result, thread};
use heed::RwTxn;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// The most writes that wait to be taken; whoever comes then waits to be let in.
const QUEUE: usize = 1024;
/// The size after which a commit takes no more writes: it bounds the pages that a commit can add.
const MAX_BATCH: usize = 16 << 20;
/// What a row adds to a commit's size besides its bytes: the pages on the way to it.
const ROW: usize = 16 << 10;

/// What one write came to inside a transaction of the engine.
pub(super) struct Applied<T> {
    pub answer: T,
    /// How many rows it changed; none means that there is nothing to commit.
    pub rows: usize,
    /// How many bytes these have.
    pub bytes: usize,
}

impl<T> Applied<T> {
    fn size(&self) -> usize {
        self.rows * ROW + self.bytes
    }
}

/// Why a write did not happen.
pub(super) enum Failure {
    /// This write is refused; others are not concerned.
    Refused(Error),
    /// The engine failed; the whole commit is off.
    Engine(heed::Error),
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Self {
        Self::Engine(error)
    }
}

/// A write that waits for its commit.
trait Work: Send {
    /// Does it, inside a transaction of the engine; gives the size of the change. It may be done again in another.
    fn apply(&mut self, files: &Files, txn: &mut RwTxn<'_>) -> Result<usize, heed::Error>;
    /// Answers: the commit is durable.
    fn acknowledge(self: Box<Self>);
    /// Answers: the commit failed.
    fn fail(self: Box<Self>, error: Error);
}

struct Task<T, F> {
    write: F,
    answer: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&Files, &mut RwTxn<'_>) -> Result<Applied<T>, Failure> + Send> Work for Task<T, F> {
    fn apply(&mut self, files: &Files, txn: &mut RwTxn<'_>) -> Result<usize, heed::Error> {
        let pages = files.pages(txn)?;
        match (self.write)(files, txn) {
            Ok(applied) => {
                // What takes no more room than before (a change in place, a delete, a refusal) is always let through.
                let after = files.pages(txn)?;
                if after > pages && after > files.most_pages(txn)? {
                    return Err(heed::Error::Mdb(heed::MdbError::MapFull));
                }
                let size = applied.size();
                self.answer = Some(Ok(applied.answer));
                Ok(size)
            }
            Err(Failure::Refused(error)) => {
                self.answer = Some(Err(error));
                Ok(0)
            }
            Err(Failure::Engine(error)) => Err(error),
        }
    }

    fn acknowledge(self: Box<Self>) {
        let answer =
            self.answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Unsettled, "the write was not tried")));
        // Whoever asked may have gone; the write stands all the same.
        let _ = self.reply.send(answer);
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// The way to the writing thread. It ends when the last of these is gone.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Work>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(files: Files) -> Result<(Self, JoinHandle<()>)> {
        let (queue, works) = mpsc::channel(QUEUE);
        let thread = thread::spawn("perennial-writer", move || write_all(&files, works))?;
        Ok((Self { queue }, thread))
    }

    /// Writes, and waits until that is durable.
    pub async fn run<T, F>(&self, write: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Files, &mut RwTxn<'_>) -> Result<Applied<T>, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(Box::new(Task { write, answer: None, reply }))
            .await
            .map_err(|_| stopped(ErrorKind::Setup))?;
        answer.await.map_err(|_| stopped(ErrorKind::Unsettled))?
    }

    /// [`Writer::run`] for a thread of our own.
    pub fn run_blocking<T, F>(&self, write: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Files, &mut RwTxn<'_>) -> Result<Applied<T>, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Box::new(Task { write, answer: None, reply });
        self.queue.blocking_send(task).map_err(|_| stopped(ErrorKind::Setup))?;
        answer.blocking_recv().map_err(|_| stopped(ErrorKind::Unsettled))?
    }
}

fn stopped(kind: ErrorKind) -> Error {
    Error::new(kind, "the thread that writes the table has stopped")
        .hint("restart the program; its log says why")
}

/// Takes what waits, commits it together, answers, until nobody can ask any more.
fn write_all(files: &Files, mut works: mpsc::Receiver<Box<dyn Work>>) {
    while let Some(first) = works.blocking_recv() {
        let mut batch = vec![first];
        match commit(files, &mut batch, &mut works) {
            // Nothing happened, and it need not be the fault of all: one by one, some may fit, or not meet what is
            // damaged.
            Err(error) if error.kind() != ErrorKind::Unsettled && batch.len() > 1 => {
                for work in batch {
                    let (_, mut none) = mpsc::channel(1);
                    let mut alone = vec![work];
                    let committed = commit(files, &mut alone, &mut none);
                    answer(alone, committed);
                }
            }
            committed => answer(batch, committed),
        }
    }
}

/// Tells everyone whose write was in a commit what came of it.
fn answer(batch: Vec<Box<dyn Work>>, committed: Result<()>) {
    match committed {
        Ok(()) => batch.into_iter().for_each(Work::acknowledge),
        Err(error) => {
            tracing::error!(%error, writes = batch.len(), "a commit failed");
            for work in batch {
                work.fail(Error::new(error.kind(), error.to_string()));
            }
        }
    }
}

/// One commit: the writes in `batch`, and those that wait, as they are taken.
fn commit(
    files: &Files,
    batch: &mut Vec<Box<dyn Work>>,
    waiting: &mut mpsc::Receiver<Box<dyn Work>>,
) -> Result<()> {
    // Until the commit nothing has happened; a commit that fails may have.
    let failed = |error| engine(&files.path, "write to", error, ErrorKind::Busy);
    let unsettled = |error| {
        let error = engine(&files.path, "commit to", error, ErrorKind::Unsettled);
        // Where the engine is unusable, the commit failed at its last page, and may have happened.
        if files.env.write_txn().is_ok() {
            error
        } else {
            Error::new(ErrorKind::Unsettled, error.to_string())
        }
    };
    let mut txn = files.env.write_txn().map_err(failed)?;
    files.make_room(&txn)?;
    let mut size = 0;
    let mut next = 0;
    while let Some(work) = batch.get_mut(next) {
        size += work.apply(files, &mut txn).map_err(failed)?;
        next += 1;
        if next == batch.len() && size < MAX_BATCH {
            batch.extend(waiting.try_recv().ok());
        }
    }
    // Nothing changed, nothing to sync: dropping the transaction ends it.
    if size == 0 {
        return Ok(());
    }
    txn.commit().map_err(|error| unsettled(or_full(&files.env, &files.path, error)))
}
