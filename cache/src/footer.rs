//! Where the metadata range of a file begins, read from the last bytes of the file.
//!
//! The bytes are those of strangers: nothing here panics on them, allocates by them or trusts them. What comes out is a
//! hint that decides what is fetched together and kept longer, never what a reader gets. Called by `tails.rs`.

use crate::recognise::Format;
use crate::thrift::{Compact, Type, varint};

pub(crate) mod columns;

/// What the tail of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skim {
    /// The metadata range begins here and goes to the end of the file.
    From(u64),
    /// The footer begins here, before the tail at hand; where its page index begins is yet unknown.
    FooterFrom(u64),
    /// No such format.
    Unknown,
}

/// Skims `tail`, the last bytes of a file of `file_len` bytes.
pub(crate) fn skim(format: Format, tail: &[u8], file_len: u64) -> Skim {
    let found = match format {
        Format::Parquet => parquet(tail, file_len),
        Format::Orc => orc(tail, file_len),
        Format::Lance => lance(tail, file_len),
        Format::Puffin => puffin(tail, file_len),
        Format::PaimonRow => paimon_row(tail, file_len),
    };
    match found {
        Some(Skim::From(from) | Skim::FooterFrom(from)) if from >= file_len => Skim::Unknown,
        Some(found) => found,
        None => Skim::Unknown,
    }
}

/// `… page index, footer, footer length (4), "PAR1"`.
fn parquet(tail: &[u8], file_len: u64) -> Option<Skim> {
    let (before, end) = tail.split_last_chunk::<8>()?;
    let (len, magic) = end.split_first_chunk::<4>()?;
    if magic != b"PAR1" {
        return None;
    }
    let len = u32::from_le_bytes(*len);
    let footer_from = file_len.checked_sub(8 + u64::from(len))?;
    let Some(from) = before.len().checked_sub(len as usize) else {
        return Some(Skim::FooterFrom(footer_from));
    };
    let index_from = lowest_index_offset(&before[from..]).unwrap_or(footer_from);
    Some(Skim::From(index_from.min(footer_from)))
}

/// The lowest offset of a column index or offset index that a `FileMetaData` names.
fn lowest_index_offset(footer: &[u8]) -> Option<u64> {
    const ROW_GROUPS: i16 = 4;
    const COLUMNS: i16 = 1;
    const OFFSET_INDEX_OFFSET: i16 = 4;
    const COLUMN_INDEX_OFFSET: i16 = 6;
    let mut lowest: Option<u64> = None;
    Compact::new(footer).fields(|file, id, kind| {
        if (id, kind) != (ROW_GROUPS, Type::LIST) {
            return Some(false);
        }
        each_struct(file, |row_group| {
            row_group.fields(|group, id, kind| {
                if (id, kind) != (COLUMNS, Type::LIST) {
                    return Some(false);
                }
                each_struct(group, |column| {
                    column.fields(|column, id, kind| {
                        if !matches!(id, OFFSET_INDEX_OFFSET | COLUMN_INDEX_OFFSET) || kind != Type::I64 {
                            return Some(false);
                        }
                        // Zero is what some writers put for "none": before every index is the leading magic.
                        if let Ok(offset @ 4..) = u64::try_from(column.zigzag()?) {
                            lowest = Some(lowest.map_or(offset, |lowest| lowest.min(offset)));
                        }
                        Some(true)
                    })
                })?;
                Some(true)
            })
        })?;
        Some(true)
    })?;
    lowest
}

fn each_struct<'a>(
    compact: &mut Compact<'a>,
    mut read: impl FnMut(&mut Compact<'a>) -> Option<()>,
) -> Option<()> {
    let (len, element) = compact.list()?;
    if element != Type::STRUCT {
        return None;
    }
    (0..len).try_for_each(|_| read(compact))
}

