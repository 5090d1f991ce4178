//! The disk tier: pages of versions in sparse files below `cache_dir`, kept over restarts.
//!
//! Owns what is looked up, and when the tier is left alone: a disk that does not answer switches it off for a while.
//! Refuses to fail: whatever goes wrong here is a miss, and counted. Called by `page_cache.rs`; `writer.rs` brings pages
//! here, `evict.rs` says what goes, cache/FORMAT.md draws the files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::Kind;
use crate::page::PageSize;
use crate::version::{FileVersion, VersionId};

mod counters;
mod directory;
mod evict;
mod format;
mod geometry;
mod index;
mod state;
mod verify;
mod version_file;
mod writer;

use counters::DiskCounters;
use directory::{Directory, Left};
use geometry::{Geometry, Shape};
use index::{Index, IndexLimits, Standing};
use state::Switch;
use verify::Verified;
pub(crate) use version_file::Wait;
use version_file::{RUN_PAGES_MAX, ReadPage, VersionFiles};
pub(crate) use writer::NewPage;
use writer::Writer;

pub use counters::{DiskKindStats, DiskStats};
pub use verify::CompleteFile;

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

/// The disk tier.
#[derive(Debug)]
pub(crate) struct Disk {
    core: Arc<Core>,
    writer: Writer,
    readers: Arc<Semaphore>,
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
    page_size: PageSize,
}

impl Disk {
    /// Opens the tier: locks its directory and finds what an earlier daemon left.
    ///
    /// # Errors
    /// `Invalid` where the directory cannot be used; the text says what to do.
    pub(crate) fn open(config: &DiskConfig, limits: DiskLimits) -> Result<Disk> {
        let directory = Directory::lock(&config.cache_dir, &config.owner)?;
        let left = directory.scan().map_err(unreadable)?;
        let cache_bytes = match config.cache_bytes {
            Some(bytes) => bytes,
            None => directory.half_of_room(&left).map_err(unreadable)?,
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
            page_size: limits.page_size,
        });
        core.take_in(&left)?;
        Ok(Disk {
            writer: Writer::start(core.clone(), limits.queue_bytes)?,
            core,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
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
        let turn = tokio::time::timeout(PATIENCE, self.readers.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            // Too many readers wait already, be the disk slow or hung: the source is faster.
            self.core.counters.timeouts.add(1);
            return pages;
        };
        let reading = tokio::task::spawn_blocking(move || {
            let found = core.look_up(version, &would_wait, Wait::AsLongAsItTakes);
            drop(turn);
            found
        });
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(found)) => pages.extend(found.pages),
            Ok(Err(error)) => tracing::warn!(%error, "a read of the disk tier broke off"),
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
        self.writer.offer(version, pages);
    }

    /// As [`Disk::admit`], but waits for room in the queue.
    pub(crate) async fn bring(&self, version: &FileVersion, pages: Vec<NewPage>) {
        if format::is_keepable(version, self.core.page_size) {
            self.writer.bring(version, pages).await;
        }
    }

    /// Waits until everything that was admitted so far is written, or skipped.
    pub(crate) async fn settled(&self) {
        self.writer.settled().await;
    }

    /// Drops a version.
    pub(crate) fn evict(&self, version: VersionId) {
        self.core.drop_version(version);
    }

    /// How many of `pages` are on disk. Reads the map of a version that was not used yet, so it may wait for the disk.
    pub(crate) fn count(&self, version: VersionId, pages: impl Iterator<Item = u64>) -> u64 {
        if self.core.switch.is_off() || self.core.make_sure_it_is_loaded(version, false).is_err() {
            return 0;
        }
        let index = self.core.index.lock();
        if index.loaded(version).is_none() {
            // A length that is absurd has as many pages, and none of them is here.
            return 0;
        }
        pages.filter(|page| index.contains(version, *page)).count() as u64
    }

    /// See [`PageCache::complete_file`](crate::page_cache::PageCache::complete_file).
    pub(crate) fn complete_file(&self, version: &FileVersion) -> Option<CompleteFile> {
        verify::complete_file(&self.core, version)
    }

    /// As if the disk had not answered.
    #[cfg(test)]
    pub(crate) fn switch_off(&self) {
        self.core.switch.off_for_a_while("told so");
    }

    /// What the tier has done and holds.
    pub(crate) fn stats(&self) -> DiskStats {
        self.core.stats(self.writer.queued_bytes())
    }
}

