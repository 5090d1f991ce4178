//! Faults on demand, for tests: each source has its own switches, and they count down.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::pages::cut;
use super::{FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{ByteRange, PageSize};
use crate::version::{FileVersion, SourceId, SourcePath};

/// Which calls a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `status`.
    Status,
    /// `list`.
    List,
    /// `open`.
    Open,
    /// `read_link`.
    ReadLink,
    /// `read`.
    Read,
}

#[derive(Debug, Default)]
struct Planned {
    failures: Vec<(Call, ErrorKind, u64)>,
    stalls: Vec<(Call, u64)>,
    truncated_reads: u64,
    flipped_reads: u64,
    struck: u64,
}

/// The switches. Clones are the same switches.
#[derive(Clone, Debug, Default)]
pub struct FaultControls(Arc<Mutex<Planned>>);

impl FaultControls {
    /// The next `count` calls of that type fail with `kind`, without reaching the source.
    pub fn fail_next(&self, call: Call, kind: ErrorKind, count: u64) {
        self.0.lock().failures.push((call, kind, count));
    }

    /// The next `count` calls of that type never answer.
    pub fn stall_next(&self, call: Call, count: u64) {
        self.0.lock().stalls.push((call, count));
    }

    /// The next `count` reads that are not empty answer one byte too few: a source that breaks its contract.
    pub fn truncate_next_reads(&self, count: u64) {
        self.0.lock().truncated_reads += count;
    }

    /// The next `count` reads that are not empty answer with one bit wrong in the middle.
    pub fn flip_next_reads(&self, count: u64) {
        self.0.lock().flipped_reads += count;
    }

    /// Faults that have struck.
    pub fn struck(&self) -> u64 {
        self.0.lock().struck
    }

    /// Takes back what has not struck.
    pub fn clear(&self) {
        let mut planned = self.0.lock();
        *planned = Planned {
            struck: planned.struck,
            ..Planned::default()
        };
    }

    async fn before(&self, call: Call) -> Result<()> {
        let (failure, stall) = {
            let mut planned = self.0.lock();
            let failure = planned
                .failures
                .iter_mut()
                .find(|(planned, _, left)| *planned == call && *left > 0)
                .map(|(_, kind, left)| {
                    *left -= 1;
                    *kind
                });
            let stall = failure.is_none()
                && planned
                    .stalls
                    .iter_mut()
                    .find(|(planned, left)| *planned == call && *left > 0)
                    .map(|(_, left)| *left -= 1)
                    .is_some();
            planned.struck += u64::from(failure.is_some() || stall);
            (failure, stall)
        };
        if let Some(kind) = failure {
            return Err(Error::new(kind, format!("planned fault in {call:?}")));
        }
        if stall {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn spoil(&self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let mut planned = self.0.lock();
        if planned.truncated_reads > 0 {
            planned.truncated_reads -= 1;
            planned.struck += 1;
            return bytes.slice(..bytes.len() - 1);
        }
        if planned.flipped_reads > 0 {
            planned.flipped_reads -= 1;
            planned.struck += 1;
            let mut flipped = BytesMut::from(&bytes[..]);
            let middle = flipped.len() / 2;
            flipped[middle] ^= 1;
            return flipped.freeze();
        }
        bytes
    }
}

/// A source that fails when its [`FaultControls`] say so.
#[derive(Debug)]
pub struct FaultSource<S> {
    inner: S,
    controls: FaultControls,
}

impl<S: Source> FaultSource<S> {
    /// Puts faults into the calls of `inner` and of the files it opens.
    pub fn new(inner: S, controls: FaultControls) -> FaultSource<S> {
        FaultSource { inner, controls }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Source> Source for FaultSource<S> {
    fn id(&self) -> &SourceId {
        self.inner.id()
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        self.controls.before(Call::Status).await?;
        self.inner.status(path).await
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        self.controls.before(Call::List).await?;
        self.inner.list(path).await
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        self.controls.before(Call::List).await?;
        self.inner.list_at_most(path, max_entries).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        self.controls.before(Call::Open).await?;
        let inner = self.inner.open(version).await?;
        let controls = self.controls.clone();
        Ok(Arc::new(FaultFile { inner, controls }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        self.controls.before(Call::ReadLink).await?;
        self.inner.read_link(path).await
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn OpenFile>,
    controls: FaultControls,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl OpenFile for FaultFile {
    fn version(&self) -> &FileVersion {
        self.inner.version()
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        self.controls.before(Call::Read).await?;
        let bytes = self.inner.read(range).await?;
        Ok(self.controls.spoil(bytes))
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        Ok(cut(range, page_size, &self.read(range).await?))
    }
}
