//! What a hit costs: prints the nanoseconds of processor time that one read takes which the memory tier serves, and then
//! one that the disk tier serves from the kernel's page cache, on the thread that asks.
//!
//! `cargo run --release -p lookupfs-cache --example hit_path [DIRECTORY]`: the disk tier is below that directory, and is
//! taken away again; without it only memory is measured.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::disk::DiskConfig;
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
    match std::env::args_os().nth(1) {
        Some(directory) => measure_disk(directory.into(), &source, &file).await,
        None => Ok(()),
    }
}

/// Random reads of a file that the disk holds and memory does not: a sixteenth of it fits.
async fn measure_disk(directory: PathBuf, source: &Arc<dyn Source>, file: &Arc<FileVersion>) -> Result<()> {
    let disk = DiskConfig {
        cache_dir: directory.join(format!("hit_path.{}", std::process::id())),
        cache_bytes: Some(2 * FILE_BYTES),
        owner: "hit_path".to_owned(),
    };
    let config = CacheConfig {
        memory_bytes: FILE_BYTES / 8,
        ..CacheConfig::default()
    };
    let cache = PageCache::with_disk(config, &disk, tokio::runtime::Handle::current())?;
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        let range = ByteRange::clamped(offset, 1 << 20, FILE_BYTES);
        cache.read(source, file, range).await?;
        cache.bring_to_disk(file, range).await;
    }
    cache.settle_disk().await;
    println!("from disk, as far as memory does not have it:");
    for (len, threads) in [(4096, 1), (16 << 10, 1), (16 << 10, 2), (128 << 10, 1)] {
        measure(&cache, file, FILE_BYTES, len, threads);
    }
    let stats = cache.stats();
    println!(
        "{} hits of memory, {} of disk",
        stats.data.hits,
        stats.disk.map_or(0, |disk| disk.data.hits)
    );
    drop(cache);
    let removed = std::fs::remove_dir_all(&disk.cache_dir);
    removed.map_err(|error| Error::with_cause(ErrorKind::Invalid, "the directory stays behind", error))
}
