//! One cell, or one row, as JSON.
//!
//! Owns the encoding: integers of any width as numbers, binary as lower-case hex, decimals, dates,
//! times and timestamps as strings, NaN and infinities as strings, a list as an array, a struct as
//! an object, a map as an array of `[key, value]` in stored order (keys need not be strings, nor
//! unique). Called by [`super::RowWriter`] and, for nested cells, by [`super::text`].

use std::fmt::Write as _;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use super::{text, written};
use crate::error::{ReadError, Result};

/// One object a line.
pub(super) fn write_lines(out: &mut impl Write, batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    let mut keys = Vec::new();
    for field in schema.fields() {
        let mut key = String::new();
        write_string(&mut key, field.name());
        keys.push(key);
    }
    let mut line = String::new();
    for row in 0..batch.num_rows() {
        line.clear();
        line.push('{');
        for (number, (key, column)) in keys.iter().zip(batch.columns()).enumerate() {
            if number > 0 {
                line.push(',');
            }
            line.push_str(key);
            line.push(':');
            write_cell(&mut line, column, row)?;
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes()).map_err(written)?;
    }
    Ok(())
}

/// Appends one cell as JSON.
pub fn write_cell(out: &mut String, array: &dyn Array, row: usize) -> Result<()> {
    if array.logical_nulls().is_some_and(|nulls| nulls.is_null(row)) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Boolean => push(out, array.as_boolean().value(row)),
        DataType::Float16 => write_float(out, f32::from(array.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => write_float(out, array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => write_float(out, array.as_primitive::<Float64Type>().value(row)),
        DataType::List(_) => write_items(out, array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => write_items(out, array.as_list::<i64>().value(row))?,
        DataType::ListView(_) => write_items(out, array.as_list_view::<i32>().value(row))?,
        DataType::LargeListView(_) => write_items(out, array.as_list_view::<i64>().value(row))?,
        DataType::FixedSizeList(..) => write_items(out, array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let array = array.as_struct();
            out.push('{');
            for (number, (field, column)) in fields.iter().zip(array.columns()).enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write_string(out, field.name());
                out.push(':');
                write_cell(out, column, row)?;
            }
            out.push('}');
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            out.push('[');
            for entry in 0..entries.len() {
                out.push_str(if entry > 0 { ",[" } else { "[" });
                write_cell(out, entries.column(0), entry)?;
                out.push(',');
                write_cell(out, entries.column(1), entry)?;
                out.push(']');
            }
            out.push(']');
        }
        DataType::Dictionary(..) => {
            let array = array.as_any_dictionary();
            let key = array.normalized_keys()[row];
            write_cell(out, array.values(), key)?;
        }
        kind if kind.is_integer() => text::write_scalar(out, array, row)?,
        _ => {
            let mut scalar = String::new();
            text::write_scalar(&mut scalar, array, row)?;
            write_string(out, &scalar);
        }
    }
    Ok(())
}

fn write_items(out: &mut String, items: ArrayRef) -> Result<()> {
    out.push('[');
    for item in 0..items.len() {
        if item > 0 {
            out.push(',');
        }
        write_cell(out, &items, item)?;
    }
    out.push(']');
    Ok(())
}

/// The shortest text that reads back as the same number.
fn write_float<F: std::fmt::Debug + Into<f64> + Copy>(out: &mut String, value: F) {
    if value.into().is_finite() {
        let _ = write!(out, "{value:?}");
    } else {
        let _ = write!(out, "\"{}\"", text::float_name(value.into()));
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Days since 1970 as `YYYY-MM-DD`, in the proleptic Gregorian calendar.
pub(super) fn write_date(out: &mut String, days: i64) {
    // Civil-from-days: eras of 400 years that begin on 1 March, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let sign = if year < 0 { "-" } else { "" };
    let _ = write!(out, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs());
}

/// A time of day as `hh:mm:ss`, with as many digits after the point as the unit has.
pub(super) fn write_time(out: &mut String, value: i64, unit: TimeUnit) {
    let (per_second, digits) = resolution(unit);
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if digits > 0 {
        let _ = write!(out, ".{fraction:0digits$}");
    }
}

/// A timestamp as `YYYY-MM-DDThh:mm:ss`, with `Z` if it is an instant.
pub(super) fn write_timestamp(out: &mut String, value: i64, unit: TimeUnit, instant: bool) {
    let per_day = 86_400 * resolution(unit).0;
    write_date(out, value.div_euclid(per_day));
    out.push('T');
    write_time(out, value.rem_euclid(per_day), unit);
    if instant {
        out.push('Z');
    }
}

fn resolution(unit: TimeUnit) -> (i64, usize) {
    match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    }
}

/// A type that has no text form here.
pub(super) fn no_text_for(kind: &DataType) -> ReadError {
    ReadError::Output(format!("no text form for {kind}; use --output arrow"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::*;
    use std::sync::Arc;

    fn cell(array: impl Array) -> String {
        let mut out = String::new();
        write_cell(&mut out, &array, 0).unwrap();
        out
    }

    #[test]
    fn scalars() {
        assert_eq!(cell(Int64Array::from(vec![i64::MIN])), "-9223372036854775808");
        assert_eq!(cell(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
        assert_eq!(cell(Int8Array::from(vec![None])), "null");
        assert_eq!(cell(BooleanArray::from(vec![true])), "true");
        assert_eq!(cell(BinaryArray::from(vec![&[0u8, 0xAB][..]])), "\"00ab\"");
        assert_eq!(
            cell(StringArray::from(vec!["a\"\\\n\u{1}é"])),
            "\"a\\\"\\\\\\n\\u0001é\""
        );
        let decimal = Decimal128Array::from(vec![-5])
            .with_precision_and_scale(10, 2)
            .unwrap();
        assert_eq!(cell(decimal), "\"-0.05\"");
    }

    #[test]
    fn floats_read_back_as_the_same_number() {
        for value in [0.1, -0.0, 1e300, 5e-324, 1.0, f64::MAX, 1e16] {
            let text = cell(Float64Array::from(vec![value]));
            let back: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(back.as_f64().unwrap().to_bits(), value.to_bits(), "{text}");
        }
        assert_eq!(cell(Float32Array::from(vec![0.1])), "0.1");
        assert_eq!(cell(Float64Array::from(vec![f64::NAN])), "\"NaN\"");
        assert_eq!(cell(Float32Array::from(vec![f32::NEG_INFINITY])), "\"-Infinity\"");
    }

    #[test]
    fn dates_and_times_over_the_whole_range() {
        let date = |days| cell(Date32Array::from(vec![days]));
        assert_eq!(date(0), "\"1970-01-01\"");
        assert_eq!(date(-1), "\"1969-12-31\"");
        assert_eq!(date(11_016), "\"2000-02-29\"");
        assert_eq!(date(-719_528), "\"0000-01-01\"");
        assert_eq!(date(-719_529), "\"-0001-12-31\"");
        assert_eq!(date(i32::MAX), "\"5881580-07-11\"");
        let instant = TimestampMicrosecondArray::from(vec![-1]).with_timezone("Europe/Berlin");
        assert_eq!(cell(instant), "\"1969-12-31T23:59:59.999999Z\"");
        assert_eq!(
            cell(TimestampSecondArray::from(vec![86_399])),
            "\"1970-01-01T23:59:59\""
        );
        let last = cell(TimestampNanosecondArray::from(vec![i64::MAX]));
        assert_eq!(last, "\"2262-04-11T23:47:16.854775807\"");
        assert_eq!(cell(Time32MillisecondArray::from(vec![1])), "\"00:00:00.001\"");
    }

    #[test]
    fn nested_values() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
        assert_eq!(cell(list), "[1,null]");
        let keys = Int8Array::from(vec![1, 0]);
        let words = Arc::new(StringArray::from(vec!["a", "b"]));
        assert_eq!(cell(DictionaryArray::new(keys, words)), "\"b\"");
    }
}
