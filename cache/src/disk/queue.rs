//! What waits to be written to disk, and who waits for that.
//!
//! Owns the bytes that wait: they are a share of `memory`. Refuses to make anybody wait who did not ask to, for that a page
//! that finds the queue full is skipped, and counted; and to have who asked wait for ever. Called by `disk.rs`; the thread
//! behind it is in `writer.rs`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Core, PATIENCE};
use crate::budget::{Budget, Permit};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Kind;
use crate::version::FileVersion;

/// Jobs that wait, at most; their bytes have a budget of their own.
const JOBS_MAX: usize = 4096;
/// How often [`PATIENCE`] is spent on a queue that does move, before its pages are skipped.
const PATIENCES_MAX: u32 = 12;
/// How soon who waits for the queue sees that the tier was switched off.
const SETTLE_POLL: Duration = Duration::from_millis(50);

/// A page to write.
#[derive(Clone, Debug)]
pub(crate) struct NewPage {
    pub(crate) page: u64,
    pub(crate) bytes: Bytes,
    pub(crate) kind: Kind,
}

/// The queue before the thread that writes. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Queue {
    core: Arc<Core>,
    orders: SyncSender<Order>,
    budget: Budget,
    queue_bytes: u64,
}

/// What the thread does, one after the other.
#[derive(Debug)]
pub(super) enum Order {
    Write(Job),
    /// Tells that everything before it is done with.
    Tell(oneshot::Sender<()>),
}

/// Pages of one version, and their share of the queue until they are done with.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) version: FileVersion,
    pub(super) pages: Vec<NewPage>,
    _room: Permit,
}

impl Queue {
    pub(super) fn start(core: Arc<Core>, queue_bytes: u64) -> Result<Queue> {
        let (orders, queue) = sync_channel(JOBS_MAX);
        let works = core.clone();
        thread::Builder::new()
            .name("disk-writer".into())
            .spawn(move || {
                // `cache_size` may be smaller than it was.
                works.make_room(0, 0);
                works.write_all(&queue);
            })
            .map_err(|error| {
                Error::with_cause(ErrorKind::Unavailable, "no thread for the disk tier", error)
            })?;
        Ok(Queue {
            core,
            orders,
            budget: Budget::new(queue_bytes),
            queue_bytes,
        })
    }

    /// Queues the pages if there is room now.
    pub(super) fn offer(&self, version: &FileVersion, pages: Vec<NewPage>) {
        if self.core.switch.is_paused() {
            self.core.counters.skipped_pages.add(pages.len() as u64);
            return;
        }
        for pages in self.in_jobs(pages) {
            let count = pages.len() as u64;
            let room = self.budget.try_acquire(bytes_of(&pages));
            if !room.is_some_and(|room| self.send(version, pages, room)) {
                self.core.counters.skipped_pages.add(count);
            }
        }
    }

    /// Queues the pages, and waits for room, though not for ever: a disk that is slow has its time, one that hangs has not.
    pub(super) async fn bring(&self, version: &FileVersion, pages: Vec<NewPage>) {
        for pages in self.in_jobs(pages) {
            let count = pages.len() as u64;
            if self.core.switch.is_paused() {
                self.core.counters.skipped_pages.add(count);
                continue;
            }
            let room = self.room_for(bytes_of(&pages)).await;
            if !room.is_some_and(|room| self.send(version, pages, room)) {
                self.core.counters.skipped_pages.add(count);
            }
        }
    }

    /// Waits in line for as long as the queue moves.
    async fn room_for(&self, bytes: u64) -> Option<Permit> {
        let steps = || self.core.counters.steps.get();
        let mut before = steps();
        let mut room = pin!(self.budget.acquire(bytes));
        for _ in 0..PATIENCES_MAX {
            if let Ok(room) = timeout(PATIENCE, &mut room).await {
                return room.ok();
            }
            if self.core.switch.is_paused() {
                return None;
            }
            if steps() == before {
                self.core.counters.timeouts.add(1);
                self.core
                    .switch
                    .off_for_a_while("what waits to be written did not move");
                return None;
            }
            before = steps();
        }
        None
    }

    /// A part of the queue for each job, so that a long extent finds room in a small queue.
    fn in_jobs(&self, mut pages: Vec<NewPage>) -> impl Iterator<Item = Vec<NewPage>> + use<> {
        let job_bytes = self.queue_bytes / 4;
        pages.sort_by_key(|page| page.page);
        pages.dedup_by_key(|page| page.page);
        let mut pages = pages.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut bytes = 0;
            let mut job = Vec::new();
            while let Some(page) =
                pages.next_if(|page| job.is_empty() || bytes + page.bytes.len() as u64 <= job_bytes)
            {
                bytes += page.bytes.len() as u64;
                job.push(page);
            }
            (!job.is_empty()).then_some(job)
        })
    }

    /// Waits until what was queued so far is written or skipped, or the tier is switched off; callers bound it. Takes no room from others.
    pub(super) async fn settled(&self) {
        let (tell, told) = oneshot::channel();
        let mut told = pin!(told);
        let mut order = Some(Order::Tell(tell));
        while !self.core.switch.is_off() {
            if let Some(waits) = order.take()
                && let Err(TrySendError::Full(back)) = self.orders.try_send(waits)
            {
                order = Some(back);
            }
            if timeout(SETTLE_POLL, &mut told).await.is_ok() {
                return;
            }
        }
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.budget.in_flight()
    }

    fn send(&self, version: &FileVersion, pages: Vec<NewPage>, room: Permit) -> bool {
        let job = Job {
            version: version.clone(),
            pages,
            _room: room,
        };
        match self.orders.try_send(Order::Write(job)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn bytes_of(pages: &[NewPage]) -> u64 {
    pages.iter().map(|page| page.bytes.len() as u64).sum()
}
