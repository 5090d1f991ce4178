//! The files that are open on a mount with passthrough, and how each was opened.
//!
//! The kernel refuses to mix: while a file is open through its page cache it cannot be opened with passthrough, while it
//! is open with passthrough every further open must name the same registration, and a registration lives until the last
//! of them is closed (Linux, `fs/fuse/iomode.c`). Owns that bookkeeping; knows neither fuser nor where local files come
//! from. Called by `fuse/open.rs`. Mounts without messages for opens have none of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use lookupfs_cache::disk::Unready;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;

/// Refusals in a row after which a mount does without passthrough: files are verified for it in vain.
const REFUSALS_MAX: u32 = 8;

/// Then one open in so many tries again: what stood in the way may have been a limit that was reached for a while.
const RETRY_OPENS: u32 = 256;

/// How one file is opened.
#[derive(Debug)]
pub enum Opened<R> {
    /// The kernel reads the local file by itself.
    Passthrough(Arc<R>),
    /// The kernel reads through its page cache, and asks the daemon for what it lacks.
    Kept,
}

/// The open files of one mount by inode number. `P` keeps the local file complete, `R` is its registration with the
/// kernel.
#[derive(Debug)]
pub struct OpenFiles<P, R> {
    open: Mutex<HashMap<u64, Open<P, R>>>,
    /// Registrations refused since the last that was not; beyond the most, opens that did without.
    refused: AtomicU32,
}

impl<P, R> Default for OpenFiles<P, R> {
    fn default() -> Self {
        OpenFiles {
            open: Mutex::default(),
            refused: AtomicU32::new(0),
        }
    }
}

#[derive(Debug)]
struct Open<P, R> {
    count: u64,
    backing: Option<Backing<P, R>>,
}

/// Dropped in this order: the kernel's registration goes before the local file may be evicted.
#[derive(Debug)]
struct Backing<P, R> {
    registration: Arc<R>,
    _pin: P,
}

impl<P, R> OpenFiles<P, R> {
    /// Opens the file `number` once more. `complete` finds its local file, `register` tells the kernel of it; both are
    /// asked only where nobody has the file open. Neither may wait.
    pub fn open(
        &self,
        number: u64,
        complete: impl FnOnce() -> Result<P, Unready>,
        register: impl FnOnce(&P) -> io::Result<R>,
        report: &OpenReport,
    ) -> Opened<R> {
        // Held over the registration: two that open at once must get the same one.
        let mut open = self.open.lock();
        let file = match open.entry(number) {
            Entry::Occupied(entry) => {
                if entry.get().backing.is_none() {
                    report.held_open.add_one();
                }
                entry.into_mut()
            }
            Entry::Vacant(entry) => {
                let has_given_up = self.has_given_up();
                if has_given_up {
                    report.is_given_up.store(true, Relaxed);
                }
                let complete = if has_given_up {
                    None
                } else {
                    report.note(complete()).or_else(|| {
                        self.put_back();
                        None
                    })
                };
                let backing = complete.and_then(|pin| match register(&pin) {
                    Ok(registration) => {
                        self.refused.store(0, Relaxed);
                        report.is_given_up.store(false, Relaxed);
                        Some(Backing {
                            registration: Arc::new(registration),
                            _pin: pin,
                        })
                    }
                    Err(error) => {
                        self.refused.fetch_add(1, Relaxed);
                        report.refuse(&format!("the kernel refused a local file ({error})"));
                        None
                    }
                });
                entry.insert(Open { count: 0, backing })
            }
        };
        file.count += 1;
        match &file.backing {
            Some(backing) => {
                report.passthrough.add_one();
                Opened::Passthrough(backing.registration.clone())
            }
            None => {
                report.kept.add_one();
                Opened::Kept
            }
        }
    }

    /// Whether this open is to do without.
    fn has_given_up(&self) -> bool {
        let beyond = self.refused.load(Relaxed).checked_sub(REFUSALS_MAX);
        let Some(beyond) = beyond else {
            return false;
        };
        self.refused.fetch_add(1, Relaxed);
        (beyond + 1) % RETRY_OPENS != 0
    }

