//! What a hit costs: prints nanoseconds for one read that the memory tier serves.
//!
//! `cargo run --release -p lookupfs-cache --example hit_path`

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::source::{FileStatus, Listing, OpenFile, Source};
use lookupfs_cache::version::{FileVersion, SourceId, SourcePath};

const FILE_BYTES: u64 = 256 << 20;
const READS: u64 = 2_000_000;

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

/// Random reads of `len` bytes at `align`, by `threads` threads; every one must be a hit.
fn measure(cache: &Arc<PageCache>, file: &Arc<FileVersion>, len: u64, align: u64, threads: u64) {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(thread);
                for _ in 0..READS {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let offset = state % ((FILE_BYTES - len) / align) * align;
                    let range = ByteRange::clamped(offset, len, FILE_BYTES);
                    assert!(cache.read_cached(file, range).is_some(), "{range:?} is missing");
                }
            });
        }
    });
    let each = started.elapsed().as_nanos() as f64 / READS as f64;
    println!("{len:>7} bytes, {threads} threads: {each:>7.0} ns a read and thread");
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
    for (len, align, threads) in [
        (4096, 4096, 1),
        (4096, 4096, 2),
        (4096, 1000, 1),
        (128 << 10, 4096, 1),
    ] {
        measure(&cache, &file, len, align, threads);
    }
    Ok(())
}
