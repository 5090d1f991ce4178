//! Files made anew for lookups: every row of every fixture, whatever the layout asked for.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use lookupfs_reader::rewrite::{Progress, RewriteOptions, Rewritten, SizeStatistics, rewrite};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, ReadError, RowId, RowRange, StructureCache, Table};
use parquet::basic::Encoding;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use support::*;

fn options() -> RewriteOptions {
    RewriteOptions {
        verify: true,
        memory_bytes: 1 << 30,
        ..RewriteOptions::default()
    }
}

fn metadata(path: &Path) -> ParquetMetaData {
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&bytes)
        .unwrap()
}

fn all_rows(path: &Path) -> RecordBatch {
    plain_read(std::fs::read(path).unwrap().into(), None, None).unwrap()
}

fn run(from: &Path, to: &Path, options: &RewriteOptions) -> Result<Rewritten, ReadError> {
    rewrite(&open(from), to, options, &mut |_| {})
}

fn sample_file(dir: &Path, shape: Shape, rows: u64) -> PathBuf {
    let path = dir.join("sample");
    let options = SampleOptions {
        shape,
        rows,
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    path
}

#[test]
fn every_fixture_keeps_every_row_in_every_layout() {
    let dir = tempfile::tempdir().unwrap();
    let layouts = [
        options(),
        RewriteOptions {
            page_rows: Some(7),
            row_group_rows: Some(100),
            codec: Some("zstd:1".parse().unwrap()),
            encoding: "plain".parse().unwrap(),
            size_statistics: SizeStatistics::None,
            ..options()
        },
        RewriteOptions {
            page_rows: Some(64),
            codec: Some("none".parse().unwrap()),
            encoding: "delta".parse().unwrap(),
            size_statistics: SizeStatistics::Page,
            ..options()
        },
        RewriteOptions {
            codec: Some("snappy".parse().unwrap()),
            encoding: "byte-stream-split".parse().unwrap(),
            ..options()
        },
        RewriteOptions {
            codec: Some("lz4".parse().unwrap()),
            encoding: "dictionary".parse().unwrap(),
            row_group_rows: Some(33),
            ..options()
        },
    ];
    let mut compared = 0;
    for fixture in fixtures() {
        let from = fixture.join("data.parquet");
        let want = all_rows(&from);
        for (number, layout) in layouts.iter().enumerate() {
            let what = format!("{}, layout {number}", from.display());
            let to = dir.path().join("out");
            let layout = RewriteOptions {
                force: true,
                ..layout.clone()
            };
            let done = run(&from, &to, &layout).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(done.rows, want.num_rows() as u64, "{what}");
            assert_eq!(done.bytes, std::fs::metadata(&to).unwrap().len(), "{what}");
            compared += assert_same(&what, &all_rows(&to), &want);
            let table = open(&to);
            assert_eq!(table.schema().fields(), open(&from).schema().fields(), "{what}");
            if want.num_rows() > 0 {
                let ids = rows([want.num_rows() as u64 - 1, 0, want.num_rows() as u64 / 2]);
                assert_same(
                    &what,
                    &table.get(&ids, &Projection::all()).unwrap(),
                    &pick(&want, &ids),
                );
            }
        }
    }
    println!("{compared} values compared");
    assert!(compared > 100_000, "{compared}");
}

#[test]
fn data_pages_have_the_rows_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let from = sample_file(dir.path(), Shape::Narrow, 10_000);
    for (page_rows, group_rows) in [(64, 4096), (1000, 9_999), (4096, 1 << 17), (1031, 5000)] {
        let to = dir.path().join(format!("out {page_rows}"));
        let layout = RewriteOptions {
            page_rows: Some(page_rows),
            row_group_rows: Some(group_rows),
            ..options()
        };
        let done = run(&from, &to, &layout).unwrap();
        assert_eq!(done.row_groups, 10_000usize.div_ceil(group_rows));
        let metadata = metadata(&to);
        for group in 0..metadata.num_row_groups() {
            for column in 0..2 {
                let index = metadata
                    .page_index()
                    .unwrap()
                    .offset_index(group, column)
                    .unwrap();
                let starts = index.page_locations().iter().map(|l| l.first_row_index as usize);
                let want = (0..metadata.row_group(group).num_rows() as usize).step_by(page_rows);
                assert!(
                    starts.eq(want),
                    "{page_rows} rows, row group {group}, column {column}"
                );
            }
        }
    }
    // Without a number, by bytes: 64 KiB are 64 payloads, and 4,096 ids are fewer bytes.
    let to = dir.path().join("default");
    run(&from, &to, &options()).unwrap();
    let metadata = metadata(&to);
    let index = |column| metadata.page_index().unwrap().offset_index(0, column).unwrap();
    let second = |column: usize| index(column).page_locations()[1].first_row_index;
    assert!(second(1) == 64, "{}", second(1));
    assert!(second(0) == 4096, "{}", second(0));
}

