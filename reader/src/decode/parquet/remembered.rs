//! What is known of a file beside its footer: in the cache, else in its sidecar.
//!
//! Owns where data pages and their maps are looked for, what of them is put where, and the payload of an index that
//! `SIDECAR.md` describes. A sidecar is believed as far as it fits the footer. Called by [`super::gather`] and
//! [`super::key_search`].

use std::ops::Range;
use std::sync::Arc;

use parquet::file::page_index::offset_index::PageLocation;

use super::index::CheckedIndex;
use super::{FileStructure, MappedPage, ParquetFile};
use crate::plan::Layout;
use crate::sidecar::{RecordKey, RecordKind, Sidecar};
use crate::structures::{ColumnKey, StructureCache};

/// Set where the file has an index that does not hold.
const FILES_OWN_LIES: u32 = 1;

/// Bytes of a location: offset, length, first row.
const LOCATION_LEN: usize = 20;

impl FileStructure {
    /// Writes what lookups have added to the sidecar.
    pub(super) fn flush(&self) {
        if let Some(sidecar) = &self.sidecar {
            sidecar.flush();
        }
    }
}

impl ParquetFile {
    /// Where the data pages of a column lie that has no index that can be used, if that was found out before.
    pub(super) fn known_locations(
        &self,
        cache: &StructureCache,
        key: ColumnKey,
    ) -> Option<Arc<[PageLocation]>> {
        if let Some(locations) = cache.locations(key) {
            return Some(locations);
        }
        let stored = self.structure.sidecar.as_ref()?.get(&index_key(key))?;
        let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
        let range = self.column_bytes(row_group, leaf);
        let locations: Arc<[_]> = locations_of(&stored, &range, self.rows(row_group))?.into();
        cache.put_locations(key, locations.clone());
        Some(locations)
    }

    /// Keeps what a walk over all headers of a column has found, unless the file's own index says the same.
    pub(super) fn keep_locations(
        &self,
        cache: &StructureCache,
        key: ColumnKey,
        locations: &Arc<[PageLocation]>,
    ) {
        let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
        let index = &self.structure.index;
        if index.confirm(row_group, leaf, locations) {
            return;
        }
        cache.put_locations(key, locations.clone());
        if let Some(sidecar) = &self.structure.sidecar {
            let flags = if index.is_stated(row_group, leaf) {
                FILES_OWN_LIES
            } else {
                0
            };
            sidecar.put(index_key(key), || to_stored(locations, flags));
            sidecar.flush();
        }
    }

    /// The map of the data page in `bytes`, and whether it came from the sidecar.
    pub(super) fn known_page(
        &self,
        cache: &StructureCache,
        key: ColumnKey,
        bytes: &Range<u64>,
        rows: u64,
    ) -> Option<(Arc<MappedPage>, bool)> {
        if let Some(page) = cache.page(key, bytes.start) {
            return (!page.is_worth_holding()).then_some((page, false));
        }
        let stored = self.structure.sidecar.as_ref()?.get(&map_key(key, bytes))?;
        let column = self
            .metadata()
            .row_group(key.row_group as usize)
            .column(key.leaf as usize);
        let page = MappedPage::from_stored(&stored, bytes, column, rows, cache.held_body_bytes())?;
        let page = Arc::new(page);
        cache.put_page(key, bytes.start, page.clone());
        Some((page, true))
    }

    /// Keeps the map of a data page.
    pub(super) fn keep_page(
        &self,
        cache: &StructureCache,
        key: ColumnKey,
        bytes: &Range<u64>,
        page: &Arc<MappedPage>,
    ) {
        cache.put_page(key, bytes.start, page.clone());
        if let Some(sidecar) = &self.structure.sidecar
            && let Some(stored) = page.to_stored(bytes.start)
        {
            sidecar.put(map_key(key, bytes), || stored);
        }
    }
}

/// Indexes that were found to lie before are not believed from the beginning.
pub(super) fn distrust_known(sidecar: &Sidecar, index: &CheckedIndex) {
    for key in sidecar.keys(|key| key.kind == RecordKind::Index) {
        let flags = sidecar
            .get(&key)
            .and_then(|stored| Some(u32::from_le_bytes(*stored.first_chunk()?)));
        if flags.is_some_and(|flags| flags & FILES_OWN_LIES != 0) {
            index.distrust(key.row_group as usize, key.leaf as usize);
        }
    }
}

