//! Errors, by what the caller should do about them.

use perennial_core::RecipeError;
use perennial_core::transaction::TransactionError;
use std::fmt;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing happened. Try again, later.
    Busy,
    /// It may have happened. Read back before anything else.
    Unsettled,
    /// The request is wrong, and will be wrong again.
    Invalid,
    /// What is stored is damaged. Repair it, or let it be made anew.
    Damaged,
    /// There is no room left. Nothing happened.
    Full,
    /// The store can't be used as it is set up: a path, a permission, a version.
    Setup,
}

/// What went wrong, why, and what to do.
///
/// The text has the chain of causes and ends with a hint where there is one.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), hint: None, source: None }))
    }

    /// The error with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The error with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// An error of the file system, of the kind that its code says, or of `otherwise`.
    pub(crate) fn io(message: impl Into<String>, error: std::io::Error, otherwise: ErrorKind) -> Self {
        use std::io::ErrorKind as Io;
        let (kind, hint) = match error.kind() {
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => {
                (ErrorKind::Full, Some("make room on the disk, or move the store to a larger one"))
            }
            Io::PermissionDenied | Io::ReadOnlyFilesystem => (
                ErrorKind::Setup,
                Some(
                    "give the user that runs this program read and write access, or choose another directory",
                ),
            ),
            Io::NotADirectory | Io::AlreadyExists => {
                (ErrorKind::Setup, Some("choose a directory, not a file"))
            }
            _ => (otherwise, None),
        };
        let mut made = Self::new(kind, message).because(error);
        made.0.hint = hint.map(Into::into);
        made
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        match &self.0.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        let kind = match error {
            TransactionError::Update { .. } => ErrorKind::Damaged,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<RecipeError> for Error {
    fn from(error: RecipeError) -> Self {
        match error {
            RecipeError::Transaction(error) => error.into(),
            RecipeError::Row(error) => error.into(),
        }
    }
}

impl From<perennial_core::schema::RowError> for Error {
    fn from(error: perennial_core::schema::RowError) -> Self {
        Self::new(ErrorKind::Damaged, error.to_string())
    }
}

impl From<perennial_core::key::KeyError> for Error {
    fn from(error: perennial_core::key::KeyError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_cause_and_hint() {
        let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = Error::io("can't open ./cache", cause, ErrorKind::Busy);
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert_eq!(
            error.to_string(),
            "can't open ./cache: permission denied; hint: give the user that runs this program read and write access, or \
             choose another directory"
        );
    }
}
