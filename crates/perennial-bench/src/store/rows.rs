//! The rows that are measured, and how a table is filled with them.

use crate::random::Random;
use perennial_core::item::{Item, Value};
use perennial_core::key::{CacheKey, Entry, LeaseToken, PkScheme, RowKey, Tag, VersionId};
use perennial_core::schema::{Generation, Header, Meta, Row, Version, Window, attr};
use perennial_core::time::Timestamp;
use perennial_core::transaction::{MAX_OPERATIONS, Op, TransactResult, Transaction};
use perennial_store::ItemTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Now, for all rows. It is fixed, so that rows have the same size in every run, and far ahead, so that none is past
/// its `ttl`.
pub const NOW: Timestamp = Timestamp::from_seconds(4_000_000_123);
/// How many versions a versioned entry has.
pub const VERSIONS: u32 = 10;
/// How many transactions fill a table at once; they share commits.
const FILLERS: usize = 128;

/// The entry with this number.
pub fn entry(number: u32) -> Entry {
    made(&format!("GET https example.com /posts/{number}"))
}

/// The versioned entry with this number.
pub fn versioned_entry(number: u32) -> Entry {
    made(&format!("GET https example.com /versioned/{number}"))
}

fn made(key: &str) -> Entry {
    CacheKey::new(key).entry(PkScheme::Hashed).expect("the key is valid")
}

/// A generation with all that a page usually has. Those of one time have one size.
pub fn generation(entry: &Entry, began: Timestamp, token: &LeaseToken) -> Generation {
    let hash = entry.pk().strip_prefix("CACHE#").expect("the entry's key is hashed");
    Generation {
        etag: Some(format!("\"{}\"", &hash[..32])),
        ttl: Some(NOW.seconds() + 30 * 86_400),
        status: Some(200),
        headers: vec![Header::new("content-type", "text/html; charset=utf-8")],
        tags: [Tag::new("posts").expect("the tag is valid")].into(),
        tag_sequence: Some(17),
        body_sha256: Some(hash.into()),
        body_bytes: Some(48_213),
        token: Some(token.clone()),
        ..Generation::new(entry.body_key(began, token), began.seconds(), Window::from_seconds(60))
    }
}

/// The META row of an entry, in its first version.
pub fn meta(entry: &Entry, token: &LeaseToken) -> Item {
    let meta = Meta {
        key: entry.meta(),
        generation: generation(entry, NOW, token),
        version: Some(1),
        current: None,
        invalidated_at: None,
        held_until: None,
        other: Item::new(),
    };
    meta.to_item().expect("the row is valid")
}

/// When a version began; the times of all have one size.
pub fn version_began(number: u32) -> Timestamp {
    NOW.plus(Duration::from_secs(u64::from(number) * 10))
}

fn version(entry: &Entry, number: u32, token: &LeaseToken) -> Item {
    let began = version_began(number);
    let id = VersionId::for_generation(began, token);
    let generation = generation(entry, began, token);
    let version = Version { key: entry.version(&id), id, generation, other: Item::new() };
    version.to_item().expect("the row is valid")
}

/// Whether an item is the row asked for.
pub fn is_row(item: &Item, key: &RowKey) -> bool {
    let text = |name| item.get(name).and_then(Value::as_s);
    text(attr::PK) == Some(key.pk()) && text(attr::SK) == Some(key.sk())
}

/// In which order a table is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// As pages come in real use: hashed keys fall anywhere.
    Shuffled,
    /// In the order of keys, which is faster for many.
    Sorted,
}

/// Puts the META rows of entries `0..rows`.
pub fn build(table: &Arc<dyn ItemTable>, rows: u32, insert: Insert) {
    let mut entries: Vec<Entry> = (0..rows).map(entry).collect();
    if insert == Insert::Sorted {
        entries.sort_unstable();
    }
    let mut random = Random::new(1);
    let chunks: Vec<(Vec<Entry>, Random)> =
        entries.chunks(MAX_OPERATIONS).map(|chunk| (chunk.to_vec(), Random::new(random.next()))).collect();
    fill(table, chunks, |(entries, mut random)| {
        entries.iter().map(|entry| meta(entry, &random.token())).collect()
    });
}

/// Puts the version rows of versioned entries `0..entries`.
pub fn build_versions(table: &Arc<dyn ItemTable>, entries: u32) {
    fill(table, (0..entries).collect(), |number| {
        let (entry, mut random) = (versioned_entry(number), Random::new(u64::from(number)));
        (0..VERSIONS).map(|number| version(&entry, number, &random.token())).collect()
    });
}

/// Puts the rows that each chunk makes, a transaction each, many at a time.
fn fill<C: Clone + Send + Sync + 'static>(
    table: &Arc<dyn ItemTable>,
    chunks: Vec<C>,
    rows: impl Fn(C) -> Vec<Item> + Clone + Send + 'static,
) {
    let work = Arc::new((chunks, AtomicUsize::new(0)));
    super::block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..FILLERS {
            let (table, work, rows) = (table.clone(), work.clone(), rows.clone());
            tasks.spawn(async move {
                let (chunks, next) = &*work;
                while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    put(&*table, rows(chunk.clone())).await;
                }
            });
        }
        tasks.join_all().await;
    });
}

/// Puts rows in one transaction.
pub async fn put(table: &dyn ItemTable, rows: Vec<Item>) {
    let ops = rows.into_iter().map(|row| Op::put(row).expect("the row has a key")).collect();
    let transaction = Transaction::new(ops).expect("the transaction is valid");
    let result = table.transact(&transaction).await.expect("the table takes rows");
    assert!(matches!(result, TransactResult::Committed(_)), "a put without a condition was rejected");
}
