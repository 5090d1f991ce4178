//! Cells as plain text: the table for people, and comma-separated values.
//!
//! Owns the text of scalars, the widths of a table and the quoting of values. Nested cells are JSON
//! text. Called by [`super::RowWriter`].

use std::fmt::Write as _;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, IntervalUnit, Schema, TimeUnit};

use super::json::{self, no_text_for};
use super::written;
use crate::error::Result;

/// Characters of a cell that a table shows.
const CELL_CHARS_MAX: usize = 64;

/// Widths are taken from so many rows at a time.
const TABLE_ROWS: usize = 1024;

macro_rules! primitive {
    ($out:expr, $array:expr, $row:expr, $kind:ty) => {{
        let _ = write!($out, "{}", $array.as_primitive::<$kind>().value($row));
    }};
}

macro_rules! decimal {
    ($out:expr, $array:expr, $row:expr, $kind:ty) => {
        $out.push_str(&$array.as_primitive::<$kind>().value_as_string($row))
    };
}

/// Appends a scalar that is not null, without quotes.
pub(super) fn write_scalar(out: &mut String, array: &dyn Array, row: usize) -> Result<()> {
    match array.data_type() {
        DataType::Int8 => primitive!(out, array, row, Int8Type),
        DataType::Int16 => primitive!(out, array, row, Int16Type),
        DataType::Int32 => primitive!(out, array, row, Int32Type),
        DataType::Int64 => primitive!(out, array, row, Int64Type),
        DataType::UInt8 => primitive!(out, array, row, UInt8Type),
        DataType::UInt16 => primitive!(out, array, row, UInt16Type),
        DataType::UInt32 => primitive!(out, array, row, UInt32Type),
        DataType::UInt64 => primitive!(out, array, row, UInt64Type),
        DataType::Decimal32(..) => decimal!(out, array, row, Decimal32Type),
        DataType::Decimal64(..) => decimal!(out, array, row, Decimal64Type),
        DataType::Decimal128(..) => decimal!(out, array, row, Decimal128Type),
        DataType::Decimal256(..) => decimal!(out, array, row, Decimal256Type),
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Utf8View => out.push_str(array.as_string_view().value(row)),
        DataType::Binary => write_hex(out, array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => write_hex(out, array.as_binary::<i64>().value(row)),
        DataType::BinaryView => write_hex(out, array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => write_hex(out, array.as_fixed_size_binary().value(row)),
        kind => return write_temporal(out, array, row, kind),
    }
    Ok(())
}

fn write_temporal(out: &mut String, array: &dyn Array, row: usize, kind: &DataType) -> Result<()> {
    match kind {
        DataType::Date32 => {
            json::write_date(out, i64::from(array.as_primitive::<Date32Type>().value(row)));
        }
        DataType::Date64 => {
            let ms = array.as_primitive::<Date64Type>().value(row);
            json::write_date(out, ms.div_euclid(86_400_000));
        }
        DataType::Time32(unit) => {
            let value = match unit {
                TimeUnit::Second => array.as_primitive::<Time32SecondType>().value(row),
                _ => array.as_primitive::<Time32MillisecondType>().value(row),
            };
            json::write_time(out, i64::from(value), *unit);
        }
        DataType::Time64(unit) => {
            let value = match unit {
                TimeUnit::Microsecond => array.as_primitive::<Time64MicrosecondType>().value(row),
                _ => array.as_primitive::<Time64NanosecondType>().value(row),
            };
            json::write_time(out, value, *unit);
        }
        DataType::Timestamp(unit, zone) => {
            let value = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
                TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
                TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
            };
            json::write_timestamp(out, value, *unit, zone.is_some());
        }
        kind => return write_span(out, array, row, kind),
    }
    Ok(())
}

/// Lengths of time.
fn write_span(out: &mut String, array: &dyn Array, row: usize, kind: &DataType) -> Result<()> {
    match kind {
        DataType::Duration(unit) => {
            let (value, unit) = match unit {
                TimeUnit::Second => (array.as_primitive::<DurationSecondType>().value(row), "s"),
                TimeUnit::Millisecond => (array.as_primitive::<DurationMillisecondType>().value(row), "ms"),
                TimeUnit::Microsecond => (array.as_primitive::<DurationMicrosecondType>().value(row), "us"),
                TimeUnit::Nanosecond => (array.as_primitive::<DurationNanosecondType>().value(row), "ns"),
            };
            let _ = write!(out, "{value}{unit}");
        }
        DataType::Interval(unit) => match unit {
            IntervalUnit::YearMonth => {
                let months = array.as_primitive::<IntervalYearMonthType>().value(row);
                let _ = write!(out, "{months} months");
            }
            IntervalUnit::DayTime => {
                let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                let _ = write!(out, "{} days {} ms", value.days, value.milliseconds);
            }
            IntervalUnit::MonthDayNano => {
                let v = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                let _ = write!(out, "{} months {} days {} ns", v.months, v.days, v.nanoseconds);
            }
        },
        kind => return Err(no_text_for(kind)),
    }
    Ok(())
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}

/// What JSON and text call a float that is no number.
pub(super) fn float_name(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

/// A cell as text; `None` is null.
fn cell(array: &dyn Array, row: usize) -> Result<Option<String>> {
    let mut json = String::new();
    json::write_cell(&mut json, array, row)?;
    if json == "null" {
        return Ok(None);
    }
    if !json.starts_with('"') {
        return Ok(Some(json));
    }
    // Strings without their quotes and escapes.
    let text = serde_json::from_str(&json).map_err(|e| crate::ReadError::Output(e.to_string()))?;
    Ok(Some(text))
}

pub(super) fn write_csv_header(out: &mut impl Write, schema: &Schema) -> Result<()> {
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| quoted(field.name(), false))
        .collect();
    writeln!(out, "{}", names.join(",")).map_err(written)
}

/// Null is nothing between the commas, an empty string is `""`.
pub(super) fn write_csv(out: &mut impl Write, batch: &RecordBatch) -> Result<()> {
    for row in 0..batch.num_rows() {
        let mut line = String::new();
        for (number, column) in batch.columns().iter().enumerate() {
            if number > 0 {
                line.push(',');
            }
            if let Some(text) = cell(column, row)? {
                line.push_str(&quoted(&text, text.is_empty()));
            }
        }
        writeln!(out, "{line}").map_err(written)?;
    }
    Ok(())
}

fn quoted(text: &str, always: bool) -> String {
    match always || text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

pub(super) fn write_table(out: &mut impl Write, batch: &RecordBatch) -> Result<()> {
    let mut start = 0;
    loop {
        let rows = TABLE_ROWS.min(batch.num_rows() - start);
        write_table_part(out, &batch.slice(start, rows))?;
        start += rows;
        if start >= batch.num_rows() {
            return Ok(());
        }
    }
}

fn write_table_part(out: &mut impl Write, batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    let mut columns: Vec<Vec<String>> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let mut cells = vec![shown(field.name())];
        for row in 0..batch.num_rows() {
            cells.push(cell(column, row)?.map_or_else(|| "NULL".into(), |text| shown(&text)));
        }
        columns.push(cells);
    }
    let widths: Vec<usize> = columns
        .iter()
        .map(|cells| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    for line in 0..=batch.num_rows() {
        let mut text = String::new();
        for (cells, width) in columns.iter().zip(&widths) {
            let _ = write!(text, "{:<width$}  ", cells[line], width = *width);
        }
        writeln!(out, "{}", text.trim_end()).map_err(written)?;
        if line == 0 {
            let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
            writeln!(out, "{}", rule.join("  ")).map_err(written)?;
        }
    }
    Ok(())
}

/// One line of bounded width; control characters would act on the terminal.
fn shown(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(CELL_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(CELL_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int32Array, ListArray, StringArray};
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let text = StringArray::from(vec![Some("a,\"b\"\n"), Some(""), None]);
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int32Array::from(vec![1, -2, 3])) as ArrayRef),
            ("t", Arc::new(text) as ArrayRef),
            ("l", Arc::new(list) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn csv_tells_null_from_empty_and_quotes_nested_values() {
        let mut out = Vec::new();
        write_csv_header(&mut out, &batch().schema()).unwrap();
        write_csv(&mut out, &batch()).unwrap();
        let expected = "n,t,l\n1,\"a,\"\"b\"\"\n\",\"[1,null]\"\n-2,\"\",\n3,,[]\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_table_is_aligned_and_free_of_control_characters() {
        let mut out = Vec::new();
        write_table(&mut out, &batch()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("1   a,\"b\"\u{fffd}  [1,null]"), "{text}");
        assert!(text.contains("NULL"));
        assert_eq!(shown(&"x".repeat(100)).chars().count(), 65);
    }
}
