//! Tells the kernel that what it keeps has become old, from a thread of its own.
//!
//! A notification may wait for a lock that a request of ours holds: it is never sent by the thread that answers
//! requests. The queue is bounded; when it is full the notification is dropped, since the time to live ends the matter
//! anyway.

use std::sync::Arc;
use std::thread;

use crossbeam::channel::{Receiver, Sender, bounded};

/// Notifications waiting at most.
const QUEUE_MAX: usize = 1024;

/// What the kernel keeps of one mount; the FUSE session has the means.
pub trait KernelCache: Send + Sync {
    /// Forget that `name` in the directory `parent` is what it was.
    fn drop_entry(&self, parent: u64, name: &[u8]);
    /// Forget the attributes of the inode `number`; its kernel pages stay right for ever.
    fn drop_inode(&self, number: u64);
    /// Drop the kernel pages of the inode `number`, so that the next read of it comes here.
    fn drop_pages(&self, number: u64);
}

/// One name that has become old.
#[derive(Debug)]
pub struct OldEntry {
    /// Inode number of the directory.
    pub parent: u64,
    /// The name in it.
    pub name: Vec<u8>,
    /// What it was.
    pub number: u64,
}

/// The sending side of the queue; `None` until the session is up.
#[derive(Debug, Default)]
pub struct Invalidator(parking_lot::RwLock<Option<Session>>);

/// The queue of a session that is up, and the session's own means.
struct Session {
    queue: Sender<OldEntry>,
    kernel: Arc<dyn KernelCache>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} waiting)", self.queue.len())
    }
}

impl Invalidator {
    /// Starts the thread. It ends when the invalidator is dropped or [`Invalidator::stop`]ped.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(&self, kernel: Arc<dyn KernelCache>) -> std::io::Result<()> {
        let (sender, receiver) = bounded(QUEUE_MAX);
        thread::Builder::new().name("invalidate".into()).spawn({
            let kernel = kernel.clone();
            move || run(&receiver, kernel.as_ref())
        })?;
        *self.0.write() = Some(Session {
            queue: sender,
            kernel,
        });
        Ok(())
    }

    /// Queues a notification; drops it where the queue is full or there is no session.
    pub fn send(&self, entry: OldEntry) {
        if let Some(session) = self.0.read().as_ref()
            && session.queue.try_send(entry).is_err()
        {
            tracing::debug!("invalidation queue is full; the kernel keeps an entry until its ttl");
        }
    }

    /// Drops the kernel pages of an inode, past the queue: whoever asks wants them gone when this returns.
    pub fn drop_pages(&self, number: u64) {
        // Not under the lock: it may wait for a READ.
        let kernel = self.0.read().as_ref().map(|session| session.kernel.clone());
        if let Some(kernel) = kernel {
            kernel.drop_pages(number);
        }
    }

    /// Drops an entry past the queue, which is too short for all there are.
    pub fn drop_entry(&self, entry: &OldEntry) {
        let kernel = self.0.read().as_ref().map(|session| session.kernel.clone());
        if let Some(kernel) = kernel {
            kernel.drop_entry(entry.parent, &entry.name);
            kernel.drop_inode(entry.number);
        }
    }

    /// Ends the thread once its queue is empty.
    pub fn stop(&self) {
        *self.0.write() = None;
    }
}

fn run(queue: &Receiver<OldEntry>, kernel: &dyn KernelCache) {
    for old in queue {
        kernel.drop_entry(old.parent, &old.name);
        kernel.drop_inode(old.number);
    }
}
