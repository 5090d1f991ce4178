//! What is on disk, in memory: for each version its units, for each unit which pages are there, and what all of it takes.
//!
//! A unit is one region of a version (some MiB) and one kind of page: what is evicted at once. Pure: no I/O, and the
//! files of a version are whatever the caller says. Owns the sums, so that what is charged never differs from what is
//! listed. Refuses to wait: its lock is held for a few lookups. Called by `disk.rs`, `writer.rs` and `verify.rs`;
//! `evict.rs` chooses what goes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::evict::Queues;
use super::geometry::{Geometry, Shape, UnitName};
use super::stuck::Stuck;
use super::unit::{Unit, Units};
use crate::memory::Kind;
use crate::version::VersionId;

/// Bytes of memory that a version and a unit cost, hash tables and queues included.
pub(super) const VERSION_COST: u64 = 512;
const UNIT_COST: u64 = 256;

/// What the index may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexLimits {
    /// Bytes on disk.
    pub(super) disk_bytes: u64,
    /// Those of them for metadata.
    pub(super) metadata_bytes: u64,
    /// Bytes of memory for the index itself.
    pub(super) memory_bytes: u64,
    /// Versions whose files are open.
    pub(super) open_versions: usize,
}

/// All versions on disk.
#[derive(Debug)]
pub(super) struct Index<F> {
    pub(super) versions: HashMap<VersionId, Version<F>>,
    pub(super) queues: Queues,
    pub(super) limits: IndexLimits,
    pub(super) geometry: Geometry,
    /// Bytes charged for everything that the index knows.
    pub(super) used: u64,
    /// What takes room beside that.
    pub(super) stuck: Stuck,
    pub(super) units: u64,
    pub(super) pages: u64,
    /// Versions that are pinned.
    pub(super) pinned: u64,
    next_ticket: u64,
}

/// One version.
#[derive(Debug)]
pub(super) struct Version<F> {
    /// Tells this stay on disk from an earlier one.
    pub(super) ticket: u64,
    /// While it is above 0 nothing of the version goes.
    pub(super) pins: u32,
    /// Bytes charged, units included.
    pub(super) charged: u64,
    /// `None`: an earlier daemon left it, and its map has not been looked into yet.
    pub(super) loaded: Option<Loaded<F>>,
}

/// What is known of a version from its map.
#[derive(Debug)]
pub(super) struct Loaded<F> {
    pub(super) files: Option<Arc<F>>,
    /// Asked for since the clock of descriptors came by.
    pub(super) is_used: bool,
    pub(super) units: HashMap<UnitName, Unit>,
    pub(super) pages: u64,
    /// Changes whenever a page goes: whoever reads without the lock compares it before it speaks of damage.
    pub(super) generation: u64,
    pub(super) shape: Shape,
    /// Charged because the file system took more than pages and entries account for.
    excess: u64,
}

/// What of some pages is there.
#[derive(Debug)]
pub(super) struct Here<F> {
    pub(super) files: Option<Arc<F>>,
    pub(super) pages: Vec<u64>,
    pub(super) generation: u64,
}

/// Whether a version is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Unknown,
    /// With its ticket, for [`Index::load`].
    Left(u64),
    Loaded,
}

impl<F> Index<F> {
    pub(super) fn new(limits: IndexLimits, geometry: Geometry) -> Index<F> {
        Index {
            versions: HashMap::new(),
            queues: Queues::default(),
            limits,
            geometry,
            used: 0,
            stuck: Stuck::default(),
            units: 0,
            pages: 0,
            pinned: 0,
            next_ticket: 0,
        }
    }

