//! What the kernel is told about a version's file, so that reading it through the kernel's page cache is cheap.
//!
//! Hints alone: a file system that does not know one is no worse than without. Owns nothing. Called by `directory.rs`
//! and `verify.rs`.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// ioctl_iflags(2); libc does not have it.
const FS_NOATIME_FL: libc::c_long = 0x80;

nix::ioctl_read!(read_flags, b'f', 1, libc::c_long);
nix::ioctl_write_ptr!(write_flags, b'f', 2, libc::c_long);

/// Takes the file's access time out of its reads: nobody asks for it, and looking whether it is due is a twentieth of a
/// warm read of 4 KiB through passthrough.
pub(super) fn keep_no_access_time(file: &File) {
    let mut flags: libc::c_long = 0;
    // SAFETY: both calls read or write the one long they are given (the kernel uses its lower half), and the
    // descriptor is open.
    let done = unsafe {
        read_flags(file.as_raw_fd(), &raw mut flags).and_then(|_| {
            flags |= FS_NOATIME_FL;
            write_flags(file.as_raw_fd(), &raw const flags)
        })
    };
    if let Err(error) = done {
        tracing::trace!(%error, "the file system keeps access times");
    }
}

/// Has what follows read from the disk itself, in long steps. What was written page by page lies in the kernel's page
/// cache in small folios, which makes random reads a tenth dearer than those of a file that was read in; and a
/// checksum is only worth what it was computed from.
pub(super) fn read_anew(file: &File) {
    let dropped = nix::unistd::fdatasync(file)
        .and_then(|()| posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED))
        .and_then(|()| posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL));
    if let Err(error) = dropped {
        tracing::trace!(%error, "the kernel keeps the pages it has");
    }
}
