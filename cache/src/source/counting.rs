//! Counts what is asked of a source. The numbers are those of `lookupfs stats`, and what tests assert.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use super::{FileStatus, Listing, OpenFile, Source};
use crate::error::Result;
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

/// Requests and bytes so far. Shared by whoever asks and whoever shows.
///
/// A request is one call of [`Source`] or [`OpenFile`], failed ones included. What it costs below is the source's
/// affair: at an HDFS an open is two NameNode requests, a listing one for each 1,000 entries begun, a status or a link
/// one, a read none but one request to a DataNode for each HDFS block that it touches.
#[derive(Debug, Default)]
pub struct RequestCounters {
    status: AtomicU64,
    list: AtomicU64,
    open: AtomicU64,
    read_link: AtomicU64,
    read: AtomicU64,
    read_bytes: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicU64,
}

/// The numbers of [`RequestCounters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RequestCounts {
    /// Calls of `status`.
    pub status: u64,
    /// Calls of `list` and `list_at_most`.
    pub list: u64,
    /// Calls of `open`.
    pub open: u64,
    /// Calls of `read_link`.
    pub read_link: u64,
    /// Calls of `read`.
    pub read: u64,
    /// Bytes that reads answered.
    pub read_bytes: u64,
    /// Calls that ended in an error. A call whose future was dropped is not among them.
    pub failed: u64,
    /// Calls that have begun and neither ended nor been dropped.
    pub in_flight: u64,
}

impl RequestCounters {
    /// The numbers now.
    pub fn counts(&self) -> RequestCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            status: get(&self.status),
            list: get(&self.list),
            open: get(&self.open),
            read_link: get(&self.read_link),
            read: get(&self.read),
            read_bytes: get(&self.read_bytes),
            failed: get(&self.failed),
            in_flight: get(&self.in_flight),
        }
    }

    /// Sets all but the gauge to zero.
    pub fn reset(&self) {
        for counter in [
            &self.status,
            &self.list,
            &self.open,
            &self.read_link,
            &self.read,
            &self.read_bytes,
            &self.failed,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    async fn count<T>(&self, counter: &AtomicU64, call: impl Future<Output = Result<T>>) -> Result<T> {
        counter.fetch_add(1, Ordering::Relaxed);
        let _in_flight = InFlight::new(&self.in_flight);
        let answer = call.await;
        if answer.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }
}

/// Counts down when the call ends, also when its future is dropped.
struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn new(gauge: &'a AtomicU64) -> InFlight<'a> {
        gauge.fetch_add(1, Ordering::Relaxed);
        InFlight(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A source whose requests are counted.
#[derive(Debug)]
pub struct CountingSource<S> {
    inner: S,
    counters: Arc<RequestCounters>,
}

impl<S: Source> CountingSource<S> {
    /// Counts the calls of `inner` and of the files it opens in `counters`.
    pub fn new(inner: S, counters: Arc<RequestCounters>) -> CountingSource<S> {
        CountingSource { inner, counters }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source> Source for CountingSource<S> {
    fn id(&self) -> &SourceId {
        self.inner.id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let call = self.inner.status(path);
        self.counters.count(&self.counters.status, call).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let call = self.inner.list(path);
        self.counters.count(&self.counters.list, call).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let call = self.inner.list_at_most(path, max_entries);
        self.counters.count(&self.counters.list, call).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        let call = self.inner.open(version);
        let inner = self.counters.count(&self.counters.open, call).await?;
        Ok(Arc::new(CountingFile {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        let call = self.inner.read_link(path);
        self.counters.count(&self.counters.read_link, call).await
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn OpenFile>,
    counters: Arc<RequestCounters>,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl OpenFile for CountingFile {
    fn version(&self) -> &FileVersion {
        self.inner.version()
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let call = self.inner.read(range);
        let bytes = self.counters.count(&self.counters.read, call).await?;
        self.counters
            .read_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        let call = self.inner.read_pages(range, page_size);
        let pages = self.counters.count(&self.counters.read, call).await?;
        let len: usize = pages.iter().map(|page| page.len()).sum();
        self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(pages)
    }
}
