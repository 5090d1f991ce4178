//! Lists and maps between lookups: what a warm row reads, columns without an index, records that go on in the next data page, and
//! pages that state more than they are.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use arrow_array::builder::{Decimal128Builder, Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::read_at::{CountingReadAt, ReadCounts};
use lookupfs_reader::{OpenOptions, Projection, StructureCache, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use support::raw_pages::{list_page, of_indexed_pages, of_pages};
use support::*;

const ROWS: u64 = 1000;

/// A list and a map, in data pages of 100 rows.
fn file(version: WriterVersion, with_index: bool, dictionary: bool) -> Bytes {
    let mut lists = ListBuilder::new(Int64Builder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..ROWS as i64 {
        if row % 7 == 3 {
            lists.append_null();
        } else {
            lists.append_value((0..row % 5).map(|n| (n != 2).then_some(row * 10 + n)));
        }
        for n in 0..row % 3 {
            maps.keys().append_value(format!("key {}", (row + n) % 11));
            maps.values().append_value(row - n);
        }
        maps.append(true).unwrap();
    }
    let columns = [
        ("l", Arc::new(lists.finish()) as ArrayRef),
        ("m", Arc::new(maps.finish()) as _),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_offset_index_disabled(!with_index)
        .set_dictionary_enabled(dictionary)
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes.into()
}

/// A table of one version, and its reads and bytes since the last call.
fn open(bytes: &Bytes, budget: u64) -> (Table, impl FnMut() -> (u64, u64)) {
    let counts = ReadCounts::default();
    let (bytes, count) = (bytes.clone(), counts.clone());
    let options = OpenOptions {
        opener: Some(Opener::new(move |_| {
            let file = Versioned::new(&bytes, [3; 16]);
            Ok(Box::new(CountingReadAt::new(file, count.clone())) as Box<_>)
        })),
        coalesce: Coalesce {
            gap_bytes: 0,
            ..Coalesce::default()
        },
        structures: StructureCache::new(budget),
        ..OpenOptions::default()
    };
    let table = Table::open("/f", options).unwrap();
    let mut seen = (counts.reads(), counts.bytes());
    let since = move || {
        let now = (counts.reads(), counts.bytes());
        let since = (now.0 - seen.0, now.1 - seen.1);
        seen = now;
        since
    };
    (table, since)
}

fn check(table: &Table, all: &RecordBatch, ids: impl IntoIterator<Item = u64>) {
    let ids = rows(ids);
    let got = table.get(&ids, &Projection::all()).unwrap();
    assert_same(&format!("{ids:?}"), &got, &pick(all, &ids));
}

#[test]
fn a_warm_row_of_a_list_reads_and_inflates_nothing() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for dictionary in [false, true] {
            let bytes = file(version, true, dictionary);
            let all = plain_read(bytes.clone(), None, None).unwrap();
            let (table, mut reads) = open(&bytes, 64 << 20);
            check(&table, &all, [250]);
            let (_, one_page_each) = reads();
            assert!(
                dictionary || one_page_each * 3 < bytes.len() as u64,
                "{one_page_each} of {}",
                bytes.len()
            );
            let before = table.counters();
            check(&table, &all, [299, 200, 250, 200]);
            assert_eq!(reads(), (0, 0), "the same data pages");
            let after = table.counters();
            let made = |c: &lookupfs_reader::table::LookupCounters| (c.pages_mapped, c.dictionaries_mapped);
            assert_eq!(made(&after), made(&before));
            // One page of each of the three leaves.
            assert_eq!(after.pages_hit - before.pages_hit, 3);
            check(&table, &all, [950]);
            let (count, other) = reads();
            assert!(
                (1..=3).contains(&count) && other <= one_page_each,
                "{count} {other}"
            );
            // From the first row to the last: what is between is skipped, and not read.
            check(&table, &all, [0, 999, 500]);
            // Nor where so many rows are wanted before it that the library would rather read on.
            let (table, mut reads) = open(&bytes, 64 << 20);
            reads();
            check(&table, &all, (0..100).step_by(2).chain([950]));
            let (_, two_pages_each) = reads();
            assert!(
                dictionary || two_pages_each * 3 < bytes.len() as u64,
                "{two_pages_each}"
            );
            check(&table, &all, 0..ROWS);
            reads();
            check(&table, &all, (0..ROWS).rev());
            assert_eq!(reads(), (0, 0));
        }
    }
}

#[test]
fn a_list_without_an_index_is_walked_once() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for budget in [64 << 20, 0] {
            let bytes = file(version, false, false);
            let all = plain_read(bytes.clone(), None, None).unwrap();
            let (table, mut reads) = open(&bytes, budget);
            check(&table, &all, [250]);
            let (_, whole) = reads();
            assert!(whole * 2 > bytes.len() as u64);
            check(&table, &all, [730, 10]);
            let (_, read) = reads();
            if budget > 0 {
                // Pages of version 1 were inflated to find their records, and are kept.
                assert!(read * 3 < whole, "{read} of {whole}");
                assert_eq!(table.counters().indexes_given_up, 0);
            }
            check(&table, &all, 0..ROWS);
        }
    }
}

