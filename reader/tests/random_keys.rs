//! Random files, random keys: the rows that a look at every row of a plain read gives.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::output::write_cell;
use lookupfs_reader::{Key, KeyRange, OpenOptions, Projection, RowId, StructureCache, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use support::*;

/// A value to compare by, worked out from Arrow's arrays and not as the code under test does.
#[derive(Debug, Clone, PartialEq)]
enum Rank {
    Integer(i128),
    Float(f64),
    Bytes(Vec<u8>),
    Wide(<Decimal256Type as ArrowPrimitiveType>::Native),
}

impl Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        match (self, other) {
            (Rank::Integer(a), Rank::Integer(b)) => a.cmp(b),
            (Rank::Bytes(a), Rank::Bytes(b)) => a.cmp(b),
            (Rank::Wide(a), Rank::Wide(b)) => a.cmp(b),
            // Zeros are equal, NaN equals NaN and is above all else.
            (Rank::Float(a), Rank::Float(b)) => {
                a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
            _ => panic!("{self:?} {other:?}"),
        }
    }
}

fn rank(array: &dyn Array, row: usize) -> Option<Rank> {
    if array.is_null(row) {
        return None;
    }
    macro_rules! integer {
        ($kind:ty) => {
            Rank::Integer(array.as_primitive::<$kind>().value(row).into())
        };
    }
    Some(match array.data_type() {
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Date32 => integer!(Date32Type),
        DataType::Time32(TimeUnit::Millisecond) => integer!(Time32MillisecondType),
        DataType::Time64(TimeUnit::Nanosecond) => integer!(Time64NanosecondType),
        DataType::Timestamp(TimeUnit::Second, _) => integer!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integer!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integer!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integer!(TimestampNanosecondType),
        DataType::Decimal128(..) => integer!(Decimal128Type),
        DataType::Decimal256(..) => Rank::Wide(array.as_primitive::<Decimal256Type>().value(row)),
        DataType::Float16 => Rank::Float(array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => Rank::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Rank::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Boolean => Rank::Integer(array.as_boolean().value(row).into()),
        DataType::Utf8 => Rank::Bytes(array.as_string::<i32>().value(row).into()),
        DataType::LargeUtf8 => Rank::Bytes(array.as_string::<i64>().value(row).into()),
        DataType::Utf8View => Rank::Bytes(array.as_string_view().value(row).into()),
        DataType::Binary => Rank::Bytes(array.as_binary::<i32>().value(row).into()),
        DataType::FixedSizeBinary(_) => Rank::Bytes(array.as_fixed_size_binary().value(row).into()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<Int32Type>();
            return rank(dictionary.values(), dictionary.key(row).unwrap());
        }
        other => panic!("{other}"),
    })
}

const KINDS: u64 = 26;

/// Numbers as another type.
fn collect<T: ArrowPrimitiveType>(
    values: &[Option<u64>],
    of: impl Fn(u64) -> T::Native,
) -> PrimitiveArray<T> {
    values.iter().map(|v| v.map(&of)).collect()
}

/// A column of a type, in which equal numbers are equal values and the order is that of the numbers, but for floats.
fn column(kind: u64, values: &[Option<u64>], zone: Option<Arc<str>>) -> ArrayRef {
    match kind {
        0 => Arc::new(collect::<Int8Type>(values, |v| (v % 100) as i8)),
        1 => Arc::new(collect::<Int16Type>(values, |v| v as i16 - 300)),
        2 => Arc::new(collect::<Int32Type>(values, |v| v as i32 - 300)),
        3 => Arc::new(collect::<Int64Type>(values, |v| v as i64 * 1_000_003 - 500_000)),
        4 => Arc::new(collect::<UInt8Type>(values, |v| (v % 256) as u8)),
        5 => Arc::new(collect::<UInt16Type>(values, |v| v as u16)),
        6 => Arc::new(collect::<UInt32Type>(values, |v| v as u32 * 4_000_000)),
        7 => Arc::new(collect::<UInt64Type>(values, |v| v << 54 | v)),
        8..=10 => floats(kind, values),
        11 => Arc::new(
            values
                .iter()
                .map(|v| v.map(|v| v > 500))
                .collect::<BooleanArray>(),
        ),
        17..=20 => decimals(kind, values),
        21 => Arc::new(collect::<Date32Type>(values, |v| v as i32)),
        22..=23 => times(kind, values, zone),
        25 => {
            let inner = column(2, values, None);
            let valid: Vec<bool> = (0..values.len()).map(|row| row % 7 != 3).collect();
            let field = Field::new("k", inner.data_type().clone(), true);
            Arc::new(StructArray::new(
                vec![field].into(),
                vec![inner],
                Some(valid.into()),
            ))
        }
        _ => texts(kind, values),
    }
}

fn floats(kind: u64, values: &[Option<u64>]) -> ArrayRef {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    let float = |v: u64| match v % 11 {
        0 => -0.0,
        1 => 0.0,
        2 => f64::NAN,
        3 => f64::NEG_INFINITY,
        _ => (v as f64 - 500.0) / 4.0,
    };
    match kind {
        8 => Arc::new(collect::<Float16Type>(values, |v| Half::from_f64(float(v)))),
        9 => Arc::new(collect::<Float32Type>(values, |v| float(v) as f32)),
        _ => Arc::new(collect::<Float64Type>(values, float)),
    }
}

fn decimals(kind: u64, values: &[Option<u64>]) -> ArrayRef {
    type Wide = <Decimal256Type as ArrowPrimitiveType>::Native;
    let of = |digits: u32, precision, scale| {
        let values = collect::<Decimal128Type>(values, |v| (i128::from(v) - 300) * 10i128.pow(digits));
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
    };
    match kind {
        17 => of(0, 6, 2),
        18 => of(6, 15, 3),
        19 => of(20, 30, 0),
        _ => {
            let wide = |v: u64| Wide::from_i128((i128::from(v) - 400) << 90);
            let values = collect::<Decimal256Type>(values, wide);
            Arc::new(values.with_precision_and_scale(60, 5).unwrap())
        }
    }
}

fn times(kind: u64, values: &[Option<u64>], zone: Option<Arc<str>>) -> ArrayRef {
    macro_rules! timestamps {
        ($kind:ty) => {
            Arc::new(collect::<$kind>(values, |v| v as i64 - 40_000).with_timezone_opt(zone))
        };
    }
    match (kind, values.len() % 4) {
        (22, 0 | 2) => Arc::new(collect::<Time32MillisecondType>(values, |v| v as i32)),
        (22, _) => Arc::new(collect::<Time64NanosecondType>(values, |v| v as i64)),
        (_, 0) => timestamps!(TimestampSecondType),
        (_, 1) => timestamps!(TimestampMillisecondType),
        (_, 2) => timestamps!(TimestampMicrosecondType),
        _ => timestamps!(TimestampNanosecondType),
    }
}

/// Strings and binary. Some are long, and alike for longer than bounds are.
fn texts(kind: u64, values: &[Option<u64>]) -> ArrayRef {
    let text = |v: u64| {
        let long = "key".repeat((v % 40 / 20 * 30) as usize);
        format!("{long}{v:06}{}", "ä".repeat((v % 7) as usize))
    };
    let texts = || values.iter().map(|v| v.map(text));
    match kind {
        12 => Arc::new(StringArray::from_iter(texts())),
        13 => Arc::new(LargeStringArray::from_iter(texts())),
        14 => Arc::new(StringViewArray::from_iter(texts())),
        15 => {
            let bytes = |v: u64| [&[0xff; 80][..(v % 3 * 40) as usize], &v.to_be_bytes()].concat();
            Arc::new(BinaryArray::from_iter(values.iter().map(|v| v.map(bytes))))
        }
        16 => {
            let values = values.iter().map(|v| v.map(|v| v.to_be_bytes()[3..].to_vec()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 5).unwrap())
        }
        _ => {
            let values: Vec<_> = texts().collect();
            Arc::new(
                values
                    .iter()
                    .map(Option::as_deref)
                    .collect::<DictionaryArray<Int32Type>>(),
            )
        }
    }
}

/// Numbers in an order: rising, falling, nearly rising, or none; different or not; null or not.
fn numbers(rows: usize, r: &mut Seeded) -> Vec<Option<u64>> {
    let cardinality = [3, 40, 1000][r.below(3) as usize];
    let mut values: Vec<u64> = (0..rows).map(|_| r.below(cardinality)).collect();
    match r.below(4) {
        0 => values.sort_unstable(),
        1 => {
            values.sort_unstable();
            values.reverse();
        }
        2 => {
            values.sort_unstable();
            for _ in 0..3 {
                let (a, b) = (r.below(rows as u64), r.below(rows as u64));
                values.swap(a as usize, b as usize);
            }
        }
        _ => {}
    }
    let nulls = r.below(3);
    let is_null = |r: &mut Seeded| match nulls {
        0 => false,
        1 => r.below(6) == 0,
        _ => r.below(20) != 0,
    };
    // Nulls together, so that whole data pages have nothing else.
    let run = 1 + r.below(40) as usize;
    let mut null = false;
    let of = |(row, value): (usize, u64)| {
        if row.is_multiple_of(run) {
            null = is_null(r);
        }
        (!null).then_some(value)
    };
    values.into_iter().enumerate().map(of).collect()
}

fn properties(kind: u64, r: &mut Seeded) -> WriterProperties {
    let encodings = match kind {
        2 | 3 | 6 | 7 | 21 => &[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED][..],
        9 | 10 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
        11 => &[Encoding::PLAIN, Encoding::RLE],
        12..=15 => &[Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY],
        _ => &[Encoding::PLAIN],
    };
    let statistics = [
        EnabledStatistics::None,
        EnabledStatistics::Chunk,
        EnabledStatistics::Page,
        EnabledStatistics::Page,
    ];
    let short = [None, Some(1), Some(5), Some(64)];
    WriterProperties::builder()
        .set_compression([Compression::UNCOMPRESSED, Compression::SNAPPY][r.below(2) as usize])
        .set_dictionary_enabled(r.below(2) == 0)
        .set_data_page_row_count_limit([1, 7, 64, 1 << 20][r.below(4) as usize])
        .set_write_batch_size([1, 16][r.below(2) as usize])
        .set_max_row_group_row_count(Some([13, 100, 1 << 20][r.below(3) as usize]))
        .set_offset_index_disabled(r.below(4) == 0)
        .set_statistics_enabled(statistics[r.below(4) as usize])
        .set_column_index_truncate_length(short[r.below(4) as usize])
        .set_statistics_truncate_length(short[r.below(4) as usize])
        .set_writer_version([WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][r.below(2) as usize])
        .set_column_encoding(
            ColumnPath::from("key"),
            encodings[r.below(encodings.len() as u64) as usize],
        )
        .build()
}

/// A file of a key column and a number that is never null.
fn write(keys: ArrayRef, properties: WriterProperties) -> Bytes {
    let rows = keys.len() as i64;
    let schema = Arc::new(Schema::new(vec![
        Field::new("key", keys.data_type().clone(), true),
        Field::new("n", DataType::Int64, false),
    ]));
    let numbers = Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n * n)));
    let batch = RecordBatch::try_new(schema.clone(), vec![keys, numbers]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes.into()
}