    /// Bytes that the tier takes on disk.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        self.used.saturating_add(self.stuck.bytes())
    }

    pub(super) fn standing(&self, id: VersionId) -> Standing {
        match self.versions.get(&id) {
            None => Standing::Unknown,
            Some(version) if version.loaded.is_none() => Standing::Left(version.ticket),
            Some(_) => Standing::Loaded,
        }
    }

    /// A version that an earlier daemon left, with so many bytes.
    pub(super) fn add_left(&mut self, id: VersionId, bytes: u64) {
        let ticket = self.ticket();
        self.used += bytes;
        self.queues.add_left(id, ticket);
        let version = Version {
            ticket,
            pins: 0,
            charged: bytes,
            loaded: None,
        };
        self.versions.insert(id, version);
    }

    /// A version that was just made, without a page.
    pub(super) fn add_new(&mut self, id: VersionId, shape: Shape, files: Arc<F>) {
        let ticket = self.ticket();
        let version = Version {
            ticket,
            pins: 0,
            charged: 0,
            loaded: None,
        };
        self.versions.insert(id, version);
        self.load(id, ticket, shape, files, Units::default(), false);
    }

    /// The map of a version that was left says that `units` are there. Nothing happens if the version is no longer the
    /// one that was left under that ticket. With `goes_first` its data is the next to go.
    pub(super) fn load(
        &mut self,
        id: VersionId,
        ticket: u64,
        shape: Shape,
        files: Arc<F>,
        units: Units,
        goes_first: bool,
    ) {
        if self.standing(id) != Standing::Left(ticket) {
            return;
        }
        if let Some(version) = self.versions.get_mut(&id) {
            let own = shape.own_bytes();
            self.used = self.used - version.charged + own;
            version.charged = own;
            version.loaded = Some(Loaded {
                files: None,
                is_used: true,
                units: HashMap::new(),
                pages: 0,
                generation: 0,
                shape,
                excess: 0,
            });
        }
        for (name, unit) in units.0 {
            self.add_unit(id, name, unit, goes_first);
        }
        self.keep_open(id, files);
    }

    fn add_unit(&mut self, id: VersionId, name: UnitName, mut unit: Unit, goes_first: bool) {
        unit.ticket = self.ticket();
        let Some(version) = self.versions.get_mut(&id) else {
            return;
        };
        let Some(loaded) = version.loaded.as_mut() else {
            return;
        };
        self.queues.add_unit(id, name, unit.ticket, goes_first);
        self.queues.charge(name.1, unit.ticket, unit.bytes);
        loaded.pages += unit.pages;
        version.charged += unit.bytes;
        self.used += unit.bytes;
        self.units += 1;
        self.pages += unit.pages;
        loaded.units.insert(name, unit);
    }

    /// Pages that are on disk from now on; those that were already are left as they are.
    pub(super) fn admit(&mut self, id: VersionId, pages: &[(u64, Kind)], goes_first: bool) {
        let geometry = self.geometry;
        for &(page, kind) in pages {
            let ticket = self.ticket();
            let Some(version) = self.versions.get_mut(&id) else {
                return;
            };
            let Some(loaded) = version
                .loaded
                .as_mut()
                .filter(|loaded| !loaded.holds(page, geometry))
            else {
                continue;
            };
            let (region, bit) = geometry.place(page);
            let map_bytes = loaded.shape.unit_map_bytes(geometry);
            let mut charge = geometry.page_bytes(loaded.shape, page);
            let unit = loaded.units.entry((region, kind)).or_insert_with(|| {
                charge += map_bytes;
                self.units += 1;
                self.queues.add_unit(id, (region, kind), ticket, goes_first);
                Unit::new(geometry, ticket)
            });
            unit.bits[bit / 64] |= 1 << (bit % 64);
            unit.pages += 1;
            unit.bytes += charge;
            self.queues.charge(kind, unit.ticket, charge);
            loaded.pages += 1;
            version.charged += charge;
            self.used += charge;
            self.pages += 1;
        }
    }

    /// What of `pages` is there; counts as a use of it. `None` for a version that is not loaded.
    pub(super) fn find(&mut self, id: VersionId, pages: &[u64]) -> Option<Here<F>> {
        let geometry = self.geometry;
        let loaded = self.versions.get_mut(&id)?.loaded.as_mut()?;
        loaded.is_used = true;
        let here = pages.iter().copied().filter(|&page| {
            let (region, bit) = geometry.place(page);
            [Kind::Data, Kind::Metadata].into_iter().any(|kind| {
                let unit = loaded.units.get_mut(&(region, kind));
                unit.filter(|unit| unit.holds(bit)).is_some_and(|unit| {
                    unit.is_used = true;
                    true
                })
            })
        });
        let pages: Vec<u64> = here.collect();
        Some(Here {
            files: loaded.files.clone(),
            pages,
            generation: loaded.generation,
        })
    }

    /// Whether the page is known to be there; counts as no use.
    pub(super) fn contains(&self, id: VersionId, page: u64) -> bool {
        self.loaded(id)
            .is_some_and(|loaded| loaded.holds(page, self.geometry))
    }

    /// How many pages of `range` are there; counts as no use. Costs what the version has here, never what it claims.
    pub(super) fn count(&self, id: VersionId, range: Range<u64>) -> u64 {
        let Some(loaded) = self.loaded(id) else {
            return 0;
        };
        let of_region = self.geometry.region_pages;
        let regions = range.start / of_region..range.end.div_ceil(of_region);
        let count = |region: u32, unit: &Unit| {
            let first = u64::from(region) * of_region;
            let bit = |page: u64| page.saturating_sub(first).min(of_region) as usize;
            unit.count(bit(range.start)..bit(range.end))
        };
        if regions.end.saturating_sub(regions.start) > loaded.units.len() as u64 {
            return loaded.units.iter().map(|(name, unit)| count(name.0, unit)).sum();
        }
        let regions = regions.filter_map(|region| u32::try_from(region).ok());
        let names = regions.flat_map(|region| [(region, Kind::Data), (region, Kind::Metadata)]);
        names
            .filter_map(|name| loaded.units.get(&name).map(|unit| count(name.0, unit)))
            .sum()
    }

    /// Whether no page has gone of the version since `generation`.
    pub(super) fn is_still(&self, id: VersionId, generation: u64) -> bool {
        self.loaded(id)
            .is_some_and(|loaded| loaded.generation == generation)
    }

    pub(super) fn loaded(&self, id: VersionId) -> Option<&Loaded<F>> {
        self.versions.get(&id)?.loaded.as_ref()
    }

    /// Takes one page out, whatever its kind; whether it was there.
    pub(super) fn forget_page(&mut self, id: VersionId, page: u64) -> bool {
        let geometry = self.geometry;
        let (region, bit) = geometry.place(page);
        let Some(version) = self.versions.get_mut(&id) else {
            return false;
        };
        let Some(loaded) = version.loaded.as_mut() else {
            return false;
        };
        for kind in [Kind::Data, Kind::Metadata] {
            if let Some(unit) = loaded
                .units
                .get_mut(&(region, kind))
                .filter(|unit| unit.holds(bit))
            {
                let bytes = geometry.page_bytes(loaded.shape, page);
                unit.bits[bit / 64] &= !(1 << (bit % 64));
                unit.pages -= 1;
                unit.bytes -= bytes;
                self.queues.discharge(kind, unit.ticket, bytes);
                loaded.pages -= 1;
                loaded.generation += 1;
                version.charged -= bytes;
                self.used -= bytes;
                self.pages -= 1;
                return true;
            }
        }
        false
    }

    /// Takes a unit out: its pages as runs in ascending order.
    pub(super) fn take_unit(&mut self, id: VersionId, name: UnitName) -> Vec<Range<u64>> {
        let Some(version) = self.versions.get_mut(&id) else {
            return Vec::new();
        };
        let Some(loaded) = version.loaded.as_mut() else {
            return Vec::new();
        };
        let Some(unit) = loaded.units.remove(&name) else {
            return Vec::new();
        };
        self.queues.discharge(name.1, unit.ticket, unit.bytes);
        loaded.pages -= unit.pages;
        loaded.generation += 1;
        version.charged -= unit.bytes;
        self.used -= unit.bytes;
        self.units -= 1;
        self.pages -= unit.pages;
        unit.runs(u64::from(name.0) * self.geometry.region_pages)
    }

    /// Takes a whole version out; nothing happens to its files.
    pub(super) fn take_version(&mut self, id: VersionId) {
        let names: Vec<UnitName> = self
            .loaded(id)
            .map(|loaded| loaded.units.keys().copied().collect())
            .unwrap_or_default();
        for name in names {
            self.take_unit(id, name);
        }
        self.queues.parked.remove(&id);
        if let Some(version) = self.versions.remove(&id) {
            self.used -= version.charged;
            self.pinned -= u64::from(version.pins > 0);
        }
    }

    /// Takes everything out, pinned or not: the files have gone.
    pub(super) fn take_all(&mut self) {
        let ids: Vec<VersionId> = self.versions.keys().copied().collect();
        for id in ids {
            self.take_version(id);
        }
        self.queues = Queues::default();
        self.stuck = Stuck::default();
    }

    /// Nothing of the version goes until as many [`Index::unpin`]s.
    pub(super) fn pin(&mut self, id: VersionId) {
        if let Some(version) = self.versions.get_mut(&id) {
            version.pins += 1;
            self.pinned += u64::from(version.pins == 1);
        }
    }

    /// Undoes one [`Index::pin`] of the stay on disk that had this ticket.
    pub(super) fn unpin(&mut self, id: VersionId, ticket: u64) {
        let version = self
            .versions
            .get_mut(&id)
            .filter(|version| version.ticket == ticket);
        if let Some(version) = version {
            version.pins = version.pins.saturating_sub(1);
            let is_free = version.pins == 0;
            self.pinned -= u64::from(is_free);
            if is_free {
                self.unpark(id);
            }
        }
    }

    /// What pages would be charged if they were admitted: bytes of data and of metadata. Pages that are there cost
    /// nothing.
    pub(super) fn price(&self, id: VersionId, shape: Shape, pages: &[(u64, Kind)]) -> (u64, u64) {
        let geometry = self.geometry;
        let loaded = self.loaded(id);
        let (mut data, mut metadata) = (0, 0);
        if loaded.is_none() {
            data += shape.own_bytes();
        }
        let mut new_units: Vec<UnitName> = Vec::new();
        for &(page, kind) in pages {
            if loaded.is_some_and(|loaded| loaded.holds(page, geometry)) {
                continue;
            }
            let name = (geometry.place(page).0, kind);
            let mut bytes = geometry.page_bytes(shape, page);
            if !loaded.is_some_and(|loaded| loaded.units.contains_key(&name)) && !new_units.contains(&name) {
                new_units.push(name);
                bytes += shape.unit_map_bytes(geometry);
            }
            match kind {
                Kind::Data => data += bytes,
                Kind::Metadata => metadata += bytes,
            }
        }
        (data, metadata)
    }

    /// Charges what the file system has given to a version beyond its account.
    pub(super) fn settle(&mut self, id: VersionId, allocated: u64) {
        if let Some(version) = self.versions.get_mut(&id)
            && let Some(loaded) = version.loaded.as_mut()
        {
            let account = version.charged - loaded.excess;
            let excess = allocated.saturating_sub(account);
            self.used = self.used - loaded.excess + excess;
            version.charged = account + excess;
            loaded.excess = excess;
        }
    }

    /// Bytes of memory that the index itself takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.versions.len() as u64 * VERSION_COST + self.units * (UNIT_COST + self.geometry.region_pages / 8)
    }

    /// Keeps the files of a version open, and closes those of others where that are too many.
    pub(super) fn keep_open(&mut self, id: VersionId, files: Arc<F>) {
        let Some(loaded) = self
            .versions
            .get_mut(&id)
            .and_then(|version| version.loaded.as_mut())
        else {
            return;
        };
        if loaded.files.replace(files).is_none() {
            self.queues.open.push_back(id);
        }
        // One round clears every mark, so the second finds somebody.
        for _ in 0..2 * self.queues.open.len() {
            if self.queues.open.len() <= self.limits.open_versions {
                break;
            }
            let Some(oldest) = self.queues.open.pop_front() else {
                break;
            };
            let version = self.versions.get_mut(&oldest);
            match version.and_then(|version| version.loaded.as_mut()) {
                Some(loaded) if loaded.is_used && oldest != id => {
                    loaded.is_used = false;
                    self.queues.open.push_back(oldest);
                }
                Some(_) if oldest == id => self.queues.open.push_back(oldest),
                Some(loaded) => loaded.files = None,
                None => {}
            }
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

impl<F> Loaded<F> {
    pub(super) fn holds(&self, page: u64, geometry: Geometry) -> bool {
        let (region, bit) = geometry.place(page);
        [Kind::Data, Kind::Metadata].into_iter().any(|kind| {
            self.units
                .get(&(region, kind))
                .is_some_and(|unit| unit.holds(bit))
        })
    }
}