/// [10, 11], [12, | 13, 14], [], [15]
fn a_record_in_two_pages(codec: Compression, states: Option<i32>) -> Bytes {
    let first = list_page(codec, 0b010, 0b111, 3, &[10, 11, 12], states);
    let second = list_page(codec, 0b0011, 0b1011, 4, &[13, 14, 15], None);
    of_pages("repeated int64 a", codec, &[first, second], 4)
}

#[test]
fn a_record_that_goes_on_in_the_next_data_page_is_whole() {
    for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        let bytes = a_record_in_two_pages(codec, None);
        let all = plain_read(bytes.clone(), None, None).unwrap();
        let (table, mut reads) = open(&bytes, 64 << 20);
        check(&table, &all, [1]);
        assert_eq!(reads().0, 1, "the column, whole");
        for ids in [&[1][..], &[0], &[3, 1, 2, 1], &[2], &[0, 3]] {
            check(&table, &all, ids.iter().copied());
        }
        assert_eq!(reads(), (0, 0));
        let counters = table.counters();
        assert!(
            counters.pages_hit >= 10 && counters.pages_mapped <= 4,
            "{counters:?}"
        );
        let (table, _) = open(&bytes, 0);
        for ids in [&[1][..], &[0], &[3, 1, 2, 1]] {
            check(&table, &all, ids.iter().copied());
        }
    }
}

#[test]
fn an_index_of_pages_that_begin_within_a_record_is_not_used() {
    let codec = Compression::UNCOMPRESSED;
    let first = list_page(codec, 0b010, 0b111, 3, &[10, 11, 12], None);
    let second = list_page(codec, 0b0011, 0b1011, 4, &[13, 14, 15], None);
    // Two records begin in each, as the index says.
    let bytes = of_indexed_pages("repeated int64 a", codec, &[first, second], 4, &[0, 2]);
    let all = plain_read(bytes.clone(), None, None).unwrap();
    for budget in [64 << 20, 0] {
        for ids in [&[2u64][..], &[3], &[1, 2], &[0, 1, 2, 3]] {
            let (table, _) = open(&bytes, budget);
            check(&table, &all, ids.iter().copied());
            // From now on nobody believes it.
            for ids in [&[1u64][..], &[0], &[2, 1], &[1, 3]] {
                check(&table, &all, ids.iter().copied());
            }
            assert_eq!(table.counters().indexes_given_up, 1, "{ids:?}");
        }
        // The page that row 1 begins in is as the index says; that the record goes on is seen in the next.
        let verified = bytes.clone();
        let options = OpenOptions {
            opener: Some(Opener::new(move |_| {
                Ok(Box::new(Versioned::new(&verified, [3; 16])) as Box<_>)
            })),
            structures: StructureCache::new(budget),
            verify: true,
            ..OpenOptions::default()
        };
        let table = Table::open("/f", options).unwrap();
        for ids in [&[1u64][..], &[0], &[2], &[3, 1]] {
            check(&table, &all, ids.iter().copied());
        }
    }
}

