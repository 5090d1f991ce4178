//! The system calls of a local directory: resolved beneath its own file descriptor, never through a link. They block,
//! so [`super::LocalSource`], their only caller, runs them off the event loop.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::source::{Entry, FileKind, FileStatus, Listing};
use crate::version::{FileVersion, SourceId, SourcePath};

/// Names of users and groups that are remembered; then the memory is emptied.
const NAMES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct LocalTree {
    pub(super) id: SourceId,
    root: OwnedFd,
    owners: Mutex<HashMap<u32, Arc<str>>>,
    groups: Mutex<HashMap<u32, Arc<str>>>,
}

impl LocalTree {
    /// The tree below `dir`, whose own links are followed once, here.
    pub(super) fn new(dir: &Path) -> Result<LocalTree> {
        let fail = |errno: Errno| failure(errno, format!("cannot use the directory {}", dir.display()));
        let io_fail = |error: std::io::Error| fail(Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        let canonical = dir.canonicalize().map_err(io_fail)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(&canonical, flags, Mode::empty()).map_err(fail)?;
        // Escaped, so that an id is text whatever the directory's name.
        let id = format!("file://{}", canonical.as_os_str().as_bytes().escape_ascii());
        Ok(LocalTree {
            id: SourceId::new(id),
            root,
            owners: Mutex::default(),
            groups: Mutex::default(),
        })
    }

    /// Opens `path` beneath the root; `O_NOFOLLOW` and `O_CLOEXEC` are added.
    fn open_beneath(&self, path: &SourcePath, flags: OFlag) -> Result<OwnedFd> {
        let relative = match &path.as_bytes()[1..] {
            b"" => OsStr::new("."),
            rest => OsStr::from_bytes(rest),
        };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(
                ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS
                    | ResolveFlag::RESOLVE_NO_MAGICLINKS,
            );
        loop {
            match openat2(&self.root, relative, how) {
                Ok(fd) => return Ok(fd),
                // The kernel gives up when the tree is being renamed under the walk.
                Err(Errno::EAGAIN | Errno::EINTR) => std::thread::yield_now(),
                Err(errno) => return Err(failure(errno, format!("cannot open {path}"))),
            }
        }
    }

    /// A handle that can be asked but not read, so that no pipe or device notices.
    pub(super) fn find(&self, path: &SourcePath) -> Result<(OwnedFd, FileStatus)> {
        let fd = self.open_beneath(path, OFlag::O_PATH)?;
        let stat = fstat(&fd).map_err(|errno| failure(errno, format!("no status of {path}")))?;
        match self.translate(&stat) {
            Some(status) => Ok((fd, status)),
            None => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{path} is neither a file, a directory nor a symbolic link, and is not shown"),
            )),
        }
    }

    /// `None`: it holds more than `max_entries`.
    pub(super) fn list(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let fail = |errno| failure(errno, format!("cannot list {path}"));
        let fd = self.open_beneath(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let folder = fd.try_clone().map_err(|error| {
            Error::with_cause(ErrorKind::Unavailable, format!("cannot list {path}"), error)
        })?;
        let mut entries = Vec::new();
        let mut skipped = 0;
        for found in Dir::from_fd(fd).map_err(fail)?.iter() {
            let found = found.map_err(fail)?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entries.len() >= max_entries {
                return Ok(None);
            }
            let stat = match fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Deleted since the directory was read.
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(fail(errno)),
            };
            match self.translate(&stat) {
                Some(status) => entries.push(Entry {
                    name: Arc::from(name.to_bytes()),
                    status,
                }),
                None => skipped += 1,
            }
        }
        let mut listing = Listing::new(entries);
        listing.skipped += skipped;
        Ok(Some(listing))
    }

    pub(super) fn open(&self, version: &FileVersion) -> Result<File> {
        let path = version.path();
        let there = self.find(path)?.1;
        match there.kind {
            FileKind::File => {}
            FileKind::Directory => {
                return Err(Error::new(
                    ErrorKind::IsDirectory,
                    format!("{path} is a directory"),
                ));
            }
            // One that has taken the file's place; else the caller's mistake.
            FileKind::Symlink if there.version(&self.id, path) != *version => return Err(changed(version)),
            FileKind::Symlink => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("{path} is a symbolic link"),
                ));
            }
        }
        // Not blocking, in case a pipe has taken the file's place just now.
        let fd = self.open_beneath(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
        let file = File::from(fd);
        check_version(&file, version, &self.id)?;
        Ok(file)
    }

    /// None for what is not shown.
    fn translate(&self, stat: &FileStat) -> Option<FileStatus> {
        let (kind, len) = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => (FileKind::File, stat.st_size),
            SFlag::S_IFLNK => (FileKind::Symlink, stat.st_size),
            SFlag::S_IFDIR => (FileKind::Directory, 0),
            _ => return None,
        };
        let tag = match kind {
            FileKind::Directory => 0,
            FileKind::File | FileKind::Symlink => tag_of(stat),
        };
        Some(FileStatus {
            kind,
            len: u64::try_from(len).unwrap_or(0),
            mtime_ms: mtime_ms(stat),
            tag,
            owner: remembered(&self.owners, stat.st_uid, |uid| {
                Some(User::from_uid(Uid::from_raw(uid)).ok()??.name)
            }),
            group: remembered(&self.groups, stat.st_gid, |gid| {
                Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name)
            }),
            mode: (stat.st_mode & 0o1777) as u16,
        })
    }
}

