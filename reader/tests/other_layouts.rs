//! Files of one table that store the same columns in different ways, and columns that begin with an empty data page: rows as
//! a plain read has them, whichever file is first, cold and warm.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use lookupfs_reader::{OpenOptions, Projection, RowId, Table};
use parquet::basic::Compression;
use parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType, Int32Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use support::raw_pages::{header, list_page, of_pages};
use support::*;

const ROWS: usize = 200;

/// How a decimal of 9 digits is stored. Both take 4 bytes, so that one read as the other is wrong and no error.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stored {
    Int32,
    Bytes,
}

/// A decimal, and a list of decimals with as many elements as the last digit of its row modulo 4; in data pages of 20 rows.
fn decimals(stored: Stored, version: WriterVersion, dictionary: bool, seed: u64) -> Bytes {
    let kind = match stored {
        Stored::Int32 => "int32",
        Stored::Bytes => "fixed_len_byte_array(4)",
    };
    let message = format!(
        "message m {{ required {kind} d (DECIMAL(9,2)); optional group l (LIST) {{ repeated group list {{
         required {kind} element (DECIMAL(9,2)); }} }} }}"
    );
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_dictionary_enabled(dictionary)
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(20)
        .set_write_batch_size(20)
        .build();
    let mut r = Seeded::new(seed);
    let mut number = || r.below(1_000_000_000) as i32 - 500_000_000;
    let flat: Vec<i32> = (0..ROWS).map(|_| number()).collect();
    let (mut repetition, mut definition, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..ROWS {
        let count = row % 4;
        for element in 0..count.max(1) {
            repetition.push(i16::from(element > 0));
            definition.push(if count == 0 { 1 } else { 2 });
        }
        elements.extend((0..count).map(|_| number()));
    }
    let schema = Arc::new(parse_message_type(&message).unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let columns = [
        (&flat, None),
        (&elements, Some((&definition[..], &repetition[..]))),
    ];
    for (values, levels) in columns {
        let (definition, repetition) = levels.unzip();
        let mut column = group.next_column().unwrap().unwrap();
        match stored {
            Stored::Int32 => column
                .typed::<Int32Type>()
                .write_batch(values, definition, repetition),
            Stored::Bytes => {
                let bytes = |value: &i32| FixedLenByteArray::from(value.to_be_bytes().to_vec());
                let values: Vec<_> = values.iter().map(bytes).collect();
                column
                    .typed::<FixedLenByteArrayType>()
                    .write_batch(&values, definition, repetition)
            }
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes.into()
}

/// All rows of the files, one after the other.
fn all_of(files: &[Bytes]) -> RecordBatch {
    let batches: Vec<_> = files
        .iter()
        .map(|file| plain_read(file.clone(), None, None).unwrap())
        .collect();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

#[test]
fn files_that_store_a_column_in_different_ways_are_each_read_their_own_way() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for order in [[Stored::Int32, Stored::Bytes], [Stored::Bytes, Stored::Int32]] {
            for dictionary in [false, true] {
                let files: Vec<_> = order
                    .iter()
                    .zip(0..)
                    .map(|(stored, seed)| decimals(*stored, version, dictionary, seed))
                    .collect();
                let dir = tempfile::tempdir().unwrap();
                for (number, file) in files.iter().enumerate() {
                    std::fs::write(dir.path().join(number.to_string()), file).unwrap();
                }
                let all = all_of(&files);
                let table = Table::open(dir.path(), OpenOptions::default()).unwrap();
                let what = format!("{order:?} {version:?} {dictionary}");
                for _ in 0..2 {
                    for ids in [
                        &[7u64, 207, 399, 0, 8][..],
                        &[3, 5],
                        &[203, 201],
                        &[198, 199, 200, 201],
                    ] {
                        let ids = rows(ids.iter().copied());
                        for columns in [&["d", "l"][..], &["l"], &["d"]] {
                            let places: Vec<_> = columns
                                .iter()
                                .map(|name| all.schema().index_of(name).unwrap())
                                .collect();
                            let got = table
                                .get(&ids, &Projection::columns(columns.iter().copied()))
                                .unwrap();
                            assert_same(&what, &got, &pick(&all.project(&places).unwrap(), &ids));
                        }
                    }
                }
            }
        }
    }
}

/// The rows of a file one by one and all together, twice, against a plain read.
fn check_file(what: &str, bytes: &Bytes) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let all = plain_read(bytes.clone(), None, None).unwrap();
    let table = open(Path::new(&path));
    assert_eq!(table.row_count(), all.num_rows() as u64, "{what}");
    for _ in 0..2 {
        for id in (0..table.row_count()).rev() {
            let got = table.get(&[RowId(id)], &Projection::all()).unwrap();
            assert_same(what, &got, &pick(&all, &[RowId(id)]));
        }
        let ids = rows(0..table.row_count());
        assert_same(
            what,
            &table.get(&ids, &Projection::all()).unwrap(),
            &pick(&all, &ids),
        );
    }
}

#[test]
fn an_empty_data_page_is_no_dictionary() {
    let codec = Compression::UNCOMPRESSED;
    let empty = list_page(codec, 0, 0, 0, &[], None);
    let first = list_page(codec, 0b010, 0b111, 3, &[10, 11, 12], None);
    let second = list_page(codec, 0b0110, 0b1111, 4, &[20, 21, 22, 23], None);
    let lists = "repeated int64 a";
    for (what, pages) in [
        ("first", vec![empty.clone(), first.clone(), second.clone()]),
        ("between", vec![first.clone(), empty.clone(), second.clone()]),
        ("last", vec![first, second, empty]),
    ] {
        check_file(what, &of_pages(lists, codec, &pages, 4));
    }
    let flat = |values: &[i64]| {
        let body: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut page = header(body.len() as i32, body.len(), values.len() as u8, &[]);
        page.extend(body);
        page
    };
    let pages = [flat(&[]), flat(&[1, 2, 3]), flat(&[4])];
    check_file(
        "a column that is not repeated",
        &of_pages("required int64 a", codec, &pages, 4),
    );
}
