//! Writes down, in order, what a process does to the files below one directory, and lets some of it fail.
//!
//! This is no part of the test binary: `tests/it/power.rs` compiles it into a shared library and has the loader put
//! it before the C library in a child process (`LD_PRELOAD`). What the standard library and LMDB call to change files
//! then comes here first. Each change is made and written to the journal under one lock, so that the order in the
//! journal is the order of effects. Syncs are only written down: the disk of the test is imagined.
//!
//! # What can't be seen here
//!
//! - `rustix`, and so `tempfile`, renames by system calls of its own. A new file is therefore held by a descriptor,
//!   through which the kernel tells its present path; every call looks first whether one has moved. Nothing is
//!   written down between the rename and that look, so its place in the journal is exact.
//! - What is written through mapped memory. Of the files in question only LMDB's lock file is.
//!
//! The test compares the directory with the journal at the end, and so notices if anything else passes by.
//!
//! # Environment
//!
//! | variable | what it says |
//! |---|---|
//! | `SHIM_ROOT` | the directory; without it, nothing is done here |
//! | `SHIM_JOURNAL` | the file with the journal, elsewhere; without it nothing is written down, nor synced |
//! | `SHIM_FAULT` | what fails, and a number |
//! | `SHIM_RELIEF` | once this file exists, nothing fails any more |
//! | `SHIM_SECONDS` | the process is ended after so long |
//!
//! | fault | what happens |
//! |---|---|
//! | `full N` | there are no new blocks after N bytes |
//! | `short N` | the same, but of a write that fits in part, that part is written, as file systems do it |
//! | `cow N` | the same as `full`, and every write takes new blocks, as where nothing is written in place |
//! | `sync N` | the N-th sync fails, and so does what it was for |
//!
//! # The journal
//!
//! A record is five numbers of 8 bytes, the lowest byte first (kind, inode, position, flag, length), and as many bytes
//! as the last says.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::fs::{self, File, Metadata};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

// Kinds of records, as `tests/it/power/journal.rs` knows them.
const WRITE: u64 = 1;
const RESIZE: u64 = 2;
const SYNC: u64 = 3;
const SYNC_FAILED: u64 = 4;
const CREATE: u64 = 5;
const MAKE_DIR: u64 = 6;
const REMOVE: u64 = 7;
const RENAME: u64 = 8;
const LINK: u64 = 9;

// Numbers of Linux that are the same on x86-64 and ARM.
const AT_FDCWD: c_int = -100;
const AT_REMOVEDIR: c_int = 0x200;
const EIO: c_int = 5;
const ENOSPC: c_int = 28;
const F_GETFL: c_int = 3;
const O_WRONLY: c_int = 1;
const O_CREAT: c_int = 0o100;
const O_TRUNC: c_int = 0o1000;
const O_APPEND: c_int = 0o2000;
const O_DSYNC: c_int = 0o10000;
const O_CLOEXEC: c_int = 0o2_000_000;
const O_PATH: c_int = 0o10_000_000;
const O_TMPFILE: c_int = 0o20_000_000;
const SEEK_CUR: c_int = 1;
/// What a file system gives out at once.
const BLOCK: u64 = 4096;

unsafe extern "C" {
    fn alarm(seconds: c_uint) -> c_uint;
    fn dlsym(handle: *mut c_void, name: Text) -> *mut c_void;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn __errno_location() -> *mut c_int;
}

/// A C string.
type Text = *const c_char;
/// A path, and the open directory from which it starts if it is relative.
type Place = (c_int, Text);

/// A piece of memory, as `writev` takes it.
#[repr(C)]
pub struct Piece {
    start: *const u8,
    length: usize,
}

/// Calls the function that would have been called without this library.
macro_rules! next {
    ($name:literal: fn($($kind:ty),* $(; $variadic:ty)?) -> $result:ty, $($argument:expr),*) => {{
        // SAFETY: RTLD_NEXT is -1, and the name is a C string. The C library has all functions named here.
        let function = unsafe { dlsym(usize::MAX as *mut c_void, CStr::as_ptr($name)) };
        assert!(!function.is_null(), "the C library lacks {:?}", $name);
        // SAFETY: the type is that of the C library's function of this name.
        let function: next!(@ $result, $($kind),* $(; $variadic)?) = unsafe { std::mem::transmute(function) };
        // SAFETY: the arguments are those that our caller vouches for, or are made from such by this library.
        unsafe { function($($argument),*) }
    }};
    (@ $result:ty, $($kind:ty),*) => { unsafe extern "C" fn($($kind),*) -> $result };
    (@ $result:ty, $($kind:ty),*; $variadic:ty) => { unsafe extern "C" fn($($kind),*, ...) -> $result };
}

