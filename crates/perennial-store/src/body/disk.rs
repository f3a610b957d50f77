//! Bodies on a local disk, for any number of processes of one machine.
//!
//! # The directory
//!
//! | path | what |
//! |---|---|
//! | `FORMAT` | `perennial bodies, format 1`, so that no other version and no other program's directory is misread |
//! | `tmp/perennial-*` | bodies being written, or [abandoned](DiskBodies::remove_abandoned) by writers that were killed |
//! | `ab/cdef...` | a body: the 64 hexadecimal digits of its key's SHA-256, so that no key can name another place |
//!
//! # Power loss
//!
//! A body is written to a temporary file and synced before it gets its name, which it never takes from another one.
//! The directory with the name, and the one above, are synced before the writer is told that the body is there.

mod file;

use super::{
    BodyAttributes, BodyEntry, BodyInfo, BodyPage, BodyStore, BodyStream, Damage, Found, Put, source_failed,
};
use crate::clock::timestamp;
use crate::format::{Format, sync_dir, sync_dirs_above};
use crate::thread::blocking;
use crate::{Error, ErrorKind, Result};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use file::{Flaw, Header, PIECE_BYTES, StoredFile, other_key};
use futures_util::TryStreamExt as _;
use perennial_core::body_key::BodyKey;
use perennial_core::digest::{hex, sha256_hex};
use perennial_core::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind as Io, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// The format of the directory and its files.
const FORMAT: Format = Format { what: "bodies", number: 1 };
/// The directory of temporary files.
const TMP: &str = "tmp";
/// How their names begin. Other files in that directory are not ours to remove.
const TMP_PREFIX: &str = "perennial-";

/// Bodies on a local disk. Any number of processes may use one directory; clones share one handle.
///
/// Files can be read by the user that wrote them only: a page may be private.
#[derive(Debug, Clone)]
pub struct DiskBodies {
    place: Arc<Place>,
}

impl DiskBodies {
    /// Opens a directory of bodies, or makes it.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let unusable =
            |error| Error::io(format!("can't use the directory {}", dir.display()), error, ErrorKind::Setup);
        let known = FORMAT.check_file(&dir.join(Format::FILE))?;
        fs::create_dir_all(dir.join(TMP)).map_err(unusable)?;
        // The path must mean the same when the program changes its working directory.
        let root = fs::canonicalize(dir).map_err(unusable)?;
        let place = Place { root, synced: Mutex::default() };
        // It is better to find out now than at the first body that nothing can be written here.
        let probe = place.temporary().map_err(unusable)?;
        if !known {
            place.write_format_file(probe)?;
        }
        Ok(Self { place: Arc::new(place) })
    }

    /// Removes what writers that were killed have left behind: temporary files last written before this time, which
    /// should be longer ago than any writer pauses. Says how many.
    pub async fn remove_abandoned(&self, before: Timestamp) -> Result<usize> {
        let tmp = self.place.root.join(TMP);
        blocking(move || {
            remove_older(&tmp, before)
                .map_err(|error| Error::io(format!("can't clear {}", tmp.display()), error, ErrorKind::Busy))
        })
        .await
    }
}

#[async_trait]
impl BodyStore for DiskBodies {
    async fn put(&self, key: &BodyKey, attributes: &BodyAttributes, mut body: BodyStream) -> Result<Put> {
        let header = Header::new(key, attributes)?;
        let place = self.place.clone();
        let mut draft = blocking(move || Draft::new(place, header)).await?;
        let mut small = BytesMut::new();
        loop {
            match body.try_next().await {
                Ok(None) => break,
                Ok(Some(piece)) if small.len() + piece.len() < PIECE_BYTES => small.extend_from_slice(&piece),
                Ok(Some(piece)) => {
                    let pieces = [small.split().freeze(), piece];
                    draft = blocking(move || draft.extended_by(&pieces)).await?;
                }
                Err(error) => {
                    // Removing a file may take a while, too.
                    let discard = move || {
                        drop(draft);
                        Ok(())
                    };
                    blocking(discard).await?;
                    return Err(source_failed(key, error));
                }
            }
        }
        blocking(move || draft.extended_by(&[small.freeze()])?.publish()).await
    }

