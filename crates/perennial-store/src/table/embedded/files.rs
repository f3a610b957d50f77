//! The files of a table, and whether they can be used: found out before anything is written.

use crate::format::{Format, sync_dir, sync_dirs_above};
use crate::{Error, ErrorKind, Result};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RwTxn};
use std::fs::File;
use std::io::{ErrorKind as Io, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The format of the table's files.
const FORMAT: Format = Format { what: "table", number: 1 };
/// Where the engine's magic number is, and what it is: behind the head of its first page, a page number and 8 bytes.
const ENGINE_MAGIC: (usize, [u8; 4]) = (size_of::<usize>() + 8, 0xBEEF_C0DE_u32.to_ne_bytes());
/// How much longer than its last page the file is kept: more than one commit can add. The engine never writes pages
/// that a commit takes and gives back again, so without this a file could end before its last page and look cut off.
/// The room is a hole and takes none on the disk.
const SLACK: u64 = 32 << 20;

/// A database of raw keys and values.
pub(super) type Raw = Database<'static, Bytes, Bytes>;

/// An open environment with its two databases.
#[derive(Clone)]
pub(super) struct Files {
    pub env: Env,
    /// Rows by [`super::key`].
    pub rows: Raw,
    /// What the table says of itself.
    pub info: Raw,
    /// The file with the rows, for messages.
    pub path: PathBuf,
}

impl Files {
    /// Opens the files of a table, or makes them.
    pub fn open(dir: &Path, max_bytes: usize, max_readers: u32) -> Result<Self> {
        let unusable =
            |error| Error::io(format!("can't use the directory {}", dir.display()), error, ErrorKind::Setup);
        std::fs::create_dir_all(dir).map_err(unusable)?;
        // The path must mean the same when the program changes its working directory.
        let dir = std::fs::canonicalize(dir).map_err(unusable)?;
        let path = dir.join("rows.mdb");
        let format = dir.join(Format::FILE);
        let known = FORMAT.check_file(&format)?;
        check_rows_file(&path, &format, known)?;
        if !known && !path.exists() {
            make_rows_file(&dir, &path, max_bytes)?;
        }
        let env = open_env(&path, max_bytes, max_readers, EnvFlags::NO_SUB_DIR)?;
        check_length(&env, &path)?;
        env.clear_stale_readers()
            .map_err(|error| engine(&path, "clear stale readers of", error, ErrorKind::Setup))?;
        let (rows, info) = open_databases(&env, &path)?;
        let files = Self { env, rows, info, path };
        files.check_format_row()?;
        if !known {
            // Whoever finds FORMAT relies on the rows file, so that file's name must be durable first.
            sync_dir(&dir).map_err(unusable)?;
            let file = tempfile::Builder::new().prefix(".FORMAT-").tempfile_in(&dir).map_err(unusable)?;
            FORMAT.write_file(&format, file)?;
        }
        // Every time: another process may have made the files a moment ago and not have come this far.
        sync_dir(&dir).and_then(|()| sync_dirs_above(&dir)).map_err(unusable)?;
        Ok(files)
    }

    /// Keeps the file longer than what a commit can add. To be called inside a write transaction, which keeps other
    /// processes from changing the length meanwhile.
    pub fn make_room(&self, _txn: &RwTxn<'_>) -> Result<()> {
        let needed = needed(&self.env);
        let most = self.env.info().map_size as u64;
        if length(&self.env, &self.path)? >= most.min(needed + SLACK) {
            return Ok(());
        }
        let failed =
            |error| Error::io(format!("can't extend {}", self.path.display()), error, ErrorKind::Busy);
        let file = self
            .env
            .try_clone_inner_file()
            .map_err(|error| engine(&self.path, "extend", error, ErrorKind::Setup))?;
        file.set_len(most.min(needed + 2 * SLACK)).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    /// How many pages the rows take.
    pub fn pages(&self, txn: &RwTxn<'_>) -> heed::Result<usize> {
        let stat = self.rows.stat(txn)?;
        Ok(stat.branch_pages + stat.leaf_pages + stat.overflow_pages)
    }

    /// How many pages the rows may take: an eighth of the file is kept for deleting, which needs room before it gives
    /// any back. Without it a full table could never be swept.
    pub fn most_pages(&self, txn: &RwTxn<'_>) -> heed::Result<usize> {
        Ok(self.env.info().map_size / 8 * 7 / self.rows.stat(txn)?.page_size as usize)
    }

    /// Checks the format that the rows file itself names, and names it in a new one.
    fn check_format_row(&self) -> Result<()> {
        let failed = |error| engine(&self.path, "read the format of", error, ErrorKind::Setup);
        let mut txn = self.env.write_txn().map_err(failed)?;
        self.make_room(&txn)?;
        let found = self.info.get(&txn, b"format").map_err(failed)?;
        match found.map(|bytes| <[u8; 4]>::try_from(bytes).map(u32::from_le_bytes)) {
            Some(Ok(format)) => FORMAT.check(format, &self.path),
            None if self.rows.is_empty(&txn).map_err(failed)? => {
                self.info.put(&mut txn, b"format", &FORMAT.number.to_le_bytes()).map_err(failed)?;
                txn.commit()
                    .map_err(|error| or_full(&self.env, &self.path, error))
                    .map_err(|error| engine(&self.path, "write the format of", error, ErrorKind::Setup))
            }
            Some(Err(_)) | None => Err(FORMAT.foreign(&self.path)),
        }
    }
}

/// Makes a new rows file under a temporary name, and names it once it is whole and synced: the engine writes the first
/// pages of a new file in place, and what a power cut or a full disk leaves of them can't be opened.
fn make_rows_file(dir: &Path, path: &Path, max_bytes: usize) -> Result<()> {
    let failed = |error| Error::io(format!("can't make {}", path.display()), error, ErrorKind::Setup);
    let file = tempfile::Builder::new().prefix(".rows-").tempfile_in(dir).map_err(failed)?;
    let env = open_env(file.path(), max_bytes, 1, EnvFlags::NO_SUB_DIR | EnvFlags::NO_LOCK)?;
    let opened = open_databases(&env, path).and_then(|(rows, info)| {
        Files { env: env.clone(), rows, info, path: path.into() }.check_format_row()
    });
    env.prepare_for_closing().wait();
    opened?;
    file.as_file().sync_all().map_err(failed)?;
    match file.persist_noclobber(path) {
        // Another process was faster.
        Err(lost) if lost.error.kind() != Io::AlreadyExists => Err(failed(lost.error)),
        _ => Ok(()),
    }
}

/// An error of a commit, as the full disk that it is where one can be found: the engine calls a write of which only a
/// part found room a failure of the device.
pub(super) fn or_full(env: &Env, path: &Path, error: heed::Error) -> heed::Error {
    /// More than most commits write at once.
    const PROBE: usize = 4 << 20;
    let is_device = matches!(&error, heed::Error::Io(error) if error.raw_os_error() == Some(5));
    // A commit that failed at its last page leaves the engine unusable, and is not to be called undone.
    if !is_device || env.write_txn().is_err() {
        return error;
    }
    let probe = tempfile::Builder::new()
        .prefix(".probe-")
        .tempfile_in(path.parent().unwrap_or(Path::new(".")))
        .and_then(|mut file| file.write_all(&vec![0; PROBE]));
    match probe {
        Err(full) if matches!(full.kind(), Io::StorageFull | Io::QuotaExceeded) => heed::Error::Io(full),
        _ => error,
    }
}

fn cut(path: &Path, problem: &str) -> Error {
    let hint = "restore the file from a backup, or remove the directory and let the pages be made anew";
    Error::new(ErrorKind::Damaged, format!("{} {problem}", path.display())).hint(hint)
}

/// Looks at the rows file before the engine does: the engine takes an empty file for a new one, and would map a cut
/// one and crash when it reads behind its end.
fn check_rows_file(path: &Path, format: &Path, known: bool) -> Result<()> {
    let unreadable = |error| Error::io(format!("can't read {}", path.display()), error, ErrorKind::Setup);
    let mut head = Vec::new();
    match File::open(path) {
        Ok(file) => drop(file.take(64).read_to_end(&mut head).map_err(unreadable)?),
        Err(error) if error.kind() == Io::NotFound => {}
        Err(error) => return Err(unreadable(error)),
    }
    let (start, magic) = ENGINE_MAGIC;
    match head.get(start..start + magic.len()) {
        Some(found) if found == magic => Ok(()),
        Some(_) => Err(FORMAT.foreign(path)),
        None if !head.is_empty() => Err(cut(path, "has been cut off in its first page")),
        None if known => Err(cut(
            path,
            &format!("is missing or empty, though {} says that there is a table", format.display()),
        )),
        None => Ok(()),
    }
}

#[allow(
    unsafe_code,
    reason = "the engine maps its file, which is unsafe if others change it behind its back"
)]
fn open_env(path: &Path, max_bytes: usize, max_readers: u32, flags: EnvFlags) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(max_bytes).max_readers(max_readers).max_dbs(2);
    // SAFETY: NO_SUB_DIR only says that the path is a file; NO_LOCK is set for a file that nobody else knows yet. No
    // flag that weakens syncing is ever set.
    unsafe { options.flags(flags) };
    // SAFETY: the file is changed by nothing but the engine, whose lock file keeps all processes in step. It was
    // checked above not to be foreign. That nobody else writes to it or cuts it is the one thing asked of the user.
    unsafe { options.open(path) }.map_err(|error| engine(path, "open", error, ErrorKind::Setup))
}

