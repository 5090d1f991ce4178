//! Random files, random row ids: equal to `take` of a plain read of the whole file.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, LargeBinaryBuilder, ListBuilder, MapBuilder, StringBuilder,
};
use arrow_array::types::{ArrowPrimitiveType, Decimal256Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, Float32Array, Int8Array, Int16Array, Int32Array, Int64Array, LargeStringArray,
    RecordBatch, StringViewArray, StructArray, Time32MillisecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, TimeUnit};
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::{OpenOptions, Projection, RowId, RowRange, Sidecars, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;
use support::*;

const KINDS: u64 = 21;

/// A list, a map or a struct.
fn nested(kind: u64, rows: usize, r: &mut Seeded, opt: &dyn Fn(&mut Seeded) -> Option<u64>) -> ArrayRef {
    match kind {
        9 => {
            let mut b = ListBuilder::new(Int64Builder::new());
            for _ in 0..rows {
                for _ in 0..r.below(4) {
                    b.values().append_option(opt(r).map(|v| v as i64));
                }
                b.append(opt(r).is_some());
            }
            Arc::new(b.finish())
        }
        10 => {
            let mut b = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
            for _ in 0..rows {
                for key in 0..r.below(3) {
                    b.keys().append_value(key.to_string());
                    b.values().append_option(opt(r).map(|v| v as i64));
                }
                b.append(opt(r).is_some()).unwrap();
            }
            Arc::new(b.finish())
        }
        _ => {
            let (a_field, a) = column(2, rows, r);
            let (b_field, b) = column(9, rows, r);
            let valid = (0..rows).map(|_| opt(r).is_some()).collect::<Vec<_>>();
            let fields = vec![a_field.with_name("a"), b_field.with_name("b")];
            Arc::new(StructArray::new(fields.into(), vec![a, b], Some(valid.into())))
        }
    }
}

/// A decimal, a timestamp or a fixed-size binary.
fn logical(kind: u64, rows: usize, r: &mut Seeded, opt: &dyn Fn(&mut Seeded) -> Option<u64>) -> ArrayRef {
    match kind {
        6 => {
            let values: Decimal128Array = (0..rows).map(|_| opt(r).map(|v| i128::from(v as u32))).collect();
            Arc::new(values.with_precision_and_scale(20, 3).unwrap())
        }
        7 => {
            let values: TimestampMillisecondArray = (0..rows).map(|_| opt(r).map(|v| v as i64)).collect();
            Arc::new(values.with_timezone("Asia/Tokyo"))
        }
        _ => {
            let values = (0..rows).map(|_| opt(r).map(|v| v.to_le_bytes()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 8).unwrap())
        }
    }
}

/// Integers of other widths, dates, times and timestamps, decimals of every physical type, other binaries, and structs
/// without lists.
fn other(kind: u64, rows: usize, r: &mut Seeded, opt: &dyn Fn(&mut Seeded) -> Option<u64>) -> ArrayRef {
    let choice = r.below(4);
    let values: Vec<Option<u64>> = (0..rows).map(|_| opt(r)).collect();
    let int64 = Int64Array::from_iter(values.iter().map(|v| v.map(|v| (v % 1_000_000_007) as i64)));
    let small = Int64Array::from_iter(values.iter().map(|v| v.map(|v| (v % 97) as i64)));
    let strings = || values.iter().map(|v| v.map(|v| format!("{}", v % 1_000_003)));
    let as_type = |array: &Int64Array, to: DataType| cast(array, &to);
    match (kind, choice) {
        (15, 0) => as_type(&small, DataType::Int8),
        (15, 1) => as_type(&small, DataType::Int16),
        (15, 2) => as_type(&int64, DataType::UInt32),
        (15, _) => as_type(&int64, DataType::UInt64),
        (16, 0) => as_type(&small, DataType::Date32),
        (16, 1) => as_type(&small, DataType::Time32(TimeUnit::Millisecond)),
        (16, 2) => as_type(&int64, DataType::Time64(TimeUnit::Nanosecond)),
        (16, _) => as_type(&int64, DataType::Timestamp(TimeUnit::Second, None)),
        (17, unit) => {
            let unit =
                [TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond][unit as usize % 3];
            let zone = [None, Some("UTC"), Some("+05:30"), Some("Europe/Berlin")][r.below(4) as usize];
            as_type(&int64, DataType::Timestamp(unit, zone.map(Into::into)))
        }
        (18, 0) => Arc::new(decimals(&values).with_precision_and_scale(5, 2).unwrap()),
        (18, 1) => Arc::new(decimals(&values).with_precision_and_scale(15, 0).unwrap()),
        (18, 2) => Arc::new(decimals(&values).with_precision_and_scale(38, 7).unwrap()),
        (18, _) => {
            type Wide = <Decimal256Type as ArrowPrimitiveType>::Native;
            let wide = values
                .iter()
                .map(|v| v.map(|v| Wide::from_i128(i128::from(v) << 60)));
            Arc::new(
                Decimal256Array::from_iter(wide)
                    .with_precision_and_scale(60, 3)
                    .unwrap(),
            )
        }
        (19, 0) => Arc::new(LargeStringArray::from_iter(strings())),
        (19, 1) => Arc::new(BinaryViewArray::from_iter(
            strings().map(|s| s.map(String::into_bytes)),
        )),
        (19, width) => {
            let width = [1usize, 3, 16][width as usize % 3];
            let values = values
                .iter()
                .map(|v| v.map(|v| u128::from(v).to_le_bytes()[..width].to_vec()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, width as i32).unwrap())
        }
        _ => {
            let (a, b) = (column(2, rows, r), column(3, rows, r));
            let inner = nullable_struct(vec![a, b], rows, r);
            let inner = (Field::new("inner", inner.data_type().clone(), true), inner);
            let c = column(0, rows, r);
            nullable_struct(vec![inner, c], rows, r)
        }
    }
}

fn decimals(values: &[Option<u64>]) -> Decimal128Array {
    values
        .iter()
        .map(|v| v.map(|v| i128::from(v % 99_999) - 50_000))
        .collect()
}

fn nullable_struct(columns: Vec<(Field, ArrayRef)>, rows: usize, r: &mut Seeded) -> ArrayRef {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let valid: Vec<bool> = (0..rows).map(|_| r.below(4) != 0).collect();
    Arc::new(StructArray::new(fields.into(), arrays, Some(valid.into())))
}

/// The same numbers as another type.
fn cast(array: &Int64Array, to: &DataType) -> ArrayRef {
    macro_rules! ints {
        ($array:ty, $native:ty) => {
            Arc::new(
                array
                    .iter()
                    .map(|v| v.map(|v| v as $native))
                    .collect::<$array>(),
            )
        };
    }
    macro_rules! times {
        ($array:ty, $zone:expr) => {
            Arc::new(
                array
                    .iter()
                    .collect::<$array>()
                    .with_timezone_opt($zone.clone()),
            )
        };
    }
    match to {
        DataType::Int8 => ints!(Int8Array, i8),
        DataType::Int16 => ints!(Int16Array, i16),
        DataType::UInt32 => ints!(UInt32Array, u32),
        DataType::UInt64 => ints!(UInt64Array, u64),
        DataType::Date32 => ints!(Date32Array, i32),
        DataType::Time32(_) => ints!(Time32MillisecondArray, i32),
        DataType::Time64(_) => ints!(Time64NanosecondArray, i64),
        DataType::Timestamp(TimeUnit::Second, zone) => times!(TimestampSecondArray, zone),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => times!(TimestampMillisecondArray, zone),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => times!(TimestampMicrosecondArray, zone),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => times!(TimestampNanosecondArray, zone),
        other => panic!("{other}"),
    }
}

/// One column of a kind, named by it.
fn column(kind: u64, rows: usize, r: &mut Seeded) -> (Field, ArrayRef) {
    let nulls = r.below(3); // never, sometimes, mostly
    let null = |r: &mut Seeded| match nulls {
        0 => false,
        1 => r.below(5) == 0,
        _ => r.below(20) != 0,
    };
    let cardinality = [3, 50, u64::MAX][r.below(3) as usize];
    let opt = |r: &mut Seeded| {
        let value = r.below(cardinality);
        if null(r) { None } else { Some(value) }
    };
    let text = |v: u64| "x".repeat((v % 17) as usize) + &v.to_string();
    let array: ArrayRef = match kind {
        0 => {
            let mut b = Int64Builder::new();
            (0..rows).for_each(|_| b.append_option(opt(r).map(|v| v as i64)));
            Arc::new(b.finish())
        }
        1 => Arc::new(
            (0..rows)
                .map(|_| opt(r).map(|v| v as i32))
                .collect::<Int32Array>(),
        ),
        2 => {
            let mut b = StringBuilder::new();
            (0..rows).for_each(|_| b.append_option(opt(r).map(text)));
            Arc::new(b.finish())
        }
        3 => {
            let mut b = BooleanBuilder::new();
            (0..rows).for_each(|_| b.append_option(opt(r).map(|v| v & 1 == 1)));
            Arc::new(b.finish())
        }
        4 => {
            let mut b = Float64Builder::new();
            (0..rows).for_each(|_| b.append_option(opt(r).map(f64::from_bits)));
            Arc::new(b.finish())
        }
        5 => {
            let mut b = LargeBinaryBuilder::new();
            (0..rows).for_each(|_| b.append_option(opt(r).map(|v| vec![v as u8; (v % 40) as usize])));
            Arc::new(b.finish())
        }
        6..=8 => logical(kind, rows, r, &opt),
        9..=11 => nested(kind, rows, r, &opt),
        12 => {
            let values: Vec<_> = (0..rows).map(|_| opt(r).map(|v| text(v % 20))).collect();
            let values = values.iter().map(Option::as_deref);
            Arc::new(values.collect::<DictionaryArray<Int32Type>>())
        }
        13 => Arc::new(
            (0..rows)
                .map(|_| opt(r).map(|v| v as u16))
                .collect::<UInt16Array>(),
        ),
        15.. => other(kind, rows, r, &opt),
        _ if r.below(2) == 0 => Arc::new((0..rows).map(|_| opt(r).map(text)).collect::<StringViewArray>()),
        _ => Arc::new(
            (0..rows)
                .map(|_| opt(r).map(|v| v as f32))
                .collect::<Float32Array>(),
        ),
    };
    let nullable = array.null_count() > 0 || r.below(2) == 0;
    (
        Field::new(format!("k{kind}"), array.data_type().clone(), nullable),
        array,
    )
}

fn properties(batch: &RecordBatch, r: &mut Seeded) -> WriterProperties {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ];
    let mut properties = WriterProperties::builder()
        .set_compression(codecs[r.below(codecs.len() as u64) as usize])
        .set_dictionary_enabled(r.below(2) == 0)
        .set_dictionary_page_size_limit([64, 1 << 20][r.below(2) as usize])
        .set_data_page_row_count_limit([1, 7, 64, 1 << 20][r.below(4) as usize])
        .set_data_page_size_limit([50, 1000, 1 << 20][r.below(3) as usize])
        .set_write_batch_size([1, 16, 1024][r.below(3) as usize])
        .set_max_row_group_row_count(Some([13, 100, 1 << 20][r.below(3) as usize]))
        .set_offset_index_disabled(r.below(4) == 0)
        .set_statistics_enabled(
            [
                EnabledStatistics::None,
                EnabledStatistics::Chunk,
                EnabledStatistics::Page,
            ][r.below(3) as usize],
        )
        .set_writer_version([WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][r.below(2) as usize]);
    for field in batch.schema().fields() {
        let encodings = match field.data_type() {
            DataType::Int64 | DataType::Int32 => {
                vec![
                    Encoding::PLAIN,
                    Encoding::DELTA_BINARY_PACKED,
                    Encoding::BYTE_STREAM_SPLIT,
                ]
            }
            DataType::Utf8 | DataType::LargeBinary => {
                vec![
                    Encoding::PLAIN,
                    Encoding::DELTA_LENGTH_BYTE_ARRAY,
                    Encoding::DELTA_BYTE_ARRAY,
                ]
            }
            DataType::Float64 | DataType::Float32 | DataType::FixedSizeBinary(_) => {
                vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]
            }
            DataType::Boolean => vec![Encoding::PLAIN, Encoding::RLE],
            DataType::Timestamp(..) | DataType::UInt32 | DataType::Date32 => {
                vec![Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED]
            }
            DataType::LargeUtf8 | DataType::BinaryView | DataType::Utf8View => {
                vec![Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY]
            }
            _ => continue,
        };
        let path = ColumnPath::new(vec![field.name().clone()]);
        let encoding = encodings[r.below(encodings.len() as u64) as usize];
        properties = properties.set_column_encoding(path.clone(), encoding);
        properties = properties.set_column_dictionary_enabled(path, r.below(3) == 0);
    }
    properties.build()
}