    async fn get(&self, key: &BodyKey) -> Result<Found> {
        let (key, path) = (key.clone(), self.place.path(key));
        blocking(move || match StoredFile::open(&path).and_then(|file| file.into_body_of(&key)) {
            Ok(body) => Ok(Found::Body(body)),
            Err(Flaw::Io(error)) if error.kind() == Io::NotFound => Ok(Found::Missing),
            Err(Flaw::Io(error)) => Err(unreadable(&path, error)),
            Err(Flaw::Damaged(problem)) => {
                let damage = Damage { key, place: path.display().to_string(), problem };
                tracing::warn!("{damage}");
                Ok(Found::Damaged(damage))
            }
        })
        .await
    }

    async fn delete(&self, key: &BodyKey) -> Result<()> {
        let path = self.place.path(key);
        blocking(move || {
            if let Err(error) = unless_missing(fs::remove_file(&path)) {
                return Err(Error::io(format!("can't remove {}", path.display()), error, ErrorKind::Busy));
            }
            // Also when nothing was there: whoever removed it may not have come to this.
            unless_missing(sync_dir(dir_of(&path))).map_err(|error| unsettled(&path, error))
        })
        .await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<BodyPage> {
        let (place, after) = (self.place.clone(), after.unwrap_or_default().to_owned());
        blocking(move || place.list(&after, limit.max(1))).await
    }
}

/// The directory.
#[derive(Debug)]
struct Place {
    root: PathBuf,
    /// The fan-out directories whose own entries in the root are known to be durable.
    synced: Mutex<BTreeSet<PathBuf>>,
}

impl Place {
    fn path(&self, key: &BodyKey) -> PathBuf {
        let name = sha256_hex(key.as_str());
        let (dir, name) = name.split_at(2);
        self.root.join(dir).join(name)
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(TMP_PREFIX).tempfile_in(self.root.join(TMP))
    }

    /// Writes the file FORMAT. Who finds it relies on everything above it being durable, whichever process made it.
    fn write_format_file(&self, file: NamedTempFile) -> Result<()> {
        let failed =
            |error| Error::io(format!("can't sync {}", self.root.display()), error, ErrorKind::Setup);
        sync_dirs_above(&self.root).map_err(failed)?;
        FORMAT.write_file(&self.root.join(Format::FILE), file)?;
        sync_dir(&self.root).map_err(failed)
    }

    /// Makes a fan-out directory, and makes it durable. One that another writer has just made may not be durable
    /// yet, so every process syncs it once itself.
    fn prepare(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == Io::AlreadyExists && self.synced().contains(dir) => return Ok(()),
            Err(error) if error.kind() != Io::AlreadyExists => return Err(error),
            _ => sync_dir(&self.root)?,
        }
        self.synced().insert(dir.into());
        Ok(())
    }

    fn synced(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        // A set is never left half changed, so a panic elsewhere does not matter here.
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bodies by the names of their files; the position of a page's end is the last of these.
    fn list(&self, after: &str, limit: usize) -> Result<BodyPage> {
        let mut bodies = Vec::new();
        for dir in names(&self.root, 2)? {
            if after.get(..2).is_some_and(|first| dir.as_str() < first) {
                continue;
            }
            for name in names(&self.root.join(&dir), 62)? {
                let position = format!("{dir}/{name}");
                if position.as_str() > after {
                    bodies.extend(self.entry(&self.root.join(&position))?);
                }
                if bodies.len() == limit {
                    return Ok(BodyPage { bodies, next: Some(position) });
                }
            }
        }
        Ok(BodyPage { bodies, next: None })
    }

    /// A file as a list shows it; nothing when it was removed meanwhile, or is not a sound body.
    fn entry(&self, path: &Path) -> Result<Option<BodyEntry>> {
        let problem = match StoredFile::open(path) {
            Ok(StoredFile { header, written, .. }) if self.path(&header.key) == path => {
                return Ok(Some(BodyEntry { key: header.key, bytes: header.bytes, written }));
            }
            Ok(StoredFile { header, .. }) => other_key(&header.key),
            Err(Flaw::Io(error)) if error.kind() == Io::NotFound => return Ok(None),
            Err(Flaw::Io(error)) => return Err(unreadable(path, error)),
            Err(Flaw::Damaged(problem)) => problem,
        };
        tracing::warn!("{} is not listed, because it is damaged: {problem}", path.display());
        Ok(None)
    }
}

/// A body being written. Dropping it removes its file.
struct Draft {
    place: Arc<Place>,
    path: PathBuf,
    header: Header,
    hash: Sha256,
    file: NamedTempFile,
}

impl Draft {
    fn new(place: Arc<Place>, header: Header) -> Result<Self> {
        let path = place.path(&header.key);
        let start = header.encode().len() as u64;
        let file = place.temporary().and_then(|mut file| {
            // The header comes last: only then is it known what it says.
            file.seek(SeekFrom::Start(start))?;
            Ok(file)
        });
        let file = file.map_err(|error| unwritable(&path, error))?;
        Ok(Self { place, path, header, hash: Sha256::new(), file })
    }

