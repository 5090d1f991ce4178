//! Files of a local directory: `file://DIR`.
//!
//! Nothing outside of the directory is ever reached: paths are resolved by `openat2` beneath the directory's own file
//! descriptor and without following any symbolic link, since whoever shows the tree resolves links itself. Needs
//! Linux 5.6. Pipes, sockets and devices are never opened; listings leave them out and count them.
//!
//! Identity: an open file knows its inode number and times, so a version is checked on the opened file. Two writes
//! into the same file within one tick of the kernel's clock (4 ms; Linux 6.13 has finer ones) leave the same
//! modification time, and cannot be told apart where the length is the same as well.

mod tree;

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nix::fcntl::readlinkat;

use self::tree::{LocalTree, check_version, failure};
use super::{FileKind, FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::page::ByteRange;
use crate::version::{FileVersion, SourceId, SourcePath};

/// A local directory as a source.
#[derive(Debug)]
pub struct LocalSource {
    tree: Arc<LocalTree>,
}

impl LocalSource {
    /// The tree below `dir`. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory` or `Denied` where `dir` cannot be opened.
    pub fn new(dir: &Path) -> Result<LocalSource> {
        Ok(LocalSource {
            tree: Arc::new(LocalTree::new(dir)?),
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
        let found = self.blocking(move |tree| tree.list(&path, usize::MAX)).await?;
        Ok(found.unwrap_or_default())
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let path = path.clone();
        self.blocking(move |tree| tree.list(&path, max_entries)).await
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
    use std::os::unix::ffi::OsStrExt;

    use nix::errno::Errno;
    use nix::fcntl::OFlag;

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