fn options(bytes: &Bytes, version: u8, structures: StructureCache) -> OpenOptions {
    let bytes = bytes.clone();
    OpenOptions {
        structures,
        opener: Some(Opener::new(move |_| {
            Ok(Box::new(Versioned::new(&bytes, [version; 16])) as Box<_>)
        })),
        ..OpenOptions::default()
    }
}

/// As `lookup` prints the value of a row.
fn text_of(array: &dyn Array, row: usize) -> String {
    let mut json = String::new();
    write_cell(&mut json, array, row).unwrap();
    match serde_json::from_str(&json) {
        Ok(serde_json::Value::String(text)) => text,
        _ => json,
    }
}

struct Case {
    what: String,
    all: RecordBatch,
    keys: ArrayRef,
    ranks: Vec<Option<Rank>>,
    table: Table,
    name: &'static str,
}

impl Case {
    fn new(seed: u64, kind: u64) -> Case {
        let mut r = Seeded::new(seed);
        let rows = [1, 40, 300][r.below(3) as usize] + r.below(50) as usize;
        let keys = column(
            kind,
            &numbers(rows, &mut r),
            r.below(2).eq(&0).then(|| "UTC".into()),
        );
        let bytes = write(keys, properties(kind, &mut r));
        let all = plain_read(bytes.clone(), None, None).unwrap();
        let budget = [0, 20_000, 64 << 20][r.below(3) as usize];
        let held = [0, 64 << 10][r.below(2) as usize];
        let structures = StructureCache::holding_bodies(budget, held);
        let table = Table::open("/f", options(&bytes, 1, structures)).unwrap();
        let nested = kind == KINDS - 1;
        let keys = match nested {
            false => all.column(0).clone(),
            true => {
                let outer = all.column(0).as_struct();
                let inner = outer.column(0);
                let rows = (0..inner.len() as u64).map(|row| outer.is_valid(row as usize).then_some(row));
                arrow_select::take::take(inner, &rows.collect::<UInt64Array>(), None).unwrap()
            }
        };
        Case {
            what: format!("seed {seed}, kind {kind}, {}", keys.data_type()),
            ranks: (0..keys.len()).map(|row| rank(&keys, row)).collect(),
            all,
            keys,
            table,
            name: if nested { "key.k" } else { "key" },
        }
    }

