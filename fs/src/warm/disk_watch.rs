//! What went wrong at the local disk while a job ran: why it has not all of the pages.
//!
//! Owns the first trouble that was seen, which the others follow from. Refuses to ask the disk: it looks at counters, so a
//! disk that hangs holds up nobody. Called by `job.rs`.

use lookupfs_cache::disk::{DiskStats, Rest};
use lookupfs_cache::page_cache::PageCache;
use parking_lot::Mutex;

use super::DiskTrouble;

/// Counters as they were when the job began, and what was seen since.
#[derive(Debug)]
pub(super) struct DiskWatch {
    before: Option<DiskStats>,
    seen: Mutex<Option<DiskTrouble>>,
}

impl DiskWatch {
    pub(super) fn new(pages: &PageCache) -> DiskWatch {
        DiskWatch {
            before: pages.stats().disk,
            seen: Mutex::default(),
        }
    }

    /// Whether there is a disk tier at all.
    pub(super) fn has_disk(&self) -> bool {
        self.before.is_some()
    }

    /// Something that the counters do not show.
    pub(super) fn note(&self, trouble: DiskTrouble) {
        self.seen.lock().get_or_insert(trouble);
    }

    /// Whether the disk was seen not to answer.
    pub(super) fn is_silent(&self) -> bool {
        *self.seen.lock() == Some(DiskTrouble::Silent)
    }

    /// The first trouble since the job began; one that was there before counts, as long as it lasts.
    pub(super) fn trouble(&self, pages: &PageCache) -> Option<DiskTrouble> {
        let mut seen = self.seen.lock();
        if seen.is_none()
            && let (Some(before), Some(now)) = (&self.before, pages.stats().disk)
        {
            *seen = trouble(before, &now, pages.disk_rests());
        }
        *seen
    }
}

fn trouble(before: &DiskStats, now: &DiskStats, rests: Option<Rest>) -> Option<DiskTrouble> {
    // A full disk fails writes too, and one whose directory cannot be used is switched off as if it did not answer.
    if now.full_pauses > before.full_pauses || rests == Some(Rest::Full) {
        Some(DiskTrouble::Full)
    } else if now.timeouts > before.timeouts {
        Some(DiskTrouble::Silent)
    } else if now.failed_writes > before.failed_writes {
        Some(DiskTrouble::Failed)
    } else {
        (rests == Some(Rest::Off)).then_some(DiskTrouble::Silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_what_was_counted_since_or_still_lasts() {
        let before = DiskStats {
            full_pauses: 1,
            timeouts: 2,
            failed_writes: 3,
            ..DiskStats::default()
        };
        let with = |full: u64, silent: u64, failed: u64| DiskStats {
            full_pauses: 1 + full,
            timeouts: 2 + silent,
            failed_writes: 3 + failed,
            ..before
        };
        for (now, rests, expected) in [
            (with(0, 0, 0), None, None),
            (with(1, 0, 1), None, Some(DiskTrouble::Full)),
            (with(0, 1, 0), Some(Rest::Off), Some(DiskTrouble::Silent)),
            (with(0, 0, 1), Some(Rest::Off), Some(DiskTrouble::Failed)),
            (with(0, 0, 0), Some(Rest::Off), Some(DiskTrouble::Silent)),
            (with(0, 0, 0), Some(Rest::Full), Some(DiskTrouble::Full)),
        ] {
            assert_eq!(trouble(&before, &now, rests), expected, "{now:?} {rests:?}");
        }
    }
}
