//! [`PageHeader`]: the sizes and counts that stand before a data page or a dictionary.
//!
//! Owns what has to be known before the format library may see a page: how many bytes it asks to inflate to,
//! how many rows it says it has, and where its body begins in the file. Owns the walk over all headers of a
//! column too, which makes the index of a file without one. Called by [`super::mapped`] and
//! [`super::gather`].

use std::ops::Range;

use parquet::file::page_index::offset_index::PageLocation;

use super::thrift::{INT, SKIP_DEPTH_MAX, STRUCT, Thrift};

/// What a header states, as far as a lookup needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) header_len: usize,
    /// Bytes of the body in the file.
    pub(super) compressed_len: usize,
    /// Bytes of the body once it is inflated.
    pub(super) uncompressed_len: usize,
    pub(super) kind: PageKind,
}

/// Which page it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// A data page of either version.
    Data {
        /// Levels; in a column that is not repeated, rows.
        values: u64,
        /// What version 2 states beside it.
        rows: Option<u64>,
        /// Whether the body is inflated, if the column has a codec.
        compressed: bool,
    },
    Dictionary,
    Other,
}

impl PageHeader {
    /// Reads the header at the beginning of `bytes`. `None` if it is cut or malformed. A field that is of another type than the
    /// format has is malformed, and so is one that comes twice: the format library reads a number whatever its type is, and
    /// would inflate to another length than the one that was looked at here.
    pub(super) fn parse(bytes: &[u8]) -> Option<PageHeader> {
        let mut thrift = Thrift { bytes };
        let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
        let (mut v1, mut v2) = (None, None);
        let (mut id, mut seen) = (0, 0);
        loop {
            let field = thrift.field(&mut id)?;
            if field != 0 && is_second(&mut seen, id) {
                return None;
            }
            match (field, id) {
                (0, _) => break,
                (INT, 1) => kind = Some(thrift.int()?),
                (INT, 2) => uncompressed = Some(thrift.int()?),
                (INT, 3) => compressed = Some(thrift.int()?),
                (STRUCT, 5) => v1 = Some(counts(&mut thrift)?),
                (STRUCT, 8) => v2 = Some(counts(&mut thrift)?),
                (_, 1..=3 | 5 | 8) => return None,
                (field, _) => thrift.skip(field, SKIP_DEPTH_MAX)?,
            }
        }
        let kind = match kind? {
            0 => PageKind::Data {
                values: u64::try_from(v1?.values?).ok()?,
                rows: None,
                compressed: true,
            },
            3 => PageKind::Data {
                values: u64::try_from(v2?.values?).ok()?,
                rows: Some(u64::try_from(v2?.rows?).ok()?),
                compressed: v2?.compressed,
            },
            2 => PageKind::Dictionary,
            _ => PageKind::Other,
        };
        Some(PageHeader {
            header_len: bytes.len() - thrift.bytes.len(),
            compressed_len: usize::try_from(compressed?).ok()?,
            uncompressed_len: usize::try_from(uncompressed?).ok()?,
            kind,
        })
    }
}

/// Whether a field that is read here was there before.
fn is_second(seen: &mut u16, id: i64) -> bool {
    let bit = if (1..=8).contains(&id) { 1 << id } else { 0 };
    let is_second = *seen & bit != 0;
    *seen |= bit;
    is_second
}

#[derive(Clone, Copy)]
struct Counts {
    values: Option<i32>,
    rows: Option<i32>,
    compressed: bool,
}

/// Counts out of the header of a data page: field 1 is values in both versions, 3 is rows in version 2 and an
/// encoding in version 1, 7 whether it is compressed.
fn counts(thrift: &mut Thrift<'_>) -> Option<Counts> {
    let mut counts = Counts {
        values: None,
        rows: None,
        compressed: true,
    };
    let (mut id, mut seen) = (0, 0);
    loop {
        let field = thrift.field(&mut id)?;
        if field != 0 && is_second(&mut seen, id) {
            return None;
        }
        match (field, id) {
            (0, _) => return Some(counts),
            (INT, 1) => counts.values = Some(thrift.int()?),
            (INT, 3) => counts.rows = Some(thrift.int()?),
            // A boolean field's value is its type.
            (kind @ (1 | 2), 7) => counts.compressed = kind == 1,
            (field, 1..=4) if field != INT => return None,
            (field, 5) if field != INT && field != STRUCT => return None,
            (field, 6) if field != INT => return None,
            (field, _) => thrift.skip(field, SKIP_DEPTH_MAX)?,
        }
    }
}

