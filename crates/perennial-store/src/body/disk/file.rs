//! A body's file, format 1: a header, and the bytes.
//!
//! Numbers are 8 bytes, the highest first. A text is its length and its UTF-8.
//!
//! | bytes | what |
//! |---|---|
//! | 7 | `PRNBODY` |
//! | 1 | the format: 1 |
//! | 8 | the length of the details |
//! | 8 | the length of the body |
//! | 32 | the SHA-256 of the body |
//! | 32 | the SHA-256 of the 56 bytes before and of the details |
//! | .. | the details |
//! | .. | the body |
//!
//! The details are the key; the content type and the cache control, each as the number 0, or 1 and a text; and the
//! further names and values, as their number and two texts for each.

use super::unreadable;
use crate::body::{Body, BodyAttributes, BodyStream, once};
use crate::clock::timestamp;
use crate::thread::blocking;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use perennial_core::body_key::BodyKey;
use perennial_core::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind as Io, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// How a body's file begins, with its format.
const MAGIC: [u8; 8] = *b"PRNBODY\x01";
/// The length of a file's part before the details.
const FIXED_BYTES: usize = 88;
/// How much of the fixed part the header's checksum covers: what is before it.
const SEALED_BYTES: usize = 56;
/// The longest details: far more than an object store takes, little enough to be read at once.
const MAX_DETAILS_BYTES: usize = 64 << 10;
/// The largest body that is held in memory whole.
const WHOLE_BYTES: u64 = 1 << 20;
/// How much of a larger body is read or written at once.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// A SHA-256.
pub(super) type Checksum = [u8; 32];

/// What a file says before its body.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub key: BodyKey,
    pub attributes: BodyAttributes,
    pub bytes: u64,
    pub sha256: Checksum,
}

impl Header {
    /// The header of a body of which nothing has been written yet.
    pub fn new(key: &BodyKey, attributes: &BodyAttributes) -> Result<Self> {
        let header =
            Self { key: key.clone(), attributes: attributes.clone(), bytes: 0, sha256: Checksum::default() };
        match header.details().len() {
            0..=MAX_DETAILS_BYTES => Ok(header),
            length => {
                let message = format!("the key and the attributes of the body {key} have {length} bytes");
                let hint = format!("at most {MAX_DETAILS_BYTES} are kept: set fewer or shorter attributes");
                Err(Error::new(ErrorKind::Invalid, message).hint(hint))
            }
        }
    }

    /// The header as it is written. Its length does not depend on the body.
    pub fn encode(&self) -> Vec<u8> {
        let details = self.details();
        let mut out = MAGIC.to_vec();
        push_number(&mut out, details.len());
        out.extend(self.bytes.to_be_bytes());
        out.extend(self.sha256);
        let seal = seal(&out, &details);
        out.extend(seal);
        out.extend(details);
        out
    }

    fn details(&self) -> Vec<u8> {
        let BodyAttributes { content_type, cache_control, metadata } = &self.attributes;
        let mut out = Vec::new();
        push_text(&mut out, self.key.as_str());
        for optional in [content_type, cache_control] {
            push_number(&mut out, usize::from(optional.is_some()));
            if let Some(text) = optional {
                push_text(&mut out, text);
            }
        }
        push_number(&mut out, metadata.len());
        for (name, value) in metadata {
            push_text(&mut out, name);
            push_text(&mut out, value);
        }
        out
    }

    /// Reads the header, and how long it is.
    fn read(source: &mut impl Read) -> Result<(Self, u64), Flaw> {
        let fixed: [u8; FIXED_BYTES] = read_array(source)?;
        let mut rest = &fixed[..];
        if read_array(&mut rest)? != MAGIC {
            return Err(damaged("it does not begin as a body of format 1 does"));
        }
        let (details, bytes) = (read_number(&mut rest)?, read_number(&mut rest)?);
        let (sha256, expected) = (read_array(&mut rest)?, read_array(&mut rest)?);
        let length = usize::try_from(details).unwrap_or(usize::MAX);
        if length > MAX_DETAILS_BYTES {
            return Err(damaged("its header is too long"));
        }
        let mut details = vec![0; length];
        source.read_exact(&mut details)?;
        if seal(&fixed[..SEALED_BYTES], &details) != expected {
            return Err(damaged("its header does not match the header's checksum"));
        }
        let (key, attributes) = read_details(&details)?;
        Ok((Self { key, attributes, bytes, sha256 }, (FIXED_BYTES + length) as u64))
    }
}

fn seal(fixed: &[u8], details: &[u8]) -> Checksum {
    Sha256::new().chain_update(fixed).chain_update(details).finalize().into()
}

fn push_number(out: &mut Vec<u8>, number: usize) {
    out.extend((number as u64).to_be_bytes());
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_number(out, text.len());
    out.extend(text.as_bytes());
}

fn read_array<const N: usize>(source: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    source.read_exact(&mut array)?;
    Ok(array)
}

fn read_number(source: &mut impl Read) -> io::Result<u64> {
    read_array(source).map(u64::from_be_bytes)
}

