//! Writes pages: one thread, and room made for what comes.
//!
//! The only code that adds pages, so that nothing races for the same place. Refuses to give up for good: after a failure it
//! rests, and goes on. Called by `queue.rs`, which says what is next.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use super::directory::{Intact, Left};
use super::evict::Victim;
use super::geometry::Shape;
use super::index::Standing;
use super::queue::{Job, NewPage, Order};
use super::stuck::RETRY;
use super::version_file::{VersionFiles, run_pages_max};
use super::{Core, load, runs};
use crate::memory::Kind;
use crate::version::{FileVersion, VersionId};

/// What a file system may take for a version beyond the account, before that is seen.
const SLACK_BYTES: u64 = 16 << 10;

impl Core {
    /// Ends once nobody can give orders any more.
    pub(super) fn write_all(&self, orders: &Receiver<Order>) {
        loop {
            let order = orders.recv_timeout(RETRY);
            self.retry_deletions();
            let job = match order {
                Ok(Order::Write(job)) => job,
                Ok(Order::Tell(told)) => {
                    // Whoever asked is about to say what is there.
                    if !self.switch.is_paused() {
                        self.look_after_directory();
                    }
                    // Whoever asked may have given up.
                    let _ = told.send(());
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let count = job.pages.len() as u64;
            self.counters.steps.add(1);
            if self.switch.is_paused() || !self.look_after_directory() {
                self.counters.skipped_pages.add(count);
                continue;
            }
            if let Err(error) = self.write_job(&job) {
                self.counters.failed_writes.add(1);
                self.counters.skipped_pages.add(count);
                self.after_failure(&job.version, &error);
            }
        }
    }

    /// What could not be deleted, once more. Nobody makes files but this thread, so none of them is in use.
    fn retry_deletions(&self) {
        let due = self.index.lock().stuck.due(Instant::now());
        for id in due {
            let bytes = match self.directory.remove(id) {
                Ok(()) => 0,
                Err(_) => self.directory.allocated_bytes(id),
            };
            self.index.lock().stuck.note(id, bytes);
        }
    }

    /// Notices that the directory has gone, and begins anew.
    fn look_after_directory(&self) -> bool {
        match self.directory.look_after() {
            Ok(Intact::Yes) => true,
            Ok(Intact::Remade) => {
                if let Some(held_back) = self.warnings.admit(Instant::now()) {
                    tracing::warn!(
                        held_back,
                        "the directory of the disk tier has gone; another is in its place"
                    );
                }
                self.counters.lost_directories.add(1);
                self.begin_anew()
            }
            Err(error) => {
                self.counters.failed_writes.add(1);
                self.switch.off_for_a_while(&format!("{error:?}"));
                false
            }
        }
    }

    /// Forgets what was in the directory that has gone, and takes in what is in the one that is there: it is on the
    /// account, or nothing would ever evict it.
    fn begin_anew(&self) -> bool {
        let pinned: HashSet<VersionId> = {
            let mut index = self.index.lock();
            let pinned = index.versions.iter().filter(|(_, version)| version.pins > 0);
            let pinned = pinned.map(|(id, _)| *id).collect();
            index.take_all();
            pinned
        };
        self.verified.forget_all();
        let taken = self.directory.scan().and_then(|left| {
            // Whoever pinned a file may still read it, if it was moved here; deleted, it keeps its bytes for him.
            let (pinned, left): (Vec<Left>, Vec<Left>) =
                left.into_iter().partition(|left| pinned.contains(&left.id));
            pinned
                .iter()
                .try_for_each(|left| self.directory.remove(left.id))?;
            Ok(left)
        });
        match taken {
            Ok(left) => {
                self.take_in(&left);
                self.make_room(0, 0);
                true
            }
            Err(error) => {
                self.counters.failed_reads.add(1);
                self.switch
                    .off_for_a_while(&format!("{:?}", load::unreadable(error)));
                false
            }
        }
    }

    fn after_failure(&self, version: &FileVersion, error: &io::Error) {
        let id = version.id();
        let is_empty = self
            .index
            .lock()
            .loaded(id)
            .is_some_and(|loaded| loaded.units.is_empty());
        if is_empty {
            self.drop_version(id);
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                tracing::warn!(%error, "the disk is full; the disk tier writes nothing for a while");
                self.counters.full_pauses.add(1);
                self.switch.pause_writing();
                // A sixteenth of what is ours: others on this disk may need it more.
                let used = self.index.lock().used;
                self.shrink_to(used - used / 16);
            }
            _ => {
                if let Some(held_back) = self.warnings.admit(Instant::now()) {
                    tracing::warn!(%version, %error, held_back, "pages cannot be written to disk");
                }
            }
        }
    }

    fn write_job(&self, job: &Job) -> io::Result<()> {
        let id = job.version.id();
        // A map that cannot be read is dropped, and the version is made anew.
        let _ = self.make_sure_it_is_loaded(id, false);
        let shape = Shape::new(&job.version, self.page_size);
        let (missing, is_pinned) = self.missing_of(job);
        let names: Vec<(u64, Kind)> = missing.iter().map(|page| (page.page, page.kind)).collect();
        if names.is_empty() {
            return Ok(());
        }
        if is_pinned {
            self.counters.skipped_pages.add(names.len() as u64);
            return Ok(());
        }
        let (data, metadata) = self.index.lock().price(id, shape, &names);
        if !self.make_room(data + SLACK_BYTES, metadata) {
            self.counters.skipped_pages.add(names.len() as u64);
            return Ok(());
        }
        let files = self.files_for(&job.version, shape)?;
        let indexes: Vec<u64> = names.iter().map(|(page, _)| *page).collect();
        let runs = runs(&indexes, run_pages_max(self.page_size));
        let written = runs.iter().cloned().try_for_each(|run| {
            self.counters.steps.add(1);
            write_run(&files, &missing, run)
        });
        if let Err(error) = written {
            // Some of it may have its entry already, and none of it is on the account.
            if let Err(error) = drop_runs(&files, runs) {
                tracing::debug!(version = %id, %error, "what was written cannot be taken back; the whole version goes");
                self.drop_version(id);
            }
            return Err(error);
        }
        let allocated = files.allocated_bytes().unwrap_or(0);
        let mut index = self.index.lock();
        index.admit(id, &names, false);
        index.settle(id, allocated);
        drop(index);
        self.counters.written_pages.add(names.len() as u64);
        let bytes: u64 = missing.iter().map(|page| page.bytes.len() as u64).sum();
        self.counters.written_bytes.add(bytes);
        // The file system may have taken more than was asked for.
        self.make_room(0, 0);
        Ok(())
    }

    /// The pages of a job that are not on disk yet, and whether their version is pinned. Then somebody reads its file
    /// without asking here, and nothing may be written to it or taken out of it: a page that was lost comes back after
    /// the pin. A version that misses a page is not pinned before this thread has brought it, so the answer holds.
    fn missing_of<'a>(&self, job: &'a Job) -> (Vec<&'a NewPage>, bool) {
        let id = job.version.id();
        let index = self.index.lock();
        let missing = job.pages.iter().filter(|page| !index.contains(id, page.page));
        let is_pinned = index.versions.get(&id).is_some_and(|version| version.pins > 0);
        (missing.collect(), is_pinned)
    }

