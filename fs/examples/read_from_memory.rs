//! What a READ costs that is answered from memory: prints nanoseconds of processor time a read, without the kernel.
//!
//! `cargo run --release -p lookupfs-fs --example read_from_memory`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lookupfs_cache::clock::Clock;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::error::Result;
use lookupfs_cache::namespace::{MaxAge, Namespace};
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::source::memory::MemorySource;
use lookupfs_cache::version::SourcePath;
use lookupfs_fs::answer::Answer;
use lookupfs_fs::attributes::{Immutable, LookedUp, Ttl};
use lookupfs_fs::filesystem::{Filesystem, Shared};
use lookupfs_fs::inode::ROOT;
use lookupfs_fs::owner::{Ids, OwnerConfig};

const FILE_BYTES: u64 = 32 << 20;
const READS: u64 = 1_000_000;
const READ_BYTES: u32 = 4096;

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

/// Random reads by `threads` threads, thread by thread of one of `numbers`; every one must be answered at once.
fn measure(filesystem: &Arc<Filesystem>, numbers: &[u64], threads: usize) {
    let spent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (spent, number) = (&spent, numbers[thread % numbers.len()]);
            scope.spawn(move || {
                let started = thread_time_ns();
                let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(thread as u64);
                for _ in 0..READS {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let offset = state % (FILE_BYTES / u64::from(READ_BYTES)) * u64::from(READ_BYTES);
                    let answer = filesystem.read(number, offset, READ_BYTES);
                    assert!(matches!(answer, Answer::Now(Ok(_))), "{offset} is missing");
                }
                spent.fetch_add(thread_time_ns() - started, Ordering::Relaxed);
            });
        }
    });
    let each = spent.into_inner() / (READS * threads as u64);
    println!("{threads} threads, {} files: {each:>5} ns a read", numbers.len());
}

#[tokio::main]
async fn main() -> Result<()> {
    let source = MemorySource::new("hits");
    for name in ["/a", "/b"] {
        source.write(&SourcePath::parse(name.as_bytes())?, vec![7; FILE_BYTES as usize])?;
    }
    let shared = Shared {
        pages: PageCache::new(CacheConfig::default(), tokio::runtime::Handle::current())?,
        ids: Arc::new(Ids::default()),
    };
    let namespace = Arc::new(Namespace::new(Arc::new(source), 1 << 20, Clock::system()));
    let ttl = Ttl {
        positive: Duration::from_secs(3600),
        negative: Duration::from_secs(1),
        immutable: Immutable::Nothing,
    };
    let now = MaxAge {
        positive: Duration::ZERO,
        negative: Duration::ZERO,
    };
    let root = SourcePath::root();
    let status = namespace.status(&root, now).await?;
    let filesystem = Filesystem::new(
        namespace,
        shared,
        root,
        status,
        (ttl, OwnerConfig::default()),
        lookupfs_fs::open_files::OpenReport::default(),
    );
    let mut numbers = Vec::new();
    for name in [b"a", b"b"] {
        if let LookedUp::Found(shown) = filesystem.lookup(ROOT, name).wait().await? {
            numbers.push(shown.attributes.number);
        }
    }
    for number in &numbers {
        for offset in (0..FILE_BYTES).step_by(1 << 20) {
            filesystem.read(*number, offset, 1 << 20).wait().await?;
        }
    }
    for _ in 0..2 {
        measure(&filesystem, &numbers[..1], 1);
        measure(&filesystem, &numbers[..1], 2);
        measure(&filesystem, &numbers, 2);
    }
    Ok(())
}