fn read_text(rest: &mut &[u8]) -> Result<String, Flaw> {
    let length = usize::try_from(read_number(rest)?).unwrap_or(usize::MAX);
    let text = rest.split_off(..length).ok_or_else(|| damaged("its header ends within a text"))?;
    String::from_utf8(text.into()).map_err(|_| damaged("its header has a text that is not UTF-8"))
}

fn read_optional_text(rest: &mut &[u8]) -> Result<Option<String>, Flaw> {
    match read_number(rest)? {
        0 => Ok(None),
        1 => read_text(rest).map(Some),
        _ => Err(damaged("its header has two texts where one is allowed")),
    }
}

fn read_details(mut details: &[u8]) -> Result<(BodyKey, BodyAttributes), Flaw> {
    let rest = &mut details;
    let key = BodyKey::new(read_text(rest)?).map_err(|error| damaged(error.to_string()))?;
    let (content_type, cache_control) = (read_optional_text(rest)?, read_optional_text(rest)?);
    let mut metadata = BTreeMap::new();
    // The number is not trusted: the loop ends with the bytes at the latest.
    for _ in 0..read_number(rest)? {
        metadata.insert(read_text(rest)?, read_text(rest)?);
    }
    if !rest.is_empty() {
        return Err(damaged("its header has more than it should"));
    }
    Ok((key, BodyAttributes { content_type, cache_control, metadata }))
}

/// Why a file can't be used.
pub(super) enum Flaw {
    /// The disk or the system does not let us.
    Io(io::Error),
    /// It is not what was written.
    Damaged(String),
}

impl From<io::Error> for Flaw {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            Io::UnexpectedEof => damaged("it ends too early"),
            _ => Self::Io(error),
        }
    }
}

fn damaged(problem: impl Into<String>) -> Flaw {
    Flaw::Damaged(problem.into())
}

pub(super) fn other_key(key: &BodyKey) -> String {
    format!("it holds the body of another key, {key}")
}

/// An open file whose header and length are right.
pub(super) struct StoredFile {
    path: PathBuf,
    file: File,
    pub header: Header,
    /// Where the body begins.
    start: u64,
    pub written: Timestamp,
}

impl StoredFile {
    pub fn open(path: &Path) -> Result<Self, Flaw> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(damaged("it is not a file"));
        }
        let (header, start) = Header::read(&mut file)?;
        let expected = start.saturating_add(header.bytes);
        if about.len() != expected {
            return Err(damaged(format!("it has {} bytes instead of {expected}", about.len())));
        }
        Ok(Self { path: path.into(), file, header, start, written: timestamp(about.modified()?) })
    }

    /// The body, all of it checked: a small one read whole, a large one to be read once more, from the same file.
    pub fn into_body_of(self, key: &BodyKey) -> Result<Body, Flaw> {
        if self.header.key != *key {
            return Err(Flaw::Damaged(other_key(&self.header.key)));
        }
        let Self { path, file, header: Header { attributes, bytes, sha256, .. }, start, .. } = self;
        let mut unread = Unread { path, file, left: bytes, hash: Sha256::new(), sha256 };
        if bytes <= WHOLE_BYTES {
            return Ok(Body { bytes, attributes, stream: once(unread.read(WHOLE_BYTES)?) });
        }
        while unread.left > 0 {
            unread.read(PIECE_BYTES as u64)?;
        }
        unread.file.seek(SeekFrom::Start(start))?;
        unread.left = bytes;
        Ok(Body { bytes, attributes, stream: unread.into_stream() })
    }
}

/// What is left to read of a body.
struct Unread {
    path: PathBuf,
    file: File,
    left: u64,
    /// Of what has been read.
    hash: Sha256,
    /// What it should be in the end.
    sha256: Checksum,
}

impl Unread {
    /// The next piece. The last one is given only if all of them were right.
    fn read(&mut self, at_most: u64) -> Result<Bytes, Flaw> {
        let length = self.left.min(at_most);
        let mut piece = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact(&mut piece)?;
        self.hash.update(&piece);
        self.left -= length;
        if self.left == 0 && Checksum::from(self.hash.finalize_reset()) != self.sha256 {
            return Err(damaged("its bytes do not match their checksum"));
        }
        Ok(piece.into())
    }

    fn into_stream(self) -> BodyStream {
        let step = |mut unread: Self| async move {
            if unread.left == 0 {
                return Ok(None);
            }
            let read = blocking(move || match unread.read(PIECE_BYTES as u64) {
                Ok(piece) => Ok(Some((piece, unread))),
                Err(Flaw::Io(error)) => Err(unreadable(&unread.path, error)),
                Err(Flaw::Damaged(problem)) => {
                    let message =
                        format!("{} was changed while it was read: {problem}", unread.path.display());
                    Err(Error::new(ErrorKind::Damaged, message))
                }
            });
            read.await.map_err(io::Error::other)
        };
        stream::try_unfold(self, step).boxed()
    }
}
