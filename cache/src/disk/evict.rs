//! What goes when room is needed.
//!
//! Data waits in two queues. A unit enters **probation**, and moves on to the **protected** queue if it was hit by the time
//! its turn comes: what a scan left goes before what was asked for again. **Metadata** has a queue and a share of its own:
//! it goes when it exceeds that share, or when no data is left. What is pinned waits beside the queues, so that its
//! units are passed over once for each pin and not once for each page that needs room. Units carry tickets, so
//! that an entry of a queue whose unit has gone, or has come again, is known for what it is and skipped.
//!
//! Owns the order. Recency is the order of turns, never a clock. Called by `writer.rs` through [`Index`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::geometry::UnitName;
use super::index::Index;
use crate::memory::Kind;
use crate::version::VersionId;

/// Eighths of the disk that the protected queue may have.
const PROTECTED_EIGHTHS: u64 = 5;
/// Entries of units that have gone, before a queue is swept.
const STALE_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Turn {
    id: VersionId,
    /// `None`: a version that was left by an earlier daemon, as a whole.
    unit: Option<UnitName>,
    ticket: u64,
}

/// The turns of a pinned version.
#[derive(Debug, Default)]
pub(super) struct Parked(Vec<Turn>);

/// The order in which units go.
#[derive(Debug, Default)]
pub(super) struct Queues {
    probation: VecDeque<Turn>,
    protected: VecDeque<Turn>,
    metadata: VecDeque<Turn>,
    /// Turns that came while their versions were pinned.
    pub(super) parked: HashMap<VersionId, Parked>,
    /// Tickets of units in the protected queue.
    is_protected: HashSet<u64>,
    protected_bytes: u64,
    pub(super) data_bytes: u64,
    pub(super) metadata_bytes: u64,
    /// Versions whose files are open, in the order of the clock that closes them.
    pub(super) open: VecDeque<VersionId>,
}

impl Queues {
    pub(super) fn add_left(&mut self, id: VersionId, ticket: u64) {
        self.probation.push_back(Turn {
            id,
            unit: None,
            ticket,
        });
    }

    /// With `goes_first` a unit of data is the next to go.
    pub(super) fn add_unit(&mut self, id: VersionId, name: UnitName, ticket: u64, goes_first: bool) {
        let turn = Turn {
            id,
            unit: Some(name),
            ticket,
        };
        match name.1 {
            Kind::Data if goes_first => self.probation.push_front(turn),
            Kind::Data => self.probation.push_back(turn),
            Kind::Metadata => self.metadata.push_back(turn),
        }
    }

    pub(super) fn charge(&mut self, kind: Kind, ticket: u64, bytes: u64) {
        match kind {
            Kind::Metadata => self.metadata_bytes += bytes,
            Kind::Data => {
                self.data_bytes += bytes;
                if self.is_protected.contains(&ticket) {
                    self.protected_bytes += bytes;
                }
            }
        }
    }

    pub(super) fn discharge(&mut self, kind: Kind, ticket: u64, bytes: u64) {
        match kind {
            Kind::Metadata => self.metadata_bytes -= bytes,
            Kind::Data => {
                self.data_bytes -= bytes;
                if self.is_protected.contains(&ticket) {
                    self.protected_bytes -= bytes;
                }
            }
        }
    }

    fn protect(&mut self, turn: Turn, bytes: u64) {
        self.is_protected.insert(turn.ticket);
        self.protected_bytes += bytes;
        self.protected.push_back(turn);
    }

    /// Entries of all queues.
    #[cfg(test)]
    pub(super) fn turns(&self) -> usize {
        self.probation.len() + self.protected.len() + self.metadata.len()
    }

    fn park(&mut self, turn: Turn, bytes: u64) {
        self.unprotect(turn, bytes);
        self.parked.entry(turn.id).or_default().0.push(turn);
    }

    fn unprotect(&mut self, turn: Turn, bytes: u64) {
        if self.is_protected.remove(&turn.ticket) {
            self.protected_bytes -= bytes;
        }
    }
}

/// What to take off the disk. It is out of the index already.
#[derive(Debug)]
pub(super) enum Victim<F> {
    /// A version that was left and not looked into: load it to go first, since its metadata may stay, and ask again.
    Left(VersionId),
    /// Pages of a version.
    Pages {
        id: VersionId,
        files: Option<Arc<F>>,
        runs: Vec<Range<u64>>,
    },
    /// All that there was of a version: both files.
    Version { id: VersionId, pages: u64 },
}

impl<F> Index<F> {
    /// What goes next so that `data` and `metadata` bytes more fit. `None` if they fit, or if nothing may go.
    pub(super) fn next_victim(&mut self, data: u64, metadata: u64) -> Option<Victim<F>> {
        let has_room =
            self.bytes_on_disk().saturating_add(data).saturating_add(metadata) <= self.limits.disk_bytes;
        let is_small = self.memory_bytes() <= self.limits.memory_bytes;
        let metadata_fits = self.queues.metadata_bytes.saturating_add(metadata) <= self.limits.metadata_bytes;
        if metadata > 0 && !metadata_fits {
            return self.metadata_victim();
        }
        if has_room && is_small {
            return None;
        }
        self.sweep();
        self.data_victim().or_else(|| self.metadata_victim())
    }

    /// Whether so much more fits.
    pub(super) fn has_room(&self, data: u64, metadata: u64) -> bool {
        self.bytes_on_disk().saturating_add(data).saturating_add(metadata) <= self.limits.disk_bytes
            && self.memory_bytes() <= self.limits.memory_bytes
            && (metadata == 0
                || self.queues.metadata_bytes.saturating_add(metadata) <= self.limits.metadata_bytes)
    }

