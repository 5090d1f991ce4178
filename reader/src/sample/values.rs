//! The values of a sample: a pure function of shape, seed, column and row.
//!
//! Owns the generator. The values must never change for a given seed: files on disk depend on it,
//! and a test pins them.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use super::Shape;

/// Bytes of a `payload`.
pub(super) const PAYLOAD_BYTES: usize = 1024;

/// Columns of the key shape beside the key, and bytes of each of their values.
const KEY_VALUES: u64 = 10;
const KEY_VALUE_BYTES: usize = 100;

/// Columns of the wide shape.
const WIDE_COLUMNS: u64 = 42;

pub(super) fn schema(shape: Shape) -> SchemaRef {
    let fields = match shape {
        Shape::Narrow | Shape::Varying => vec![
            Field::new("id", DataType::Int64, false),
            Field::new("payload", DataType::Binary, false),
        ],
        Shape::Key => {
            let values = (0..KEY_VALUES).map(|k| Field::new(format!("v{k}"), DataType::Binary, false));
            std::iter::once(Field::new("key", DataType::Int64, false))
                .chain(values)
                .collect()
        }
        Shape::Wide => (0..WIDE_COLUMNS)
            .map(|k| Field::new(format!("c{k:02}"), wide_type(k), nullable(k)))
            .collect(),
    };
    Arc::new(Schema::new(fields))
}

pub(super) fn rows(
    shape: Shape,
    seed: u64,
    rows: impl Iterator<Item = u64> + Clone,
) -> Result<RecordBatch, ArrowError> {
    let columns = match shape {
        Shape::Narrow | Shape::Varying => {
            let len = |row| match shape {
                Shape::Varying => {
                    PAYLOAD_BYTES / 2 + (hash(seed, 2, row) % (PAYLOAD_BYTES as u64 + 1)) as usize
                }
                _ => PAYLOAD_BYTES,
            };
            let payloads = rows.clone().map(|row| bytes(seed, 1, row, len(row)));
            vec![
                Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64))) as ArrayRef,
                Arc::new(BinaryArray::from_iter_values(payloads)),
            ]
        }
        Shape::Key => {
            let keys = rows.clone().map(|row| key_of(seed, row));
            let mut columns = vec![Arc::new(Int64Array::from_iter_values(keys)) as ArrayRef];
            columns.extend((0..KEY_VALUES).map(|k| {
                let values = rows.clone().map(|row| bytes(seed, k + 1, row, KEY_VALUE_BYTES));
                Arc::new(BinaryArray::from_iter_values(values)) as ArrayRef
            }));
            columns
        }
        Shape::Wide => (0..WIDE_COLUMNS)
            .map(|k| wide_column(seed, k, rows.clone()))
            .collect::<Result<_, _>>()?,
    };
    RecordBatch::try_new(schema(shape), columns)
}

/// The key of a row of the key shape: one of three that are the row's own.
pub(super) fn key_of(seed: u64, row: u64) -> i64 {
    (row * 3 + hash(seed, 0, row) % 3) as i64
}

