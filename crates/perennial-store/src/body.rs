//! Stores of bodies.

pub mod disk;
pub mod memory;

use crate::{Error, ErrorKind, Result};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use perennial_core::body_key::BodyKey;
use perennial_core::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;

/// A body's bytes, piece by piece. An error ends it.
pub type BodyStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// A store of immutable bodies.
///
/// A key is written once: it is unique to one generation of one page. A body is there whole or not at all, and once
/// [`BodyStore::put`] has said so it is durable as far as the backend is.
#[async_trait]
pub trait BodyStore: fmt::Debug + Send + Sync + 'static {
    /// Writes a body, if there is none of that key. A stream that ends in an error leaves nothing behind.
    async fn put(&self, key: &BodyKey, attributes: &BodyAttributes, body: BodyStream) -> Result<Put>;

    /// Reads a body. What it gives has been checked against its checksum before the first byte is handed out.
    async fn get(&self, key: &BodyKey) -> Result<Found>;

    /// Removes a body; removing none is fine.
    async fn delete(&self, key: &BodyKey) -> Result<()>;

    /// What is there, in an order of the store's own, at least one body and at most `limit` a page; `after` is what
    /// the page before said. Bodies written or deleted meanwhile may or may not show; all others do.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<BodyPage>;
}

/// What is kept beside a body for those who read the object store directly; rows say the same to everyone else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyAttributes {
    /// The media type.
    pub content_type: Option<String>,
    /// How others may cache it.
    pub cache_control: Option<String>,
    /// Further names and values.
    pub metadata: BTreeMap<String, String>,
}

/// What came of writing a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Created(BodyInfo),
    /// A body of that key was there before, and still is.
    Exists,
}

/// What writing a body tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyInfo {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
}

/// What came of reading a body.
#[derive(Debug)]
pub enum Found {
    /// Here it is.
    Body(Body),
    /// There is none of that key.
    Missing,
    /// There is one, but not as it was written. Treat it as missing, and report it.
    Damaged(Damage),
}

/// A body that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body {key} in {place} is damaged: {problem}")]
pub struct Damage {
    /// Which body.
    pub key: BodyKey,
    /// The file or object.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A body to read.
pub struct Body {
    /// Its length.
    pub bytes: u64,
    /// What was kept beside it.
    pub attributes: BodyAttributes,
    /// Its bytes.
    pub stream: BodyStream,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("bytes", &self.bytes)
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl Body {
    /// Reads all of it.
    pub async fn into_bytes(self) -> io::Result<Bytes> {
        join(self.stream).await
    }
}

/// All of a stream in one piece; a stream of one piece is not copied.
async fn join(stream: BodyStream) -> io::Result<Bytes> {
    let mut pieces: Vec<Bytes> = stream.try_collect().await?;
    if pieces.len() == 1 {
        return Ok(pieces.remove(0));
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    Ok(whole.freeze())
}

/// All of a body that is to be put.
pub(crate) async fn collect(key: &BodyKey, body: BodyStream) -> Result<Bytes> {
    join(body).await.map_err(|error| source_failed(key, error))
}

/// The caller's own stream failed; nothing was stored.
pub(crate) fn source_failed(key: &BodyKey, error: io::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("the stream of the body {key} failed; nothing was stored"))
        .because(error)
}

/// A page of what a store has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyPage {
    /// The bodies.
    pub bodies: Vec<BodyEntry>,
    /// Ask again with this; `None` at the end. The page after may be empty.
    pub next: Option<String>,
}

/// A body as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyEntry {
    /// Its key.
    pub key: BodyKey,
    /// Its length.
    pub bytes: u64,
    /// When it was written.
    pub written: Timestamp,
}

/// A stream of one piece.
pub fn once(bytes: impl Into<Bytes>) -> BodyStream {
    let bytes = bytes.into();
    futures_util::stream::once(async move { Ok(bytes) }).boxed()
}

/// Conveniences for every store of bodies.
#[async_trait]
pub trait BodyStoreExt: BodyStore {
    /// Writes a body that is at hand.
    async fn put_bytes(&self, key: &BodyKey, attributes: &BodyAttributes, body: Bytes) -> Result<Put> {
        self.put(key, attributes, once(body)).await
    }
}

impl<T: BodyStore + ?Sized> BodyStoreExt for T {}
