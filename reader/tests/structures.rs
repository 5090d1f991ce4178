//! What is known of files between lookups: what a warm row costs, who shares what, and that memory stays bounded.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::read_at::{FileIdentity, MemoryFile, PreadFile, ReadAt};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::table::LookupCounters;
use lookupfs_reader::{OpenOptions, Projection, RowId, StructureCache, Table, Target};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use support::*;

fn sample_bytes(shape: Shape, rows: u64, seed: u64) -> Bytes {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let options = SampleOptions {
        shape,
        rows,
        seed,
        force: false,
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    std::fs::read(&path).unwrap().into()
}

/// Counts reads and bytes of a version in memory.
#[derive(Debug)]
struct Counted(MemoryFile, FileIdentity, Arc<[AtomicU64; 2]>);

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        self.1
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        self.2[0].fetch_add(1, Relaxed);
        self.2[1].fetch_add(len as u64, Relaxed);
        self.0.read_at(offset, len)
    }
    fn identity_now(&self) -> std::io::Result<FileIdentity> {
        Ok(self.1)
    }
}

struct Reads(Arc<[AtomicU64; 2]>);

impl Reads {
    /// Reads and bytes since the last call.
    fn take(&self) -> (u64, u64) {
        (self.0[0].swap(0, Relaxed), self.0[1].swap(0, Relaxed))
    }
}

fn counted(bytes: &Bytes, version: u8) -> (OpenOptions, Reads) {
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (bytes, count) = (bytes.clone(), counts.clone());
    let identity = FileIdentity::Version([version; 16]);
    let opener = Opener::new(move |_| {
        Ok(Box::new(Counted(MemoryFile(bytes.clone()), identity, count.clone())) as Box<_>)
    });
    let options = OpenOptions {
        opener: Some(opener),
        ..OpenOptions::default()
    };
    (options, Reads(counts))
}

fn check(table: &Table, shape: Shape, seed: u64, row: u64) {
    let got = table.get(&rows([row]), &Projection::all()).unwrap();
    sample::check_rows(table, &got, shape, seed, row..row + 1).unwrap();
}

#[test]
fn a_warm_row_of_an_uncompressed_file_costs_the_bytes_of_its_value() {
    let bytes = sample_bytes(Shape::Narrow, 9000, 4);
    let (options, reads) = counted(&bytes, 1);
    let table = Table::open("/f", options.clone()).unwrap();
    assert_eq!(reads.take().0, 1, "footer and index");
    check(&table, Shape::Narrow, 4, 5);
    let (count, cold) = reads.take();
    assert!(
        count <= 2 && cold > 4 << 20,
        "{count} {cold}: two data pages, whole"
    );
    for row in [5, 6, 0, 4095] {
        check(&table, Shape::Narrow, 4, row);
        // 4 bytes of length and 1 KiB of payload; the id is in memory.
        assert_eq!(reads.take(), (1, 1028), "row {row}");
    }
    // Two rows of one request, and the same row twice.
    let far = OpenOptions {
        coalesce: Coalesce {
            gap_bytes: 0,
            ..Coalesce::default()
        },
        ..options.clone()
    };
    let again = Table::open("/f", far).unwrap();
    let got = again.get(&rows([9, 5, 9]), &Projection::all()).unwrap();
    assert_eq!(got.column(0).as_primitive::<Int64Type>().values().len(), 3);
    assert_eq!(got.slice(0, 1), got.slice(2, 1));
    assert_eq!(reads.take(), (2, 2 * 1028));
    // Opened again, under another name: nothing is read but the value.
    let again = Table::open("/other/name", options).unwrap();
    check(&again, Shape::Narrow, 4, 77);
    assert_eq!(reads.take(), (1, 1028));
    let counters = again.counters();
    assert_eq!(
        (counters.footers_hit, counters.exact_values, counters.pages_mapped),
        (1, 1, 0)
    );
}

