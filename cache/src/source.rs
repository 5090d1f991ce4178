//! Where bytes come from: the contract that every source keeps, and that [`crate::conformance`] checks.

pub mod counting;
pub mod deadline;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
pub mod hdfs;
#[cfg(any(test, feature = "testing"))]
pub mod latency;
pub mod local;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod open;
mod pages;
pub mod retry;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; only `file://` has them.
    Symlink,
}

/// Metadata of one path at the moment the source was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// File, directory or symbolic link.
    pub kind: FileKind,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Modification time, milliseconds since 1970.
    pub mtime_ms: u64,
    /// What else the source knows of the identity of a file's bytes; 0 where it knows nothing more.
    pub tag: u64,
    /// Owner by name; empty where the source has none.
    pub owner: Arc<str>,
    /// Group by name; empty where the source has none.
    pub group: Arc<str>,
    /// Permission bits, already masked with 01777.
    pub mode: u16,
}

impl FileStatus {
    /// The version of the bytes at `path` that this status describes.
    pub fn version(&self, source: &SourceId, path: &SourcePath) -> FileVersion {
        FileVersion::new(source.clone(), path.clone(), self.len, self.mtime_ms, self.tag)
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A name that passes [`crate::version::is_file_name`].
    pub name: Arc<[u8]>,
    /// Its metadata, as `status` of its path would have answered.
    pub status: FileStatus,
}

/// A whole directory at the moment the source was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by name, no name twice.
    pub entries: Vec<Entry>,
    /// Entries left out because Linux cannot show their names.
    pub skipped: u64,
}

impl Listing {
    /// Makes a listing of what a source answered: sorts by name, drops names that Linux cannot show, and counts them.
    pub fn new(entries: Vec<Entry>) -> Listing {
        let before = entries.len();
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| crate::version::is_file_name(&entry.name))
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        let skipped = (before - entries.len()) as u64;
        Listing { entries, skipped }
    }

    /// The entry of that name.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| (*entry.name).cmp(name))
            .ok()?;
        self.entries.get(at)
    }
}

/// Where bytes come from.
///
/// What an implementation owes:
/// * **Whole answers.** A call answers completely or fails; nothing is guessed, padded or cut.
/// * **An end.** Every call ends within the deadline that the source was built with ([`DeadlineSource`] sees to it),
///   with [`ErrorKind::TimedOut`] at the latest. Dropping a call's future stops its work as far as the source can.
/// * **No panic**, whatever the remote side answers.
/// * **Kinds.** `NotFound`, `NotDirectory`, `IsDirectory`, `Denied` and `Changed` are told apart from `Unavailable`.
///
/// The trait has no cache and no retry of its own: both are layers above.
///
/// [`DeadlineSource`]: crate::source::deadline::DeadlineSource
/// [`ErrorKind::TimedOut`]: crate::error::ErrorKind::TimedOut
#[async_trait]
pub trait Source: Send + Sync + Debug + 'static {
    /// Names this source in versions. Two sources with the same id have the same bytes at the same paths.
    fn id(&self) -> &SourceId;

    /// Metadata of `path`, without following a symbolic link in its last component.
    async fn status(&self, path: &SourcePath) -> Result<FileStatus>;

    /// All entries of the directory `path`, each with its metadata.
    async fn list(&self, path: &SourcePath) -> Result<Listing>;

    /// As [`Source::list`], but `None` as soon as it is known that there are more than `max_entries`, or that each would cost
    /// a request: a directory that is listed in place of a few statuses must not turn out to hold a million names.
    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let listing = self.list(path).await?;
        Ok((listing.entries.len() <= max_entries).then_some(listing))
    }

    /// Opens exactly `version`.
    ///
    /// The caller has just learned `version` from [`Source::status`] or [`Source::list`]; this is the status before.
    /// Since an open by path may meet a newer file, an implementation that cannot see the identity in the opened file
    /// itself asks for the status *after* opening as well, and answers `Changed` unless both agree: the bytes of a
    /// replaced file never get the old version's key.
    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>>;

    /// The target of the symbolic link `path`; `Invalid` where `path` is none.
    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>>;
}

/// One version, opened. Shared by many readers at once; there is no position and no lock in a read.
#[async_trait]
pub trait OpenFile: Send + Sync + Debug + 'static {
    /// The version that was opened.
    fn version(&self) -> &FileVersion;

    /// The bytes of `range`, all of them: `range.len()` bytes of exactly [`OpenFile::version`].
    ///
    /// # Errors
    /// `Invalid` for a range that does not lie inside the version; `Changed` where those bytes have gone; `Corrupt`
    /// where no replica passes its checksum; `Unavailable` or `TimedOut` otherwise.
    async fn read(&self, range: ByteRange) -> Result<Bytes>;

    /// What [`OpenFile::read`] gives, cut where pages of `page_size` end in the file: each page in memory of its own, the
    /// first and the last one shorter where the range is.
    ///
    /// # Errors
    /// As [`OpenFile::read`].
    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        Ok(pages::cut(range, page_size, &self.read(range).await?))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source + ?Sized> Source for Arc<S> {
    fn id(&self) -> &SourceId {
        (**self).id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        (**self).status(path).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        (**self).list(path).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        (**self).list_at_most(path, max_entries).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        (**self).open(version).await
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        (**self).read_link(path).await
    }
}

/// What every [`OpenFile::read`] checks first.
pub(crate) fn check_range(version: &FileVersion, range: ByteRange) -> Result<()> {
    if range.end() > version.len() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "bytes {}..{} do not lie inside {version}",
                range.start(),
                range.end()
            ),
        ));
    }
    Ok(())
}

/// What every [`Source::open`] checks first.
pub(crate) fn check_source(id: &SourceId, version: &FileVersion) -> Result<()> {
    if version.source() != id {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{version} is a version of {}, not of {id}", version.source()),
        ));
    }
    Ok(())
}
