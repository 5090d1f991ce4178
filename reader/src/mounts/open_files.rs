//! [`OpenFiles`]: versions that stay open between one table and the next.
//!
//! Owns how many there are and how long one is used: a tool that opens a table for each lookup asks the path for its
//! version and reads, without opening and closing the file each time. Only versions of lookupfs mounts are here, since an
//! inode of these never changes. Refuses handles that are old, and has them closed also where nobody asks: an open file keeps its
//! mount from being unmounted. Called by [`super::MountedFile`].

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::hash_of;
use crate::read_at::ReadAt;

/// Files that stay open.
const OPEN_MAX: usize = 256;

/// How long one is used before it is opened anew.
const USED_FOR: Duration = Duration::from_secs(10);

/// How often those that nobody asks for are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// A version, and the hash of the path it was opened by. Two paths of one hash show the same bytes.
type Key = ([u8; 16], u64);

#[derive(Clone)]
struct Opened {
    handle: Arc<dyn ReadAt>,
    at: Instant,
}

/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub(crate) struct OpenFiles(Arc<Shared>);

struct Shared {
    files: Cache<Key, Opened>,
    /// Ends the thread that looks for old ones when it is dropped; `None` while there is no such thread.
    sweeper: Mutex<Option<mpsc::SyncSender<()>>>,
    used_for: Duration,
    sweep_every: Duration,
}

impl OpenFiles {
    fn new(used_for: Duration, sweep_every: Duration) -> OpenFiles {
        OpenFiles(Arc::new(Shared {
            files: Cache::new(OPEN_MAX),
            sweeper: Mutex::new(None),
            used_for,
            sweep_every,
        }))
    }

    /// The version on a path, if it is open.
    pub(super) fn get(&self, version: [u8; 16], path: &Path) -> Option<Arc<dyn ReadAt>> {
        let key = key(version, path);
        let opened = self.0.files.get(&key)?;
        if opened.at.elapsed() > self.0.used_for {
            self.0.files.remove(&key);
            return None;
        }
        Some(opened.handle)
    }

    pub(super) fn put(&self, version: [u8; 16], path: &Path, handle: Arc<dyn ReadAt>) {
        let mut sweeper = self.0.sweeper.lock();
        if sweeper.is_none() {
            let (shared, every) = (Arc::downgrade(&self.0), self.0.sweep_every);
            let (ends, ended) = mpsc::sync_channel(1);
            let thread = thread::Builder::new().name("lookup-close".into());
            if thread.spawn(move || sweep(&shared, every, &ended)).is_err() {
                // Nobody would close it.
                return;
            }
            *sweeper = Some(ends);
        }
        let at = Instant::now();
        self.0.files.insert(key(version, path), Opened { handle, at });
    }

    /// It cannot be read any more.
    pub(super) fn remove(&self, version: [u8; 16], path: &Path) {
        self.0.files.remove(&key(version, path));
    }
}

fn key(version: [u8; 16], path: &Path) -> Key {
    (version, hash_of(&path.as_os_str().as_encoded_bytes()))
}

/// Closes old files until there are none, or nobody is left who could ask for them.
fn sweep(shared: &Weak<Shared>, every: Duration, ended: &mpsc::Receiver<()>) {
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared
            .files
            .retain(|_, opened| opened.at.elapsed() <= shared.used_for);
        let mut sweeper = shared.sweeper.lock();
        if shared.files.is_empty() {
            *sweeper = None;
            return;
        }
    }
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        OpenFiles::new(USED_FOR, SWEEP_EVERY)
    }
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFiles({})", self.0.files.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_at::MemoryFile;
    use bytes::Bytes;

    #[test]
    fn files_that_nobody_asks_for_are_closed() {
        let open_files = OpenFiles::new(Duration::from_millis(20), Duration::from_millis(5));
        // Twice: the thread that looks for old ones ends with the last of them, and is started again.
        for _ in 0..2 {
            let file: Arc<dyn ReadAt> = Arc::new(MemoryFile(Bytes::from_static(b"x")));
            open_files.put([1; 16], Path::new("/m0/f"), file.clone());
            assert!(Arc::strong_count(&file) == 2 && open_files.0.sweeper.lock().is_some());
            let until = Instant::now() + Duration::from_secs(60);
            while Arc::strong_count(&file) > 1 || open_files.0.sweeper.lock().is_some() {
                assert!(Instant::now() < until, "it stays open");
                thread::park_timeout(Duration::from_millis(1));
            }
            assert!(open_files.get([1; 16], Path::new("/m0/f")).is_none());
        }
    }
}
