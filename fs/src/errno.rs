//! The one table from errors to errno. No other file names an errno, and the match has no wildcard arm, so that a new
//! kind of error cannot reach the kernel by accident.

use lookupfs_cache::error::{Error, ErrorKind};

/// An errno as the kernel gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// Everything that would write.
    pub const READ_ONLY: Errno = Errno(libc::EROFS);
    /// An operation that this filesystem does not have; the kernel stops sending it.
    pub const NO_SUCH_OPERATION: Errno = Errno(libc::ENOSYS);
    /// An ioctl that this filesystem does not know, or on something that is no regular file.
    pub const NO_SUCH_IOCTL: Errno = Errno(libc::ENOTTY);
    /// An inode or handle that this mount does not know (any more).
    pub const STALE: Errno = Errno(libc::ESTALE);
    /// A fault of the daemon itself, such as a panicking handler.
    pub const INTERNAL: Errno = Errno(libc::EIO);

    /// The number.
    pub fn raw(self) -> i32 {
        self.0
    }
}

impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Errno {
        Errno(match kind {
            ErrorKind::Changed => libc::ESTALE,
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::NotDirectory => libc::ENOTDIR,
            ErrorKind::IsDirectory => libc::EISDIR,
            ErrorKind::Denied => libc::EACCES,
            ErrorKind::Unavailable => libc::EIO,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Corrupt => libc::EIO,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::Invalid => libc::EINVAL,
        })
    }
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Errno {
        error.kind().into()
    }
}