/// Where the data pages of a column that is not repeated lie, by their headers: `bytes` is all of the column,
/// which begins at `range.start` in the file and has `rows` rows. `None` if the headers do not add up, or if an empty data page
/// lies where a dictionary would be looked for.
pub(super) fn walk(bytes: &[u8], range: &Range<u64>, rows: u64) -> Option<Vec<PageLocation>> {
    let mut locations = Vec::new();
    let (mut at, mut row, mut has_dictionary) = (0usize, 0u64, false);
    while at < bytes.len() {
        let header = PageHeader::parse(&bytes[at..])?;
        let len = header.header_len.checked_add(header.compressed_len)?;
        let end = at.checked_add(len).filter(|end| *end <= bytes.len())?;
        match header.kind {
            PageKind::Data { values, rows, .. } if rows.is_none_or(|rows| rows == values) => {
                // A data page without rows is never looked for.
                if values > 0 {
                    locations.push(PageLocation {
                        offset: i64::try_from(range.start.checked_add(at as u64)?).ok()?,
                        compressed_page_size: i32::try_from(len).ok()?,
                        first_row_index: i64::try_from(row).ok()?,
                    });
                }
                row = row.checked_add(values)?;
            }
            PageKind::Dictionary if at == 0 => has_dictionary = true,
            _ => return None,
        }
        at = end;
    }
    let first = u64::try_from(locations.first()?.offset).ok()?;
    (row == rows && (has_dictionary || first == range.start)).then_some(locations)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of version 1 with 10 values, 7 bytes in the file and 9 inflated.
    const V1: [u8; 19] = [
        0x15, 0, 0x15, 18, 0x15, 14, 0x2c, 0x15, 20, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 0xaa, 0xbb,
    ];

    #[test]
    fn headers_of_both_versions_are_read() {
        let header = PageHeader::parse(&V1).unwrap();
        let kind = PageKind::Data {
            values: 10,
            rows: None,
            compressed: true,
        };
        let want = PageHeader {
            header_len: 17,
            compressed_len: 7,
            uncompressed_len: 9,
            kind,
        };
        assert_eq!(header, want);
        // 1: type 3, 2 and 3: sizes, 8: { values 10, nulls 1, rows 10, encoding, lengths, not compressed }.
        let v2 = [
            0x15, 6, 0x15, 18, 0x15, 14, 0x5c, 0x15, 20, 0x15, 2, 0x15, 20, 0x15, 0, 0x15, 2, 0x15, 0, 0x12,
            0, 0,
        ];
        let kind = PageKind::Data {
            values: 10,
            rows: Some(10),
            compressed: false,
        };
        assert_eq!(PageHeader::parse(&v2).unwrap().kind, kind);
    }

    #[test]
    fn cut_and_negative_headers_are_refused() {
        for len in 0..17 {
            assert_eq!(PageHeader::parse(&V1[..len]), None, "{len}");
        }
        let mut negative = V1;
        negative[5] = 13;
        assert_eq!(PageHeader::parse(&negative), None);
    }

    #[test]
    fn fields_of_another_type_or_that_come_twice_are_refused() {
        // The length once more: as a number of 64 bits, of 32 bits, and with a field id that others cut to 16 bits.
        for again in [&[0x06, 4][..], &[0x05, 4], &[0x05, 0x84, 0x80, 0x08]] {
            let header = [
                &V1[..4],
                again,
                &[0xfe, 0xff, 0xff, 0xff, 0x0f],
                &[0x05, 6],
                &V1[5..],
            ]
            .concat();
            assert_eq!(PageHeader::parse(&header), None, "{again:x?}");
        }
        // The number of values as one of 64 bits, and a second struct of them.
        let mut wide = V1;
        wide[7] = 0x16;
        assert_eq!(PageHeader::parse(&wide), None);
        let twice = [&V1[..16], &[0x0c, 10, 0x15, 22, 0], &V1[16..]].concat();
        assert_eq!(PageHeader::parse(&twice), None);
        // Those that are not read here may be what they are.
        let more = [&V1[..16], &[0x45, 2], &V1[16..]].concat();
        assert_eq!(
            PageHeader::parse(&more).unwrap().kind,
            PageHeader::parse(&V1).unwrap().kind
        );
    }

    #[test]
    fn a_walk_adds_up_or_gives_nothing() {
        let page = [&V1[..17], &[1, 2, 3, 4, 5, 6, 7]].concat();
        let two = [&page[..], &page].concat();
        let locations = walk(&two, &(100..148), 20).unwrap();
        let at: Vec<_> = locations.iter().map(|l| (l.offset, l.first_row_index)).collect();
        assert_eq!(at, [(100, 0), (124, 10)]);
        assert_eq!(walk(&two, &(100..148), 19), None, "rows");
        assert_eq!(walk(&two[..47], &(100..147), 20), None, "cut");
        assert_eq!(walk(&[], &(100..100), 0), None, "nothing");
    }
}
