//! The disk tier: pages of versions in sparse files below `cache_dir`, kept over restarts.
//!
//! Owns what is looked up, and when the tier is left alone: a disk that does not answer switches it off for a while.
//! Refuses to fail: whatever goes wrong here is a miss, and counted. Called by `page_cache.rs`; `queue.rs` and `writer.rs`
//! bring pages here, `evict.rs` says what goes, cache/FORMAT.md draws the files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::budget::Budget;
use crate::error::Result;
use crate::log_limit::LogLimit;
use crate::memory::Kind;
use crate::page::PageSize;
use crate::version::{FileVersion, VersionId};

mod counters;
mod directory;
mod evict;
mod format;
mod geometry;
mod index;
mod kernel_pages;
mod load;
mod queue;
mod state;
mod stuck;
mod unit;
mod verify;
mod version_file;
mod writer;

use counters::DiskCounters;
use directory::Directory;
use geometry::Geometry;
use index::{Index, IndexLimits, Standing};
pub(crate) use queue::NewPage;
use queue::Queue;
use state::Switch;
use verify::Verified;
use version_file::{ReadPage, VersionFiles, Wait, run_pages_max};

pub use counters::{DiskKindStats, DiskStats};
pub use state::Rest;
pub use verify::{CompleteFile, Unready};

/// How long a read may wait for the disk before the source is asked instead.
const PATIENCE: Duration = Duration::from_secs(5);
/// Reads that wait for the disk at once.
const READERS_MAX: usize = 32;
/// The share of `cache_size` for metadata.
const METADATA_SHARE: u64 = 8;

/// Where the disk tier is and what it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// The directory below which the tier has one of its own.
    pub cache_dir: PathBuf,
    /// Bytes on disk, in the units that the file system gives out; a hard limit. `None`: half of what the file system has
    /// left for the tier: what is free, and what the tier has already.
    pub cache_bytes: Option<u64>,
    /// Who has it: the daemon's name, for the message to a second one.
    pub owner: String,
}

/// What the rest of the cache leaves to the disk tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskLimits {
    pub(crate) page_size: PageSize,
    /// Bytes of pages that wait to be written.
    pub(crate) queue_bytes: u64,
    /// Bytes of memory for the index.
    pub(crate) index_bytes: u64,
    /// Bytes of pages that are read at once by those who wait for them.
    pub(crate) read_bytes: u64,
}

/// A page found on disk, its checksum passed.
#[derive(Debug)]
pub(crate) struct FoundPage {
    pub(crate) page: u64,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) kind: Kind,
}

/// What a look at the disk brought.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) pages: Vec<FoundPage>,
    /// Pages that may be there, but not without waiting.
    pub(crate) would_wait: Vec<u64>,
}

/// What a read found lost on disk.
#[derive(Debug, Default)]
struct Lost {
    /// Their bytes are not what their entries say.
    damaged: Vec<u64>,
    /// The disk did not give them.
    unreadable: Vec<u64>,
}

impl Lost {
    fn is_empty(&self) -> bool {
        self.damaged.is_empty() && self.unreadable.is_empty()
    }
}

/// The disk tier.
#[derive(Debug)]
pub(crate) struct Disk {
    core: Arc<Core>,
    queue: Queue,
    readers: Arc<Semaphore>,
    reading: Budget,
}

/// What the tier's threads share.
#[derive(Debug)]
struct Core {
    directory: Directory,
    index: Mutex<Index<VersionFiles>>,
    /// Held while files are made, deleted, or looked into for the first time.
    files_lock: Mutex<()>,
    verified: Verified,
    counters: DiskCounters,
    switch: Switch,
    warnings: LogLimit,
    page_size: PageSize,
}

