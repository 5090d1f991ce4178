//! What is read of each file on one mount: bytes served, and bytes fetched for it.
//!
//! A file that the kernel holds has its counters in its inode, so that a hit pays two additions and no look-up. When the
//! kernel lets go of it, they move to a table of bounded size that keeps the files with the most bytes. Called by
//! [`crate::filesystem`], shown by `lookupfs stats --files`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use lookupfs_cache::account::Account;
use lookupfs_cache::version::{SourcePath, VersionId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::inode::Inode;

/// Files remembered after the kernel has let go of them, and the most that one request is answered with.
pub const FILES_MAX: usize = 1000;
/// Longest path that is shown, so that an answer has a bounded length.
const SHOWN_BYTES_MAX: usize = 1024;

/// The counters of one file.
#[derive(Debug)]
pub struct Usage {
    reads: Counter,
    served_bytes: Counter,
    /// Who pays for what is fetched; the mount pays too.
    pub account: Arc<Account>,
    /// The amounts at the last reset, where there were any.
    at_reset: Mutex<Option<Box<Amounts>>>,
}

impl Usage {
    /// A file of the mount whose account `mount` is.
    pub fn new(mount: &Arc<Account>) -> Usage {
        Usage {
            reads: Counter::default(),
            served_bytes: Counter::default(),
            account: Arc::new(Account::below(mount.clone())),
            at_reset: Mutex::default(),
        }
    }

    /// A READ was answered with so many bytes.
    pub fn serve(&self, bytes: usize) {
        self.reads.add_one();
        self.served_bytes.add(bytes as u64);
    }

    /// From now on, amounts since a reset are counted from here.
    pub fn reset(&self) {
        *self.at_reset.lock() = Some(Box::new(self.amounts()));
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            reads: self.reads.get(),
            served_bytes: self.served_bytes.get(),
            fetched_bytes: self.account.fetched_bytes(),
        }
    }

    fn counted(&self) -> Counted {
        Counted {
            at_reset: self.at_reset.lock().as_deref().copied().unwrap_or_default(),
            all: self.amounts(),
        }
    }
}

/// Where the counts of files that are shown begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// With the first read.
    Start,
    /// With the last reset, if there was one.
    Reset,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    all: Amounts,
    at_reset: Amounts,
}

impl Counted {
    fn plus(self, other: Counted) -> Counted {
        Counted {
            all: self.all.plus(other.all),
            at_reset: self.at_reset.plus(other.at_reset),
        }
    }

    fn since(self, since: Since) -> Amounts {
        match since {
            Since::Start => self.all,
            Since::Reset => self.all.minus(self.at_reset),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Amounts {
    reads: u64,
    served_bytes: u64,
    fetched_bytes: u64,
}

impl Amounts {
    fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            reads: self.reads + other.reads,
            served_bytes: self.served_bytes + other.served_bytes,
            fetched_bytes: self.fetched_bytes + other.fetched_bytes,
        }
    }

    /// Each was counted up from `other` on, so that nothing is below it.
    fn minus(self, other: Amounts) -> Amounts {
        Amounts {
            reads: self.reads.saturating_sub(other.reads),
            served_bytes: self.served_bytes.saturating_sub(other.served_bytes),
            fetched_bytes: self.fetched_bytes.saturating_sub(other.fetched_bytes),
        }
    }

    /// What a file is remembered by.
    fn weight(self) -> u64 {
        self.served_bytes.saturating_add(self.fetched_bytes)
    }
}

/// One file as `lookupfs stats --files` shows it. Counts are since it was mounted, or since a reset where that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStats {
    /// Path at the source.
    pub path: String,
    /// The version, as 32 hexadecimal digits.
    pub version: String,
    /// READ requests answered with bytes.
    pub reads: u64,
    /// Bytes they were answered with.
    pub served_bytes: u64,
    /// Bytes fetched from the source for them, along with them and ahead of them.
    pub fetched_bytes: u64,
}

