//! Files of a local directory: `file://DIR`.
//!
//! Nothing outside of the directory is ever reached: paths are resolved by `openat2` beneath the directory's own file
//! descriptor and without following any symbolic link, since whoever shows the tree resolves links itself. Needs
//! Linux 5.6. Pipes, sockets and devices are never opened; listings leave them out and count them.
//!
//! Identity: an open file knows its inode number and times, so a version is checked on the opened file. Two writes
//! into the same file within one tick of the kernel's clock (4 ms; Linux 6.13 has finer ones) leave the same
//! modification time, and cannot be told apart where the length is the same as well.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

use super::{Entry, FileKind, FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::page::ByteRange;
use crate::version::{FileVersion, SourceId, SourcePath};

/// Names of users and groups that are remembered; then the memory is emptied.
const NAMES_MAX: usize = 4096;

/// A local directory as a source.
#[derive(Debug)]
pub struct LocalSource {
    tree: Arc<LocalTree>,
}

#[derive(Debug)]
struct LocalTree {
    id: SourceId,
    root: OwnedFd,
    owners: Mutex<HashMap<u32, Arc<str>>>,
    groups: Mutex<HashMap<u32, Arc<str>>>,
}

impl LocalSource {
    /// The tree below `dir`. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory` or `Denied` where `dir` cannot be opened.
    pub fn new(dir: &Path) -> Result<LocalSource> {
        let fail = |errno: Errno| failure(errno, format!("cannot use the directory {}", dir.display()));
        let io_fail = |error: std::io::Error| fail(Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        let canonical = dir.canonicalize().map_err(io_fail)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(&canonical, flags, nix::sys::stat::Mode::empty()).map_err(fail)?;
        // Escaped, so that an id is text whatever the directory's name.
        let id = format!("file://{}", canonical.as_os_str().as_bytes().escape_ascii());
        Ok(LocalSource {
            tree: Arc::new(LocalTree {
                id: SourceId::new(id),
                root,
                owners: Mutex::default(),
                groups: Mutex::default(),
            }),
        })
    }

    async fn blocking<T, F>(&self, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&LocalTree) -> Result<T> + Send + 'static,
    {
        let tree = Arc::clone(&self.tree);
        blocking(move || call(&tree)).await
    }
}

/// Runs `call` on the runtime's threads for blocking calls, whose number bounds how many run at once.
async fn blocking<T, F>(call: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|error| {
        Err(Error::with_cause(
            ErrorKind::Unavailable,
            "a call to the local file system was broken off",
            error,
        ))
    })
}

impl LocalTree {
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
    fn find(&self, path: &SourcePath) -> Result<(OwnedFd, FileStatus)> {
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

    fn list(&self, path: &SourcePath) -> Result<Listing> {
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
        Ok(listing)
    }

    fn open(&self, version: &FileVersion) -> Result<File> {
        let path = version.path();
        match self.find(path)?.1.kind {
            FileKind::File => {}
            FileKind::Directory => {
                return Err(Error::new(
                    ErrorKind::IsDirectory,
                    format!("{path} is a directory"),
                ));
            }
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
fn check_version(file: &File, version: &FileVersion, id: &SourceId) -> Result<()> {
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
        return Err(Error::new(
            ErrorKind::Changed,
            format!("{version} has been changed: look it up again"),
        ));
    }
    Ok(())
}

fn failure(errno: Errno, what: String) -> Error {
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

#[async_trait]
impl Source for LocalSource {
    fn id(&self) -> &SourceId {
        &self.tree.id
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let path = path.clone();
        self.blocking(move |tree| Ok(tree.find(&path)?.1)).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let path = path.clone();
        self.blocking(move |tree| tree.list(&path)).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        super::check_source(&self.tree.id, version)?;
        let wanted = version.clone();
        let file = self.blocking(move |tree| tree.open(&wanted)).await?;
        Ok(Arc::new(LocalFile {
            file: Arc::new(file),
            id: self.tree.id.clone(),
            version: version.clone(),
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        let path = path.clone();
        self.blocking(move |tree| {
            let (fd, status) = tree.find(&path)?;
            if status.kind != FileKind::Symlink {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("{path} is not a symbolic link"),
                ));
            }
            let target = readlinkat(&fd, "")
                .map_err(|errno| failure(errno, format!("cannot read the link {path}")))?;
            Ok(target.into_vec())
        })
        .await
    }
}

#[derive(Debug)]
struct LocalFile {
    file: Arc<File>,
    id: SourceId,
    version: FileVersion,
}

#[async_trait]
impl OpenFile for LocalFile {
    fn version(&self) -> &FileVersion {
        &self.version
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        super::check_range(&self.version, range)?;
        let (file, id, version) = (Arc::clone(&self.file), self.id.clone(), self.version.clone());
        blocking(move || {
            let mut bytes = vec![0; range.len() as usize];
            let read = file.read_exact_at(&mut bytes, range.start());
            // A write moves the modification time before it changes a byte, so the look comes after the read.
            check_version(&file, &version, &id)?;
            read.map_err(|error| {
                let what = format!(
                    "cannot read bytes {}..{} of {version}",
                    range.start(),
                    range.end()
                );
                Error::with_cause(ErrorKind::Unavailable, what, error)
            })?;
            Ok(Bytes::from(bytes))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SourcePath {
        SourcePath::parse(text.as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn links_are_shown_and_never_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inside")).unwrap();
        std::fs::write(dir.path().join("inside/file"), "f").unwrap();
        for (name, target) in [("out", outside.path()), ("in", Path::new("inside"))] {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        }
        let source = LocalSource::new(dir.path()).unwrap();
        let status = source.status(&path("/out")).await.unwrap();
        assert_eq!(status.kind, FileKind::Symlink);
        let target = source.read_link(&path("/out")).await.unwrap();
        assert_eq!(target, outside.path().as_os_str().as_bytes());
        for through in ["/out/secret", "/in/file"] {
            let error = source.status(&path(through)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotDirectory, "{error:?}");
        }
        let error = source.list(&path("/out")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotDirectory, "{error:?}");
        let version = status.version(source.id(), &path("/out"));
        let error = source.open(&version).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        let error = source.read_link(&path("/inside")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    }

    #[tokio::test]
    async fn a_pipe_is_left_out_and_never_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(dir.path().join("file"), "f").unwrap();
        let source = LocalSource::new(dir.path()).unwrap();
        let listing = source.list(&SourcePath::root()).await.unwrap();
        assert_eq!((listing.entries.len(), listing.skipped), (1, 1));
        let error = source.status(&path("/pipe")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        // A pipe in the place of a file: a reader that opened it would let this writer through.
        let version = FileVersion::new(source.id().clone(), path("/pipe"), 0, 0, 0);
        assert!(source.open(&version).await.is_err());
        let writer = nix::fcntl::open(
            &pipe,
            OFlag::O_WRONLY | OFlag::O_NONBLOCK,
            nix::sys::stat::Mode::empty(),
        );
        assert_eq!(writer.unwrap_err(), Errno::ENXIO);
    }

    #[tokio::test]
    async fn a_replacement_with_the_same_times_and_length_is_another_version() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("file"), dir.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        let source = LocalSource::new(dir.path()).unwrap();
        let before = source.status(&path("/file")).await.unwrap();
        let file = source
            .open(&before.version(source.id(), &path("/file")))
            .await
            .unwrap();
        std::fs::write(&new, "new").unwrap();
        let mtime = std::fs::metadata(&old).unwrap().modified().unwrap();
        File::options()
            .write(true)
            .open(&new)
            .unwrap()
            .set_modified(mtime)
            .unwrap();
        std::fs::rename(&new, &old).unwrap();
        let after = source.status(&path("/file")).await.unwrap();
        assert_eq!((before.len, before.mtime_ms), (after.len, after.mtime_ms));
        assert_ne!(before.tag, after.tag);
        // The old one is still there for whoever has it open.
        let range = ByteRange::new(0, 3).unwrap();
        assert_eq!(&file.read(range).await.unwrap()[..], b"old");
    }

    #[test]
    fn errors_say_what_the_caller_can_do() {
        for (errno, kind) in [
            (Errno::EACCES, ErrorKind::Denied),
            (Errno::ENOENT, ErrorKind::NotFound),
            (Errno::ENOTDIR, ErrorKind::NotDirectory),
            (Errno::ENOSYS, ErrorKind::Unsupported),
            (Errno::EIO, ErrorKind::Unavailable),
        ] {
            assert_eq!(failure(errno, String::new()).kind(), kind, "{errno}");
        }
    }
}