/// `… metadata, footer, postscript, length of the postscript (1)`; the lengths of the others are in the postscript.
fn orc(tail: &[u8], file_len: u64) -> Option<Skim> {
    const FOOTER_LEN: u64 = 1;
    const METADATA_LEN: u64 = 5;
    const STRIPE_STATISTICS_LEN: u64 = 7;
    const MAGIC: u64 = 8000;
    let (len, before) = tail.split_last()?;
    let mut postscript = &before[before.len().checked_sub(usize::from(*len))?..];
    let mut metadata = 1 + u64::from(*len);
    let mut magic = false;
    while !postscript.is_empty() {
        let head = varint(&mut postscript)?;
        match head & 7 {
            0 => {
                let value = varint(&mut postscript)?;
                if matches!(head >> 3, FOOTER_LEN | METADATA_LEN | STRIPE_STATISTICS_LEN) {
                    metadata = metadata.checked_add(value)?;
                }
            }
            2 => {
                let len = usize::try_from(varint(&mut postscript)?).ok()?;
                magic |= head >> 3 == MAGIC && postscript.get(..len)? == b"ORC";
                postscript = postscript.get(len..)?;
            }
            _ => return None,
        }
    }
    let from = file_len.checked_sub(metadata)?;
    magic.then_some(Skim::From(from))
}

/// `… global buffers, column metadata, their offset tables, footer (40)`. Global buffer 0 is the schema.
fn lance(tail: &[u8], file_len: u64) -> Option<Skim> {
    let footer = tail.last_chunk::<40>()?;
    let u64_at = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*footer.get(at..)?.first_chunk()?)) };
    let u16_at = |at: usize| -> Option<u16> { Some(u16::from_le_bytes(*footer.get(at..)?.first_chunk()?)) };
    // Version 0.2 and before have another footer.
    if !footer.ends_with(b"LANC") || (u16_at(32)?, u16_at(34)?) < (0, 3) {
        return None;
    }
    let (columns, column_table, buffer_table) = (u64_at(0)?, u64_at(8)?, u64_at(16)?);
    let mut from = columns.min(column_table).min(buffer_table);
    let tail_from = file_len.checked_sub(tail.len() as u64)?;
    let schema_from = buffer_table
        .checked_sub(tail_from)
        .and_then(|at| tail.get(usize::try_from(at).ok()?..))
        .and_then(|table| table.first_chunk::<8>())
        .map(|position| u64::from_le_bytes(*position));
    // The schema is written before the column metadata, unless a stranger's table says nonsense.
    if let Some(schema_from) = schema_from.filter(|_| footer[24..28] != [0; 4]) {
        from = from.min(schema_from);
    }
    Some(Skim::From(from))
}

/// `… "PFA1", payload, length of the payload (4), flags (4), "PFA1"`.
fn puffin(tail: &[u8], file_len: u64) -> Option<Skim> {
    let end = tail.last_chunk::<12>()?;
    if !end.ends_with(b"PFA1") {
        return None;
    }
    let len = u32::from_le_bytes(*end.first_chunk()?);
    Some(Skim::From(file_len.checked_sub(16 + u64::from(len))?))
}

