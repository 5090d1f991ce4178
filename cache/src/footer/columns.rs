//! Where the chunks of a Parquet file's columns are, read from its footer.
//!
//! As in [`super`], the bytes are those of strangers: nothing here panics on them, allocates beyond their length or trusts
//! them; what comes out decides what is fetched, never what a reader gets. Called by `page_cache/warm.rs`.

use crate::page::ByteRange;
use crate::thrift::{Compact, Type};

/// The chunks of some columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnChunks {
    /// Inside the file, in the order of the footer.
    pub(crate) ranges: Vec<ByteRange>,
    /// Indexes of the names that no column has.
    pub(crate) missing: Vec<usize>,
}

/// The chunks, dictionaries included, of the columns that `names` match: a column's path with dots, or the beginning of
/// one that ends before a dot. `tail` is the end of the file and holds the whole footer. `None` where it cannot be read.
pub(crate) fn column_chunks(tail: &[u8], file_len: u64, names: &[String]) -> Option<ColumnChunks> {
    const SCHEMA: i16 = 2;
    const ROW_GROUPS: i16 = 4;
    let (before, end) = tail.split_last_chunk::<8>()?;
    let (len, magic) = end.split_first_chunk::<4>()?;
    let from = before.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
    if magic != b"PAR1" {
        return None;
    }
    let mut found = vec![false; names.len()];
    let mut ranges = Vec::new();
    let footer = &before[from..];
    Compact::new(footer).fields(|file, id, kind| {
        match (id, kind) {
            (SCHEMA, Type::LIST) => note_schema(file, names, &mut found)?,
            (ROW_GROUPS, Type::LIST) => super::each_struct(file, |row_group| {
                row_group_chunks(row_group, file_len, names, &mut ranges)
            })?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    let missing = (0..names.len()).filter(|at| !found[*at]).collect();
    Some(ColumnChunks { ranges, missing })
}

/// Sorted, with no range touching the next: together they are no longer than the file.
pub(crate) fn merge(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| (range.start(), range.end()));
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start() <= last.end() => {
                let end = last.end().max(range.end());
                *last = ByteRange::clamped(last.start(), end - last.start(), end);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Which of the names the schema has. A file without rows has columns too.
fn note_schema(file: &mut Compact<'_>, names: &[String], found: &mut [bool]) -> Option<()> {
    const NAME: i16 = 4;
    const NUM_CHILDREN: i16 = 5;
    /// Groups that are open: where the path of each ends, and how many children are still to come.
    const DEPTH_MAX: usize = 64;
    let mut open: Vec<(usize, i64)> = Vec::new();
    let mut path = String::new();
    let mut is_root = true;
    super::each_struct(file, |element| {
        let (mut name, mut children) = (None, 0);
        element.fields(|element, id, kind| {
            match (id, kind) {
                (NAME, Type::BINARY) => name = Some(element.binary()?),
                (NUM_CHILDREN, Type::I32) => children = element.zigzag()?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        if std::mem::take(&mut is_root) {
            open.push((0, children));
            return Some(());
        }
        while open.last()?.1 == 0 {
            open.pop();
        }
        let group = open.last_mut()?;
        group.1 -= 1;
        path.truncate(group.0);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(std::str::from_utf8(name?).ok()?);
        if children > 0 {
            if open.len() == DEPTH_MAX {
                return None;
            }
            open.push((path.len(), children));
        }
        for (name, found) in names.iter().zip(found.iter_mut()) {
            *found |= *name == path;
        }
        Some(())
    })
}

fn row_group_chunks(
    row_group: &mut Compact<'_>,
    file_len: u64,
    names: &[String],
    ranges: &mut Vec<ByteRange>,
) -> Option<()> {
    const COLUMNS: i16 = 1;
    const FILE_PATH: i16 = 1;
    const META_DATA: i16 = 3;
    row_group.fields(|group, id, kind| {
        if (id, kind) != (COLUMNS, Type::LIST) {
            return Some(false);
        }
        super::each_struct(group, |column| {
            let (mut is_elsewhere, mut chunk) = (false, None);
            column.fields(|column, id, kind| {
                match (id, kind) {
                    // The chunk is in another file.
                    (FILE_PATH, Type::BINARY) => is_elsewhere = !column.binary()?.is_empty(),
                    (META_DATA, Type::STRUCT) => chunk = wanted_chunk(column, file_len, names)?,
                    _ => return Some(false),
                }
                Some(true)
            })?;
            ranges.extend(chunk.filter(|_| !is_elsewhere));
            Some(())
        })?;
        Some(true)
    })
}

/// The range of one chunk, if one of `names` matches its column. The outer `None`: it cannot be read.
fn wanted_chunk(column: &mut Compact<'_>, file_len: u64, names: &[String]) -> Option<Option<ByteRange>> {
    const PATH_IN_SCHEMA: i16 = 3;
    const TOTAL_COMPRESSED_SIZE: i16 = 7;
    const DATA_PAGE_OFFSET: i16 = 9;
    const DICTIONARY_PAGE_OFFSET: i16 = 11;
    let (mut is_wanted, mut len, mut data, mut dictionary) = (false, 0, 0, 0);
    column.fields(|column, id, kind| {
        match (id, kind) {
            (PATH_IN_SCHEMA, Type::LIST) => is_wanted = is_match(column, names)?,
            (TOTAL_COMPRESSED_SIZE, Type::I64) => len = column.zigzag()?,
            (DATA_PAGE_OFFSET, Type::I64) => data = column.zigzag()?,
            (DICTIONARY_PAGE_OFFSET, Type::I64) => dictionary = column.zigzag()?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    if !is_wanted {
        return Some(None);
    }
    // Zero is what some writers put for "none".
    let start = if dictionary > 0 && dictionary < data {
        dictionary
    } else {
        data
    };
    let (Ok(start), Ok(len)) = (u64::try_from(start), u64::try_from(len)) else {
        return Some(None);
    };
    Some(Some(ByteRange::clamped(start, len, file_len)))
}

/// Whether one of `names` is the path, or its beginning up to a dot.
fn is_match(column: &mut Compact<'_>, names: &[String]) -> Option<bool> {
    let (len, element) = column.list()?;
    if element != Type::BINARY {
        return None;
    }
    let mut path: Vec<u8> = Vec::new();
    for at in 0..len {
        if at > 0 {
            path.push(b'.');
        }
        path.extend_from_slice(column.binary()?);
    }
    Some(names.iter().any(|name| {
        path.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const NESTED: &[u8] = include_bytes!("../../tests/data/nested.parquet");
    /// The end of a file of [`WIDE_LEN`] bytes.
    const WIDE: &[u8] = include_bytes!("../../tests/data/wide400.parquet.tail");
    const WIDE_LEN: u64 = 345_237;

    /// What the parquet crate reads in the same footer.
    fn parsed(tail: &[u8]) -> ParquetMetaData {
        let at = tail.len() - 8;
        let len = u32::from_le_bytes(tail[at..at + 4].try_into().unwrap()) as usize;
        ParquetMetaDataReader::decode_metadata(&tail[at - len..at]).unwrap()
    }

    fn expected(metadata: &ParquetMetaData, name: &str) -> Vec<ByteRange> {
        let below = format!("{name}.");
        let mut ranges = Vec::new();
        for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
            let path = column.column_path().string();
            if path == name || path.starts_with(&below) {
                let (start, len) = column.byte_range();
                ranges.push(ByteRange::new(start, start + len).unwrap());
            }
        }
        ranges
    }

    #[test]
    fn chunks_are_those_that_the_parquet_crate_finds() {
        for (tail, len) in [(NESTED, NESTED.len() as u64), (WIDE, WIDE_LEN)] {
            let metadata = parsed(tail);
            let schema = metadata.file_metadata().schema_descr();
            let mut names: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
            names.extend(
                schema
                    .root_schema()
                    .get_fields()
                    .iter()
                    .map(|f| f.name().to_owned()),
            );
            for name in names {
                let found = column_chunks(tail, len, std::slice::from_ref(&name)).unwrap();
                assert_eq!(found.ranges, expected(&metadata, &name), "{name}");
                assert!(!found.ranges.is_empty() && found.missing.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn names_that_no_column_has_are_said() {
        let names = ["no such", "", "i"].map(str::to_owned);
        let found = column_chunks(NESTED, NESTED.len() as u64, &names).unwrap();
        assert!(found.missing.starts_with(&[0, 1]), "{found:?}");
    }

    #[test]
    fn merged_ranges_are_apart_and_in_order() {
        let range = |start, end| ByteRange::new(start, end).unwrap();
        let merged = merge(vec![
            range(20, 30),
            range(0, 5),
            range(5, 7),
            range(22, 24),
            range(9, 9),
        ]);
        assert_eq!(merged, [range(0, 7), range(20, 30)]);
    }

    #[test]
    fn damaged_footers_give_no_panic_and_nothing_outside_of_the_file() {
        let seed = 0x5eed_c015;
        println!("seed {seed:#x}");
        let mut random = StdRng::seed_from_u64(seed);
        let names = ["a", "c1", "s"].map(str::to_owned);
        let at = NESTED.len() - 8;
        let len = u32::from_le_bytes(NESTED[at..at + 4].try_into().unwrap()) as usize;
        let mut tail = NESTED[at - len..].to_vec();
        for _ in 0..20_000 {
            let damage: Vec<_> = (0..random.random_range(1..6))
                .map(|_| (random.random_range(0..tail.len()), random.random_range(1..=255u8)))
                .collect();
            for (at, bits) in &damage {
                tail[*at] ^= bits;
            }
            let file_len = NESTED.len() as u64;
            let cut = random.random_range(0..tail.len());
            for tail in [&tail[..], &tail[cut..]] {
                if let Some(found) = column_chunks(tail, file_len, &names) {
                    assert!(found.ranges.iter().all(|range| range.end() <= file_len));
                    assert!(merge(found.ranges).iter().map(|range| range.len()).sum::<u64>() <= file_len);
                }
            }
            for (at, bits) in &damage {
                tail[*at] ^= bits;
            }
        }
    }
}
