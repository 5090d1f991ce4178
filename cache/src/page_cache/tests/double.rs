//! A source in memory for the tests of the page cache: counts requests and bytes, fails and waits on demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Semaphore;

use crate::config::CacheConfig;
use crate::disk::DiskConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::page::ByteRange;
use crate::page_cache::PageCache;
use crate::source::{FileStatus, Listing, OpenFile, Source};
use crate::version::{FileVersion, SourceId, SourcePath};

/// What was asked for, and what is to go wrong.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) opens: AtomicU64,
    pub(super) reads: Mutex<Vec<ByteRange>>,
    /// Every read takes one; tests that hold reads back start with none.
    pub(super) gate: Semaphore,
    /// Errors for the next reads, the last first.
    pub(super) read_errors: Mutex<Vec<ErrorKind>>,
    pub(super) open_errors: Mutex<Vec<ErrorKind>>,
    /// Reads that touch this byte fail.
    pub(super) bad_byte: Mutex<Option<(u64, ErrorKind)>>,
    /// Answer a byte less than asked.
    pub(super) short: Mutex<bool>,
    pub(super) panic: Mutex<bool>,
}

impl Log {
    pub(super) fn requests(&self) -> usize {
        self.reads.lock().len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.reads.lock().iter().map(|range| range.len()).sum()
    }

    /// Whether any byte was read twice.
    pub(super) fn overlaps(&self) -> bool {
        let mut reads: Vec<_> = self.reads.lock().clone();
        reads.sort_by_key(|range| range.start());
        reads.windows(2).any(|pair| pair[0].end() > pair[1].start())
    }

    pub(super) fn reset(&self) {
        self.reads.lock().clear();
        self.opens.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Double {
    id: SourceId,
    files: Mutex<HashMap<SourcePath, Bytes>>,
    pub(super) log: Arc<Log>,
}

#[derive(Debug)]
struct DoubleFile {
    version: FileVersion,
    bytes: Bytes,
    log: Arc<Log>,
}

/// A cache over a double, and the bytes that reads are compared with.
pub(super) struct Fixture {
    pub(super) cache: Arc<PageCache>,
    pub(super) double: Arc<Double>,
    pub(super) source: Arc<dyn Source>,
}

impl Fixture {
    pub(super) fn new(config: CacheConfig) -> Fixture {
        let double = Arc::new(Double {
            id: SourceId::new("memory://double"),
            files: Mutex::default(),
            log: Arc::new(Log {
                opens: AtomicU64::new(0),
                reads: Mutex::default(),
                gate: Semaphore::new(Semaphore::MAX_PERMITS),
                read_errors: Mutex::default(),
                open_errors: Mutex::default(),
                bad_byte: Mutex::default(),
                short: Mutex::default(),
                panic: Mutex::default(),
            }),
        });
        Fixture {
            cache: PageCache::new(config, tokio::runtime::Handle::current()).unwrap(),
            source: double.clone(),
            double,
        }
    }

    /// With a disk tier, as a daemon starts with it.
    pub(super) fn with_disk(config: CacheConfig, disk: &DiskConfig) -> Fixture {
        Fixture::new(config).restarted(config, disk)
    }

    /// Another cache over the same source, as after a restart: with nothing in memory. The old one is gone.
    pub(super) fn restarted(self, config: CacheConfig, disk: &DiskConfig) -> Fixture {
        let Fixture {
            cache,
            double,
            source,
        } = self;
        drop(cache);
        let cache = PageCache::with_disk(config, disk, tokio::runtime::Handle::current()).unwrap();
        Fixture {
            cache,
            double,
            source,
        }
    }

    pub(super) fn log(&self) -> &Log {
        &self.double.log
    }

    pub(super) fn add(&self, path: &str, bytes: impl Into<Bytes>) -> Arc<FileVersion> {
        let bytes = bytes.into();
        let path = SourcePath::parse(path.as_bytes()).unwrap();
        let version = FileVersion::new(self.double.id.clone(), path.clone(), bytes.len() as u64, 1, 0);
        self.double.files.lock().insert(path, bytes);
        Arc::new(version)
    }

    pub(super) fn add_random(&self, path: &str, len: usize) -> Arc<FileVersion> {
        let mut bytes = vec![0; len];
        StdRng::seed_from_u64(len as u64).fill(bytes.as_mut_slice());
        self.add(path, bytes)
    }

    pub(super) fn expected(&self, version: &FileVersion, offset: u64, len: u64) -> Bytes {
        let bytes = self.double.files.lock()[version.path()].clone();
        bytes.slice(offset as usize..(offset + len) as usize)
    }

    pub(super) async fn try_read(&self, version: &Arc<FileVersion>, offset: u64, len: u64) -> Result<Bytes> {
        let range = ByteRange::new(offset, offset + len).unwrap();
        self.cache.read(&self.source, version, range).await
    }

    /// Reads as the filesystem does, from memory if it can, and compares.
    pub(super) async fn read(&self, version: &Arc<FileVersion>, offset: u64, len: u64) {
        let range = ByteRange::clamped(offset, len, version.len());
        let bytes = match self.cache.read_cached(version, range) {
            Some(bytes) => {
                // A caller that lives on hits alone still lets the runtime work.
                tokio::task::yield_now().await;
                bytes
            }
            None => self.cache.read(&self.source, version, range).await.unwrap(),
        };
        let expected = self.expected(version, range.start(), range.len());
        assert!(bytes == expected, "{range:?} of {version}");
    }

    /// Waits until nothing is under way.
    pub(super) async fn settle(&self) {
        let settled = async {
            loop {
                let stats = self.cache.stats();
                if stats.inflight_pages == 0 && stats.inflight_bytes == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), settled)
            .await
            .expect("fetches end");
    }
}

#[async_trait]
impl Source for Double {
    fn id(&self) -> &SourceId {
        &self.id
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        Err(unasked(path))
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        Err(unasked(path))
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        self.log.opens.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = self.log.open_errors.lock().pop() {
            return Err(Error::new(kind, format!("{version}: told not to open")));
        }
        let bytes = self.files.lock().get(version.path()).cloned();
        Ok(Arc::new(DoubleFile {
            version: version.clone(),
            bytes: bytes.ok_or_else(|| unasked(version.path()))?,
            log: self.log.clone(),
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        Err(unasked(path))
    }
}

fn unasked(path: &SourcePath) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("{path}: the cache has no business here"),
    )
}

#[async_trait]
impl OpenFile for DoubleFile {
    fn version(&self) -> &FileVersion {
        &self.version
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        self.log.reads.lock().push(range);
        self.log.gate.acquire().await.unwrap().forget();
        assert!(!*self.log.panic.lock(), "told to panic");
        if let Some(kind) = self.log.read_errors.lock().pop() {
            return Err(Error::new(kind, format!("{range:?}: told to fail")));
        }
        if let Some((at, kind)) = *self.log.bad_byte.lock()
            && range.start() <= at
            && at < range.end()
        {
            return Err(Error::new(kind, format!("{range:?}: told to fail")));
        }
        let end = range.end() as usize - usize::from(*self.log.short.lock());
        Ok(self.bytes.slice(range.start() as usize..end))
    }
}
