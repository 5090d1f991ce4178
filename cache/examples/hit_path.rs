//! What a hit costs: prints the nanoseconds of processor time that one read takes which the memory tier serves.
//!
//! `cargo run --release -p lookupfs-cache --example hit_path`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::source::{FileStatus, Listing, OpenFile, Source};
use lookupfs_cache::version::{FileVersion, SourceId, SourcePath};

const FILE_BYTES: u64 = 256 << 20;
const READS: u64 = 500_000;

/// A source of zeros.
#[derive(Debug)]
struct Zeros(SourceId);

#[derive(Debug)]
struct ZeroFile(FileVersion);

fn nothing<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "there are only zeros"))
}

#[async_trait]
impl Source for Zeros {
    fn id(&self) -> &SourceId {
        &self.0
    }

    async fn status(&self, _: &SourcePath) -> Result<FileStatus> {
        nothing()
    }

    async fn list(&self, _: &SourcePath) -> Result<Listing> {
        nothing()
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(ZeroFile(version.clone())))
    }

    async fn read_link(&self, _: &SourcePath) -> Result<Vec<u8>> {
        nothing()
    }
}

#[async_trait]
impl OpenFile for ZeroFile {
    fn version(&self) -> &FileVersion {
        &self.0
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        Ok(vec![0; range.len() as usize].into())
    }
}

/// Processor time of this thread; unlike the clock on the wall it does not count what else the machine does.
fn thread_time_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that outlives the call, which does nothing but fill it in.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Random reads of `len` bytes of the first `span` bytes by `threads` threads; every one must be a hit.
fn measure(cache: &Arc<PageCache>, file: &Arc<FileVersion>, span: u64, len: u64, threads: u64) {
    let spent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let spent = &spent;
            scope.spawn(move || {
                let started = thread_time_ns();
                let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(thread);
                for _ in 0..READS {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let offset = state % (span / len) * len;
                    let range = ByteRange::clamped(offset, len, FILE_BYTES);
                    assert!(cache.read_cached(file, range).is_some(), "{range:?} is missing");
                }
                spent.fetch_add(thread_time_ns() - started, Ordering::Relaxed);
            });
        }
    });
    let each = spent.into_inner() / (READS * threads);
    let span = span >> 20;
    println!("{len:>7} bytes of {span:>3} MiB, {threads} threads: {each:>6} ns a read");
}

#[tokio::main]
async fn main() -> Result<()> {
    let cache = PageCache::new(CacheConfig::default(), tokio::runtime::Handle::current())?;
    let id = SourceId::new("memory://zeros");
    let source: Arc<dyn Source> = Arc::new(Zeros(id.clone()));
    let path = SourcePath::parse(b"/zeros")?;
    let file = Arc::new(FileVersion::new(id, path, FILE_BYTES, 0, 0));
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        let range = ByteRange::clamped(offset, 1 << 20, FILE_BYTES);
        cache.read(&source, &file, range).await?;
    }
    for (span, len, threads) in [
        (1 << 20, 4096, 1),
        (FILE_BYTES, 4096, 1),
        (FILE_BYTES, 4096, 2),
        (FILE_BYTES, 128 << 10, 1),
    ] {
        measure(&cache, &file, span, len, threads);
    }
    Ok(())
}