    fn extended_by(mut self, pieces: &[Bytes]) -> Result<Self> {
        for piece in pieces {
            self.file.write_all(piece).map_err(|error| unwritable(&self.path, error))?;
            self.hash.update(piece);
            self.header.bytes += piece.len() as u64;
        }
        Ok(self)
    }

    /// Makes the body durable, then visible, then its name durable.
    fn publish(mut self) -> Result<Put> {
        self.complete().map_err(|error| unwritable(&self.path, error))?;
        let dir = dir_of(&self.path);
        self.place.prepare(dir).map_err(|error| unwritable(dir, error))?;
        let put = match self.file.persist_noclobber(&self.path) {
            Ok(_) => Put::Created(BodyInfo { bytes: self.header.bytes, sha256: hex(&self.header.sha256) }),
            Err(lost) if lost.error.kind() == Io::AlreadyExists => Put::Exists,
            Err(lost) => return Err(unwritable(&self.path, lost.error)),
        };
        // Also when it was there before: whoever wrote it may not have come to this.
        sync_dir(dir).map_err(|error| unsettled(&self.path, error))?;
        Ok(put)
    }

    fn complete(&mut self) -> io::Result<()> {
        self.header.sha256 = self.hash.finalize_reset().into();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&self.header.encode())?;
        self.file.as_file().sync_all()
    }
}

/// The names in a directory that are so many hexadecimal digits, in order. A directory that is none has none.
fn names(dir: &Path, digits: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let is_ours =
        |name: &String| name.len() == digits && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let read = fs::read_dir(dir).and_then(|mut entries| {
        entries.try_for_each(|entry| {
            names.extend(entry?.file_name().into_string().ok().filter(is_ours));
            Ok(())
        })
    });
    match read {
        Err(error) if !matches!(error.kind(), Io::NotFound | Io::NotADirectory) => {
            return Err(unreadable(dir, error));
        }
        _ => names.sort_unstable(),
    }
    Ok(names)
}

fn remove_older(tmp: &Path, before: Timestamp) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(tmp)? {
        let entry = entry?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(TMP_PREFIX.as_bytes());
        // A file that its writer finishes meanwhile is gone by now.
        let is_older = || Ok(timestamp(entry.metadata()?.modified()?) < before);
        if is_ours
            && unless_missing(is_older())?
            && unless_missing(fs::remove_file(entry.path()).map(|()| true))?
        {
            removed += 1;
        }
    }
    Ok(removed)
}

/// The directory of a body's file.
fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// That something is missing is fine, and the same as nothing done.
fn unless_missing<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == Io::NotFound => Ok(T::default()),
        result => result,
    }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::io(format!("can't read {}", path.display()), error, ErrorKind::Busy)
}

/// Nothing became visible.
fn unwritable(path: &Path, error: io::Error) -> Error {
    Error::io(format!("can't write {}", path.display()), error, ErrorKind::Busy)
}

/// The directory shows it, but the disk may not have it.
fn unsettled(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unsettled, format!("can't sync the directory of {}", path.display())).because(error)
}
