//! Random files, random row ids: equal to `take` of a plain read of the whole file.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, LargeBinaryBuilder, ListBuilder, MapBuilder, StringBuilder,
};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, Float32Array, Int32Array,
    RecordBatch, StringViewArray, StructArray, TimestampMillisecondArray, UInt16Array,
};
use arrow_schema::{DataType, Field};
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::{OpenOptions, Projection, RowId, RowRange, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;
use support::*;

const KINDS: u64 = 15;

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
            DataType::Float64 | DataType::Float32 => {
                vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn any_rows_of_any_file_in_any_order(
        seed in any::<u64>(),
        picks in prop::collection::vec(any::<u32>(), 1..80),
        gap_bytes in prop_oneof![Just(0u64), Just(64 << 10)],
    ) {
        let (bytes, count) = write(seed);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let all = plain_read(bytes.into(), None, None).unwrap();
        let coalesce = Coalesce { gap_bytes, extent_bytes_max: 1 << 20 };
        let tail_bytes_guess = [8, 300, 64 << 10][(seed % 3) as usize];
        let options = OpenOptions { coalesce, tail_bytes_guess, ..OpenOptions::default() };
        let table = Table::open(file.path(), options).unwrap();
        prop_assert_eq!(table.row_count(), count as u64);
        let ids: Vec<_> = picks.iter().map(|p| RowId(u64::from(*p) % count as u64)).collect();
        let got = table.get(&ids, &Projection::all()).unwrap();
        assert_same(&format!("seed {seed}"), &got, &pick(&all, &ids));
        // Half of the columns, backwards.
        let chosen: Vec<_> = (0..all.num_columns()).rev().step_by(2).collect();
        let names = chosen.iter().map(|c| all.schema().field(*c).name().clone());
        let got = table.get(&ids, &Projection::columns(names)).unwrap();
        assert_same(&format!("seed {seed}"), &got, &pick(&all.project(&chosen).unwrap(), &ids));
        let mut start = 0;
        for page in table.scan(RowRange::ALL, &Projection::all(), 37).unwrap() {
            let page = page.unwrap();
            assert_same(&format!("seed {seed}"), &page, &all.slice(start, page.num_rows()));
            start += page.num_rows();
        }
        prop_assert_eq!(start, count);
    }
}
