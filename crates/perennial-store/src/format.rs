//! The file FORMAT of a directory, which says in a line of text what the directory is: so that neither another
//! version nor another program's directory is misread, and a person who looks knows.

use crate::{Error, ErrorKind, Result};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, ErrorKind as Io, Read as _, Write as _};
use std::path::Path;
use tempfile::NamedTempFile;

/// What a directory holds, and in which format.
pub(crate) struct Format {
    /// What it holds: `table`, `bodies`.
    pub what: &'static str,
    /// Raised when an older program would misread what a newer one writes.
    pub number: u32,
}

impl Format {
    /// The name of the file.
    pub const FILE: &str = "FORMAT";

    /// Whether the file is there. It is an error if it says anything but our format.
    pub fn check_file(&self, path: &Path) -> Result<bool> {
        let mut text = Vec::new();
        match File::open(path).and_then(|file| file.take(256).read_to_end(&mut text)) {
            Err(error) if error.kind() == Io::NotFound => return Ok(false),
            Err(error) => {
                return Err(Error::io(format!("can't read {}", path.display()), error, ErrorKind::Setup));
            }
            Ok(_) => {}
        }
        let number = str::from_utf8(&text).ok().and_then(|text| text.strip_prefix(&self.prefix()));
        match number.and_then(|number| number.trim_end().parse().ok()) {
            Some(number) => self.check(number, path).map(|()| true),
            None => Err(self.foreign(path)),
        }
    }

    /// That a number found in this file is our format.
    pub fn check(&self, found: u32, path: &Path) -> Result<()> {
        let hint = match found.cmp(&self.number) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {
                "it was written by a newer Perennial: use that version, or another directory"
            }
            Ordering::Less => "it was written by an older Perennial: use that version, or another directory",
        };
        let message =
            format!("{} is of format {found}, and this program knows format {}", path.display(), self.number);
        Err(Error::new(ErrorKind::Setup, message).hint(hint))
    }

    /// That this file is somebody else's.
    pub fn foreign(&self, path: &Path) -> Error {
        let message = format!("{} was not written by Perennial for its {}", path.display(), self.what);
        Error::new(ErrorKind::Setup, message)
            .hint("choose another directory; nothing was changed in this one")
    }

    /// Writes the file, whole or not at all, through an empty temporary file of the same file system. Another process
    /// may do the same at the same time.
    pub fn write_file(&self, path: &Path, mut file: NamedTempFile) -> Result<()> {
        let failed = |error| Error::io(format!("can't write {}", path.display()), error, ErrorKind::Setup);
        writeln!(file, "{}{}", self.prefix(), self.number).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(()),
            Err(lost) if lost.error.kind() == Io::AlreadyExists => self.check_file(path).map(drop),
            Err(lost) => Err(failed(lost.error)),
        }
    }

    fn prefix(&self) -> String {
        format!("perennial {}, format ", self.what)
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes a directory's own name durable, and those of the directories above it. One that we may not read, or that
/// can't be synced, was there before.
pub(crate) fn sync_dirs_above(dir: &Path) -> io::Result<()> {
    dir.ancestors().skip(1).try_for_each(|above| match sync_dir(above) {
        Err(error) if !matches!(error.kind(), Io::PermissionDenied | Io::InvalidInput | Io::Unsupported) => {
            Err(error)
        }
        _ => Ok(()),
    })
}
