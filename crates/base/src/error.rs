//! The one error type, with a kind for programs and a context for people, and the errno table.

use std::error::Error as StdError;
use std::fmt;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller may want to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device failed a command.
    Io,
    /// No copy of a block matches its checksum (`ECKSUM`).
    Checksum,
    /// Bytes on disk that no correct writer writes.
    Corrupt,
    /// The pool, or the host's disk below it, is full.
    NoSpace,
    /// A quota or a refquota would be exceeded.
    Quota,
    /// No such name, object, block or device.
    NotFound,
    /// The name is taken.
    Exists,
    /// In use elsewhere.
    Busy,
    /// A directory was needed.
    NotDirectory,
    /// A directory where something else was needed.
    IsDirectory,
    /// The directory, or dataset, is not empty.
    NotEmpty,
    /// A name is too long.
    NameTooLong,
    /// A file would grow beyond what the format can hold.
    TooBig,
    /// The caller lacks permission.
    Permission,
    /// What it is about is encrypted, and the key is not loaded (`EACCES`).
    NoKey,
    /// A feature, version or layout that this program does not support.
    Unsupported,
    /// The pool, dataset or device is read-only.
    ReadOnly,
    /// The pool lost a write and accepts no more.
    Suspended,
    /// The caller asked for something meaningless.
    InvalidInput,
    /// The operation spans two file systems (`EXDEV`).
    CrossDevice,
    /// Too many links or levels (`EMLINK`, `ELOOP`).
    TooManyLinks,
}

impl ErrorKind {
    /// The errno that a front end returns for this kind. This is the only such table.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            ErrorKind::Permission => 1,
            ErrorKind::NotFound => 2,
            ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Corrupt | ErrorKind::Suspended => 5,
            ErrorKind::NoKey => 13,
            ErrorKind::Busy => 16,
            ErrorKind::Exists => 17,
            ErrorKind::CrossDevice => 18,
            ErrorKind::NotDirectory => 20,
            ErrorKind::IsDirectory => 21,
            ErrorKind::InvalidInput => 22,
            ErrorKind::TooBig => 27,
            ErrorKind::NoSpace => 28,
            ErrorKind::ReadOnly => 30,
            ErrorKind::TooManyLinks => 31,
            ErrorKind::NameTooLong => 36,
            ErrorKind::NotEmpty => 39,
            ErrorKind::Unsupported => 95,
            ErrorKind::Quota => 122,
        }
    }
}

/// An error: its kind, its context (what was being worked on), and its cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `context` is for people: lower case, no trailing dot, no "failed to".
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            context: context.into(),
            source: None,
        }))
    }

    /// [`ErrorKind::Corrupt`] with a context that names the field and its value.
    pub fn corrupt(context: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt, context)
    }

    /// [`ErrorKind::InvalidInput`].
    pub fn invalid(context: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidInput, context)
    }

    /// [`ErrorKind::NotFound`].
    pub fn not_found(context: impl Into<String>) -> Self {
        Error::new(ErrorKind::NotFound, context)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being worked on, innermost last.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.0.context
    }

    /// The same error with an outer context in front: "`outer`: `context`".
    #[must_use]
    pub fn within(mut self, outer: impl fmt::Display) -> Self {
        self.0.context = format!("{outer}: {}", self.0.context);
        self
    }
}

/// Adds an outer context to the error of a `Result`.
pub trait Context<T> {
    /// Prefixes the error's context with the result of `outer`, which is called only on errors.
    fn within<D: fmt::Display>(self, outer: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn within<D: fmt::Display>(self, outer: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.within(outer()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match e.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied => ErrorKind::Permission,
            Io::AlreadyExists => ErrorKind::Exists,
            Io::StorageFull => ErrorKind::NoSpace,
            Io::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            Io::NotADirectory => ErrorKind::NotDirectory,
            Io::IsADirectory => ErrorKind::IsDirectory,
            Io::ResourceBusy => ErrorKind::Busy,
            _ => ErrorKind::Io,
        };
        Error::new(kind, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_the_outside_in() {
        let error = Err::<(), _>(Error::corrupt("ub_magic is 0x1"))
            .within(|| "label 2")
            .within(|| "/dev/ada0")
            .unwrap_err();
        assert_eq!(error.to_string(), "/dev/ada0: label 2: ub_magic is 0x1");
        assert_eq!(error.kind().errno(), 5);
    }
}
