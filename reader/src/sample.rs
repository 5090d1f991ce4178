//! Sample files whose every value can be computed again from shape, seed and row id.
//!
//! Owns the shapes of `lookup sample`, how they are written, and the check of a file against
//! what it must hold. Never replaces a file unless told to, and never leaves half a file under the
//! final name. Called by the command line, tests and benchmarks.

mod values;
mod write;

use std::str::FromStr;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;

use crate::error::{ReadError, Result};
use crate::output::write_cell;
use crate::row::RowRange;
use crate::table::{Projection, Table};
pub use write::{SampleOptions, write};

/// Which columns a sample has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// `id`, a non-null INT64 that equals the row id, and `payload`, 1 KiB of random BINARY.
    /// Uncompressed and plain, 4,096 rows a data page, 131,072 rows a row group.
    #[default]
    Narrow,
    /// As `Narrow`, but payloads have from 512 to 1,536 bytes.
    Varying,
    /// `key`, a non-null INT64 that rises with the row id, three a row on average, and `v0` to `v9`, 100 bytes of random BINARY
    /// each. Uncompressed and plain, with bounds of each data page, 4,096 rows a data page, 131,072 rows a row group.
    Key,
    /// 42 columns, zstd and dictionary, the writer's default data pages, 262,144 rows a row group.
    ///
    /// `c00` is a non-null INT64 that equals the row id. Column `k` of the other 41 has the type
    /// number `k % 7` of INT64, INT32, DOUBLE, STRING, TIMESTAMP(us, UTC), DECIMAL(18, 4) and
    /// BOOLEAN; one value in ten is null unless `k % 3 == 0`; and it has at most 16, 1,000 or
    /// 100,000 different values where `k % 4` is 1, 2 or 3, and no such limit where it is 0.
    Wide,
}

impl FromStr for Shape {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Shape> {
        match text {
            "narrow" => Ok(Shape::Narrow),
            "varying" => Ok(Shape::Varying),
            "key" => Ok(Shape::Key),
            "wide" => Ok(Shape::Wide),
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write narrow, varying, key or wide"
            ))),
        }
    }
}

/// The columns of a shape.
pub fn schema(shape: Shape) -> SchemaRef {
    values::schema(shape)
}

/// What the rows with these ids hold, in this order.
pub fn expected_rows(
    shape: Shape,
    seed: u64,
    rows: impl Iterator<Item = u64> + Clone,
) -> Result<RecordBatch> {
    values::rows(shape, seed, rows).map_err(|e| ReadError::Output(e.to_string()))
}

/// The key of a row of a file of [`Shape::Key`].
pub(crate) fn key_of(seed: u64, row: u64) -> i64 {
    values::key_of(seed, row)
}

/// Asserts that `got` holds the rows `rows`. The error names the first value that is wrong.
pub fn check_rows(
    table: &Table,
    got: &RecordBatch,
    shape: Shape,
    seed: u64,
    rows: impl Iterator<Item = u64> + Clone,
) -> Result<()> {
    let wrong = |what| {
        Err(ReadError::WrongValue {
            path: table.path().to_owned(),
            what,
        })
    };
    let want = expected_rows(shape, seed, rows.clone())?;
    match first_difference(got, &want, rows)? {
        Some(what) => wrong(what),
        None => Ok(()),
    }
}

/// Where two batches of the rows `rows` differ first.
pub(crate) fn first_difference(
    got: &RecordBatch,
    want: &RecordBatch,
    rows: impl Iterator<Item = u64> + Clone,
) -> Result<Option<String>> {
    if got.num_columns() != want.num_columns() || got.num_rows() != want.num_rows() {
        return Ok(Some(format!(
            "{} rows of {} columns, {} rows of {} columns expected",
            got.num_rows(),
            got.num_columns(),
            want.num_rows(),
            want.num_columns()
        )));
    }
    for (number, field) in want.schema().fields().iter().enumerate() {
        let (got, want) = (got.column(number), want.column(number));
        if got == want {
            continue;
        }
        if got.data_type() != want.data_type() {
            return Ok(Some(format!(
                "column {} is {}, {} expected",
                field.name(),
                got.data_type(),
                want.data_type()
            )));
        }
        for (place, row) in rows.clone().enumerate() {
            if got.slice(place, 1) != want.slice(place, 1) {
                let (read, written) = (text_of(got, place)?, text_of(want, place)?);
                let (read, written) = around_difference(&read, &written);
                return Ok(Some(format!(
                    "row {row}, column {}: {read} read, {written} written",
                    field.name()
                )));
            }
        }
    }
    Ok(None)
}

fn text_of(array: &dyn Array, row: usize) -> Result<String> {
    let mut text = String::new();
    write_cell(&mut text, array, row)?;
    Ok(text)
}

/// Cuts two different texts to the place where they begin to differ, with what is before it named by its length.
fn around_difference(a: &str, b: &str) -> (String, String) {
    const BEFORE: usize = 10;
    const SHOWN: usize = 80;
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let skipped = same.saturating_sub(BEFORE);
    let cut = |text: &str| {
        let shown: String = text.chars().skip(skipped).take(SHOWN).collect();
        let before = if skipped > 0 {
            format!("[{skipped} characters]")
        } else {
            String::new()
        };
        let after = if text.chars().nth(skipped + SHOWN).is_some() {
            "..."
        } else {
            ""
        };
        format!("{before}{shown}{after}")
    };
    (cut(a), cut(b))
}

/// Compares every value of a table with what its shape and seed say; gives how many values there
/// are. Fails at the first that is wrong.
pub fn verify(table: &Table, shape: Shape, seed: u64) -> Result<u64> {
    let mut start = 0;
    for batch in table.scan(RowRange::ALL, &Projection::all(), 4096)? {
        let batch = batch?;
        let end = start + batch.num_rows() as u64;
        check_rows(table, &batch, shape, seed, start..end)?;
        start = end;
    }
    Ok(start * schema(shape).fields().len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_far_inside_of_a_long_value_is_shown() {
        let (a, b) = (
            format!("{}x{}", "0".repeat(500), "1".repeat(500)),
            format!("{}y", "0".repeat(500)),
        );
        let (a, b) = around_difference(&a, &b);
        assert!(
            a.starts_with("[490 characters]0000000000x1") && a.ends_with("...") && a.len() < 120,
            "{a}"
        );
        assert_eq!(b, "[490 characters]0000000000y");
        assert_eq!(around_difference("ä1", "ä2"), ("ä1".to_owned(), "ä2".to_owned()));
    }
}