/// Refuses a file that is shorter than its last page says, before the engine reads any page but the first two:
/// reading behind the end of a mapped file is a crash, not an error.
fn check_length(env: &Env, path: &Path) -> Result<()> {
    // While this transaction is open, no process changes the file.
    let _txn = env.write_txn().map_err(|error| engine(path, "open", error, ErrorKind::Setup))?;
    let (length, needed) = (length(env, path)?, needed(env));
    if length < needed {
        return Err(cut(path, &format!("has been cut off: it has {length} bytes of {needed}")));
    }
    Ok(())
}

fn length(env: &Env, path: &Path) -> Result<u64> {
    env.real_disk_size().map_err(|error| engine(path, "read the length of", error, ErrorKind::Setup))
}

/// How long the file must be to have its last page.
fn needed(env: &Env) -> u64 {
    (env.info().last_page_number as u64 + 1) * u64::from(env.unnamed_database_stat().page_size)
}

/// Opens the two databases, and makes them in a new file; refuses a file that has others.
fn open_databases(env: &Env, path: &Path) -> Result<(Raw, Raw)> {
    let failed = |error| engine(path, "open", error, ErrorKind::Setup);
    let txn = env.write_txn().map_err(failed)?;
    let opened = env.create_databases_and_commit(txn, |opener, txn| {
        let is_new = env.unnamed_database_stat().entries == 0;
        if !is_new && opener.open_database::<Bytes, Bytes>(txn, Some("info"))?.is_none() {
            return Ok::<_, heed::Error>(CommitOrAbort::Abort(()));
        }
        let rows = opener.create_database::<Bytes, Bytes>(txn, Some("rows"))?;
        let info = opener.create_database::<Bytes, Bytes>(txn, Some("info"))?;
        Ok(CommitOrAbort::Commit((rows, info)))
    });
    opened.map_err(|error| failed(or_full(env, path, error)))?.commit().ok_or_else(|| FORMAT.foreign(path))
}