    /// Nothing was tried: the next open may.
    fn put_back(&self) {
        let is_beyond = |refused: u32| (refused > REFUSALS_MAX).then(|| refused - 1);
        let _ = self.refused.fetch_update(Relaxed, Relaxed, is_beyond);
    }

    /// One who had the file open has closed it.
    pub fn close(&self, number: u64) {
        let mut open = self.open.lock();
        if let Entry::Occupied(mut entry) = open.entry(number) {
            entry.get_mut().count -= 1;
            if entry.get().count == 0 {
                let last = entry.remove();
                // Dropping tells the kernel, for which nobody else needs to wait.
                drop(open);
                drop(last);
            }
        }
    }
}

/// How files of one mount are opened, as `lookupfs stats` tells it.
#[derive(Debug, Default)]
pub struct OpenReport {
    is_asked: bool,
    mount_point: PathBuf,
    refusal: OnceLock<String>,
    /// The last ones were all refused, so that opens do without.
    is_given_up: AtomicBool,
    passthrough: Counter,
    kept: Counter,
    incomplete: Counter,
    unverified: Counter,
    held_open: Counter,
}

/// [`OpenReport`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStats {
    /// `no-open`: opening costs no message; `passthrough`: complete files are read by the kernel itself; `kept`:
    /// passthrough was asked for and cannot be had.
    pub mode: String,
    /// Why passthrough cannot be had, or what it was refused for first.
    pub refusal: Option<String>,
    /// Opens with passthrough.
    pub passthrough: u64,
    /// Opens through the kernel page cache.
    pub kept: u64,
    /// Those of them that found pages of the file missing on the local disk.
    pub incomplete: u64,
    /// Those that found it there and not verified yet, which began with that.
    pub unverified: u64,
    /// Those of a file that others held open through the kernel page cache.
    pub held_open: u64,
}

impl OpenReport {
    /// Of the mount at `mount_point`, which asks for passthrough, or does not.
    pub fn new(is_asked: bool, mount_point: &Path) -> OpenReport {
        OpenReport {
            is_asked,
            mount_point: mount_point.to_owned(),
            ..OpenReport::default()
        }
    }

    /// Which mount it is, for the log.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Whether passthrough was asked for.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Whether passthrough was asked for and is not known to be refused.
    pub fn is_in_use(&self) -> bool {
        let is_refused = self.refusal.get().is_some() && self.passthrough.get() == 0;
        self.is_asked && !is_refused && !self.is_given_up.load(Relaxed)
    }

    /// Passthrough is refused. The first reason is kept, and logged.
    pub fn refuse(&self, reason: &str) {
        if self.refusal.set(reason.to_owned()).is_ok() {
            tracing::warn!(
                mount = %self.mount_point.display(),
                reason,
                "no passthrough: files are served through the kernel page cache"
            );
        }
    }

    fn note<P>(&self, complete: Result<P, Unready>) -> Option<P> {
        complete
            .inspect_err(|reason| {
                let count = match reason {
                    Unready::Incomplete => &self.incomplete,
                    Unready::Unverified => &self.unverified,
                };
                count.add_one();
            })
            .ok()
    }