/// `… block index, footer (32)`; bytes 12 to 20 of the footer say where the block index begins.
fn paimon_row(tail: &[u8], file_len: u64) -> Option<Skim> {
    let footer = tail.last_chunk::<32>()?;
    if !footer.ends_with(b"SWOR") {
        return None;
    }
    let index_from = u64::from_le_bytes(*footer[12..].first_chunk()?);
    Some(Skim::From(index_from.min(file_len.saturating_sub(32))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// The ends of files of each format, how long the files are, and where their metadata begins by another reading of
    /// the format.
    const FILES: [(Format, &[u8], u64, u64); 6] = [
        (
            Format::Parquet,
            include_bytes!("../tests/data/nested.parquet"),
            158_469,
            140_218,
        ),
        (
            Format::Parquet,
            include_bytes!("../tests/data/wide400.parquet.tail"),
            345_237,
            198_100,
        ),
        (Format::Orc, include_bytes!("../tests/data/small.orc"), 4118, 2318),
        (
            Format::Lance,
            include_bytes!("../tests/data/small.lance"),
            7193,
            704,
        ),
        (
            Format::Puffin,
            include_bytes!("../tests/data/deletes.puffin"),
            813,
            167,
        ),
        (
            Format::PaimonRow,
            include_bytes!("../tests/data/small.row"),
            27_665,
            27_623,
        ),
    ];

    /// The file from `from` on.
    fn end_of(file: &[u8], len: u64, from: u64) -> &[u8] {
        &file[file.len() - (len - from) as usize..]
    }

    #[test]
    fn the_metadata_range_of_each_format_is_found() {
        for (format, file, len, from) in FILES {
            assert_eq!(skim(format, file, len), Skim::From(from), "{format:?}");
            let tail = end_of(file, len, from);
            assert_eq!(skim(format, tail, len), Skim::From(from), "{format:?}, exact");
        }
    }

    #[test]
    fn a_footer_larger_than_the_tail_is_named() {
        let (format, file, len, _) = FILES[1];
        let tail = &file[file.len() - 65_536..];
        assert_eq!(skim(format, tail, len), Skim::FooterFrom(231_808));
    }

    #[test]
    fn other_formats_are_unknown() {
        for format in FILES.map(|file| file.0) {
            for (other, file, len, _) in FILES.iter().filter(|file| file.0 != format) {
                let found = skim(format, file, *len);
                assert_eq!(found, Skim::Unknown, "{other:?} as {format:?}");
            }
            assert_eq!(skim(format, b"", 0), Skim::Unknown);
            assert_eq!(skim(format, b"PAR1", 4), Skim::Unknown);
        }
    }

    #[test]
    fn damaged_tails_give_no_panic_and_nothing_outside_of_the_file() {
        let seed = 0x5eed_f007;
        println!("seed {seed:#x}");
        let mut random = StdRng::seed_from_u64(seed);
        let check = |format, tail: &[u8], len: u64| {
            let (Skim::From(from) | Skim::FooterFrom(from)) = skim(format, tail, len) else {
                return;
            };
            assert!(from < len);
        };
        for (format, file, len, from) in FILES {
            // Of the widest schema the end is enough: each skim walks all of it.
            let mut tail = end_of(file, len, from).to_vec();
            let rounds = if tail.len() > 100_000 { 300 } else { 3_000 };
            for _ in 0..rounds {
                let flips = random.random_range(1..8);
                let damage: Vec<_> = (0..flips)
                    .map(|_| {
                        // Half of them in the last bytes, where lengths and magic are.
                        let near = random.random_bool(0.5);
                        let reach = if near { tail.len().min(64) } else { tail.len() };
                        let at = tail.len() - 1 - random.random_range(0..reach);
                        (at, random.random_range(1..=255u8))
                    })
                    .collect();
                for (at, bits) in &damage {
                    tail[*at] ^= bits;
                }
                check(format, &tail, len);
                check(format, &tail[random.random_range(0..tail.len())..], len);
                for (at, bits) in &damage {
                    tail[*at] ^= bits;
                }
            }
            let mut noise = vec![0; 4096];
            for _ in 0..3_000 {
                random.fill(noise.as_mut_slice());
                let cut = random.random_range(0..noise.len());
                // With the right magic, so that the parser is reached.
                let magic = tail.len().min(8);
                let end = noise.len() - magic;
                if random.random_bool(0.5) {
                    noise[end..].copy_from_slice(&tail[tail.len() - magic..]);
                }
                check(format, &noise[cut..], random.random());
            }
        }
    }

    #[test]
    fn a_footer_of_noise_is_walked_within_its_length() {
        let seed = 0x5eed_7411;
        println!("seed {seed:#x}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..20_000 {
            let mut file = vec![0u8; random.random_range(1..300)];
            // Small numbers make deep structures and long lists likely.
            file.fill_with(|| [0x19, 0x1c, 0x29, 0x2c, 0x4c, 0x1b, 0xfc, 0x16, 0][random.random_range(0..9)]);
            let len = file.len() as u32;
            file.extend(len.to_le_bytes());
            file.extend(b"PAR1");
            skim(Format::Parquet, &file, file.len() as u64);
        }
    }
}
