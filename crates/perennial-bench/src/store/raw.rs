//! The other side: the engine alone, on a copy of the table's file. So it has the same rows, keys, bytes and pages.

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use perennial_core::key::RowKey;
use std::ops::Bound;
use std::path::Path;

/// The file that has the rows, and the database in it.
const FILE: &str = "rows.mdb";
const DATABASE: &str = "rows";

/// The engine's environment and its one database.
#[derive(Debug)]
pub struct Raw {
    env: Env,
    rows: Database<'static, Bytes, Bytes>,
    /// A META row as it is stored, and where its partition key stands in it.
    meta: Vec<u8>,
    pk_at: usize,
    /// A LOCK row as it is stored.
    lock: Vec<u8>,
}

/// A change of two rows: META gets this value, LOCK goes.
#[derive(Debug, Clone)]
pub struct Change {
    meta: Vec<u8>,
    lock: Vec<u8>,
    value: Vec<u8>,
}

impl Raw {
    /// Copies the file of a table at rest, and opens it. The table has a lease on entry 0.
    pub fn copy(table: &Path, dir: &Path) -> Self {
        std::fs::create_dir_all(dir).expect("the directory can be made");
        std::fs::copy(table.join(FILE), dir.join(FILE)).expect("the file can be copied");
        let env = open(&dir.join(FILE));
        let txn = env.read_txn().expect("a read begins");
        let opened = env.open_databases_and_commit(txn, |opener, txn| {
            let rows = opener.open_database::<Bytes, Bytes>(txn, Some(DATABASE))?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(rows))
        });
        let rows = opened.expect("the file opens").unwrap_commit().expect("the file has rows");
        let mut raw = Self { env, rows, meta: Vec::new(), pk_at: 0, lock: Vec::new() };
        raw.learn();
        raw
    }

    /// Looks at the rows of entry 0, to make others like them.
    fn learn(&mut self) {
        let entry = super::rows::entry(0);
        self.meta = self.get(&key(&entry.meta()));
        self.lock = self.get(&key(&entry.lock()));
        let pk = entry.pk().as_bytes();
        let places = self.meta.windows(pk.len()).position(|window| window == pk);
        self.pk_at = places.expect("a row tells its partition key");
    }

    /// The bytes of a META row.
    pub fn value_bytes(&self) -> usize {
        self.meta.len()
    }

    /// Reads one row: a transaction, a look, a copy.
    pub fn get(&self, key: &[u8]) -> Vec<u8> {
        let txn = self.env.read_txn().expect("a read begins");
        self.rows.get(&txn, key).expect("a read works").expect("the row is there").to_vec()
    }

    /// Whether a value belongs to this key.
    pub fn is_row(&self, value: &[u8], key: &[u8]) -> bool {
        let pk = &key[1..=usize::from(key[0])];
        value.get(self.pk_at..self.pk_at + pk.len()) == Some(pk)
    }

    /// Reads up to `limit` rows between two keys, largest first: a transaction, a walk, copies.
    pub fn query(&self, bounds: &(Vec<u8>, Vec<u8>), limit: usize) -> Vec<Vec<u8>> {
        let txn = self.env.read_txn().expect("a read begins");
        let range = (Bound::Included(bounds.0.as_slice()), Bound::Excluded(bounds.1.as_slice()));
        let rows = self.rows.rev_range(&txn, &range).expect("a range opens");
        rows.take(limit).map(|row| row.expect("a read works").1.to_vec()).collect()
    }

    /// The change of an entry's two rows that a publish makes. `stamp` makes each different.
    pub fn change(&self, meta: &RowKey, lock: &RowKey, stamp: u64) -> Change {
        let mut value = self.meta.clone();
        value[self.pk_at..self.pk_at + meta.pk().len()].copy_from_slice(meta.pk().as_bytes());
        let end = value.len() - 8;
        value[end..].copy_from_slice(&stamp.to_le_bytes());
        Change { meta: key(meta), lock: key(lock), value }
    }

    /// Puts the LOCK rows that changes delete.
    pub fn prepare(&self, changes: &[Change]) {
        let mut txn = self.env.write_txn().expect("a write begins");
        for change in changes {
            self.rows.put(&mut txn, &change.lock, &self.lock).expect("a write works");
        }
        txn.commit().expect("a commit works");
    }

    /// Makes changes in one durable commit.
    pub fn commit(&self, changes: &[Change]) {
        let mut txn = self.env.write_txn().expect("a write begins");
        for change in changes {
            self.rows.put(&mut txn, &change.meta, &change.value).expect("a write works");
            assert!(self.rows.delete(&mut txn, &change.lock).expect("a write works"), "LOCK was there");
        }
        txn.commit().expect("a commit works");
    }

    /// Checks that changes have been made.
    pub fn check(&self, changes: &[Change]) {
        let txn = self.env.read_txn().expect("a read begins");
        for change in changes {
            let meta = self.rows.get(&txn, &change.meta).expect("a read works");
            assert_eq!(meta, Some(change.value.as_slice()), "META is what was written");
            assert_eq!(self.rows.get(&txn, &change.lock).expect("a read works"), None, "LOCK is gone");
        }
    }
}

#[allow(
    unsafe_code,
    reason = "the engine maps its file, which is unsafe if others change it behind its back"
)]
fn open(file: &Path) -> Env {
    let mut options = EnvOpenOptions::new();
    options.map_size(64 << 30).max_readers(64).max_dbs(2);
    // SAFETY: NO_SUB_DIR only says that the path is a file. Nothing that weakens syncing is set: it is the table's way.
    unsafe { options.flags(EnvFlags::NO_SUB_DIR) };
    // SAFETY: the file is a copy of our own in a directory of our own, which nobody else changes.
    unsafe { options.open(file) }.expect("the copy opens")
}

/// The engine's key of a row with short keys, as the table makes it; another would not be found.
pub fn key(row: &RowKey) -> Vec<u8> {
    let length = u8::try_from(row.pk().len()).expect("the partition key is short");
    [&[length], row.pk().as_bytes(), row.sk().as_bytes()].concat()
}
