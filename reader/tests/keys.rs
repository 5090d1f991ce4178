//! Lookups by key: what they cost, and bounds that are absent or lie.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use lookupfs_reader::Table;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::read_at::{CountingReadAt, ReadCounts};
use lookupfs_reader::{Key, KeyRange, OpenOptions, Projection, StructureCache};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{BoundaryOrder, Type};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::metadata::{ColumnIndexBuilder, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use support::*;

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

/// Sorted numbers, `rows` a data page, with what the column index should say of the `page`-th.
fn sorted_file(rows: i64, page_rows: usize, lie: Option<(usize, i64, i64)>) -> Bytes {
    let schema = Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let keys = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row / 2 * 2)));
    let texts = Arc::new(StringArray::from_iter_values(
        (0..rows).map(|row| format!("{row:0300}")),
    ));
    let batch = RecordBatch::try_new(schema.clone(), vec![keys, texts]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .build();
    let descriptor = ArrowSchemaConverter::new().convert(&schema).unwrap();
    let mut bytes = Vec::new();
    let mut file =
        SerializedFileWriter::new(&mut bytes, descriptor.root_schema_ptr(), Arc::new(properties)).unwrap();
    let factory = ArrowRowGroupWriterFactory::new(&file, schema.clone());
    let mut columns = factory.create_column_writers(0).unwrap();
    for ((field, array), writer) in schema.fields().iter().zip(batch.columns()).zip(&mut columns) {
        for leaf in compute_leaves(field, array).unwrap() {
            writer.write(&leaf).unwrap();
        }
    }
    let mut group = file.next_row_group().unwrap();
    for (number, column) in columns.into_iter().enumerate() {
        let mut chunk = column.close().unwrap();
        if let (0, Some((page, min, max)), Some(ColumnIndexMetaData::INT64(index))) =
            (number, lie, chunk.close().column_index.clone())
        {
            let mut lying = ColumnIndexBuilder::new(Type::INT64);
            lying.set_boundary_order(BoundaryOrder::ASCENDING);
            for place in 0..index.num_pages() as usize {
                let (min, max) = match place == page {
                    true => (min, max),
                    false => (*index.min_value(place).unwrap(), *index.max_value(place).unwrap()),
                };
                lying.append(false, min.to_le_bytes().into(), max.to_le_bytes().into(), 0, None);
            }
            chunk.close_mut().column_index = Some(lying.build().unwrap());
        }
        chunk.append_to_row_group(&mut group).unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes.into()
}

#[test]
fn a_second_key_of_a_warm_page_reads_nothing_but_its_value() {
    let bytes = sorted_file(10_000, 256, None);
    let counts = ReadCounts::default();
    let count = counts.clone();
    let opener = Opener::new(move |_| {
        let file = Versioned::new(&bytes, [3; 16]);
        Ok(Box::new(CountingReadAt::new(file, count.clone())) as Box<_>)
    });
    let options = OpenOptions {
        opener: Some(opener),
        structures: StructureCache::holding_bodies(64 << 20, 1 << 10),
        ..OpenOptions::default()
    };
    let table = Table::open("/f", options).unwrap();
    let column = table.key_column("key").unwrap();
    let text = Projection::columns(["text"]);
    let get = |key: i64| {
        let before = (counts.reads(), counts.bytes());
        let rows = table.get_keys(&column, &[key.into()], &text).unwrap();
        (
            rows.num_rows(),
            counts.reads() - before.0,
            counts.bytes() - before.1,
        )
    };
    // The column index; the data page of the keys; that of the texts.
    assert_eq!(get(1000).0, 2);
    let cold = table.counters();
    assert_eq!((cold.key_pages_made, cold.key_pages_hit), (1, 0));
    // Two values of 304 bytes, one after the other.
    assert_eq!(get(1002), (2, 1, 608));
    let warm = table.counters();
    assert_eq!((warm.key_pages_made, warm.key_pages_hit), (1, 1));
    // Between two keys of a known page, and outside of all: nothing is read.
    assert_eq!(
        (get(1001), get(-5), get(1 << 40)),
        ((0, 0, 0), (0, 0, 0), (0, 0, 0))
    );
}

#[test]
fn bounds_that_do_not_hold_are_found_out_and_not_used() {
    // Pages of 100 rows: keys 0 to 98, 100 to 198, ... The third says that it holds less than it does.
    for lie in [(2, 200i64, 210i64), (2, 250, 260), (2, 290, 298)] {
        let bytes = sorted_file(1000, 100, Some(lie));
        let table = Table::open("/f", options(&bytes, 4, StructureCache::new(64 << 20))).unwrap();
        let column = table.key_column("key").unwrap();
        // Looked at for a key that it says it has, and found to hold more.
        let found = table.find_keys(&column, &[lie.1.into(), 240i64.into()]).unwrap();
        assert_eq!(
            found.rows(),
            rows([lie.1 as u64, lie.1 as u64 + 1, 240, 241]),
            "{lie:?}"
        );
        assert_eq!(
            table.find_keys(&column, &[222i64.into()]).unwrap().rows(),
            rows([222, 223])
        );
        let table = Table::open("/f", options(&bytes, 5, StructureCache::new(0))).unwrap();
        let range = KeyRange {
            start: Some(150i64.into()),
            end: Some(299i64.into()),
        };
        let stream = table.scan_keys(&column, &range, &Projection::all(), 64).unwrap();
        assert_eq!(
            stream.map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
            150,
            "{lie:?}"
        );
    }
}

#[test]
fn old_timestamps_are_found_without_any_bounds() {
    let message = "message m { optional int96 t; }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(5);
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build())).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut writer = group.next_column().unwrap().unwrap();
    let values: Vec<Int96> = (0..100u32)
        .map(|row| {
            let mut value = Int96::new();
            // One second after the other, beginning with midnight of 1970-01-02.
            let ns = u64::from(row % 50) * 1_000_000_000;
            value.set_data(ns as u32, (ns >> 32) as u32, 2_440_589);
            value
        })
        .collect();
    writer
        .typed::<Int96Type>()
        .write_batch(&values, Some(&[1; 100]), None)
        .unwrap();
    writer.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    let table = Table::open("/f", options(&bytes.into(), 6, StructureCache::new(64 << 20))).unwrap();
    let column = table.key_column("t").unwrap();
    let keys: [Key; 2] = ["1970-01-02T00:00:07".into(), "1970-01-02T00:00:50".into()];
    let found = table.find_keys(&column, &keys).unwrap();
    assert_eq!(
        (found.rows(), found.missing().collect::<Vec<_>>()),
        (&rows([7, 57])[..], vec![1])
    );
}

