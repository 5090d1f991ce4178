//! [`RowId`], [`Rows`] and [`RowRange`]: how rows are named, and how a person writes them down.
//!
//! Owns the parsing of `7,9,100-110`, of `A..B` and of lists of ids on a stream, with a bound on
//! each. Knows nothing of files. Called by [`crate::table`] and the command line.

use std::fmt;
use std::io::BufRead;
use std::str::FromStr;

use crate::error::{ReadError, Result};

/// The number of a row: its position in a file, or in the files of a directory one after the other.
/// The first row is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for RowId {
    fn from(id: u64) -> RowId {
        RowId(id)
    }
}

/// At most so many row ids in one request. 64 Mi ids are 512 MiB: a larger list is a scan.
pub const ROW_IDS_MAX: usize = 64 << 20;

/// The longest line of a list on a stream. A line is one id, or ids with commas between.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// Row ids in the order they were asked for, duplicates included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows(Vec<RowId>);

impl Rows {
    /// The ids in the order asked.
    pub fn ids(&self) -> &[RowId] {
        &self.0
    }

    /// Gives the ids away.
    pub fn into_ids(self) -> Vec<RowId> {
        self.0
    }

    /// Reads ids from a stream: lines of the same notation as on the command line, empty lines
    /// skipped. Neither a line nor the list grows without bound.
    pub fn from_lines(mut input: impl BufRead) -> Result<Rows> {
        let mut rows = Rows::default();
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = std::io::Read::take(&mut input, LINE_BYTES_MAX + 1)
                .read_until(b'\n', &mut line)
                .map_err(|e| ReadError::Invalid(format!("cannot read row ids: {e}")))?;
            if read == 0 {
                break;
            }
            if read as u64 > LINE_BYTES_MAX {
                return Err(ReadError::Invalid(format!(
                    "line {number} of the row ids is longer than {LINE_BYTES_MAX} bytes; write one id a line"
                )));
            }
            let text = std::str::from_utf8(&line)
                .map_err(|_| ReadError::Invalid(format!("line {number} of the row ids is not text")))?;
            if !text.trim().is_empty() {
                rows.add(text.trim())
                    .map_err(|e| ReadError::Invalid(format!("line {number}: {e}")))?;
            }
        }
        Ok(rows)
    }

    fn add(&mut self, text: &str) -> Result<()> {
        for item in text.split(',').map(str::trim) {
            let (first, last) = match item.split_once('-') {
                Some((first, last)) => (number(first, item)?, number(last, item)?),
                None => (number(item, item)?, number(item, item)?),
            };
            if last < first {
                return Err(ReadError::Invalid(format!(
                    "'{item}': the range ends before it begins"
                )));
            }
            let count = last - first;
            if count >= (ROW_IDS_MAX - self.0.len()) as u64 {
                return Err(ReadError::Invalid(format!(
                    "'{item}': more than {ROW_IDS_MAX} row ids in one request; use `lookup scan`"
                )));
            }
            self.0.extend((first..=last).map(RowId));
        }
        Ok(())
    }
}

impl FromStr for Rows {
    type Err = ReadError;

    /// `7,9,100-110`: ids and ranges, both ends of a range included.
    fn from_str(text: &str) -> Result<Rows> {
        let mut rows = Rows::default();
        if !text.trim().is_empty() {
            rows.add(text)?;
        }
        Ok(rows)
    }
}

/// A range of row ids that excludes its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRange {
    /// The first row.
    pub start: RowId,
    /// The row after the last one; `None` is the end of the table.
    pub end: Option<RowId>,
}

impl RowRange {
    /// Every row.
    pub const ALL: RowRange = RowRange {
        start: RowId(0),
        end: None,
    };
}

impl FromStr for RowRange {
    type Err = ReadError;

    /// `A..B` excludes `B`; either may be left out.
    fn from_str(text: &str) -> Result<RowRange> {
        let Some((start, end)) = text.split_once("..") else {
            return Err(ReadError::Invalid(format!(
                "'{text}': write A..B (B is excluded)"
            )));
        };
        let start = if start.is_empty() { 0 } else { number(start, text)? };
        let end = if end.is_empty() {
            None
        } else {
            Some(number(end, text)?)
        };
        if end.is_some_and(|end| end < start) {
            return Err(ReadError::Invalid(format!(
                "'{text}': the range ends before it begins"
            )));
        }
        Ok(RowRange {
            start: RowId(start),
            end: end.map(RowId),
        })
    }
}

fn number(text: &str, whole: &str) -> Result<u64> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ReadError::Invalid(format!(
            "'{whole}' is not a row id: write ids and ranges, as in 7,9,100-110"
        )));
    }
    text.parse()
        .map_err(|_| ReadError::Invalid(format!("'{whole}': row ids end at {}", u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<u64> {
        text.parse::<Rows>().unwrap().ids().iter().map(|r| r.0).collect()
    }

    #[test]
    fn ids_and_inclusive_ranges_keep_their_order_and_duplicates() {
        assert_eq!(ids("7,9,100-103"), [7, 9, 100, 101, 102, 103]);
        assert_eq!(ids("9, 7 ,9"), [9, 7, 9]);
        assert_eq!(ids("5-5"), [5]);
        assert_eq!(ids(&u64::MAX.to_string()), [u64::MAX]);
        assert_eq!(ids(""), [] as [u64; 0]);
    }

    #[test]
    fn what_is_no_row_id_is_named() {
        for text in [
            "x",
            "1,",
            "-",
            "-3",
            "1-",
            "3-1",
            "1..2",
            "+1",
            "0x1",
            "18446744073709551616",
        ] {
            let error = text.parse::<Rows>().unwrap_err().to_string();
            assert!(error.contains('\''), "{text}: {error}");
        }
        assert!("0-18446744073709551615".parse::<Rows>().is_err());
        assert!(format!("0-{ROW_IDS_MAX}").parse::<Rows>().is_err());
    }

    #[test]
    fn a_stream_holds_an_id_a_line_or_ids_with_commas() {
        let rows = Rows::from_lines(&b"3\n\n 1,2 \n10-12\r\n4"[..]).unwrap();
        assert_eq!(rows, "3,1,2,10,11,12,4".parse().unwrap());
        let error = Rows::from_lines(&b"3\nfour\n"[..]).unwrap_err().to_string();
        assert!(error.starts_with("line 2:"), "{error}");
        let long = vec![b'1'; LINE_BYTES_MAX as usize + 10];
        assert!(Rows::from_lines(&long[..]).is_err());
    }

    #[test]
    fn a_range_excludes_its_end() {
        let range: RowRange = "3..5".parse().unwrap();
        assert_eq!(
            range,
            RowRange {
                start: RowId(3),
                end: Some(RowId(5))
            }
        );
        assert_eq!("..".parse::<RowRange>().unwrap(), RowRange::ALL);
        assert!("5..3".parse::<RowRange>().is_err());
        assert!("5".parse::<RowRange>().is_err());
    }
}