impl Disk {
    /// Opens the tier: locks its directory and finds what an earlier daemon left.
    ///
    /// # Errors
    /// `Invalid` where the directory cannot be used; the text says what to do.
    pub(crate) fn open(config: &DiskConfig, limits: DiskLimits) -> Result<Disk> {
        let directory = Directory::lock(&config.cache_dir, &config.owner)?;
        let left = directory.scan().map_err(load::unreadable)?;
        warn_of_other_pages(&directory, &left, limits.page_size);
        let cache_bytes = match config.cache_bytes {
            Some(bytes) => bytes,
            None => directory.half_of_room(&left).map_err(load::unreadable)?,
        };
        let index_limits = IndexLimits {
            disk_bytes: cache_bytes,
            metadata_bytes: cache_bytes / METADATA_SHARE,
            memory_bytes: limits.index_bytes,
            open_versions: open_versions_max(),
        };
        let core = Arc::new(Core {
            directory,
            index: Mutex::new(Index::new(index_limits, Geometry::new(limits.page_size))),
            files_lock: Mutex::default(),
            verified: Verified::default(),
            counters: DiskCounters::default(),
            switch: Switch::default(),
            warnings: LogLimit::default(),
            page_size: limits.page_size,
        });
        core.take_in(&left);
        Ok(Disk {
            queue: Queue::start(core.clone(), limits.queue_bytes)?,
            core,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            reading: Budget::new(limits.read_bytes),
        })
    }

    /// The pages of `pages` that come without waiting for the disk.
    pub(crate) fn look_up_now(&self, version: VersionId, pages: &[u64]) -> Found {
        self.core.look_up(version, pages, Wait::Never)
    }