#[test]
fn size_statistics_are_where_they_were_asked_for_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let from = fixtures_dir().join("parquet-nested/data.parquet");
    for level in [SizeStatistics::None, SizeStatistics::Chunk, SizeStatistics::Page] {
        let to = dir.path().join(format!("{level:?}"));
        let layout = RewriteOptions {
            size_statistics: level,
            page_rows: Some(50),
            ..options()
        };
        run(&from, &to, &layout).unwrap();
        let metadata = metadata(&to);
        let (mut chunk, mut page, mut bounds) = (0, 0, 0);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            for (leaf, column) in group.columns().iter().enumerate() {
                chunk += usize::from(column.unencoded_byte_array_data_bytes().is_some());
                chunk += usize::from(column.definition_level_histogram().is_some());
                chunk += usize::from(column.repetition_level_histogram().is_some());
                let offsets = metadata.page_index().unwrap().offset_index(number, leaf).unwrap();
                page += usize::from(offsets.unencoded_byte_array_data_bytes().is_some());
                let Some(index) = metadata.page_index().unwrap().column_index(number, leaf) else {
                    continue;
                };
                bounds += index.num_pages();
                page += usize::from(index.definition_level_histogram(0).is_some());
                page += usize::from(index.repetition_level_histogram(0).is_some());
            }
        }
        assert_eq!(chunk > 0, level != SizeStatistics::None, "{level:?}");
        assert_eq!(page > 0, level == SizeStatistics::Page, "{level:?}");
        assert!(bounds > 0, "{level:?}");
    }
    // The bounds are the same at every level.
    let index = |level: &str| {
        let metadata = metadata(&dir.path().join(level));
        let leaves = metadata.row_group(0).num_columns();
        let of = |leaf| metadata.page_index()?.column_index(0, leaf).cloned();
        let text = |index: parquet::file::page_index::column_index::ColumnIndexMetaData| {
            let text = format!("{index:?}");
            // Everything but histograms.
            let (before, rest) = text.split_once("repetition_level_histograms").unwrap();
            format!("{before}{}", rest.split_once("nan_counts").unwrap().1)
        };
        (0..leaves).map(|leaf| of(leaf).map(text)).collect::<Vec<_>>()
    };
    assert_eq!(index("None"), index("Page"));
    assert_eq!(index("Chunk"), index("Page"));
}

#[test]
fn encodings_and_codecs_are_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let from = sample_file(dir.path(), Shape::Wide, 3000);
    let made = |encoding: &str, codec: Option<&str>| {
        let to = dir.path().join(encoding);
        let layout = RewriteOptions {
            encoding: encoding.parse().unwrap(),
            codec: codec.map(|codec| codec.parse().unwrap()),
            ..options()
        };
        run(&from, &to, &layout).unwrap();
        metadata(&to)
    };
    let has = |metadata: &ParquetMetaData, leaf: usize, wanted: Encoding| {
        metadata
            .row_group(0)
            .column(leaf)
            .encodings()
            .any(|e| e == wanted)
    };
    let auto = made("auto", None);
    assert!(has(&auto, 1, Encoding::RLE_DICTIONARY));
    assert!(
        auto.row_group(0)
            .column(1)
            .compression()
            .to_string()
            .starts_with("ZSTD")
    );
    let plain = made("plain", Some("none"));
    for column in plain.row_group(0).columns() {
        assert_eq!(column.compression().to_string(), "UNCOMPRESSED");
        assert_eq!(column.dictionary_page_offset(), None);
    }
    let delta = made("delta", None);
    assert!(has(&delta, 0, Encoding::DELTA_BINARY_PACKED) && has(&delta, 3, Encoding::DELTA_BYTE_ARRAY));
    assert!(has(
        &made("byte-stream-split", None),
        2,
        Encoding::BYTE_STREAM_SPLIT
    ));
}

