//! One `lookupfs warm` inside the daemon: walk, work, count.
//!
//! Owns its counts and its rate. Refuses to hold more than a bounded number of files, found or under way; dropping
//! [`Job::run`] ends the work, but for the requests that are at the source. Called by `serve.rs`.

use std::ffi::OsStr;
use std::sync::Arc;

use futures::{StreamExt, stream};
use lookupfs_cache::clock::Clock;
use lookupfs_cache::error::Error;
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::version::FileVersion;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::bucket::Bucket;
use super::disk_watch::DiskWatch;
use super::verify::Verifying;
use super::walk::{Found, shown_path, walk};
use super::{Event, Input, Totals, WarmRequest, file};
use crate::message::one_line;
use crate::mounts::{Mounted, Mounts};

/// Files that may be found ahead of the work.
const AHEAD_MAX: usize = 1024;

/// A version, and which ranges of it are wanted.
type Filled = (Arc<FileVersion>, Vec<ByteRange>);

/// The work and what is known of it.
#[derive(Debug)]
pub struct Job {
    pub(super) request: WarmRequest,
    pub(super) pages: Arc<PageCache>,
    mounts: Arc<Mounts>,
    bucket: Option<Bucket>,
    totals: Mutex<Totals>,
    pushed_out_before: u64,
    pub(super) disk: DiskWatch,
    pub(super) verifying: Verifying,
    /// Files that were filled and are not counted yet.
    unsettled: Mutex<Vec<Filled>>,
    events: mpsc::Sender<Event>,
}

impl Job {
    /// Nothing runs yet. Failures are sent to `events`.
    pub fn new(
        request: WarmRequest,
        pages: Arc<PageCache>,
        mounts: Arc<Mounts>,
        events: mpsc::Sender<Event>,
    ) -> Job {
        let totals = Totals {
            page_size: pages.page_size().bytes(),
            ..Totals::default()
        };
        Job {
            bucket: request.limit.map(|limit| Bucket::new(limit, Clock::system())),
            pushed_out_before: pushed_out(&pages),
            disk: DiskWatch::new(&pages),
            verifying: Verifying::default(),
            unsettled: Mutex::default(),
            request,
            pages,
            mounts,
            totals: Mutex::new(totals),
            events,
        }
    }

    /// Works on every file at or below the paths.
    pub async fn run(&self, mut inputs: mpsc::Receiver<Input>) {
        // Which also shows whether the directory of the disk tier is still there.
        file::settle(self).await;
        let (send, receive) = mpsc::channel::<Found>(AHEAD_MAX);
        let walking = async move {
            while let Some(Input::Path { mount_point, below }) = inputs.recv().await {
                walk(self, &mount_point, &below, &send).await;
            }
            self.count(|totals| totals.is_all_found = true);
        };
        let files = stream::unfold(
            receive,
            |mut files| async move { Some((files.recv().await?, files)) },
        );
        let parallel = self.request.parallel.clamp(1, super::PARALLEL_MAX) as usize;
        let working = files.for_each_concurrent(parallel, |found| async move {
            match file::work(self, &found).await {
                Ok(()) => self.count(|totals| totals.files_done += 1),
                Err(error) => {
                    self.fail_with(shown_path(&found.mounted, &found.path), &error)
                        .await;
                }
            }
        });
        futures::join!(walking, working);
        file::note_settled(self).await;
    }

    /// What was done so far.
    pub fn totals(&self) -> Totals {
        let mut totals = *self.totals.lock();
        totals.pages_pushed_out = pushed_out(&self.pages).saturating_sub(self.pushed_out_before);
        totals.has_disk = self.disk.has_disk();
        totals.disk_trouble = self.disk.trouble(&self.pages);
        totals
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.lock());
    }

    /// Has a file that was filled counted later; how many wait for that.
    pub(super) fn note_when_settled(&self, version: &Arc<FileVersion>, ranges: Vec<ByteRange>) -> usize {
        let mut unsettled = self.unsettled.lock();
        unsettled.push((version.clone(), ranges));
        unsettled.len()
    }

    pub(super) fn take_unsettled(&self) -> Vec<Filled> {
        std::mem::take(&mut self.unsettled.lock())
    }

    /// Counts bytes that were fetched.
    pub(super) fn fetched(&self, bytes: u64) {
        self.count(|totals| totals.fetched_bytes = totals.fetched_bytes.saturating_add(bytes));
    }

    /// Waits for as long as the rate says.
    pub(super) async fn pay(&self, bytes: u64) {
        if let Some(bucket) = self.bucket.as_ref().filter(|_| bytes > 0) {
            tokio::time::sleep(bucket.pay(bytes)).await;
        }
    }

    /// Bytes to pay and to ask for at once, at most `bytes_max`.
    pub(super) fn step_bytes(&self, bytes_max: u64) -> u64 {
        let wanted = self.bucket.as_ref().map_or(bytes_max, Bucket::step_bytes);
        wanted.clamp(1, bytes_max)
    }

    /// Counts and tells a failure.
    pub(super) async fn fail(&self, path: String, reason: String) {
        self.count(|totals| totals.failed += 1);
        // Whoever listens has gone: then nobody wants to hear it.
        let _ = self.events.send(Event::Failed { path, reason }).await;
    }

    pub(super) async fn fail_with(&self, path: String, error: &Error) {
        self.fail(path, one_line(error)).await;
    }

    /// The mount at a mount point.
    pub(super) fn mounted(&self, mount_point: &OsStr) -> Option<Arc<Mounted>> {
        let mounts = self.mounts.list();
        mounts
            .iter()
            .find(|mounted| mounted.path.as_os_str() == mount_point)
            .cloned()
    }

    /// All mounts that show the source of a file.
    pub(super) fn mounts_of(&self, found: &Found) -> Vec<Arc<Mounted>> {
        let namespace = found.mounted.filesystem.namespace();
        let mut mounts = self.mounts.list();
        mounts.retain(|mounted| mounted.filesystem.shows(namespace));
        mounts
    }
}

fn pushed_out(pages: &PageCache) -> u64 {
    let stats = pages.stats();
    stats.data.evictions + stats.metadata.evictions
}
