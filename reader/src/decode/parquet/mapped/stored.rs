//! The map of a data page as bytes, for the sidecar of its file.
//!
//! Owns the payload of a map that `SIDECAR.md` describes. Only what the file has as it is can be stored: the body stays
//! where it is. Refuses bytes that are not the map of the data page they are asked for. Pure. Called by
//! [`super::super::remembered`].

use std::ops::Range;

use parquet::file::metadata::ColumnChunkMetaData;

use super::super::levels::Levels;
use super::super::plain::{PlainType, PlainValues};
use super::{ALWAYS, MappedPage, Values, cost_of, held_bytes_max};

/// Values of a page whose body would be kept in memory that are read by their own bytes before it is.
const EXACT_LOOKUPS: u8 = 8;

const ALL_PRESENT: u8 = 0;
const BITS: u8 = 1;
const BITS_AND_LEVELS: u8 = 2;

const STRIDE: u8 = 0;
const OFFSETS: u8 = 1;
const BOOLEANS: u8 = 2;

impl MappedPage {
    /// The map of a page that begins at `offset`. `None` if its values are not in the file as they are.
    pub(crate) fn to_stored(&self, offset: u64) -> Option<Vec<u8>> {
        let header_len = u32::try_from(self.base?.checked_sub(offset)?).ok()?;
        let Values::Plain(values) = &self.values else {
            return None;
        };
        let mut out = Vec::with_capacity(64 + values.weight() + self.levels.weight());
        out.extend(u32::try_from(self.rows).ok()?.to_le_bytes());
        out.extend(header_len.to_le_bytes());
        let parts = self.levels.parts();
        let levels_kind = match parts {
            None => ALL_PRESENT,
            Some((_, [])) => BITS,
            Some(_) => BITS_AND_LEVELS,
        };
        let mut put = |numbers: &[u32]| numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
        match values {
            PlainValues::Stride { start, width, count } => {
                put(&[kinds(levels_kind, STRIDE), *start, *width, *count]);
            }
            PlainValues::Offsets(offsets) => {
                put(&[kinds(levels_kind, OFFSETS), offsets.len() as u32]);
                put(offsets);
            }
            PlainValues::Bits { start, count } => put(&[kinds(levels_kind, BOOLEANS), *start, *count]),
        }
        if let Some((present, levels)) = parts {
            present.iter().for_each(|word| out.extend(word.to_le_bytes()));
            out.extend(levels);
        }
        Some(out)
    }

    /// The page in `bytes` of the file, which should have `rows` rows, of its stored map. Where its body would stay in
    /// memory if it were read (up to about `held_bytes`), it is read once enough of its values have been.
    pub(crate) fn from_stored(
        stored: &[u8],
        bytes: &Range<u64>,
        column: &ColumnChunkMetaData,
        rows: u64,
        held_bytes: usize,
    ) -> Option<MappedPage> {
        let mut rest = Rest(stored);
        let (stated_rows, header_len) = (rest.number()?, rest.number()?);
        let [levels_kind, values_kind, 0, 0] = rest.number()?.to_le_bytes() else {
            return None;
        };
        let page_len = bytes.end.checked_sub(bytes.start)?;
        let body_len = usize::try_from(page_len.checked_sub(u64::from(header_len))?).ok()?;
        if u64::from(stated_rows) != rows {
            return None;
        }
        let values = rest.values(values_kind)?;
        let max = u8::try_from(column.column_descr().max_def_level()).ok()?;
        let levels = rest.levels(levels_kind, max, rows as usize)?;
        let count = levels.value_count(rows as usize);
        let kind = PlainType::of(column.column_descr());
        if !rest.0.is_empty() || !values.is_of(kind, count, body_len) {
            return None;
        }
        let left = match body_len > held_bytes_max(count, held_bytes) {
            true => ALWAYS,
            false => EXACT_LOOKUPS,
        };
        Some(MappedPage {
            rows,
            levels,
            values: Values::Plain(values),
            body: None,
            base: Some(bytes.start + u64::from(header_len)),
            cost: cost_of(body_len, count),
            exact_lookups_left: left.into(),
        })
    }
}

fn kinds(levels: u8, values: u8) -> u32 {
    u32::from_le_bytes([levels, values, 0, 0])
}

/// What has not been looked at.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn values(&mut self, kind: u8) -> Option<PlainValues> {
        Some(match kind {
            STRIDE => PlainValues::Stride {
                start: self.number()?,
                width: self.number()?,
                count: self.number()?,
            },
            OFFSETS => {
                let count = self.number()? as usize;
                if count > self.0.len() / 4 {
                    return None;
                }
                let offsets: Option<Box<[u32]>> = (0..count).map(|_| self.number()).collect();
                PlainValues::Offsets(offsets?)
            }
            BOOLEANS => PlainValues::Bits {
                start: self.number()?,
                count: self.number()?,
            },
            _ => return None,
        })
    }

    fn levels(&mut self, kind: u8, max: u8, rows: usize) -> Option<Levels> {
        if kind == ALL_PRESENT {
            return Some(Levels::AllPresent);
        }
        let levels_len = match kind {
            BITS => 0,
            BITS_AND_LEVELS => rows,
            _ => return None,
        };
        let words = rows.div_ceil(64);
        let (present, levels) = self.0.split_at_checked(words.checked_mul(8)?)?;
        if levels.len() != levels_len {
            return None;
        }
        self.0 = &[];
        let present = present.as_chunks::<8>().0.iter().copied().map(u64::from_le_bytes);
        Levels::from_parts(present.collect(), levels.to_vec(), max, rows)
    }
}

#[cfg(test)]
mod tests;