    fn data_victim(&mut self) -> Option<Victim<F>> {
        // Each turn either ends the search, drops a stale entry, clears a mark or parks what is pinned.
        for _ in 0..2 * (self.queues.probation.len() + self.queues.protected.len()) {
            let from_probation = !self.queues.probation.is_empty();
            let queue = if from_probation {
                &mut self.queues.probation
            } else {
                &mut self.queues.protected
            };
            let turn = queue.pop_front()?;
            let Some(bytes) = self.bytes_of(turn) else {
                continue;
            };
            if self.is_pinned(turn) {
                self.queues.park(turn, bytes);
                continue;
            }
            match (from_probation, self.clear_mark(turn)) {
                (true, true) => {
                    self.queues.protect(turn, bytes);
                    self.demote();
                }
                (false, true) => self.queues.protected.push_back(turn),
                (_, false) => {
                    return Some(self.take(turn));
                }
            }
        }
        None
    }

    fn metadata_victim(&mut self) -> Option<Victim<F>> {
        for _ in 0..2 * self.queues.metadata.len() {
            let turn = self.queues.metadata.pop_front()?;
            let Some(bytes) = self.bytes_of(turn) else {
                continue;
            };
            if self.is_pinned(turn) {
                self.queues.park(turn, bytes);
            } else if self.clear_mark(turn) {
                self.queues.metadata.push_back(turn);
            } else {
                return Some(self.take(turn));
            }
        }
        None
    }

    /// The turns of a version that is no longer pinned come again, as those of something that was in use.
    pub(super) fn unpark(&mut self, id: VersionId) {
        for turn in self.queues.parked.remove(&id).unwrap_or_default().0 {
            let Some(bytes) = self.bytes_of(turn) else {
                continue;
            };
            match turn.unit {
                Some((_, Kind::Metadata)) => self.queues.metadata.push_back(turn),
                _ => self.queues.protect(turn, bytes),
            }
        }
    }

    /// Sends what has not been hit for longest back to probation while the protected queue has more than its share.
    fn demote(&mut self) {
        let share = self.limits.disk_bytes / 8 * PROTECTED_EIGHTHS;
        for _ in 0..2 * self.queues.protected.len() {
            if self.queues.protected_bytes <= share {
                return;
            }
            let Some(turn) = self.queues.protected.pop_front() else {
                return;
            };
            let Some(bytes) = self.bytes_of(turn) else {
                continue;
            };
            if self.clear_mark(turn) {
                self.queues.protected.push_back(turn);
            } else {
                self.queues.unprotect(turn, bytes);
                self.queues.probation.push_back(turn);
            }
        }
    }

    fn take(&mut self, turn: Turn) -> Victim<F> {
        let Some(name) = turn.unit else {
            return Victim::Left(turn.id);
        };
        let runs = self.take_unit(turn.id, name);
        self.queues.is_protected.remove(&turn.ticket);
        let files = match self.loaded(turn.id) {
            Some(loaded) if !loaded.units.is_empty() => loaded.files.clone(),
            _ => {
                self.take_version(turn.id);
                let pages = runs.iter().map(|run| run.end - run.start).sum();
                return Victim::Version { id: turn.id, pages };
            }
        };
        Victim::Pages {
            id: turn.id,
            files,
            runs,
        }
    }

    /// What the turn stands for takes; `None` if it has gone.
    fn bytes_of(&mut self, turn: Turn) -> Option<u64> {
        let bytes = self.bytes_if_alive(turn);
        if bytes.is_none() {
            self.queues.is_protected.remove(&turn.ticket);
        }
        bytes
    }

    fn bytes_if_alive(&self, turn: Turn) -> Option<u64> {
        let version = self.versions.get(&turn.id)?;
        match turn.unit {
            None => (version.loaded.is_none() && version.ticket == turn.ticket).then_some(version.charged),
            Some(name) => {
                let unit = version.loaded.as_ref()?.units.get(&name)?;
                (unit.ticket == turn.ticket).then_some(unit.bytes)
            }
        }
    }

    fn is_pinned(&self, turn: Turn) -> bool {
        self.versions
            .get(&turn.id)
            .is_some_and(|version| version.pins > 0)
    }

    fn clear_mark(&mut self, turn: Turn) -> bool {
        let version = self.versions.get_mut(&turn.id);
        let unit = version.and_then(|version| version.loaded.as_mut()?.units.get_mut(&turn.unit?));
        unit.is_some_and(|unit| std::mem::take(&mut unit.is_used))
    }

    /// Drops entries of units that have gone, once there are many: they are found one by one at their turns, which may
    /// never come.
    fn sweep(&mut self) {
        let live = self.units as usize + self.versions.len();
        let queues = [
            &self.queues.probation,
            &self.queues.protected,
            &self.queues.metadata,
        ];
        if queues.iter().map(|queue| queue.len()).sum::<usize>() <= 2 * live + STALE_MAX {
            return;
        }
        for which in 0..3 {
            let mut queue = std::mem::take(self.queue(which));
            queue.retain(|turn| self.bytes_of(*turn).is_some());
            *self.queue(which) = queue;
        }
    }

    fn queue(&mut self, which: usize) -> &mut VecDeque<Turn> {
        match which {
            0 => &mut self.queues.probation,
            1 => &mut self.queues.protected,
            _ => &mut self.queues.metadata,
        }
    }
}
