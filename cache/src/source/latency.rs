//! Adds the same time to every call of a source, for tests and benchmarks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{FileStatus, Listing, OpenFile, Source};
use crate::error::Result;
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

/// A source that is further away.
#[derive(Debug)]
pub struct LatencySource<S> {
    inner: S,
    latency: Duration,
}

impl<S: Source> LatencySource<S> {
    /// Waits for `latency` before each call of `inner` and of the files it opens.
    pub fn new(inner: S, latency: Duration) -> LatencySource<S> {
        LatencySource { inner, latency }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source> Source for LatencySource<S> {
    fn id(&self) -> &SourceId {
        self.inner.id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        tokio::time::sleep(self.latency).await;
        self.inner.status(path).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        tokio::time::sleep(self.latency).await;
        self.inner.list(path).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        tokio::time::sleep(self.latency).await;
        self.inner.list_at_most(path, max_entries).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        tokio::time::sleep(self.latency).await;
        let inner = self.inner.open(version).await?;
        let latency = self.latency;
        Ok(Arc::new(LatencyFile { inner, latency }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        tokio::time::sleep(self.latency).await;
        self.inner.read_link(path).await
    }
}

#[derive(Debug)]
struct LatencyFile {
    inner: Arc<dyn OpenFile>,
    latency: Duration,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl OpenFile for LatencyFile {
    fn version(&self) -> &FileVersion {
        self.inner.version()
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        tokio::time::sleep(self.latency).await;
        self.inner.read(range).await
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        tokio::time::sleep(self.latency).await;
        self.inner.read_pages(range, page_size).await
    }
}