/// An error of the engine: what was tried, with which file, and what to do about it. `otherwise` is its kind where
/// nothing better is known.
pub(super) fn engine(path: &Path, doing: &str, error: heed::Error, otherwise: ErrorKind) -> Error {
    let message = format!("can't {doing} {}", path.display());
    match (advice(&error), error) {
        (Some((kind, hint)), error) => Error::new(kind, message).because(error).hint(hint),
        (None, heed::Error::Io(error)) => Error::io(message, error, otherwise),
        (None, error) => Error::new(otherwise, message).because(error),
    }
}

/// What to do about an error that the engine is known for.
fn advice(error: &heed::Error) -> Option<(ErrorKind, &'static str)> {
    use heed::MdbError as Mdb;
    Some(match error {
        heed::Error::Io(error) if error.kind() == Io::OutOfMemory => {
            (ErrorKind::Setup, "the address space is limited here: lower `max_bytes`, or raise the limit")
        }
        heed::Error::EnvAlreadyOpened => {
            (ErrorKind::Setup, "clone the table that is open in this process instead of opening it again")
        }
        heed::Error::Mdb(Mdb::MapFull) => (
            ErrorKind::Full,
            "the table has reached its largest size: raise `max_bytes`, or shorten retention",
        ),
        heed::Error::Mdb(Mdb::ReadersFull) => {
            (ErrorKind::Busy, "too many threads read at once: run fewer processes on this directory")
        }
        heed::Error::Mdb(Mdb::MapResized) => {
            (ErrorKind::Setup, "another process opened it with a larger `max_bytes`: use the same everywhere")
        }
        heed::Error::Mdb(Mdb::Panic) => (
            ErrorKind::Damaged,
            "a write failed half-way in the engine: restart the program, which loses nothing",
        ),
        heed::Error::Mdb(Mdb::VersionMismatch) => (
            ErrorKind::Setup,
            "another version of the engine wrote it: use that version, or another directory",
        ),
        heed::Error::Mdb(Mdb::Corrupted | Mdb::PageNotFound | Mdb::Invalid) => (
            ErrorKind::Damaged,
            "restore the file from a backup, or remove the directory: pages are then made anew",
        ),
        _ => return None,
    })
}