/// Random bytes. They begin alike whatever their number.
fn bytes(seed: u64, column: u64, row: u64, len: usize) -> Vec<u8> {
    let start = hash(seed, column, row);
    let words = (0..len.div_ceil(8) as u64).map(|number| mix(start.wrapping_add(number)).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(len);
    bytes
}

fn wide_type(k: u64) -> DataType {
    match k % 7 {
        0 => DataType::Int64,
        1 => DataType::Int32,
        2 => DataType::Float64,
        3 => DataType::Utf8,
        4 => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        5 => DataType::Decimal128(18, 4),
        _ => DataType::Boolean,
    }
}

fn nullable(k: u64) -> bool {
    !k.is_multiple_of(3)
}

/// `None` is null.
fn wide_value(seed: u64, k: u64, row: u64) -> Option<u64> {
    if k == 0 {
        return Some(row);
    }
    let hash = hash(seed, k, row);
    if nullable(k) && hash.is_multiple_of(10) {
        return None;
    }
    let value = mix(hash);
    Some(match k % 4 {
        1 => mix(value % 16),
        2 => mix(value % 1_000),
        3 => mix(value % 100_000),
        _ => value,
    })
}

fn wide_column(seed: u64, k: u64, rows: impl Iterator<Item = u64>) -> Result<ArrayRef, ArrowError> {
    let values = rows.map(|row| wide_value(seed, k, row));
    Ok(match k % 7 {
        0 => Arc::new(values.map(|v| v.map(|v| v as i64)).collect::<Int64Array>()),
        1 => Arc::new(values.map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        2 => {
            let float = |v: u64| (v >> 11) as f64 / (1u64 << 53) as f64;
            Arc::new(values.map(|v| v.map(float)).collect::<Float64Array>())
        }
        3 => {
            let text = |v: u64| format!("{:08x}-{}", v as u32, "lookup".repeat((v >> 60) as usize));
            Arc::new(values.map(|v| v.map(text)).collect::<StringArray>())
        }
        4 => {
            // Within 50 years from 1990 on.
            let instant = |v: u64| 631_152_000_000_000 + (v % 1_577_836_800_000_000) as i64;
            let array: TimestampMicrosecondArray = values.map(|v| v.map(instant)).collect();
            Arc::new(array.with_timezone("UTC"))
        }
        5 => {
            let decimal = |v: u64| i128::from(v as i64 % 1_000_000_000_000_000_000);
            let array: Decimal128Array = values.map(|v| v.map(decimal)).collect();
            Arc::new(array.with_precision_and_scale(18, 4)?)
        }
        _ => Arc::new(values.map(|v| v.map(|v| v & 1 == 1)).collect::<BooleanArray>()),
    })
}

fn hash(seed: u64, column: u64, row: u64) -> u64 {
    mix(mix(mix(seed) ^ column).wrapping_add(row))
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;

    #[test]
    fn the_values_of_a_seed_stay_what_they_are() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        let batch = rows(Shape::Narrow, 7, (0..6).rev().step_by(5)).unwrap();
        let again = rows(Shape::Narrow, 7, 0..6).unwrap();
        assert_eq!(&batch.column(1).slice(0, 1), &again.column(1).slice(5, 1));
        let payload = |seed| bytes(seed, 1, 5, PAYLOAD_BYTES);
        assert_eq!(payload(7)[..8].to_vec(), mix(hash(7, 1, 5)).to_le_bytes());
        assert_ne!(payload(7), payload(8));
    }

    #[test]
    fn keys_rise_and_payloads_vary_around_1_kib() {
        let keys: Vec<_> = (0..10_000).map(|row| key_of(3, row)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        let batch = rows(Shape::Varying, 3, 0..5000).unwrap();
        let payloads = batch.column(1).as_any().downcast_ref::<BinaryArray>().unwrap();
        let lengths: Vec<_> = payloads.iter().flatten().map(<[u8]>::len).collect();
        assert_eq!(
            (lengths.iter().min(), lengths.iter().max()),
            (Some(&512), Some(&1536))
        );
        let mean = lengths.iter().sum::<usize>() / lengths.len();
        assert!((1000..1050).contains(&mean), "{mean}");
    }

    #[test]
    fn wide_columns_have_the_nulls_and_cardinalities_that_are_documented() {
        let batch = rows(Shape::Wide, 1, 0..20_000).unwrap();
        assert_eq!(batch.num_columns(), 42);
        for k in 1..WIDE_COLUMNS {
            let column = batch.column(k as usize);
            let nulls = column.null_count();
            assert!(
                if nullable(k) {
                    (1_800..2_200).contains(&nulls)
                } else {
                    nulls == 0
                },
                "{k}"
            );
            let mut values: Vec<_> = (0..20_000).filter_map(|row| wide_value(1, k, row)).collect();
            values.sort_unstable();
            values.dedup();
            let most = [usize::MAX, 16, 1_000, 100_000][k as usize % 4];
            assert!(values.len() <= most, "{k}: {}", values.len());
        }
    }
}