/// Ends the process if it hangs. Runs when the library is loaded.
extern "C" fn set_alarm() {
    if let Some(seconds) = std::env::var("SHIM_SECONDS").ok().and_then(|text| text.parse().ok()) {
        // SAFETY: `alarm` has no requirements; the signal's default is to end the process.
        unsafe { alarm(seconds) };
    }
}

#[used]
// SAFETY: the loader calls the functions of this section, which take no arguments that matter here.
#[unsafe(link_section = ".init_array")]
static SET_ALARM: extern "C" fn() = set_alarm;

/// What fails, and when.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Full,
    Short,
    CopyOnWrite,
    Sync,
}

/// What is needed to write things down.
struct Shim {
    root: PathBuf,
    relief: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    journal: Option<OwnedFd>,
    fault: Fault,
    /// The bytes or syncs that are left before it fails.
    left: u64,
    /// The blocks that files have, by inode.
    blocks: BTreeSet<(u64, u64)>,
    /// New files that have not moved yet.
    held: Vec<Held>,
}

/// A file held by a descriptor, and where it was last seen.
struct Held {
    file: OwnedFd,
    path: PathBuf,
}

impl Shim {
    /// The one of this process, if the environment asks for it.
    fn get() -> Option<&'static Self> {
        static SHIM: OnceLock<Option<Shim>> = OnceLock::new();
        SHIM.get_or_init(Self::new).as_ref()
    }

    fn new() -> Option<Self> {
        let root = fs::canonicalize(std::env::var_os("SHIM_ROOT")?).expect("the directory exists");
        let journal = std::env::var_os("SHIM_JOURNAL").map(open_journal);
        let text = std::env::var("SHIM_FAULT").unwrap_or_default();
        let (fault, left) = text.split_once(' ').unwrap_or(("", "0"));
        let fault = match fault {
            "full" => Fault::Full,
            "short" => Fault::Short,
            "cow" => Fault::CopyOnWrite,
            "sync" => Fault::Sync,
            _ => Fault::None,
        };
        let left = left.parse().expect("a number");
        let state = State { journal, fault, left, blocks: BTreeSet::new(), held: Vec::new() };
        let relief = std::env::var_os("SHIM_RELIEF").map(PathBuf::from);
        Some(Self { root, relief, state: Mutex::new(state) })
    }

    /// Whether a path is below the directory, or is the directory.
    fn concerns(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// From here on nobody else changes files, and everything before is written down.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.note_moved(self);
        if self.relief.as_ref().is_some_and(|relief| relief.exists()) {
            state.fault = Fault::None;
        }
        state
    }

    /// A path as the journal has it.
    fn name<'a>(&self, path: &'a Path) -> &'a [u8] {
        path.strip_prefix(&self.root).expect("a path below the directory").as_os_str().as_bytes()
    }
}

impl State {
    /// Appends a record, in one write.
    fn note(&mut self, kind: u64, inode: u64, position: u64, flag: bool, bytes: &[u8]) {
        let numbers = [kind, inode, position, u64::from(flag), bytes.len() as u64];
        let mut record: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        record.extend_from_slice(bytes);
        if let Some(journal) = &self.journal {
            let written = real_write(journal.as_raw_fd(), &record);
            assert_eq!(usize::try_from(written), Ok(record.len()), "the journal can be written");
        }
    }

    fn note_paths(&mut self, kind: u64, shim: &Shim, from: &Path, to: &Path) {
        let both = [shim.name(from), b"\0", shim.name(to)].concat();
        self.note(kind, 0, 0, false, &both);
    }