#[test]
fn a_warm_row_of_a_compressed_file_reads_nothing() {
    let bytes = sample_bytes(Shape::Wide, 5000, 8);
    let (options, reads) = counted(&bytes, 1);
    let table = Table::open("/f", options).unwrap();
    check(&table, Shape::Wide, 8, 77);
    reads.take();
    let before = table.counters();
    check(&table, Shape::Wide, 8, 78);
    assert_eq!(reads.take(), (0, 0));
    let after = table.counters();
    let counts = |c: &LookupCounters| [c.pages_hit, c.pages_mapped, c.dictionaries_mapped];
    let [hit, mapped, dictionaries] = counts(&after);
    let [hit_before, mapped_before, dictionaries_before] = counts(&before);
    assert_eq!(
        (
            hit - hit_before,
            mapped - mapped_before,
            dictionaries - dictionaries_before
        ),
        (42, 0, 0)
    );
}

#[test]
fn a_file_without_an_index_is_walked_once() {
    let ids = Arc::new(Int64Array::from_iter_values(0..5000)) as _;
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let properties = WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let (options, reads) = counted(&bytes.into(), 1);
    let table = Table::open("/f", options).unwrap();
    let all = Projection::all();
    let value = |row| {
        table
            .get(&rows([row]), &all)
            .unwrap()
            .column(0)
            .as_primitive::<Int64Type>()
            .value(0)
    };
    reads.take();
    assert_eq!(value(250), 250);
    let (_, whole) = reads.take();
    assert_eq!(value(251), 251);
    assert_eq!(reads.take(), (0, 0), "the same data page");
    assert_eq!(value(4999), 4999);
    let (count, page) = reads.take();
    assert!(
        count == 1 && page * 20 < whole,
        "one data page of 50: {page} of {whole}"
    );
}

#[test]
fn memory_stays_within_the_budget_and_rows_stay_right() {
    let bytes = sample_bytes(Shape::Wide, 30_000, 3);
    for budget in [0, 1 << 20, 8 << 20] {
        let (options, _) = counted(&bytes, 1);
        let structures = StructureCache::new(budget);
        let table = Table::open(
            "/f",
            OpenOptions {
                structures: structures.clone(),
                ..options
            },
        )
        .unwrap();
        let mut r = Seeded::new(budget);
        for _ in 0..15 {
            check(&table, Shape::Wide, 3, r.below(30_000));
            assert!(structures.bytes() <= budget, "{structures:?}");
        }
    }
}

#[test]
fn versions_do_not_share_and_errors_are_not_kept() {
    let (first, second) = (
        sample_bytes(Shape::Wide, 2000, 1),
        sample_bytes(Shape::Wide, 2000, 2),
    );
    let structures = StructureCache::new(64 << 20);
    let open = |bytes: &Bytes, version: u8| {
        let (options, reads) = counted(bytes, version);
        let options = OpenOptions {
            structures: structures.clone(),
            ..options
        };
        Table::open("/f", options).map(|table| (table, reads))
    };
    let (one, _) = open(&first, 1).unwrap();
    let (two, _) = open(&second, 2).unwrap();
    for row in [0, 1999, 1000] {
        check(&one, Shape::Wide, 1, row);
        check(&two, Shape::Wide, 2, row);
    }
    // A footer that cannot be read is read again, and is right once it can be.
    assert!(open(&first.slice(..1000), 3).is_err());
    let (three, reads) = open(&first, 3).unwrap();
    assert!(reads.take().0 > 0);
    check(&three, Shape::Wide, 1, 7);
}

#[test]
fn a_file_written_a_moment_ago_is_not_shared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, sample_bytes(Shape::Narrow, 10, 0)).unwrap();
    assert_eq!(PreadFile::open(&path).unwrap().version_key(), None);
    let old = fixtures_dir().join("parquet-nested/data.parquet");
    let key = |path: &Path| PreadFile::open(path).unwrap().version_key();
    assert!(key(&old).is_some());
    assert_eq!(key(&old), key(&old));
}