    /// The files to write to: those that are open, or opened again, or made.
    fn files_for(&self, version: &FileVersion, shape: Shape) -> io::Result<Arc<VersionFiles>> {
        let id = version.id();
        let open = self.index.lock().loaded(id).map(|loaded| loaded.files.clone());
        if let Some(files) = open.and_then(|files| files.or_else(|| self.reopen(id))) {
            return Ok(files);
        }
        let _alone = self.files_lock.lock();
        let (data, map) = self.directory.create(id)?;
        match VersionFiles::create(data, map, version, self.page_size) {
            Ok(files) => {
                let files = Arc::new(files);
                let mut index = self.index.lock();
                index.stuck.note(id, 0);
                index.add_new(id, shape, files.clone());
                Ok(files)
            }
            Err(error) => {
                let _ = self.directory.remove(id);
                Err(error)
            }
        }
    }

    /// Evicts until so many bytes of data and metadata fit; whether they do.
    pub(super) fn make_room(&self, data: u64, metadata: u64) -> bool {
        // Ends, since each turn takes something out of the index, and nothing else adds to it.
        loop {
            let victim = self.index.lock().next_victim(data, metadata);
            match victim {
                Some(victim) => {
                    self.counters.steps.add(1);
                    self.evict_now(victim);
                }
                None => break,
            }
        }
        self.index.lock().has_room(data, metadata)
    }