impl Core {
    /// Takes in what an earlier daemon left.
    fn take_in(&self, left: &[Left]) -> Result<()> {
        {
            let mut index = self.index.lock();
            let room = (index.limits.memory_bytes / index::VERSION_COST / 2) as usize;
            // The oldest first, so that the newest are the last to go.
            let (too_many, kept) = left.split_at(left.len().saturating_sub(room));
            for version in kept {
                index.add_left(version.id, version.bytes);
            }
            drop(index);
            for version in too_many {
                self.directory.remove(version.id).map_err(unreadable)?;
            }
        }
        // `cache_size` may be smaller than it was.
        self.make_room(0, 0);
        Ok(())
    }

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
        for run in runs(&here.pages) {
            self.read_run(&files, version, run, here.generation, wait, &mut found);
        }
        found
    }

    fn read_run(
        &self,
        files: &VersionFiles,
        version: VersionId,
        run: std::ops::Range<u64>,
        generation: u64,
        wait: Wait,
        found: &mut Found,
    ) {
        let read = match files.read(run.clone(), wait) {
            Ok(read) => read,
            Err(error) if wait == Wait::Never && is_about_waiting(&error) => {
                found.would_wait.extend(run);
                return;
            }
            Err(error) => {
                self.counters.failed_reads.add(1);
                tracing::warn!(%version, %error, "pages on disk cannot be read; they are fetched again");
                run.for_each(|page| {
                    self.index.lock().forget_page(version, page);
                });
                return;
            }
        };
        for page in read {
            match page {
                ReadPage::Whole(page, bytes, kind) => {
                    self.counters.count_hit(kind, bytes.len() as u64);
                    found.pages.push(FoundPage { page, bytes, kind });
                }
                ReadPage::Torn(page) | ReadPage::Absent(page) => self.count_damage(version, page, generation),
            }
        }
    }

    /// A page whose bytes are not what its entry says is fetched again. If the version has lost pages since they were
    /// looked up, zeros were read where a hole has come, and nothing is damaged.
    fn count_damage(&self, version: VersionId, page: u64, generation: u64) {
        let mut index = self.index.lock();
        if index.is_still(version, generation) && index.forget_page(version, page) {
            drop(index);
            self.counters.corrupt_pages.add(1);
            tracing::warn!(%version, page, "a page on disk is damaged; it is fetched again");
        }
    }

    /// Reads the map of a version that an earlier daemon left. What is not a map of ours is deleted: a miss.
    fn make_sure_it_is_loaded(&self, id: VersionId, goes_first: bool) -> io::Result<()> {
        if !matches!(self.index.lock().standing(id), Standing::Left(_)) {
            return Ok(());
        }
        // One at a time: what is taken back as an orphan must not have been written meanwhile.
        let _alone = self.files_lock.lock();
        let Standing::Left(ticket) = self.index.lock().standing(id) else {
            return Ok(());
        };
        match self.read_map(id) {
            // Nothing is left of it, and nothing would ever evict it.
            Ok(Some((_, _, pages))) if pages.is_empty() => {
                self.drop_version_alone(id);
                Err(io::ErrorKind::NotFound.into())
            }
            Ok(Some((shape, files, pages))) => {
                self.index
                    .lock()
                    .load(id, ticket, shape, files, &pages, goes_first);
                Ok(())
            }
            Ok(None) => {
                self.counters.dropped_versions.add(1);
                self.drop_version_alone(id);
                Err(io::ErrorKind::InvalidData.into())
            }
            Err(error) => {
                self.counters.failed_reads.add(1);
                tracing::warn!(version = %id, %error, "a version on disk cannot be opened; it is dropped");
                self.drop_version_alone(id);
                Err(error)
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "taken apart at once by the only caller")]
    fn read_map(&self, id: VersionId) -> io::Result<Option<(Shape, Arc<VersionFiles>, Vec<(u64, Kind)>)>> {
        let (data, map) = self.directory.open(id)?;
        let Some(files) = VersionFiles::open(data, map, id, self.page_size)? else {
            return Ok(None);
        };
        let mut pages = Vec::new();
        files.load(|page, kind| pages.push((page, kind)))?;
        let shape = files.shape();
        self.take_back_orphans(&files, shape, &pages)?;
        Ok(Some((shape, Arc::new(files), pages)))
    }

    /// Bytes without an entry, as a crash leaves them, take room that is on nobody's account.
    fn take_back_orphans(&self, files: &VersionFiles, shape: Shape, pages: &[(u64, Kind)]) -> io::Result<()> {
        /// What file systems take for their own bookkeeping of a file.
        const SLACK_BYTES: u64 = 64 << 10;
        let geometry = Geometry::new(self.page_size);
        let account: u64 = pages
            .iter()
            .map(|(page, _)| geometry.page_bytes(shape, *page))
            .sum();
        if files.allocated_bytes()? <= account + shape.map_bytes_max() + SLACK_BYTES {
            return Ok(());
        }
        let ends = pages.iter().map(|(page, _)| *page).chain([shape.pages]);
        let mut from = 0;
        for page in ends {
            if page > from {
                files.punch(from..page)?;
            }
            from = page + 1;
        }
        Ok(())
    }

    /// The files of a loaded version whose descriptors were closed.
    fn reopen(&self, id: VersionId) -> Option<Arc<VersionFiles>> {
        let opened = self
            .directory
            .open(id)
            .and_then(|(data, map)| VersionFiles::open(data, map, id, self.page_size));
        match opened {
            Ok(Some(files)) => {
                let files = Arc::new(files);
                self.index.lock().keep_open(id, files.clone());
                Some(files)
            }
            Ok(None) | Err(_) => {
                // Somebody deleted or replaced it behind our back.
                self.counters.failed_reads.add(1);
                self.drop_version(id);
                None
            }
        }
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::with_cause(
        ErrorKind::Invalid,
        "the directory of the disk tier cannot be read; mend it, or give another cache_dir",
        error,
    )
}

/// Whether an error only says that the answer would take a while, or that this file system always may.
fn is_about_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Unsupported
    )
}

/// Ascending pages as runs that are read with one system call each.
fn runs(pages: &[u64]) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.end == page && run.end - run.start < RUN_PAGES_MAX => run.end += 1,
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
mod tests;
