//! Bodies in memory, for tests and for caches that may forget.

use super::{
    Body, BodyAttributes, BodyEntry, BodyInfo, BodyPage, BodyStore, BodyStream, Found, Put, collect, once,
};
use crate::{Clock, Result, SystemClock};
use async_trait::async_trait;
use bytes::Bytes;
use perennial_core::body_key::BodyKey;
use perennial_core::digest::sha256_hex;
use perennial_core::time::Timestamp;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bodies in memory. It forgets everything when it is dropped.
#[derive(Debug)]
pub struct MemoryBodies {
    bodies: Mutex<BTreeMap<String, Stored>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone)]
struct Stored {
    key: BodyKey,
    attributes: BodyAttributes,
    bytes: Bytes,
    written: Timestamp,
}

impl MemoryBodies {
    /// An empty store that dates bodies by the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store that dates bodies by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { bodies: Mutex::default(), clock }
    }

    fn bodies(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        // No code that holds the lock leaves the map half changed, so a panic elsewhere does not matter here.
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBodies {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl BodyStore for MemoryBodies {
    async fn put(&self, key: &BodyKey, attributes: &BodyAttributes, body: BodyStream) -> Result<Put> {
        let bytes = collect(key, body).await?;
        let info = BodyInfo { bytes: bytes.len() as u64, sha256: sha256_hex(&bytes) };
        let written = self.clock.now();
        Ok(match self.bodies().entry(key.as_str().into()) {
            Entry::Occupied(_) => Put::Exists,
            Entry::Vacant(vacant) => {
                vacant.insert(Stored { key: key.clone(), attributes: attributes.clone(), bytes, written });
                Put::Created(info)
            }
        })
    }

    async fn get(&self, key: &BodyKey) -> Result<Found> {
        Ok(match self.bodies().get(key.as_str()) {
            None => Found::Missing,
            Some(stored) => Found::Body(Body {
                bytes: stored.bytes.len() as u64,
                attributes: stored.attributes.clone(),
                stream: once(stored.bytes.clone()),
            }),
        })
    }

    async fn delete(&self, key: &BodyKey) -> Result<()> {
        self.bodies().remove(key.as_str());
        Ok(())
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<BodyPage> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let bodies = self.bodies();
        let mut rest = bodies.range::<str, _>((start, Bound::Unbounded)).map(|(_, stored)| stored);
        let entry = |stored: &Stored| BodyEntry {
            key: stored.key.clone(),
            bytes: stored.bytes.len() as u64,
            written: stored.written,
        };
        let page: Vec<BodyEntry> = rest.by_ref().take(limit.max(1)).map(entry).collect();
        let next = rest.next().and(page.last()).map(|last| last.key.as_str().into());
        Ok(BodyPage { bodies: page, next })
    }
}