fn index_key(key: ColumnKey) -> RecordKey {
    RecordKey {
        kind: RecordKind::Index,
        row_group: key.row_group,
        leaf: key.leaf,
        offset: 0,
        len: 0,
    }
}

fn map_key(key: ColumnKey, bytes: &Range<u64>) -> RecordKey {
    RecordKey {
        kind: RecordKind::Map,
        row_group: key.row_group,
        leaf: key.leaf,
        offset: bytes.start,
        len: bytes.end - bytes.start,
    }
}

fn to_stored(locations: &[PageLocation], flags: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + locations.len() * LOCATION_LEN);
    out.extend(flags.to_le_bytes());
    out.extend((locations.len() as u32).to_le_bytes());
    for location in locations {
        out.extend(location.offset.to_le_bytes());
        out.extend(location.compressed_page_size.to_le_bytes());
        out.extend(location.first_row_index.to_le_bytes());
    }
    out
}

/// `None` if these are not data pages of a column that lies in `range` and has `rows` rows.
fn locations_of(stored: &[u8], range: &Range<u64>, rows: u64) -> Option<Vec<PageLocation>> {
    let (head, rest) = stored.split_first_chunk::<8>()?;
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let (entries, behind) = rest.as_chunks::<LOCATION_LEN>();
    if entries.len() != count || !behind.is_empty() || count == 0 {
        return None;
    }
    let mut locations: Vec<PageLocation> = Vec::with_capacity(count);
    let (mut end, mut next_row) = (range.start, 0);
    for entry in entries {
        let location = PageLocation {
            offset: i64::from_le_bytes(*entry.first_chunk()?),
            compressed_page_size: i32::from_le_bytes(*entry[8..].first_chunk()?),
            first_row_index: i64::from_le_bytes(*entry[12..].first_chunk()?),
        };
        let first_row = u64::try_from(location.first_row_index).ok()?;
        let offset = u64::try_from(location.offset)
            .ok()
            .filter(|offset| *offset >= end)?;
        let len = u64::try_from(location.compressed_page_size)
            .ok()
            .filter(|len| *len > 0)?;
        let is_next = if locations.is_empty() {
            first_row == 0
        } else {
            first_row >= next_row
        };
        end = offset.checked_add(len).filter(|end| *end <= range.end)?;
        if !is_next || first_row >= rows {
            return None;
        }
        next_row = first_row + 1;
        locations.push(location);
    }
    Some(locations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64, size: i32, row: i64) -> PageLocation {
        PageLocation {
            offset,
            compressed_page_size: size,
            first_row_index: row,
        }
    }

    #[test]
    fn an_index_is_read_back_if_it_fits_the_column() {
        let locations = [at(110, 10, 0), at(120, 20, 5), at(145, 5, 6)];
        let stored = to_stored(&locations, FILES_OWN_LIES);
        assert_eq!(
            locations_of(&stored, &(100..150), 7).as_deref(),
            Some(&locations[..])
        );
        assert_eq!(locations_of(&stored, &(100..149), 7), None, "beyond the column");
        assert_eq!(locations_of(&stored, &(111..150), 7), None, "before the column");
        assert_eq!(
            locations_of(&stored, &(100..150), 6),
            None,
            "more rows than there are"
        );
        for len in 0..stored.len() {
            assert_eq!(locations_of(&stored[..len], &(100..150), 7), None, "cut to {len}");
        }
        let bad: [&[PageLocation]; 6] = [
            &[],
            &[at(100, 10, 1)],
            &[at(100, 0, 0)],
            &[at(100, 20, 0), at(110, 20, 5)],
            &[at(100, 10, 0), at(110, 10, 0)],
            &[at(-1, 10, 0)],
        ];
        for locations in bad {
            assert_eq!(
                locations_of(&to_stored(locations, 0), &(100..150), 7),
                None,
                "{locations:?}"
            );
        }
    }
}
