//! What the filesystem shows, in fuser's words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use lookupfs_cache::source::FileKind;

use crate::attributes::Attributes;
use crate::owner::Ownership;

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
    }
}

pub(super) fn file_attr(shown: &Attributes) -> FileAttr {
    // Saturates far outside of any real clock, where an addition would panic on a hostile time.
    let mtime: SystemTime = UNIX_EPOCH
        .checked_add(Duration::from_millis(shown.mtime_ms))
        .unwrap_or(UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(shown.number),
        size: shown.len,
        blocks: shown.len.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: mtime,
        crtime: mtime,
        kind: file_type(shown.kind),
        perm: shown.ownership.mode,
        // 1 also for directories: it tells `find` that the count of subdirectories is not known.
        nlink: 1,
        uid: shown.ownership.uid,
        gid: shown.ownership.gid,
        rdev: 0,
        blksize: shown.block_bytes,
        flags: 0,
    }
}

/// Attributes that say that nothing is there.
pub(super) fn no_attr() -> FileAttr {
    let ownership = Ownership {
        uid: 0,
        gid: 0,
        mode: 0,
    };
    file_attr(&Attributes {
        number: 0,
        kind: FileKind::File,
        len: 0,
        mtime_ms: 0,
        ownership,
        block_bytes: 4096,
    })
}

/// Attributes of `.` and `..`, of which the kernel takes the kind only.
pub(super) fn dot(number: u64) -> FileAttr {
    let ownership = Ownership {
        uid: 0,
        gid: 0,
        mode: 0o555,
    };
    file_attr(&Attributes {
        number,
        kind: FileKind::Directory,
        len: 0,
        mtime_ms: 0,
        ownership,
        block_bytes: 4096,
    })
}