    /// The pages of `pages` that are on disk; waits for it, though not for ever.
    pub(crate) async fn look_up(&self, version: VersionId, pages: &[u64]) -> Vec<FoundPage> {
        let Found {
            mut pages,
            would_wait,
        } = self.core.look_up(version, pages, Wait::Never);
        if would_wait.is_empty() {
            return pages;
        }
        let core = self.core.clone();
        let bytes = would_wait.len() as u64 * core.page_size.bytes();
        let turn = async {
            let room = self.reading.acquire(bytes).await.ok()?;
            let turn = self.readers.clone().acquire_owned().await.ok()?;
            Some((room, turn))
        };
        let Ok(Some(turn)) = tokio::time::timeout(PATIENCE, turn).await else {
            // Too many readers wait already, be the disk slow or hung: the source is faster.
            self.core.counters.crowded_reads.add(1);
            return pages;
        };
        let reading = tokio::task::spawn_blocking(move || {
            let found = core.look_up(version, &would_wait, Wait::AsLongAsItTakes);
            drop(turn);
            found
        });
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(found)) => pages.extend(found.pages),
            Ok(Err(error)) => {
                if let Some(held_back) = self.core.warnings.admit(Instant::now()) {
                    tracing::warn!(%error, held_back, "a read of the disk tier broke off");
                }
            }
            Err(_) => {
                self.core.counters.timeouts.add(1);
                self.core.switch.off_for_a_while("a read did not end");
            }
        }
        pages
    }

    /// Whether the page is known to be on disk; counts as no use.
    pub(crate) fn contains(&self, version: VersionId, page: u64) -> bool {
        !self.core.switch.is_off() && self.core.index.lock().contains(version, page)
    }

    /// Counts pages that were looked for here and not found.
    pub(crate) fn count_misses(&self, pages: u64) {
        self.core.counters.misses.add(pages);
    }

    /// Has pages written, unless too many wait already.
    pub(crate) fn admit(&self, version: &FileVersion, pages: Vec<NewPage>) {
        if !format::is_keepable(version, self.core.page_size) {
            return;
        }
        self.queue.offer(version, pages);
    }

    /// As [`Disk::admit`], but waits for room in the queue.
    pub(crate) async fn bring(&self, version: &FileVersion, pages: Vec<NewPage>) {
        if format::is_keepable(version, self.core.page_size) {
            self.queue.bring(version, pages).await;
        }
    }

    /// Waits until everything that was admitted so far is written, or skipped; for a tier that is switched off, no longer.
    pub(crate) async fn settled(&self) {
        self.queue.settled().await;
    }

    /// Drops a version. `false` where the disk does not answer, so that it stays.
    pub(crate) fn evict(&self, version: VersionId) -> bool {
        if self.core.switch.is_off() {
            return false;
        }
        let Some(_alone) = self.core.files_lock.try_lock_for(PATIENCE) else {
            self.core.counters.timeouts.add(1);
            self.core.switch.off_for_a_while("a file was not deleted in time");
            return false;
        };
        self.core.drop_version_alone(version);
        true
    }

    /// How many of `pages` are on disk. Reads the map of a version that was not used yet, so it may wait for the disk.
    pub(crate) fn count(&self, version: VersionId, pages: std::ops::Range<u64>) -> u64 {
        if self.core.switch.is_off() || self.core.make_sure_it_is_loaded(version, false).is_err() {
            return 0;
        }
        self.count_known(version, pages)
    }

    /// As [`Disk::count`], without waiting: nothing of a version whose map was not read yet.
    pub(crate) fn count_known(&self, version: VersionId, pages: std::ops::Range<u64>) -> u64 {
        if self.core.switch.is_off() {
            return 0;
        }
        self.core.index.lock().count(version, pages)
    }

    /// Has the map of a version read that an earlier daemon left; waits for it, though not for ever.
    pub(crate) async fn load_map(&self, version: VersionId) {
        let is_left = matches!(self.core.index.lock().standing(version), Standing::Left(_));
        if !is_left || self.core.switch.is_off() {
            return;
        }
        let turn = tokio::time::timeout(PATIENCE, self.readers.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            self.core.counters.crowded_reads.add(1);
            return;
        };
        let core = self.core.clone();
        let loading = tokio::task::spawn_blocking(move || {
            // Without it pages are fetched once more, which is no failure.
            let _ = core.make_sure_it_is_loaded(version, false);
            drop(turn);
        });
        if tokio::time::timeout(PATIENCE, loading).await.is_err() {
            self.core.counters.timeouts.add(1);
            self.core
                .switch
                .off_for_a_while("a page map was not read in time");
        }
    }

    /// See [`PageCache::complete_file`](crate::page_cache::PageCache::complete_file).
    pub(crate) fn complete_file(&self, version: &FileVersion) -> Result<CompleteFile, Unready> {
        verify::complete_file(&self.core, version)
    }

    /// Why nothing is written at the moment, if so.
    pub(crate) fn rests(&self) -> Option<Rest> {
        self.core.switch.rests()
    }

    /// As if the disk hung: nothing is written while the guard lives.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.core.files_lock.lock()
    }

    /// As if the thread that hangs had written a run of pages.
    #[cfg(test)]
    pub(crate) fn pretend_to_write(&self) {
        self.core.counters.steps.add(1);
    }

    /// As if the disk had not answered.
    #[cfg(test)]
    pub(crate) fn switch_off(&self) {
        self.core.switch.off_for_a_while("told so");
    }

    /// What the tier has done and holds.
    pub(crate) fn stats(&self) -> DiskStats {
        self.core.stats(self.queue.queued_bytes())
    }
}

/// Another page size makes every page that is there a miss: whoever changed it may not have meant that.
fn warn_of_other_pages(directory: &Directory, left: &[directory::Left], page_size: PageSize) {
    // The youngest, which the last daemon wrote.
    let written_with = left.last().and_then(|left| directory.page_bytes_of(left.id));
    if let Some(bytes) = written_with.filter(|bytes| *bytes != page_size.bytes()) {
        tracing::warn!(
            versions = left.len(),
            "cache_dir was written with page_size={bytes}, and this daemon runs with {}: what is there is dropped as it is \
             met; to keep it, mount with page_size={bytes}",
            page_size.bytes()
        );
    }
}

