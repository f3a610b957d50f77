//! Rows on one machine, in LMDB: durable, and shared by any number of processes.
//!
//! A directory holds `rows.mdb`, its lock file, and `FORMAT`, a line of text that says what this is. Reads are a look
//! into mapped memory, in the caller's thread, and wait for nobody. Writes go to one thread of each process, which
//! commits many together; an acknowledged write has been synced to the disk.
//!
//! The directory must be on a local file system, and nothing else may write to `rows.mdb` while it is open. The file
//! grows up to [`Options::max_bytes`]; room that deleted rows leave is used again.

mod codec;
mod files;
mod key;
mod sweep;
mod writer;

pub use sweep::Swept;

use super::{Consistency, ItemTable, Order, Page, Query};
use crate::{Clock, Error, ErrorKind, Result, SystemClock, thread};
use async_trait::async_trait;
use files::{Files, engine};
use heed::{RoTxn, RwTxn, WithTls};
use key::Key;
use perennial_core::item::{Item, Value};
use perennial_core::key::{LOCK, META, RowKey};
use perennial_core::schema::attr;
use perennial_core::time::Timestamp;
use perennial_core::transaction::{TransactResult, Transaction, TransactionError, Write};
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use writer::{Applied, Failure, Writer};

/// How a table is opened.
#[derive(Debug, Clone)]
pub struct Options {
    max_bytes: usize,
    max_readers: u32,
    sweep_every: Option<Duration>,
    clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // Address space, not memory or disk; the file grows as rows come.
            max_bytes: if cfg!(target_pointer_width = "64") { 64 << 30 } else { 1 << 30 },
            max_readers: 2048,
            sweep_every: Some(Duration::from_secs(300)),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// The largest size of the file. Use the same in all processes.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        // The engine wants whole pages; 64 KiB is whole on every machine.
        let max_bytes = max_bytes.max(1 << 20).next_multiple_of(1 << 16);
        Self { max_bytes, ..self }
    }

    /// The most threads, of all processes, that may read the table.
    #[must_use]
    pub fn max_readers(self, max_readers: u32) -> Self {
        Self { max_readers, ..self }
    }

    /// How often rows past their `ttl` are deleted; `None` for never by itself.
    #[must_use]
    pub fn sweep_every(self, sweep_every: Option<Duration>) -> Self {
        Self { sweep_every, ..self }
    }

    /// The clock that sweeps go by.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Opens the table in a directory, or makes a new one there.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<EmbeddedTable> {
        let files = Files::open(dir.as_ref(), self.max_bytes, self.max_readers)?;
        let (writer, thread) = Writer::start(files.clone())?;
        let sweeper = self
            .sweep_every
            .map(|every| sweep::Sweeper::start(files.clone(), writer.clone(), every, self.clock))
            .transpose()?;
        Ok(EmbeddedTable {
            inner: Arc::new(Inner { sweeper, writer: Some(writer), thread: Some(thread), files }),
        })
    }
}

/// A table on one machine, in LMDB. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct EmbeddedTable {
    inner: Arc<Inner>,
}

struct Inner {
    sweeper: Option<sweep::Sweeper>,
    /// There until the table closes.
    writer: Option<Writer>,
    thread: Option<JoinHandle<()>>,
    files: Files,
}