    fn rows_that(&self, wanted: impl Fn(&Rank) -> bool) -> Vec<RowId> {
        let ranks = self.ranks.iter().zip(0..);
        ranks
            .filter(|(rank, _)| rank.as_ref().is_some_and(&wanted))
            .map(|(_, row)| RowId(row))
            .collect()
    }

    /// A random value as text and rank; not every one is in the column.
    fn pick(&self, r: &mut Seeded) -> Option<(String, Rank)> {
        let row = r.below(self.ranks.len() as u64) as usize;
        Some((text_of(&self.keys, row), self.ranks[row].clone()?))
    }

    fn check_keys(&self, r: &mut Seeded) {
        let column = self.table.key_column(self.name).unwrap();
        let picked: Vec<_> = (0..1 + r.below(12)).filter_map(|_| self.pick(r)).collect();
        let keys: Vec<Key> = picked.iter().map(|(text, _)| text.as_str().into()).collect();
        let wanted: Vec<_> = picked
            .iter()
            .map(|(_, key)| self.rows_that(|rank| rank.cmp(key) == Ordering::Equal))
            .collect();
        let found = self.table.find_keys(&column, &keys).unwrap();
        for (number, wanted) in wanted.iter().enumerate() {
            assert_eq!(found.rows_of(number), wanted, "{}: {:?}", self.what, keys[number]);
        }
        assert_eq!(found.missing().count(), 0, "{}", self.what);
        let got = self.table.get_keys(&column, &keys, &Projection::all()).unwrap();
        assert_same(&self.what, &got, &pick(&self.all, &wanted.concat()));
    }