fn write(seed: u64) -> (Vec<u8>, usize) {
    let mut r = Seeded::new(seed);
    let rows = [1, 40, 300][r.below(3) as usize] + r.below(50) as usize;
    let mut columns = Vec::new();
    for kind in 0..KINDS {
        if r.below(3) == 0 {
            columns.push(column(kind, rows, &mut r));
        }
    }
    if columns.is_empty() {
        columns.push(column(0, rows, &mut r));
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties(&batch, &mut r))).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    (bytes, rows)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_rows_of_any_file_in_any_order(
        seed in any::<u64>(),
        picks in prop::collection::vec(any::<u32>(), 1..80),
        again in prop::collection::vec(any::<u32>(), 1..20),
        gap_bytes in prop_oneof![Just(0u64), Just(64 << 10)],
    ) {
        let (bytes, count) = write(seed);
        let bytes = Bytes::from(bytes);
        let all = plain_read(bytes.clone(), None, None).unwrap();
        let coalesce = Coalesce { gap_bytes, extent_bytes_max: 1 << 20 };
        let tail_bytes_guess = [8, 300, 64 << 10][(seed % 3) as usize];
        let sidecars = tempfile::tempdir().unwrap();
        let mut options = OpenOptions {
            coalesce,
            tail_bytes_guess,
            structures: structures(&mut Seeded::new(seed)),
            sidecars: (seed % 3 > 0).then(|| Sidecars::open(sidecars.path()).unwrap()),
            verify: seed.is_multiple_of(4),
            opener: Some(Opener::new(move |_| Ok(Box::new(Versioned::new(&bytes, [7; 16])) as Box<_>))),
            ..OpenOptions::default()
        };
        let table = Table::open("/f", options.clone()).unwrap();
        prop_assert_eq!(table.row_count(), count as u64);
        let what = format!("seed {seed}");
        let ids = |picks: &[u32]| -> Vec<_> { picks.iter().map(|p| RowId(u64::from(*p) % count as u64)).collect() };
        let (first, second) = (ids(&picks), ids(&again));
        assert_same(&what, &table.get(&first, &Projection::all()).unwrap(), &pick(&all, &first));
        // Half of the columns, backwards.
        let chosen: Vec<_> = (0..all.num_columns()).rev().step_by(2).collect();
        let names = chosen.iter().map(|c| all.schema().field(*c).name().clone());
        let got = table.get(&first, &Projection::columns(names)).unwrap();
        assert_same(&what, &got, &pick(&all.project(&chosen).unwrap(), &first));
        let mut start = 0;
        for page in table.scan(RowRange::ALL, &Projection::all(), 37).unwrap() {
            let page = page.unwrap();
            assert_same(&what, &page, &all.slice(start, page.num_rows()));
            start += page.num_rows();
        }
        prop_assert_eq!(start, count);
        // Again, with what is known by now or what is on disk, and one by one.
        if seed.is_multiple_of(2) {
            options.structures = structures(&mut Seeded::new(seed));
        }
        let table = Table::open("/f", options).unwrap();
        assert_same(&what, &table.get(&second, &Projection::all()).unwrap(), &pick(&all, &second));
        for id in &second {
            let id = [*id];
            assert_same(&what, &table.get(&id, &Projection::all()).unwrap(), &pick(&all, &id));
        }
    }
}
