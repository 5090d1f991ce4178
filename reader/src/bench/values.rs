//! [`sum_of_values`]: what all sides of a round must agree on.
//!
//! Owns which part of each value enters the sum. Called by the sides of lookups.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::pread::check;
use super::random::mix;

/// A sum over the values, in any order of rows: the whole of 64-bit integers, length and both ends of bytes, and of the
/// others how many there are.
pub(super) fn sum_of_values(batch: &RecordBatch) -> u64 {
    let of_column = |column: &dyn Array| match column.data_type() {
        DataType::Int64 => column
            .as_primitive::<Int64Type>()
            .iter()
            .flatten()
            .fold(0, |sum, value| add(sum, value as u64)),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().iter().flatten().fold(0, add),
        DataType::Binary => column
            .as_binary::<i32>()
            .iter()
            .flatten()
            .fold(0, |sum, value| add(sum, value.len() as u64 ^ check(value))),
        _ => (column.len() - column.null_count()) as u64,
    };
    let columns = batch.columns().iter();
    columns.fold(0, |total, column| total.wrapping_add(of_column(column)))
}

fn add(sum: u64, value: u64) -> u64 {
    sum.wrapping_add(mix(value))
}