    fn check_range(&self, r: &mut Seeded) {
        let column = self.table.key_column(self.name).unwrap();
        let (start, end) = (
            self.pick(r).filter(|_| r.below(5) != 0),
            self.pick(r).filter(|_| r.below(5) != 0),
        );
        let range = KeyRange {
            start: start.as_ref().map(|(text, _)| Key::Text(text.clone())),
            end: end.as_ref().map(|(text, _)| Key::Text(text.clone())),
        };
        let wanted = self.rows_that(|rank| {
            start.as_ref().is_none_or(|(_, s)| rank.cmp(s) != Ordering::Less)
                && end.as_ref().is_none_or(|(_, e)| rank.cmp(e) == Ordering::Less)
        });
        let page = 1 + r.below(50) as usize;
        let stream = self
            .table
            .scan_keys(&column, &range, &Projection::all(), page)
            .unwrap();
        let mut at = 0;
        for batch in stream {
            let batch = batch.unwrap();
            let rows = &wanted[at..(at + page).min(wanted.len())];
            assert_same(
                &format!("{}: {range:?}", self.what),
                &batch,
                &pick(&self.all, rows),
            );
            at += rows.len();
        }
        assert_eq!(at, wanted.len(), "{}: {range:?}", self.what);
    }
}

#[test]
fn any_key_of_any_file_gives_the_rows_that_have_it() {
    for kind in 0..KINDS {
        for number in 0..24 {
            let seed = kind * 1000 + number;
            let mut r = Seeded::new(seed ^ 0x5eed);
            let case = Case::new(seed, kind);
            for _ in 0..3 {
                case.check_keys(&mut r);
                case.check_range(&mut r);
            }
        }
    }
}