/// The files of one mount that the kernel has let go of.
#[derive(Debug, Default)]
pub struct ForgottenFiles(Mutex<HashMap<VersionId, (SourcePath, Counted)>>);

impl ForgottenFiles {
    /// The kernel has let go of an inode.
    pub fn remember(&self, inode: &Inode) {
        let Some(counted) = inode.usage().map(Usage::counted) else {
            return;
        };
        let mut files = self.0.lock();
        let (_, sum) = files
            .entry(inode.id)
            .or_insert_with(|| (inode.path.clone(), Counted::default()));
        *sum = sum.plus(counted);
        // Twice as many are let in before half of them go, so that going costs little for each.
        if files.len() >= 2 * FILES_MAX {
            let mut weights: Vec<u64> = files.values().map(|(_, counted)| counted.all.weight()).collect();
            let (heavier, least, _) =
                weights.select_nth_unstable_by_key(FILES_MAX - 1, |weight| Reverse(*weight));
            let least = *least;
            let mut ties_left = FILES_MAX - heavier.iter().filter(|weight| **weight > least).count();
            files.retain(|_, (_, counted)| match counted.all.weight() {
                weight if weight == least && ties_left > 0 => {
                    ties_left -= 1;
                    true
                }
                weight => weight > least,
            });
        }
    }

    /// From now on, amounts since a reset are counted from here; `held` are the files that the kernel holds.
    pub fn reset(&self, held: impl Iterator<Item = Arc<Inode>>) {
        for (_, counted) in self.0.lock().values_mut() {
            counted.at_reset = counted.all;
        }
        for inode in held {
            if let Some(usage) = inode.usage() {
                usage.reset();
            }
        }
    }

    /// The `count` files with the most bytes `since` then, of these and of `held`, those that the kernel holds; the first has
    /// the most. After a
    /// reset, a file without any is not shown.
    pub fn top(&self, held: impl Iterator<Item = Arc<Inode>>, count: usize, since: Since) -> Vec<FileStats> {
        let count = count.min(FILES_MAX);
        let mut forgotten = self.0.lock().clone();
        let mut top: BinaryHeap<Reverse<(u64, Amounts, VersionId, SourcePath)>> = BinaryHeap::new();
        let mut offer = |id: VersionId, path: &SourcePath, counted: Counted| {
            let amounts = counted.since(since);
            let weight = amounts.weight();
            if since == Since::Reset && amounts == Amounts::default() {
                return;
            }
            let is_full = top.len() >= count;
            if is_full && top.peek().is_none_or(|Reverse((least, ..))| *least >= weight) {
                return;
            }
            top.push(Reverse((weight, amounts, id, path.clone())));
            if is_full {
                top.pop();
            }
        };
        for inode in held {
            let Some(usage) = inode.usage() else { continue };
            let before = forgotten.remove(&inode.id).map(|(_, counted)| counted);
            let counted = usage.counted().plus(before.unwrap_or_default());
            offer(inode.id, &inode.path, counted);
        }
        for (id, (path, counted)) in &forgotten {
            offer(*id, path, *counted);
        }
        let sorted = top.into_sorted_vec().into_iter();
        let stats = sorted.map(|Reverse((_, amounts, id, path))| FileStats {
            path: shown_path(&path),
            version: id.to_string(),
            reads: amounts.reads,
            served_bytes: amounts.served_bytes,
            fetched_bytes: amounts.fetched_bytes,
        });
        stats.collect()
    }
}

/// A path for people; of a very long one the end.
pub fn shown_path(path: &SourcePath) -> String {
    let text = path.to_string();
    // A path is shown escaped, in ASCII.
    match text.len().checked_sub(SHOWN_BYTES_MAX) {
        None | Some(0) => text,
        Some(from) => format!("…{}", &text[from..]),
    }
}

#[cfg(test)]
mod tests;