#[test]
fn columns_that_no_row_can_be_found_by_are_refused_by_name() {
    let path = fixtures_dir().join("parquet-nested/data.parquet");
    let table = open(&path);
    let names: Vec<String> = table
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let mut refused = 0;
    for name in &names {
        match table.key_column(name) {
            Ok(column) => assert_eq!(column.name(), name),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains(&format!("'{name}'")), "{error}");
            }
        }
    }
    assert!(refused > 0, "{names:?}");
    assert!(table.key_column("no such column").is_err());
}

#[test]
fn keys_are_found_in_all_files_of_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    for (name, rows) in [("a", 300), ("b", 10), ("c", 700)] {
        std::fs::write(dir.path().join(name), sorted_file(rows, 64, None)).unwrap();
    }
    let table = open(dir.path());
    let column = table.key_column("key").unwrap();
    let found = table.find_keys(&column, &[4i64, 690, 4].map(Key::from)).unwrap();
    assert_eq!(found.rows_of(0), rows([4, 5, 304, 305, 314, 315]));
    assert_eq!(
        (found.rows_of(1), found.rows_of(2)),
        (&rows([1000, 1001])[..], found.rows_of(0))
    );
    let range = "8..12".parse().unwrap();
    let stream = table.scan_keys(&column, &range, &Projection::all(), 3).unwrap();
    let sizes: Vec<_> = stream.map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(sizes, [3, 3, 3, 1]);
}

#[test]
fn a_damaged_column_index_never_gives_a_row_that_is_wrong() {
    let whole = sorted_file(2000, 50, None);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&whole).unwrap();
    let column = metadata.row_group(0).column(0);
    let range = column.column_index_range().unwrap();
    let (mut right, mut found_nothing, mut failed) = (0, 0, 0);
    for seed in 0..600 {
        let mut r = Seeded::new(seed);
        let mut bytes = whole.to_vec();
        for _ in 0..1 + r.below(4) {
            let at = range.start + r.below(range.end - range.start);
            bytes[at as usize] = r.next() as u8;
        }
        let table = Table::open("/f", options(&bytes.into(), 9, StructureCache::new(1 << 20))).unwrap();
        let column = table.key_column("key").unwrap();
        for _ in 0..4 {
            let key = r.below(1000) * 2;
            match table.find_keys(&column, &[key.into()]) {
                Ok(found) if found.rows().is_empty() => found_nothing += 1,
                Ok(found) => {
                    assert_eq!(found.rows(), rows([key, key + 1]), "seed {seed}, key {key}");
                    right += 1;
                }
                Err(_) => failed += 1,
            }
        }
    }
    println!("{right} found, {found_nothing} hidden by a bound, {failed} failed");
    assert!(right > 2000, "{right} {found_nothing} {failed}");
}

#[test]
fn many_threads_find_the_same_rows_with_little_memory_and_bounds_that_lie() {
    let bytes = sorted_file(4000, 100, Some((7, 700, 702)));
    for (number, budget) in [0, 20_000, 64 << 20].into_iter().enumerate() {
        let version = 20 + number as u8;
        let table = Table::open("/f", options(&bytes, version, StructureCache::new(budget))).unwrap();
        let column = table.key_column("key").unwrap();
        // Found out by whoever is first, while the others search.
        table.find_keys(&column, &[700i64.into()]).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (table, column) = (&table, &column);
                scope.spawn(move || {
                    let mut r = Seeded::new(thread);
                    for _ in 0..100 {
                        let key = r.below(2000) * 2;
                        // Beside one of the page that lies, so that it is looked at whatever the cache forgot.
                        let keys: [Key; 2] = [key.into(), 700i64.into()];
                        let got = table
                            .get_keys(column, &keys, &Projection::columns(["key"]))
                            .unwrap();
                        let want = [key as i64, key as i64, 700, 700];
                        assert_eq!(
                            got.column(0).as_primitive::<Int64Type>().values()[..],
                            want,
                            "thread {thread}"
                        );
                    }
                });
            }
        });
    }
}