impl Core {
    fn look_up(&self, version: VersionId, pages: &[u64], wait: Wait) -> Found {
        let mut found = Found::default();
        if self.switch.is_off() {
            return found;
        }
        let standing = self.index.lock().standing(version);
        match (standing, wait) {
            (Standing::Unknown, _) => return found,
            (Standing::Left(_), Wait::Never) => {
                found.would_wait.extend_from_slice(pages);
                return found;
            }
            (Standing::Left(_), Wait::AsLongAsItTakes) => {
                if self.make_sure_it_is_loaded(version, false).is_err() {
                    return found;
                }
            }
            (Standing::Loaded, _) => {}
        }
        let Some(here) = self.index.lock().find(version, pages) else {
            return found;
        };
        if here.pages.is_empty() {
            return found;
        }
        let files = match (here.files, wait) {
            (Some(files), _) => files,
            (None, Wait::Never) => {
                found.would_wait = here.pages;
                return found;
            }
            (None, Wait::AsLongAsItTakes) => match self.reopen(version) {
                Some(files) => files,
                None => return found,
            },
        };
        let mut lost = Lost::default();
        for run in runs(&here.pages, run_pages_max(self.page_size)) {
            self.read_run(&files, version, run, wait, &mut found, &mut lost);
        }
        self.forget_lost(version, &lost, here.generation);
        found
    }

    fn read_run(
        &self,
        files: &VersionFiles,
        version: VersionId,
        run: std::ops::Range<u64>,
        wait: Wait,
        found: &mut Found,
        lost: &mut Lost,
    ) {
        let read = match files.read(run.clone(), wait) {
            Ok(read) => read,
            Err(error) if wait == Wait::Never && is_about_waiting(&error) => {
                found.would_wait.extend(run);
                return;
            }
            Err(error) => {
                self.count_failed_read(version, &error);
                lost.unreadable.extend(run);
                return;
            }
        };
        for page in read {
            match page {
                ReadPage::Whole(page, bytes, kind) => {
                    self.counters.count_hit(kind, bytes.len() as u64);
                    found.pages.push(FoundPage { page, bytes, kind });
                }
                ReadPage::Torn(page) | ReadPage::Absent(page) => lost.damaged.push(page),
            }
        }
    }

    fn count_failed_read(&self, version: VersionId, error: &io::Error) {
        self.counters.failed_reads.add(1);
        if let Some(held_back) = self.warnings.admit(Instant::now()) {
            tracing::warn!(%version, %error, held_back, "pages on disk cannot be read; they are fetched again");
        }
    }

    /// Pages whose bytes are not what their entries say, or do not come, are fetched again. If the version has lost
    /// pages since these were looked up, zeros were read where a hole has come, and nothing is damaged. All of a read at
    /// once: the first page that is forgotten changes the generation.
    fn forget_lost(&self, version: VersionId, lost: &Lost, generation: u64) {
        if lost.is_empty() {
            return;
        }
        let mut index = self.index.lock();
        let mut damaged = 0;
        if index.is_still(version, generation) {
            for page in &lost.damaged {
                damaged += u64::from(index.forget_page(version, *page));
            }
        }
        for page in &lost.unreadable {
            index.forget_page(version, *page);
        }
        drop(index);
        if damaged == 0 {
            return;
        }
        self.counters.corrupt_pages.add(damaged);
        if let Some(held_back) = self.warnings.admit(Instant::now()) {
            tracing::warn!(%version, pages = damaged, held_back, "pages on disk are damaged; they are fetched again");
        }
    }
}

/// Whether an error only says that the answer would take a while, or that this file system always may.
fn is_about_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Unsupported
    )
}

/// Ascending pages as runs that are read with one system call each.
fn runs(pages: &[u64], pages_max: u64) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.end == page && run.end - run.start < pages_max => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// Versions whose two files may be open: a quarter of what this process may have open, and some thousands at most.
fn open_versions_max() -> usize {
    const MAX: u64 = 4096;
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let files = limit.map_or(1024, |(soft, _)| soft);
    (files / 8).clamp(16, MAX) as usize
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