/// The name of `id`, empty where it has none.
fn remembered(
    names: &Mutex<HashMap<u32, Arc<str>>>,
    id: u32,
    look_up: impl FnOnce(u32) -> Option<String>,
) -> Arc<str> {
    if let Some(name) = names.lock().get(&id) {
        return Arc::clone(name);
    }
    // Not under the lock: it may ask a directory service.
    let name: Arc<str> = look_up(id).unwrap_or_default().into();
    let mut names = names.lock();
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    names.insert(id, Arc::clone(&name));
    name
}

fn mtime_ms(stat: &FileStat) -> u64 {
    let ms = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
    u64::try_from(ms).unwrap_or(0)
}

/// Device, inode number and the whole modification time, hashed.
fn tag_of(stat: &FileStat) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(b"lookupfs local tag 1\0");
    hash.update(&stat.st_dev.to_le_bytes());
    hash.update(&stat.st_ino.to_le_bytes());
    hash.update(&stat.st_mtime.to_le_bytes());
    hash.update(&stat.st_mtime_nsec.to_le_bytes());
    let mut tag = [0; 8];
    tag.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    u64::from_le_bytes(tag)
}

/// `Changed` unless the open `file` is `version`.
pub(super) fn check_version(file: &File, version: &FileVersion, id: &SourceId) -> Result<()> {
    let stat = fstat(file.as_fd()).map_err(|errno| failure(errno, format!("no status of {version}")))?;
    let regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let len = u64::try_from(stat.st_size).unwrap_or(0);
    let found = FileVersion::new(
        id.clone(),
        version.path().clone(),
        len,
        mtime_ms(&stat),
        tag_of(&stat),
    );
    if !regular || found != *version {
        return Err(changed(version));
    }
    Ok(())
}

fn changed(version: &FileVersion) -> Error {
    Error::new(
        ErrorKind::Changed,
        format!("{version} has been changed: look it up again"),
    )
}

pub(super) fn failure(errno: Errno, what: String) -> Error {
    let kind = match errno {
        Errno::ENOENT | Errno::ENAMETOOLONG => ErrorKind::NotFound,
        // ELOOP: a symbolic link where a directory is needed.
        Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV => ErrorKind::NotDirectory,
        Errno::EISDIR => ErrorKind::IsDirectory,
        Errno::EACCES | Errno::EPERM => ErrorKind::Denied,
        Errno::ESTALE => ErrorKind::Changed,
        Errno::ETIMEDOUT => ErrorKind::TimedOut,
        Errno::ENOSYS => {
            let advice = format!("{what}: this needs openat2, of Linux 5.6");
            return Error::with_cause(ErrorKind::Unsupported, advice, errno);
        }
        _ => ErrorKind::Unavailable,
    };
    Error::with_cause(kind, what, errno)
}
