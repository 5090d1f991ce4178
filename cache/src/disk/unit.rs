//! A unit: the pages of one kind in one region of a version, as bits, and what they take.
//!
//! Pure. Called by `index.rs`, which has the sums over all units.

use std::collections::BTreeMap;
use std::ops::Range;

use super::geometry::{Geometry, Shape, UnitName};
use crate::memory::Kind;

/// One region and kind.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) bits: Box<[u64]>,
    pub(super) pages: u64,
    pub(super) bytes: u64,
    /// Hit since the queue came by.
    pub(super) is_used: bool,
    pub(super) ticket: u64,
}

/// The units of a version, built from its map before anybody has to wait for the lock.
#[derive(Debug, Default)]
pub(super) struct Units(pub(super) BTreeMap<UnitName, Unit>);

impl Units {
    /// Of pages that differ from each other.
    pub(super) fn of(geometry: Geometry, shape: Shape, pages: &[(u64, Kind)]) -> Units {
        let mut units = Units::default();
        for &(page, kind) in pages {
            let (region, bit) = geometry.place(page);
            let unit = units.0.entry((region, kind)).or_insert_with(|| {
                let mut unit = Unit::new(geometry, 0);
                unit.bytes = shape.unit_map_bytes(geometry);
                unit
            });
            unit.bits[bit / 64] |= 1 << (bit % 64);
            unit.pages += 1;
            unit.bytes += geometry.page_bytes(shape, page);
        }
        units
    }
}

impl Unit {
    pub(super) fn new(geometry: Geometry, ticket: u64) -> Unit {
        Unit {
            bits: vec![0; geometry.region_pages.div_ceil(64) as usize].into(),
            pages: 0,
            bytes: 0,
            is_used: false,
            ticket,
        }
    }

    pub(super) fn holds(&self, bit: usize) -> bool {
        self.bits[bit / 64] & (1 << (bit % 64)) != 0
    }

    pub(super) fn count(&self, bits: Range<usize>) -> u64 {
        let mut count = 0;
        for at in bits.start / 64..bits.end.div_ceil(64) {
            let from = bits.start.saturating_sub(at * 64);
            let behind = 64 - (bits.end - at * 64).min(64);
            let mask = (u64::MAX << from) & (u64::MAX >> behind);
            count += u64::from((self.bits[at] & mask).count_ones());
        }
        count
    }

    pub(super) fn runs(&self, first: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for bit in (0..self.bits.len() * 64).filter(|bit| self.holds(*bit)) {
            let page = first + bit as u64;
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }
}