#[test]
fn pages_with_other_rows_than_their_row_group_are_refused() {
    let codec = Compression::UNCOMPRESSED;
    // Records 2 and 2, and 2 and 2 where the second page begins within one.
    let whole = [
        list_page(codec, 0b010, 0b111, 3, &[10, 11, 12], None),
        list_page(codec, 0b010, 0b111, 3, &[13, 14, 15], None),
    ];
    let shared = [
        list_page(codec, 0b010, 0b111, 3, &[10, 11, 12], None),
        list_page(codec, 0b0011, 0b1011, 4, &[13, 14, 15], None),
    ];
    for pages in [whole, shared] {
        for rows_stated in [3, 5] {
            let (table, _) = open(
                &of_pages("repeated int64 a", codec, &pages, rows_stated),
                64 << 20,
            );
            for row in 0..3 {
                let error = table.get(&rows([row]), &Projection::all()).unwrap_err();
                let what = format!("have 4 rows, and its row group {rows_stated}");
                assert!(error.to_string().contains(&what), "{error}");
            }
        }
    }
    let within = list_page(codec, 0b001, 0b111, 3, &[10, 11, 12], None);
    let (table, _) = open(&of_pages("repeated int64 a", codec, &[within], 2), 64 << 20);
    let error = table.get(&rows([0]), &Projection::all()).unwrap_err();
    assert!(error.to_string().contains("begins within a record"), "{error}");
}

#[test]
fn a_page_that_states_more_than_its_column_is_refused_before_it_is_inflated() {
    let bytes = a_record_in_two_pages(Compression::SNAPPY, Some(i32::MAX));
    let (table, _) = open(&bytes, 64 << 20);
    for row in [0, 1, 3] {
        let error = table
            .get(&rows([row]), &Projection::all())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("column 'a'") && error.contains("2147483647 bytes once inflated"),
            "{error}"
        );
    }
    // Levels that end early: the library would look for records for ever.
    let short = list_page(Compression::UNCOMPRESSED, 0b010, 0b111, 60, &[10, 11, 12], None);
    let (table, _) = open(
        &of_pages("repeated int64 a", Compression::UNCOMPRESSED, &[short], 4),
        64 << 20,
    );
    let error = table.get(&rows([3]), &Projection::all()).unwrap_err().to_string();
    assert!(error.contains("repetition levels that end early"), "{error}");
}

/// Lists of decimals that are written as INT32 in one file and as bytes in another are one table.
#[test]
fn files_that_write_the_same_lists_differently_are_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let element = Arc::new(Field::new("element", DataType::Decimal128(9, 2), true));
    let mut lists = ListBuilder::new(Decimal128Builder::new().with_data_type(DataType::Decimal128(9, 2)))
        .with_field(element.clone());
    for row in 0..10i128 {
        lists.append_value((0..row % 4).map(|n| Some(row * 100 + n)));
    }
    let schema = Arc::new(Schema::new(vec![Field::new("l", DataType::List(element), true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(lists.finish())]).unwrap();
    let file = std::fs::File::create(dir.path().join("a")).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let message = "message m { optional group l (LIST) { repeated group list { \
                   optional fixed_len_byte_array(4) element (DECIMAL(9,2)); } } }";
    let file = std::fs::File::create(dir.path().join("b")).unwrap();
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let value = |n: i32| FixedLenByteArray::from(n.to_be_bytes().to_vec());
    // [700.00, 700.01], null, [-0.01]
    column
        .typed::<FixedLenByteArrayType>()
        .write_batch(
            &[value(70000), value(70001), value(-1)],
            Some(&[3, 3, 0, 3]),
            Some(&[0, 1, 0, 0]),
        )
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let table = Table::open(dir.path(), OpenOptions::default()).unwrap();
    let got = table.get(&rows([10, 3, 11, 12, 9]), &Projection::all()).unwrap();
    let lists = got.column(0).as_list::<i32>();
    let values = |row: usize| -> Vec<i128> {
        let list = lists.value(row);
        list.as_primitive::<Decimal128Type>().values().to_vec()
    };
    assert_eq!(values(0), [70000, 70001]);
    assert_eq!(values(1), [300, 301, 302]);
    assert!(lists.is_null(2));
    assert_eq!((values(3), values(4)), (vec![-1], vec![900]));
}
