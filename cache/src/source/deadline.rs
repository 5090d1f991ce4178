//! Gives every call of a source an end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

/// How long calls may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Each status, listing, open and link.
    pub metadata: Duration,
    /// Each read.
    pub read: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            metadata: Duration::from_secs(10),
            read: Duration::from_secs(60),
        }
    }
}

/// A source whose calls end with `TimedOut` when their deadline has passed.
#[derive(Debug)]
pub struct DeadlineSource<S> {
    inner: S,
    deadlines: Deadlines,
}

impl<S: Source> DeadlineSource<S> {
    /// Puts an end to the calls of `inner` and of the files it opens.
    pub fn new(inner: S, deadlines: Deadlines) -> DeadlineSource<S> {
        DeadlineSource { inner, deadlines }
    }
}

async fn within<T>(
    deadline: Duration,
    what: impl FnOnce() -> String,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(Error::new(
            ErrorKind::TimedOut,
            format!("{}: no answer within {deadline:?}", what()),
        )),
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source> Source for DeadlineSource<S> {
    fn id(&self) -> &SourceId {
        self.inner.id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let what = || format!("status of {path}");
        within(self.deadlines.metadata, what, self.inner.status(path)).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let what = || format!("listing of {path}");
        within(self.deadlines.metadata, what, self.inner.list(path)).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let what = || format!("listing of {path}");
        let call = self.inner.list_at_most(path, max_entries);
        within(self.deadlines.metadata, what, call).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        let what = || format!("open of {version}");
        let inner = within(self.deadlines.metadata, what, self.inner.open(version)).await?;
        Ok(Arc::new(DeadlineFile {
            inner,
            deadline: self.deadlines.read,
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        let what = || format!("link {path}");
        within(self.deadlines.metadata, what, self.inner.read_link(path)).await
    }
}

#[derive(Debug)]
struct DeadlineFile {
    inner: Arc<dyn OpenFile>,
    deadline: Duration,
}

impl DeadlineFile {
    fn what(&self, range: ByteRange) -> String {
        format!(
            "bytes {}..{} of {}",
            range.start(),
            range.end(),
            self.inner.version()
        )
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl OpenFile for DeadlineFile {
    fn version(&self) -> &FileVersion {
        self.inner.version()
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        within(self.deadline, || self.what(range), self.inner.read(range)).await
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        let call = self.inner.read_pages(range, page_size);
        within(self.deadline, || self.what(range), call).await
    }
}
