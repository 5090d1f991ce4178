//! Tries again what may pass: exponential back-off with jitter, a bounded number of times, inside a deadline.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::time::Instant;

use super::deadline::Deadlines;
use super::{FileStatus, Listing, OpenFile, Source};
use crate::error::Result;
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Pauses that double, each shortened at random so that callers that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST_PAUSE }
    }

    /// The length of the next pause: between half and the whole of it.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        // Without randomness a whole pause will do.
        let random = OsRng.try_next_u32().unwrap_or(u32::MAX);
        pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }
}

/// How often and how long a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Tries, the first one included; at least 1.
    pub tries: u32,
    /// No new try begins so late that its pause would end after this.
    pub deadlines: Deadlines,
}

/// A source that is asked again after an error that may pass.
///
/// Belongs inside of a [`DeadlineSource`](super::deadline::DeadlineSource), which ends a try that does not end by itself.
#[derive(Debug)]
pub struct RetrySource<S> {
    inner: S,
    limits: RetryLimits,
}

impl<S: Source> RetrySource<S> {
    /// Tries the calls of `inner` and of the files it opens again, as `limits` allow.
    pub fn new(inner: S, limits: RetryLimits) -> RetrySource<S> {
        RetrySource { inner, limits }
    }
}

async fn retry<T, F, Fut>(tries: u32, deadline: Duration, call: F) -> Result<T>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let begun = Instant::now();
    let mut backoff = Backoff::new();
    let mut tried = 1;
    loop {
        let error = match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let pause = backoff.next_pause();
        if !error.kind().is_transient() || tried >= tries || begun.elapsed() + pause >= deadline {
            return Err(error);
        }
        tracing::debug!(%error, tried, "trying again");
        tokio::time::sleep(pause).await;
        tried += 1;
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source> Source for RetrySource<S> {
    fn id(&self) -> &SourceId {
        self.inner.id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let call = || self.inner.status(path);
        retry(self.limits.tries, self.limits.deadlines.metadata, call).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let call = || self.inner.list(path);
        retry(self.limits.tries, self.limits.deadlines.metadata, call).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let call = || self.inner.list_at_most(path, max_entries);
        retry(self.limits.tries, self.limits.deadlines.metadata, call).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        let call = || self.inner.open(version);
        let inner = retry(self.limits.tries, self.limits.deadlines.metadata, call).await?;
        Ok(Arc::new(RetryFile {
            inner,
            limits: self.limits,
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        let call = || self.inner.read_link(path);
        retry(self.limits.tries, self.limits.deadlines.metadata, call).await
    }
}

#[derive(Debug)]
struct RetryFile {
    inner: Arc<dyn OpenFile>,
    limits: RetryLimits,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl OpenFile for RetryFile {
    fn version(&self) -> &FileVersion {
        self.inner.version()
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let call = || self.inner.read(range);
        retry(self.limits.tries, self.limits.deadlines.read, call).await
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        let call = || self.inner.read_pages(range, page_size);
        retry(self.limits.tries, self.limits.deadlines.read, call).await
    }
}
