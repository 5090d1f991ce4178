//! The one error type of this crate: a kind that says what the caller can do, and a sentence for people.

use std::fmt;
use std::sync::Arc;

/// What a caller can do about an error. A kind exists only where callers act differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The file is no longer the version that was asked for: look the path up again.
    Changed,
    /// Nothing is at this path.
    NotFound,
    /// A component of the path is a file where a directory is needed.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The source refuses this user: mend permissions, or renew the credentials.
    Denied,
    /// The source did not answer, or could not serve the bytes. A later try may succeed.
    Unavailable,
    /// The deadline of the call ran out. A later try may succeed.
    TimedOut,
    /// The source's bytes or metadata are damaged: every replica failed its checksum, or a listing cannot be decoded.
    Corrupt,
    /// The source has the file but in a way that is not supported, such as an erasure-coding policy.
    Unsupported,
    /// The caller's mistake: a range outside of the file, a path that is no path.
    Invalid,
}

impl ErrorKind {
    /// Whether the same call may succeed if it is made again soon.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::TimedOut)
    }
}

/// An error of a source or of the cache: kind, one sentence, and the cause. Cheap to clone, since all readers that
/// wait for the same extent get the same error.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// `message` names the file or range, and what to do where that is not obvious from the kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            cause: None,
        }))
    }

    /// As [`Error::new`], with the error of a lower layer. `message` does not repeat the cause.
    pub fn with_cause(
        kind: ErrorKind,
        message: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            cause: Some(cause.into()),
        }))
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .cause
            .as_deref()
            .map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