    /// Writes down which of the held files have been renamed or removed without our seeing it. Then they stay: a
    /// file has a temporary name once.
    fn note_moved(&mut self, shim: &Shim) {
        for held in std::mem::take(&mut self.held) {
            let now = path_of_fd(held.file.as_raw_fd());
            match now {
                Some(now) if now == held.path => self.held.push(held),
                Some(now) if shim.concerns(&now) && now.exists() => {
                    self.note_paths(RENAME, shim, &held.path, &now);
                }
                _ => {
                    self.give_back(about(held.file.as_raw_fd()).ino(), 0);
                    self.note(REMOVE, 0, 0, false, shim.name(&held.path));
                }
            }
        }
    }

    /// Writes down a file that has just been made, and holds it.
    fn note_new(&mut self, shim: &Shim, path: &Path) {
        let inode = fs::symlink_metadata(path).expect("it was made").ino();
        self.note(CREATE, inode, 0, false, shim.name(path));
        if self.journal.is_none() {
            return;
        }
        let text = c_string(path.as_os_str().to_owned());
        let flags = O_PATH | O_CLOEXEC;
        let fd = next!(c"open64": fn(Text, c_int; ()) -> c_int, path_of(&text), flags, 0_u32);
        self.held.push(Held { file: owned(fd).expect("it can be opened"), path: path.into() });
    }

    /// Lets go of a file that was renamed or removed before our eyes.
    fn let_go(&mut self, path: &Path) {
        self.held.retain(|held| held.path != path);
    }

    /// How many of these bytes find room.
    fn room(&mut self, inode: u64, position: u64, length: usize) -> usize {
        if !matches!(self.fault, Fault::Full | Fault::Short | Fault::CopyOnWrite) || length == 0 {
            return length;
        }
        let end = position + length as u64;
        let (mut left, mut taken) = (self.left, Vec::new());
        for block in position / BLOCK..end.div_ceil(BLOCK) {
            let is_new = self.fault == Fault::CopyOnWrite || !self.blocks.contains(&(inode, block));
            if is_new && left < BLOCK {
                if self.fault != Fault::Short {
                    return 0;
                }
                self.take(left, taken);
                return usize::try_from((block * BLOCK).saturating_sub(position)).unwrap_or(0);
            }
            left -= if is_new { BLOCK } else { 0 };
            taken.push((inode, block));
        }
        self.take(left, taken);
        length
    }

    fn take(&mut self, left: u64, taken: Vec<(u64, u64)>) {
        self.left = left;
        self.blocks.extend(taken);
    }

    /// Gives back the blocks of a file from a length on.
    fn give_back(&mut self, inode: u64, length: u64) {
        let before = self.blocks.len();
        self.blocks.retain(|(owner, block)| *owner != inode || block * BLOCK < length);
        self.left += (before - self.blocks.len()) as u64 * BLOCK;
    }

    /// Whether this sync is the one that fails.
    fn sync_fails(&mut self) -> bool {
        if self.fault != Fault::Sync {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.fault = Fault::None;
        }
        self.left == 0
    }
}

fn open_journal(path: OsString) -> OwnedFd {
    let path = c_string(path);
    let flags = O_WRONLY | O_APPEND | O_CLOEXEC;
    let fd = next!(c"open64": fn(Text, c_int; ()) -> c_int, path_of(&path), flags, 0_u32);
    owned(fd).expect("a journal that can be written")
}

