//! Where a page is and what it takes: regions, and bytes in the file system's blocks. Pure arithmetic.

use super::format::{self, BLOCK_BYTES, ENTRY_BYTES};
use crate::memory::Kind;
use crate::page::{PageIndex, PageSize};
use crate::version::FileVersion;

/// Bytes of a version that are evicted at once, if pages are small enough.
const REGION_BYTES: u64 = 4 << 20;
/// Pages of a region, at most.
const REGION_PAGES_MAX: u64 = 1024;

/// Names a unit within its version: a region and a kind.
pub(super) type UnitName = (u32, Kind);

/// Pages and regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    page_size: PageSize,
    pub(super) region_pages: u64,
}

/// What of a version follows from its identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) len: u64,
    pub(super) pages: u64,
    pub(super) entries_at: u64,
}

impl Geometry {
    pub(super) fn new(page_size: PageSize) -> Geometry {
        Geometry {
            page_size,
            region_pages: (REGION_BYTES / page_size.bytes()).clamp(1, REGION_PAGES_MAX),
        }
    }

    /// The region of a page, and its number within. No version that is kept has more than 2^32 pages.
    pub(super) fn place(self, page: u64) -> (u32, usize) {
        let region = u32::try_from(page / self.region_pages).unwrap_or(u32::MAX);
        (region, (page % self.region_pages) as usize)
    }

    /// What the bytes of a page take.
    pub(super) fn page_bytes(self, shape: Shape, page: u64) -> u64 {
        let range = self.page_size.range_of(PageIndex(page), shape.len);
        range.len().next_multiple_of(BLOCK_BYTES)
    }
}

impl Shape {
    pub(super) fn new(version: &FileVersion, page_size: PageSize) -> Shape {
        Shape::of(version.len(), format::entries_at(version, page_size), page_size)
    }

    pub(super) fn of(len: u64, entries_at: u64, page_size: PageSize) -> Shape {
        Shape {
            len,
            pages: len.div_ceil(page_size.bytes()),
            entries_at,
        }
    }

    /// What the header takes, and the entries that lie in its block.
    pub(super) fn own_bytes(self) -> u64 {
        self.entries_at.next_multiple_of(BLOCK_BYTES)
    }

    /// The longest that the map may be.
    pub(super) fn map_bytes_max(self) -> u64 {
        self.entries_at + self.pages * ENTRY_BYTES
    }

    /// What the entries of one region take: blocks of their own, or nothing where they lie behind the header.
    pub(super) fn unit_map_bytes(self, geometry: Geometry) -> u64 {
        if self.entries_at.is_multiple_of(BLOCK_BYTES) {
            (geometry.region_pages * ENTRY_BYTES).next_multiple_of(BLOCK_BYTES)
        } else {
            0
        }
    }
}