#[test]
fn rows_are_sorted_with_equal_keys_in_their_order_and_nulls_last() {
    let dir = tempfile::tempdir().unwrap();
    let from = sample_file(dir.path(), Shape::Wide, 5000);
    let want = all_rows(&from);
    // Few different values and nulls (c07, INT64), strings (c10), floats (c02).
    for name in ["c07", "c10", "c02"] {
        let to = dir.path().join(name);
        let layout = RewriteOptions {
            sort_by: Some(name.into()),
            page_rows: Some(256),
            ..options()
        };
        run(&from, &to, &layout).unwrap();
        let got = all_rows(&to);
        // c00 is the row id.
        let ids: Vec<RowId> = got
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .map(|id| RowId(*id as u64))
            .collect();
        assert_same(name, &got, &pick(&want, &ids));
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().map(|id| id.0).eq(0..5000), "{name}");
        let column = got.column_by_name(name).unwrap();
        let nulls = column.null_count();
        assert!(
            column.slice(5000 - nulls, nulls).null_count() == nulls,
            "{name}: nulls are last"
        );
        if name == "c07" {
            let keys = column.as_primitive::<Int64Type>();
            let pairs = (0..5000 - nulls).map(|row| (keys.value(row), ids[row]));
            assert!(pairs.is_sorted(), "{name}");
        }
        let sorting = metadata(&to).row_group(0).sorting_columns().cloned().unwrap();
        assert_eq!(
            (sorting.len(), sorting[0].descending, sorting[0].nulls_first),
            (1, false, false)
        );
        // A key lies in few data pages now.
        let table = open(&to);
        let key = table.key_column(name).unwrap();
        let value = lookupfs_reader::Key::Text(match name {
            "c07" => column.as_primitive::<Int64Type>().value(2000).to_string(),
            "c10" => column.as_string::<i32>().value(2000).to_owned(),
            _ => return,
        });
        assert!(
            table
                .find_keys(&key, &[value])
                .unwrap()
                .rows()
                .contains(&RowId(2000))
        );
        assert!(table.counters().key_pages_made <= 4, "{:?}", table.counters());
    }
}

#[test]
fn what_cannot_be_sorted_in_memory_is_refused_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let from = sample_file(dir.path(), Shape::Narrow, 5000);
    let to = dir.path().join("out");
    let layout = RewriteOptions {
        sort_by: Some("payload".into()),
        memory_bytes: 1 << 20,
        ..options()
    };
    let error = run(&from, &to, &layout).unwrap_err().to_string();
    assert!(
        error.contains("sorting by 'payload'") && error.contains("--memory"),
        "{error}"
    );
    std::fs::write(&to, "there").unwrap();
    let error = run(&from, &to, &options()).unwrap_err().to_string();
    assert!(error.contains("--force"), "{error}");
    // A file that ends in the middle of its data.
    let whole = std::fs::read(&from).unwrap();
    let cut = dir.path().join("cut");
    let middle = [&whole[..1 << 20], &vec![0xaa; 1 << 20], &whole[2 << 20..]].concat();
    std::fs::write(&cut, middle).unwrap();
    assert!(run(&cut, &dir.path().join("none"), &options()).is_err());
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["cut", "out", "sample"]);
    assert_eq!(std::fs::read(&to).unwrap(), b"there");
}

#[test]
fn a_directory_becomes_one_file_and_progress_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (parts, to) = (dir.path().join("parts"), dir.path().join("out"));
    std::fs::create_dir(&parts).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::rename(sample_file(dir.path(), Shape::Narrow, 3000), parts.join(name)).unwrap();
    }
    let options_of_table = OpenOptions {
        structures: StructureCache::new(1 << 20),
        ..OpenOptions::default()
    };
    let table = Table::open(parts.as_path(), options_of_table).unwrap();
    let (mut written, mut verified) = (Vec::new(), Vec::new());
    let done = rewrite(&table, &to, &options(), &mut |progress| match progress {
        Progress::Written(rows) => written.push(rows),
        Progress::Verified(rows) => verified.push(rows),
        Progress::Sorting => panic!("nothing is sorted"),
    });
    assert_eq!(done.unwrap().rows, 9000);
    assert!(written.is_sorted() && verified.is_sorted());
    assert_eq!((written.last(), verified.last()), (Some(&9000), Some(&9000)));
    let mut at = 0;
    for batch in table.scan(RowRange::ALL, &Projection::all(), 1000).unwrap() {
        let batch = batch.unwrap();
        let ids = rows(at..at + 1000);
        assert_same(
            "directory",
            &open(&to).get(&ids, &Projection::all()).unwrap(),
            &batch,
        );
        at += 1000;
    }
}

#[test]
fn bounds_are_left_out_where_they_choose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let from = sample_file(dir.path(), Shape::Key, 4000);
    let bounded = |sort_by: Option<&str>| -> Vec<bool> {
        let to = dir.path().join(sort_by.unwrap_or("as is"));
        let layout = RewriteOptions {
            sort_by: sort_by.map(str::to_owned),
            page_rows: Some(100),
            ..options()
        };
        run(&from, &to, &layout).unwrap();
        let metadata = metadata(&to);
        let index = metadata.page_index().unwrap();
        (0..3).map(|leaf| index.column_index(0, leaf).is_some()).collect()
    };
    // Random bytes lie everywhere. Numbers keep their bounds, which are short.
    assert_eq!(bounded(None), [true, false, false]);
    assert_eq!(bounded(Some("v0")), [true, true, false]);
}