impl Drop for Inner {
    /// Ends the threads, in the order in which they need each other. What was asked before is written first.
    fn drop(&mut self) {
        self.sweeper = None;
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl EmbeddedTable {
    /// Opens the table in a directory, or makes a new one there, with the usual [`Options`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Options::default().open(dir)
    }

    /// Deletes every row whose `ttl` lies before `now`, in small batches. The table does this by itself as
    /// [`Options::sweep_every`] says; this is for those who can't wait.
    pub async fn sweep(&self, now: Timestamp) -> Result<Swept> {
        let (files, writer) = (self.inner.files.clone(), self.writer()?.clone());
        // Not in the caller's thread: a large table takes a while, and the writer's answers are waited for.
        thread::blocking(move || sweep::sweep(&files, &writer, now.seconds(), || false)).await
    }

    /// How many rows there are, those past their `ttl` included.
    pub fn len(&self) -> Result<u64> {
        let txn = self.read("count the rows of")?;
        self.inner.files.rows.len(&txn).map_err(|error| self.failed("count the rows of", error))
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    fn writer(&self) -> Result<&Writer> {
        self.inner.writer.as_ref().ok_or_else(|| Error::new(ErrorKind::Setup, "the table is closed"))
    }

    fn failed(&self, doing: &str, error: heed::Error) -> Error {
        engine(&self.inner.files.path, doing, error, ErrorKind::Busy)
    }

    fn read(&self, doing: &str) -> Result<RoTxn<'_, WithTls>> {
        self.inner.files.env.read_txn().map_err(|error| self.failed(doing, error))
    }

    fn read_row(&self, key: &RowKey) -> Result<Option<Item>> {
        let txn = self.read("read")?;
        let bytes =
            self.inner.files.rows.get(&txn, &Key::of(key)).map_err(|error| self.failed("read", error))?;
        bytes.map(|bytes| decode(&self.inner.files, bytes, key)).transpose()
    }

    fn read_page(&self, query: &Query) -> Result<Page> {
        let txn = self.read("query")?;
        let range = Range::of(query);
        let bounds = (as_slice(&range.lower), as_slice(&range.upper));
        let rows = &self.inner.files.rows;
        let mut page =
            Collector { query, range: &range, files: &self.inner.files, found: Vec::new(), run: Vec::new() };
        let failed = |error| self.failed("query", error);
        match query.order {
            Order::Ascending => page.collect(rows.range(&txn, &bounds).map_err(failed)?),
            Order::Descending => page.collect(rows.rev_range(&txn, &bounds).map_err(failed)?),
        }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Reads a row's bytes, or says which row can't be read and what to do about it.
fn decode(files: &Files, bytes: &[u8], key: &RowKey) -> Result<Item> {
    codec::decode(bytes).map_err(|error| {
        let message = format!("row {key} in {} is damaged: {error}", files.path.display());
        Error::new(ErrorKind::Damaged, message).hint(key.repair())
    })
}

/// Reads a row that a transaction is about to change. A damaged META or LOCK is taken for none: the page is then made
/// anew, which is what a cache is for. Any other row says what must not be forgotten, so there the damage is an error.
fn decode_for_write(files: &Files, bytes: &[u8], key: &RowKey) -> Result<Option<Item>> {
    match decode(files, bytes, key) {
        Err(error) if matches!(key.sk(), META | LOCK) => {
            tracing::warn!(%error, "taken for a missing row");
            Ok(None)
        }
        decoded => decoded.map(Some),
    }
}

/// The engine's keys among which a query's rows are.
struct Range {
    /// What the keys of the partition begin with.
    partition: Vec<u8>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Range {
    /// Bounds that leave nothing out; what they let in too many, [`Collector::wants`] leaves out.
    fn of(query: &Query) -> Self {
        let partition = Key::partition(&query.pk).to_vec();
        let with = |sk: &str| [&partition, key::plain(sk)].concat();
        let prefix = with(&query.sk_prefix);
        let mut lower = Bound::Included(prefix.clone());
        let mut upper = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        match (&query.after, query.order) {
            (Some(after), Order::Ascending) if *after > query.sk_prefix => {
                lower = Bound::Included(with(after));
            }
            (Some(after), Order::Descending) if *after < query.sk_prefix => {
                upper = Bound::Excluded(with(after));
            }
            (Some(after), Order::Descending) if after.starts_with(&query.sk_prefix) => {
                upper = successor(with(after)).map_or(Bound::Unbounded, Bound::Excluded);
            }
            _ => {}
        }
        // The engine takes a range that ends before it begins for a mistake.
        if let (Bound::Included(low), Bound::Excluded(high)) = (&lower, &upper)
            && low >= high
        {
            upper = Bound::Excluded([low.as_slice(), &[0]].concat());
        }
        Self { partition, lower, upper }
    }
}

/// The smallest key behind all that begin with this one.
fn successor(mut key: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return Some(key);
        }
    }
    None
}

/// Gathers a page from the engine's rows.
struct Collector<'a> {
    query: &'a Query,
    range: &'a Range,
    files: &'a Files,
    found: Vec<Item>,
    /// Rows with long sort keys that begin alike: they come together, in no order.
    run: Vec<Item>,
}

impl Collector<'_> {
    fn collect<'t>(
        &mut self,
        rows: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    ) -> Result<Page> {
        for row in rows {
            let (key, bytes) =
                row.map_err(|error| engine(&self.files.path, "query", error, ErrorKind::Busy))?;
            let found = key.strip_prefix(self.range.partition.as_slice()).unwrap_or_default();
            let plain = &found[..found.len().min(key::MAX_PLAIN_SK)];
            if self
                .run
                .first()
                .is_some_and(|first| key::plain(sk(first)) != plain || found.len() == plain.len())
            {
                self.end_run();
            }
            // One more than the page holds shows that there is more.
            if self.found.len() > self.query.limit {
                break;
            }
            let item = match codec::decode(bytes) {
                Ok(item) => item,
                Err(_) => decode(self.files, bytes, &self.row_key(found)?)?,
            };
            if !self.wants(sk(&item)) {
                continue;
            }
            if key::is_long(sk(&item)) { self.run.push(item) } else { self.found.push(item) }
        }
        self.end_run();
        Ok(self.page())
    }

    /// The key of a row that can't be read, as far as the engine's key tells it.
    fn row_key(&self, found: &[u8]) -> Result<RowKey> {
        Ok(RowKey::new(self.query.pk.as_str(), String::from_utf8_lossy(found))?)
    }

    fn wants(&self, sk: &str) -> bool {
        let after = self.query.after.as_deref();
        sk.starts_with(&self.query.sk_prefix)
            && match self.query.order {
                Order::Ascending => after.is_none_or(|after| sk > after),
                Order::Descending => after.is_none_or(|after| sk < after),
            }
    }

    fn end_run(&mut self) {
        self.run.sort_by(|a, b| sk(a).cmp(sk(b)));
        if self.query.order == Order::Descending {
            self.run.reverse();
        }
        self.found.append(&mut self.run);
    }

    fn page(&mut self) -> Page {
        let more = self.found.len() > self.query.limit;
        self.found.truncate(self.query.limit);
        let next = self.found.last().filter(|_| more).map(|last| sk(last).into());
        Page { items: std::mem::take(&mut self.found), next }
    }
}