#[test]
fn threads_get_right_rows_while_the_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let versions: Vec<Bytes> = (0..10).map(|seed| sample_bytes(Shape::Wide, 700, seed)).collect();
    std::fs::write(&path, &versions[0]).unwrap();
    let options = OpenOptions {
        // The bytes say which version it is, as a mount would.
        opener: Some(Opener::new(|path| {
            let bytes = Bytes::from(std::fs::read(path)?);
            let sum = bytes.iter().fold(7u128, |sum, byte| {
                sum.wrapping_mul(0x0000_0100_0000_01b3)
                    .wrapping_add(u128::from(*byte))
            });
            Ok(Box::new(Versioned::new(&bytes, sum.to_le_bytes())) as Box<_>)
        })),
        structures: StructureCache::new(4 << 20),
        ..OpenOptions::default()
    };
    let all: Vec<RecordBatch> = versions
        .iter()
        .map(|v| plain_read(v.clone(), None, None).unwrap())
        .collect();
    let replaced = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (options, path, all, replaced) = (options.clone(), &path, &all, &replaced);
            scope.spawn(move || {
                let mut r = Seeded::new(thread);
                for _ in 0..40 {
                    let before = replaced.load(Relaxed) as usize;
                    let table = Table::open(Target::from(path), options.clone()).unwrap();
                    let after = replaced.load(Relaxed) as usize;
                    let ids: Vec<RowId> = (0..3).map(|_| RowId(r.below(700))).collect();
                    let got = table.get(&ids, &Projection::all()).unwrap();
                    // One of the versions that were there while it was opened, and all of it.
                    let right =
                        (before..=(after + 1).min(9)).any(|v| pick(&all[v], &ids).columns() == got.columns());
                    assert!(
                        right,
                        "thread {thread}: rows {ids:?} are of no version of {before}..={after}"
                    );
                }
            });
        }
        for (number, version) in versions.iter().enumerate().skip(1) {
            std::fs::write(dir.path().join("new"), version).unwrap();
            std::fs::rename(dir.path().join("new"), &path).unwrap();
            replaced.store(number as u64, Relaxed);
            check(
                &Table::open(Target::from(&path), options.clone()).unwrap(),
                Shape::Wide,
                number as u64,
                5,
            );
        }
    });
}

#[test]
fn more_pages_than_fit_keep_their_maps_and_not_their_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let options = SampleOptions {
        rows: 4000,
        page_rows: Some(16),
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    let structures = StructureCache::new(1 << 20);
    let options = OpenOptions {
        structures: structures.clone(),
        ..OpenOptions::default()
    };
    let table = Table::open(path.as_path(), options).unwrap();
    let pass = || {
        let before = table.counters();
        for row in 0..4000 {
            let got = table.get(&[RowId(row)], &Projection::all()).unwrap();
            sample::check_rows(&table, &got, Shape::Narrow, 0, row..row + 1).unwrap();
            // What was put in counts once this was done.
            assert!(structures.bytes() <= structures.budget_bytes());
        }
        let after = table.counters();
        (
            after.pages_mapped - before.pages_mapped,
            after.exact_values - before.exact_values,
        )
    };
    pass();
    // 4 MiB of payloads in 250 data pages, of which the budget would hold 60.
    let (mapped, exact) = pass();
    assert!(
        mapped < 60 && exact > 2000,
        "{mapped} data pages mapped again, {exact} values read"
    );
}

#[test]
fn a_little_too_small_a_budget_costs_a_little() {
    const ROWS: u64 = 30_000;
    let bytes = sample_bytes(Shape::Wide, ROWS, 5);
    let opened = |budget: u64| {
        let structures = StructureCache::new(budget);
        let options = OpenOptions {
            structures: structures.clone(),
            ..counted(&bytes, 1).0
        };
        (Table::open("/f", options.clone()).unwrap(), options, structures)
    };
    let look_up = |table: &Table, r: &mut Seeded, count: usize| {
        for _ in 0..count {
            table.get(&[RowId(r.below(ROWS))], &Projection::all()).unwrap();
        }
    };
    let mut r = Seeded::new(5);
    let (table, _, all) = opened(1 << 30);
    look_up(&table, &mut r, 500);
    let budget = all.bytes() * 9 / 10;
    let (table, options, structures) = opened(budget);
    look_up(&table, &mut r, 1500);
    let before = table.counters();
    look_up(&table, &mut r, 500);
    let after = table.counters();
    let made =
        after.pages_mapped - before.pages_mapped + after.dictionaries_mapped - before.dictionaries_mapped;
    println!("budget {budget}: {made} data pages and dictionaries made anew for 500 rows of 42 columns");
    // A row uses some 70 entries. Were a tenth of all missing, by bytes or by number, it would be 7 for each row.
    assert!(made < 1000, "{made} made anew");
    assert!(structures.bytes() <= budget);
    // What is known of an open table is found by who opens it again.
    let again = Table::open("/f", options).unwrap();
    assert_eq!(again.counters().footers_hit, 1);
}