fn owned(fd: c_int) -> Option<OwnedFd> {
    // SAFETY: the descriptor was just opened, and nobody else has it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A text that ends in a zero.
fn c_string(text: OsString) -> Vec<u8> {
    let mut bytes = text.into_vec();
    bytes.push(0);
    bytes
}

fn path_of(text: &[u8]) -> Text {
    text.as_ptr().cast()
}

fn fail(code: c_int) -> c_int {
    // SAFETY: the address of this thread's own error number.
    unsafe { *__errno_location() = code };
    -1
}

/// Where an open file is now.
fn path_of_fd(fd: c_int) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

/// What the file system knows of an open file.
fn about(fd: c_int) -> Metadata {
    // SAFETY: the caller's descriptor is only looked at, and is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    file.metadata().expect("an open file")
}

/// Where the file's own position is.
fn own_position(fd: c_int) -> u64 {
    // SAFETY: asks for the position, without moving it.
    u64::try_from(unsafe { lseek64(fd, 0, SEEK_CUR) }).expect("a file with a position")
}

fn flags(fd: c_int) -> c_int {
    // SAFETY: asks for the flags of a descriptor; one that is not open gives an error.
    unsafe { fcntl(fd, F_GETFL) }
}

fn real_write(fd: c_int, bytes: &[u8]) -> isize {
    next!(c"write": fn(c_int, *const u8, usize) -> isize, fd, bytes.as_ptr(), bytes.len())
}

fn real_pwrite(fd: c_int, bytes: &[u8], position: u64) -> isize {
    let position = i64::try_from(position).expect("a position in a file");
    next!(c"pwrite64": fn(c_int, *const u8, usize, i64) -> isize, fd, bytes.as_ptr(), bytes.len(), position)
}

/// The shim, if this open file concerns it.
fn for_fd(fd: c_int) -> Option<&'static Shim> {
    let shim = Shim::get()?;
    shim.concerns(&path_of_fd(fd)?).then_some(shim)
}

/// The shim, if this path concerns it, and the path in full.
fn for_path(dir: c_int, path: Text) -> Option<(&'static Shim, PathBuf)> {
    let shim = Shim::get()?;
    // SAFETY: our caller gives a C string, as the function that it meant to call demands.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let base = if dir == AT_FDCWD { std::env::current_dir().ok()? } else { path_of_fd(dir)? };
    let path = base.join(path);
    let full = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => fs::canonicalize(parent).ok()?.join(name),
        _ => return None,
    };
    shim.concerns(&full).then_some((shim, full))
}

/// Writes to a file that concerns the shim: at a position, or where the file's own position is.
fn write_at(shim: &Shim, fd: c_int, bytes: &[u8], position: Option<i64>) -> isize {
    let mut state = shim.lock();
    let (about, flags) = (about(fd), flags(fd));
    let inode = about.ino();
    let at = match position {
        _ if flags & O_APPEND != 0 => about.len(),
        Some(position) => u64::try_from(position).expect("a position in a file"),
        None => own_position(fd),
    };
    let room = state.room(inode, at, bytes.len());
    if room == 0 && !bytes.is_empty() {
        return fail(ENOSPC) as isize;
    }
    let bytes = &bytes[..room];
    let written = if position.is_some() { real_pwrite(fd, bytes, at) } else { real_write(fd, bytes) };
    let is_synced = flags & O_DSYNC != 0;
    let is_lost = is_synced && state.sync_fails();
    if let Ok(written) = usize::try_from(written) {
        state.note(WRITE, inode, at, is_synced && !is_lost, &bytes[..written]);
    }
    if is_lost {
        state.note(SYNC_FAILED, inode, 0, false, b"");
        return fail(EIO) as isize;
    }
    written
}

/// The bytes of several pieces of memory, one behind the other.
fn gather(pieces: *const Piece, count: c_int) -> Vec<u8> {
    let count = usize::try_from(count).unwrap_or(0);
    let mut bytes = Vec::new();
    for index in 0..count {
        // SAFETY: our caller gives an array of so many pieces, as `writev` demands.
        let piece = unsafe { &*pieces.add(index) };
        bytes.extend_from_slice(memory(piece.start, piece.length));
    }
    bytes
}

fn memory<'a>(start: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: our caller gives readable memory of this length, as `write` demands, for the time of the call.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, length) } }
}

fn sync(fd: c_int) -> Option<c_int> {
    let shim = for_fd(fd)?;
    let mut state = shim.lock();
    let failed = state.sync_fails();
    state.note(if failed { SYNC_FAILED } else { SYNC }, about(fd).ino(), 0, false, b"");
    Some(if failed { fail(EIO) } else { 0 })
}

fn resize(fd: c_int, length: i64) -> c_int {
    let call = || next!(c"ftruncate64": fn(c_int, i64) -> c_int, fd, length);
    let Some(shim) = for_fd(fd) else { return call() };
    let mut state = shim.lock();
    let result = call();
    if let (0, Ok(length)) = (result, u64::try_from(length)) {
        let inode = about(fd).ino();
        state.note(RESIZE, inode, length, false, b"");
        state.give_back(inode, length);
    }
    result
}