/// A row's sort key.
fn sk(row: &Item) -> &str {
    row.get(attr::SK).and_then(Value::as_s).unwrap_or_default()
}

/// Runs a transaction inside one of the engine's.
fn transact(
    files: &Files,
    txn: &mut RwTxn<'_>,
    transaction: &Transaction,
) -> Result<Applied<TransactResult>, Failure> {
    let evaluation = transaction.evaluate(|key| {
        let bytes = files.rows.get(txn, &Key::of(key))?;
        match bytes {
            Some(bytes) => decode_for_write(files, bytes, key).map_err(Failure::Refused),
            None => Ok(None),
        }
    })?;
    match evaluation.into_writes(transaction) {
        Err(rejected) => Ok(Applied { answer: TransactResult::Rejected(rejected), rows: 0, bytes: 0 }),
        Ok((writes, committed)) => {
            let mut bytes = 0;
            for write in &writes {
                bytes += apply(files, txn, write)?;
            }
            Ok(Applied { answer: TransactResult::Committed(committed), rows: writes.len(), bytes })
        }
    }
}

impl From<TransactionError> for Failure {
    fn from(error: TransactionError) -> Self {
        Self::Refused(error.into())
    }
}

/// Writes one row; gives how many bytes.
fn apply(files: &Files, txn: &mut RwTxn<'_>, write: &Write) -> heed::Result<usize> {
    let key = Key::of(&write.key);
    match &write.row {
        Some(row) => {
            let bytes = codec::encode(row);
            files.rows.put(txn, &key, &bytes)?;
            Ok(bytes.len())
        }
        None => files.rows.delete(txn, &key).map(|_| 0),
    }
}

#[async_trait]
impl ItemTable for EmbeddedTable {
    /// Every read is consistent: it sees all that any process has committed.
    async fn get(&self, key: &RowKey, _: Consistency) -> Result<Option<Item>> {
        self.read_row(key)
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.validate()?;
        self.read_page(query)
    }

    async fn transact(&self, transaction: &Transaction) -> Result<TransactResult> {
        let transaction = transaction.clone();
        self.writer()?.run(move |files, txn| transact(files, txn, &transaction)).await
    }

    /// The number of the newest commit of any process, read from shared memory.
    fn change_counter(&self) -> Option<u64> {
        Some(self.inner.files.env.info().last_txn_id as u64)
    }
}

impl fmt::Debug for EmbeddedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTable").field("path", &self.inner.files.path).finish_non_exhaustive()
    }
}