    fn shrink_to(&self, bytes: u64) {
        loop {
            let mut index = self.index.lock();
            if index.used <= bytes {
                return;
            }
            // So much more that something has to go.
            let excess = index.limits.disk_bytes.saturating_sub(index.used) + 1;
            let victim = index.next_victim(excess, 0);
            drop(index);
            match victim {
                Some(victim) => self.evict_now(victim),
                None => return,
            }
        }
    }

    fn evict_now(&self, victim: Victim<VersionFiles>) {
        match victim {
            Victim::Left(id) => {
                let _ = self.make_sure_it_is_loaded(id, true);
            }
            Victim::Version { id, pages } => {
                self.counters.evicted_pages.add(pages);
                self.remove_files(id);
            }
            Victim::Pages { id, files, runs } => {
                let count: u64 = runs.iter().map(|run| run.end - run.start).sum();
                self.counters.evicted_pages.add(count);
                self.verified.forget(id);
                let Some(files) = files.or_else(|| self.reopen(id)) else {
                    return;
                };
                if let Err(error) = drop_runs(&files, runs) {
                    // A file system that makes no holes gives room back only for whole files.
                    tracing::debug!(version = %id, %error, "no hole can be made; the whole version goes");
                    self.drop_version(id);
                    return;
                }
                let allocated = files.allocated_bytes().unwrap_or(0);
                self.index.lock().settle(id, allocated);
            }
        }
    }

    pub(super) fn remove_files(&self, id: VersionId) {
        self.verified.forget(id);
        if let Err(error) = self.directory.remove(id) {
            self.counters.failed_deletions.add(1);
            let bytes = self.directory.allocated_bytes(id);
            self.index.lock().stuck.note(id, bytes);
            if let Some(held_back) = self.warnings.admit(Instant::now()) {
                tracing::warn!(
                    version = %id, bytes, %error, held_back,
                    "a file of the disk tier cannot be deleted: mend or delete it by hand, its room is missing until the next try, 30 s after that"
                );
            }
        }
    }

    /// Takes a version off the disk, unless it is pinned.
    pub(super) fn drop_version(&self, id: VersionId) {
        let _alone = self.files_lock.lock();
        self.drop_version_alone(id);
    }

    /// As [`Core::drop_version`], for who has the lock of files.
    pub(super) fn drop_version_alone(&self, id: VersionId) {
        let mut index = self.index.lock();
        let is_pinned = index.versions.get(&id).is_some_and(|version| version.pins > 0);
        if !is_pinned && index.standing(id) != Standing::Unknown {
            index.take_version(id);
            drop(index);
            self.remove_files(id);
        }
    }
}

fn drop_runs(files: &VersionFiles, runs: Vec<Range<u64>>) -> io::Result<()> {
    runs.into_iter().try_for_each(|run| files.drop_pages(run))
}

/// Bytes first, entries when all of them are written: see `version_file.rs`.
fn write_run(files: &VersionFiles, pages: &[&NewPage], run: Range<u64>) -> io::Result<()> {
    let first = pages.partition_point(|page| page.page < run.start);
    let pages = &pages[first..first + (run.end - run.start) as usize];
    for page in pages {
        files.write(page.page, &page.bytes)?;
    }
    let entries: Vec<u64> = pages
        .iter()
        .map(|page| files.entry(page.page, page.kind, &page.bytes))
        .collect();
    files.enter(run.start, &entries)
}