fn open_at(dir: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int {
    let call = |flags| next!(c"openat64": fn(c_int, Text, c_int; ()) -> c_int, dir, path, flags, mode);
    if flags & (O_CREAT | O_TRUNC | O_TMPFILE | O_DSYNC) == 0 {
        return call(flags);
    }
    let Some((shim, full)) = for_path(dir, path) else { return call(flags) };
    assert_eq!(flags & O_TMPFILE, 0, "files without a name are not modelled");
    let mut state = shim.lock();
    let is_new = fs::symlink_metadata(&full).is_err();
    // Without a journal nobody asks later what was synced.
    let fd = call(if state.journal.is_none() { flags & !O_DSYNC } else { flags });
    if fd >= 0 && is_new {
        state.note_new(shim, &full);
    } else if fd >= 0 && flags & O_TRUNC != 0 {
        let inode = about(fd).ino();
        state.note(RESIZE, inode, 0, false, b"");
        state.give_back(inode, 0);
    }
    fd
}

/// A call that takes one name away.
fn remove_at(dir: c_int, path: Text, flags: c_int) -> c_int {
    let call = || next!(c"unlinkat": fn(c_int, Text, c_int) -> c_int, dir, path, flags);
    let Some((shim, full)) = for_path(dir, path) else { return call() };
    let mut state = shim.lock();
    let about = fs::symlink_metadata(&full);
    let result = call();
    if result == 0 {
        if let Some(about) = about.ok().filter(|about| about.nlink() == 1) {
            state.give_back(about.ino(), 0);
        }
        state.let_go(&full);
        state.note(REMOVE, 0, 0, false, shim.name(&full));
    }
    result
}

fn make_dir_at(dir: c_int, path: Text, mode: c_uint) -> c_int {
    let call = || next!(c"mkdirat": fn(c_int, Text, c_uint) -> c_int, dir, path, mode);
    let Some((shim, full)) = for_path(dir, path) else { return call() };
    let mut state = shim.lock();
    let result = call();
    if result == 0 {
        let inode = fs::symlink_metadata(&full).expect("it was made").ino();
        state.note(MAKE_DIR, inode, 0, false, shim.name(&full));
    }
    result
}

/// A call that makes one name out of another.
fn name_at(kind: u64, from: Place, to: Place, call: impl Fn() -> c_int) -> c_int {
    let (Some((shim, from)), Some((_, to))) = (for_path(from.0, from.1), for_path(to.0, to.1)) else {
        return call();
    };
    let mut state = shim.lock();
    let result = call();
    if result == 0 {
        state.let_go(&to);
        if kind == RENAME {
            state.let_go(&from);
        }
        state.note_paths(kind, shim, &from, &to);
    }
    result
}

fn rename_at(from: Place, to: Place, flags: c_uint) -> c_int {
    let ((from_dir, from_path), (to_dir, to_path)) = (from, to);
    let call = || {
        next!(c"renameat2": fn(c_int, Text, c_int, Text, c_uint) -> c_int,
            from_dir, from_path, to_dir, to_path, flags)
    };
    name_at(RENAME, from, to, call)
}

fn link_at(from: Place, to: Place, flags: c_int) -> c_int {
    let ((from_dir, from_path), (to_dir, to_path)) = (from, to);
    let call = || {
        next!(c"linkat": fn(c_int, Text, c_int, Text, c_int) -> c_int,
            from_dir, from_path, to_dir, to_path, flags)
    };
    name_at(LINK, from, to, call)
}

fn write(fd: c_int, start: *const u8, length: usize) -> isize {
    let bytes = memory(start, length);
    for_fd(fd).map_or_else(|| real_write(fd, bytes), |shim| write_at(shim, fd, bytes, None))
}

fn pwrite(fd: c_int, start: *const u8, length: usize, position: i64) -> isize {
    let call = || next!(c"pwrite64": fn(c_int, *const u8, usize, i64) -> isize, fd, start, length, position);
    for_fd(fd).map_or_else(call, |shim| write_at(shim, fd, memory(start, length), Some(position)))
}

fn writev(fd: c_int, pieces: *const Piece, count: c_int) -> isize {
    let call = || next!(c"writev": fn(c_int, *const Piece, c_int) -> isize, fd, pieces, count);
    for_fd(fd).map_or_else(call, |shim| write_at(shim, fd, &gather(pieces, count), None))
}

fn pwritev(fd: c_int, pieces: *const Piece, count: c_int, position: i64) -> isize {
    let call =
        || next!(c"pwritev64": fn(c_int, *const Piece, c_int, i64) -> isize, fd, pieces, count, position);
    for_fd(fd).map_or_else(call, |shim| write_at(shim, fd, &gather(pieces, count), Some(position)))
}

/// The functions under the names by which they are called. `sync_file_range` and `msync` are not among them: the first
/// promises nothing, and nothing that is tested here writes to its data through mapped memory.
mod named {
    use super::{AT_FDCWD, AT_REMOVEDIR, CStr, Piece, Text, c_int, c_uint, c_void, dlsym};

    macro_rules! named {
        ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $call:expr;)*) => {$(
            // SAFETY: of this name there is one in the C library, with the same arguments; it is meant to be found
            // here first. Those that take a variable number of arguments get the last one in the same register.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                $call
            }
        )*};
    }

    named! {
        write(fd: c_int, start: *const u8, length: usize) -> isize = super::write(fd, start, length);
        pwrite(fd: c_int, start: *const u8, length: usize, at: i64) -> isize =
            super::pwrite(fd, start, length, at);
        pwrite64(fd: c_int, start: *const u8, length: usize, at: i64) -> isize =
            super::pwrite(fd, start, length, at);
        writev(fd: c_int, pieces: *const Piece, count: c_int) -> isize = super::writev(fd, pieces, count);
        pwritev(fd: c_int, pieces: *const Piece, count: c_int, at: i64) -> isize =
            super::pwritev(fd, pieces, count, at);
        pwritev64(fd: c_int, pieces: *const Piece, count: c_int, at: i64) -> isize =
            super::pwritev(fd, pieces, count, at);
        fsync(fd: c_int) -> c_int =
            super::sync(fd).unwrap_or_else(|| next!(c"fsync": fn(c_int) -> c_int, fd));
        fdatasync(fd: c_int) -> c_int =
            super::sync(fd).unwrap_or_else(|| next!(c"fdatasync": fn(c_int) -> c_int, fd));
        ftruncate(fd: c_int, length: i64) -> c_int = super::resize(fd, length);
        ftruncate64(fd: c_int, length: i64) -> c_int = super::resize(fd, length);
        open(path: Text, flags: c_int, mode: c_uint) -> c_int = super::open_at(AT_FDCWD, path, flags, mode);
        open64(path: Text, flags: c_int, mode: c_uint) -> c_int = super::open_at(AT_FDCWD, path, flags, mode);
        openat(dir: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int =
            super::open_at(dir, path, flags, mode);
        openat64(dir: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int =
            super::open_at(dir, path, flags, mode);
        unlink(path: Text) -> c_int = super::remove_at(AT_FDCWD, path, 0);
        rmdir(path: Text) -> c_int = super::remove_at(AT_FDCWD, path, AT_REMOVEDIR);
        unlinkat(dir: c_int, path: Text, flags: c_int) -> c_int = super::remove_at(dir, path, flags);
        mkdir(path: Text, mode: c_uint) -> c_int = super::make_dir_at(AT_FDCWD, path, mode);
        mkdirat(dir: c_int, path: Text, mode: c_uint) -> c_int = super::make_dir_at(dir, path, mode);
        rename(from: Text, to: Text) -> c_int =
            super::rename_at((AT_FDCWD, from), (AT_FDCWD, to), 0);
        renameat(from_dir: c_int, from: Text, to_dir: c_int, to: Text) -> c_int =
            super::rename_at((from_dir, from), (to_dir, to), 0);
        renameat2(from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_uint) -> c_int =
            super::rename_at((from_dir, from), (to_dir, to), flags);
        link(from: Text, to: Text) -> c_int = super::link_at((AT_FDCWD, from), (AT_FDCWD, to), 0);
        linkat(from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_int) -> c_int =
            super::link_at((from_dir, from), (to_dir, to), flags);
    }
}