    /// The values now.
    pub fn stats(&self) -> OpenStats {
        let refusal = self.refusal.get().cloned();
        let passthrough = self.passthrough.get();
        let mode = match (self.is_asked, self.is_in_use()) {
            (false, _) => "no-open",
            (true, false) => "kept",
            (true, true) => "passthrough",
        };
        OpenStats {
            mode: mode.to_owned(),
            refusal,
            passthrough,
            kept: self.kept.get(),
            incomplete: self.incomplete.get(),
            unverified: self.unverified.get(),
            held_open: self.held_open.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A registration that tells when it goes, and a pin that must outlive it.
    #[derive(Debug)]
    struct Registered(Arc<Mutex<Vec<&'static str>>>);
    #[derive(Debug)]
    struct Pinned(Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Registered {
        fn drop(&mut self) {
            self.0.lock().push("unregistered");
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            self.0.lock().push("unpinned");
        }
    }

    struct Mount {
        files: OpenFiles<Pinned, Registered>,
        report: OpenReport,
        log: Arc<Mutex<Vec<&'static str>>>,
        is_complete: Cell<bool>,
    }

    impl Mount {
        fn new(is_complete: bool) -> Mount {
            Mount {
                files: OpenFiles::default(),
                report: OpenReport::new(true, Path::new("/mnt")),
                log: Arc::default(),
                is_complete: Cell::new(is_complete),
            }
        }

        fn open(&self) -> Opened<Registered> {
            let log = || self.log.clone();
            self.files.open(
                7,
                || match self.is_complete.get() {
                    true => Ok(Pinned(log())),
                    false => Err(Unready::Incomplete),
                },
                |_| Ok(Registered(log())),
                &self.report,
            )
        }
    }

    #[test]
    fn all_opens_of_a_file_share_one_registration_until_the_last_is_closed() {
        let mount = Mount::new(true);
        let (Opened::Passthrough(a), Opened::Passthrough(b)) = (mount.open(), mount.open()) else {
            panic!("a complete file is passed through");
        };
        assert!(Arc::ptr_eq(&a, &b));
        drop((a, b));
        mount.files.close(7);
        assert!(mount.log.lock().is_empty());
        mount.files.close(7);
        assert_eq!(*mount.log.lock(), ["unregistered", "unpinned"]);
        assert_eq!(mount.report.stats().passthrough, 2);
    }

    #[test]
    fn a_file_that_is_open_through_the_kernel_page_cache_stays_so_until_all_have_closed_it() {
        let mount = Mount::new(false);
        assert!(matches!(mount.open(), Opened::Kept));
        mount.is_complete.set(true);
        assert!(
            matches!(mount.open(), Opened::Kept),
            "the kernel would refuse a mix"
        );
        mount.files.close(7);
        assert!(matches!(mount.open(), Opened::Kept));
        mount.files.close(7);
        mount.files.close(7);
        assert!(matches!(mount.open(), Opened::Passthrough(_)));
        let stats = mount.report.stats();
        assert_eq!((stats.kept, stats.incomplete, stats.held_open), (3, 1, 2));
        // What was never opened may be closed: the kernel is not trusted with an underflow.
        mount.files.close(99);
    }

    #[test]
    fn a_refused_registration_is_told_once_and_served_otherwise() {
        let mount = Mount::new(true);
        for _ in 0..2 {
            let opened = mount.files.open(
                7,
                || Ok(Pinned(mount.log.clone())),
                |_| Err(io::Error::from(io::ErrorKind::PermissionDenied)),
                &mount.report,
            );
            assert!(matches!(opened, Opened::Kept));
        }
        let stats = mount.report.stats();
        assert_eq!((stats.mode.as_str(), stats.kept), ("kept", 2));
        assert!(stats.refusal.unwrap().contains("permission denied"));
        assert_eq!(
            *mount.log.lock(),
            ["unpinned"],
            "a local file without use is let go"
        );
    }

    #[test]
    fn after_many_refusals_opens_do_without_and_one_in_many_tries_again() {
        let mount = Mount::new(true);
        let tries = Cell::new(0);
        let mut is_refusing = true;
        let mut open = |opens: u32, is_refused: bool| {
            is_refusing = is_refused;
            for _ in 0..opens {
                mount.files.open(
                    7,
                    || Ok(Pinned(mount.log.clone())),
                    |_| {
                        tries.set(tries.get() + 1);
                        match is_refusing {
                            true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                            false => Ok(Registered(mount.log.clone())),
                        }
                    },
                    &mount.report,
                );
                mount.files.close(7);
            }
        };
        open(REFUSALS_MAX + 1, true);
        assert_eq!(tries.get(), REFUSALS_MAX);
        assert!(!mount.report.is_in_use());
        open(3 * RETRY_OPENS, true);
        assert_eq!(tries.get(), REFUSALS_MAX + 3);
        open(RETRY_OPENS, false);
        assert!(mount.report.is_in_use());
        let stats = mount.report.stats();
        assert_eq!(stats.mode, "passthrough");
        assert!(stats.passthrough > 0 && stats.refusal.is_some());
    }
}
