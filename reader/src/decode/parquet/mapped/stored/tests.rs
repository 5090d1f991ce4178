//! Maps that are stored, read back, and damaged.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{WriterProperties, WriterVersion};

use super::super::Mapping;
use super::*;

const ROWS: usize = 203;

/// The metadata of one column, and its only data page with where that begins.
fn page(array: ArrayRef, codec: Compression, version: WriterVersion) -> (ColumnChunkMetaData, Bytes, u64) {
    let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(version)
        .set_encoding(parquet::basic::Encoding::PLAIN)
        .set_dictionary_enabled(false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let bytes = Bytes::from(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
    let column = metadata.row_group(0).column(0).clone();
    let (start, len) = column.byte_range();
    (column, bytes.slice(start as usize..(start + len) as usize), start)
}

fn arrays() -> Vec<(&'static str, ArrayRef)> {
    let some = |n: &usize| !n.is_multiple_of(3);
    let numbers = (0..ROWS).map(|n| some(&n).then_some(n as i64));
    let texts = |len: fn(usize) -> usize| {
        (0..ROWS)
            .map(move |n| some(&n).then(|| vec![n as u8; len(n)]))
            .collect::<Vec<_>>()
    };
    let binary = |values: &[Option<Vec<u8>>]| {
        Arc::new(BinaryArray::from_iter(values.iter().map(Option::as_deref))) as ArrayRef
    };
    vec![
        (
            "all present",
            Arc::new(Int64Array::from_iter_values(0..ROWS as i64)) as _,
        ),
        ("nulls", Arc::new(Int64Array::from_iter(numbers)) as _),
        ("one length", binary(&texts(|_| 5))),
        ("lengths", binary(&texts(|n| n % 7))),
        (
            "bits",
            Arc::new(BooleanArray::from_iter(
                (0..ROWS).map(|n| some(&n).then_some(n % 2 == 0)),
            )) as _,
        ),
        (
            "fixed",
            Arc::new(FixedSizeBinaryArray::try_from_iter((0..ROWS).map(|n| [n as u8; 3])).unwrap()) as _,
        ),
    ]
}

#[test]
fn a_stored_map_says_of_each_row_what_the_page_says() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (what, array) in arrays() {
            let (column, bytes, offset) = page(array, Compression::UNCOMPRESSED, version);
            let Mapping::Mapped(page, _) = MappedPage::map(&bytes, offset, &column, ROWS as u64, 0).unwrap()
            else {
                panic!("{what} is not mapped");
            };
            let range = offset..offset + bytes.len() as u64;
            let stored = page.to_stored(offset).unwrap();
            let back = MappedPage::from_stored(&stored, &range, &column, ROWS as u64, 0).unwrap();
            for row in 0..=ROWS {
                assert_eq!(page.place(row), back.place(row), "{what}: row {row}");
            }
            assert_eq!(
                (back.cost(), back.weight()),
                (page.cost(), back.weight()),
                "{what}"
            );
            assert_eq!(back.range_in_file(&(3..5)), page.range_in_file(&(3..5)), "{what}");
            // Of another page, or cut.
            let of = |stored: &[u8], range: &Range<u64>, rows| {
                MappedPage::from_stored(stored, range, &column, rows, 0).is_none()
            };
            assert!(of(&stored, &range, ROWS as u64 - 1), "{what}: fewer rows");
            assert!(
                of(&stored, &(offset..offset + 20), ROWS as u64),
                "{what}: a shorter page"
            );
            assert!(
                (0..stored.len()).all(|len| of(&stored[..len], &range, ROWS as u64)),
                "{what}: cut"
            );
            assert!(
                of(&[&stored[..], &[0]].concat(), &range, ROWS as u64),
                "{what}: longer"
            );
        }
    }
}

/// Whatever the bytes are, no place lies outside of the page.
#[test]
fn a_map_that_was_changed_is_refused_or_stays_within_its_page() {
    for (what, array) in arrays() {
        let (column, bytes, offset) = page(array, Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0);
        let Mapping::Mapped(page, _) = MappedPage::map(&bytes, offset, &column, ROWS as u64, 0).unwrap()
        else {
            panic!("{what} is not mapped");
        };
        let range = offset..offset + bytes.len() as u64;
        let stored = page.to_stored(offset).unwrap();
        for bit in 0..stored.len() * 8 {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Some(page) = MappedPage::from_stored(&bad, &range, &column, ROWS as u64, 0) else {
                continue;
            };
            for row in 0..ROWS {
                if let Some(super::super::Place::Body(part, _)) = page.place(row) {
                    let in_file = page.range_in_file(&part).unwrap();
                    assert!(
                        in_file.start >= range.start && in_file.end <= range.end && part.start <= part.end,
                        "{what}: bit {bit}, row {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_what_the_file_has_as_it_is_is_stored_and_small_bodies_are_read_in_the_end() {
    let array: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let (column, bytes, offset) = page(array.clone(), Compression::SNAPPY, WriterVersion::PARQUET_1_0);
    let Mapping::Mapped(page_mapped, _) = MappedPage::map(&bytes, offset, &column, ROWS as u64, 0).unwrap()
    else {
        panic!("not mapped");
    };
    assert_eq!(page_mapped.to_stored(offset), None);
    let (column, bytes, offset) = page(array, Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0);
    let held = 1 << 20;
    let Mapping::Mapped(page, _) = MappedPage::map(&bytes, offset, &column, ROWS as u64, held).unwrap()
    else {
        panic!("not mapped");
    };
    assert!(page.body().is_some());
    let stored = page.to_stored(offset).unwrap();
    let range = offset..offset + bytes.len() as u64;
    let back = |held| MappedPage::from_stored(&stored, &range, &column, ROWS as u64, held).unwrap();
    let (small, large) = (back(held), back(0));
    for _ in 0..EXACT_LOOKUPS {
        assert!(!small.is_worth_holding() && small.body().is_none());
        small.used_exactly(1);
        large.used_exactly(100);
    }
    assert!(small.is_worth_holding() && !large.is_worth_holding());
}
