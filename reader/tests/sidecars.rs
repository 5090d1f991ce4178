//! What stays known from one run to the next: what a row costs after a restart, that rows stay right whatever is in a
//! sidecar, and indexes that are compared with all headers.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::read_at::{CountingReadAt, ReadCounts};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, Sidecars, StructureCache, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use support::*;

/// A run of a program: nothing is known but what is on disk.
struct Run {
    table: Table,
    counts: ReadCounts,
    seen: (u64, u64),
}

impl Run {
    fn start(bytes: &Bytes, sidecars: Option<&Path>, verify: bool) -> Run {
        let counts = ReadCounts::default();
        let (bytes, count) = (bytes.clone(), counts.clone());
        let options = OpenOptions {
            opener: Some(Opener::new(move |_| {
                let file = Versioned::new(&bytes, [9; 16]);
                Ok(Box::new(CountingReadAt::new(file, count.clone())) as Box<_>)
            })),
            coalesce: Coalesce {
                gap_bytes: 0,
                ..Coalesce::default()
            },
            structures: StructureCache::default(),
            sidecars: sidecars.map(|dir| Sidecars::open(dir).unwrap()),
            verify,
            ..OpenOptions::default()
        };
        let mut run = Run {
            table: Table::open("/f", options).unwrap(),
            counts,
            seen: (0, 0),
        };
        assert_eq!(run.reads().0, 1, "footer and index");
        run
    }

    /// Reads and bytes since the last call.
    fn reads(&mut self) -> (u64, u64) {
        let now = (self.counts.reads(), self.counts.bytes());
        let since = (now.0 - self.seen.0, now.1 - self.seen.1);
        self.seen = now;
        since
    }

    /// The first column of a row.
    fn id(&self, row: u64) -> i64 {
        let got = self.table.get(&rows([row]), &Projection::all()).unwrap();
        got.column(0).as_primitive::<Int64Type>().value(0)
    }
}

/// A file in the sidecar directory; there is one.
fn only_file(dir: &Path) -> PathBuf {
    let files: Vec<_> = std::fs::read_dir(dir.join("lookup-1")).unwrap().collect();
    assert_eq!(files.len(), 1);
    files.into_iter().next().unwrap().unwrap().path()
}

fn sample_bytes(shape: Shape, rows: u64) -> Bytes {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let options = SampleOptions {
        shape,
        rows,
        seed: 4,
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    std::fs::read(&path).unwrap().into()
}

#[test]
fn a_restart_stays_exact() {
    for shape in [Shape::Narrow, Shape::Varying] {
        let bytes = sample_bytes(shape, 9000);
        let dir = tempfile::tempdir().unwrap();
        let check = |run: &Run, row: u64| {
            let got = run.table.get(&rows([row]), &Projection::all()).unwrap();
            sample::check_rows(&run.table, &got, shape, 4, row..row + 1).unwrap();
        };
        let mut run = Run::start(&bytes, Some(dir.path()), false);
        check(&run, 5);
        assert!(run.reads().1 > 2 << 20, "two data pages, whole");
        for _ in 0..2 {
            let mut run = Run::start(&bytes, Some(dir.path()), false);
            check(&run, 77);
            let (reads, read) = run.reads();
            assert!(
                reads == 2 && (8 + 4 + 512..=8 + 4 + 1536).contains(&read),
                "{reads} {read}"
            );
            let counters = run.table.counters();
            assert_eq!((counters.pages_restored, counters.pages_mapped), (2, 0));
            // The other data pages are not known.
            check(&run, 8999);
            assert_eq!(run.table.counters().pages_mapped, 2);
            std::fs::remove_file(only_file(dir.path())).unwrap();
            let mut run = Run::start(&bytes, Some(dir.path()), false);
            check(&run, 5);
            assert!(run.reads().1 > 2 << 20, "a sidecar that was deleted is a miss");
        }
        let mut run = Run::start(&bytes, None, false);
        check(&run, 77);
        assert!(run.reads().1 > 2 << 20, "without a sidecar");
    }
}

#[test]
fn small_bodies_are_read_whole_once_enough_of_their_values_were_asked_for() {
    let bytes = sample_bytes(Shape::Narrow, 4096);
    let dir = tempfile::tempdir().unwrap();
    Run::start(&bytes, Some(dir.path()), false).id(0);
    let mut run = Run::start(&bytes, Some(dir.path()), false);
    let ids = Projection::columns(["id"]);
    let mut costs = Vec::new();
    for row in 0..10 {
        let got = run.table.get(&rows([row]), &ids).unwrap();
        assert_eq!(got.column(0).as_primitive::<Int64Type>().value(0), row as i64);
        costs.push(run.reads());
    }
    assert_eq!(costs[..8], [(1, 8); 8]);
    assert!(costs[8].0 == 1 && costs[8].1 > 4096 * 8, "the data page");
    assert_eq!(costs[9], (0, 0), "and nothing from then on");
}

/// Rows 0..1000 in data pages of 100, as ids and their texts.
fn in_small_pages(without_index: bool) -> Bytes {
    let ids = Arc::new(Int64Array::from_iter_values(0..1000)) as _;
    let texts = Arc::new(StringArray::from_iter_values(
        (0..1000).map(|n| format!("row {n}")),
    )) as _;
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let properties = WriterProperties::builder()
        .set_offset_index_disabled(without_index)
        .set_dictionary_enabled(false)
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

/// The index of the ids says that the second and third data page begin at 110 and 210: each has 100 rows still.
fn with_a_lie() -> Bytes {
    let mut bytes = in_small_pages(false).to_vec();
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Skip)
        .parse_and_finish(&Bytes::from(bytes.clone()))
        .unwrap();
    let index = metadata.row_group(0).column(0).offset_index_range().unwrap();
    let index = index.start as usize..index.end as usize;
    // Zigzag varints: 100 and 110, 200 and 210.
    for (is, lie) in [([0xc8, 0x01], [0xdc, 0x01]), ([0x90, 0x03], [0xa4, 0x03])] {
        let places: Vec<_> = index.clone().filter(|at| bytes[*at..].starts_with(&is)).collect();
        assert_eq!(places.len(), 1, "{is:?}");
        bytes[places[0]..places[0] + 2].copy_from_slice(&lie);
    }
    bytes.into()
}

#[test]
fn a_column_without_an_index_is_walked_once_in_all_runs() {
    let bytes = in_small_pages(true);
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&bytes, Some(dir.path()), false);
    assert_eq!(run.id(250), 250);
    let (_, whole) = run.reads();
    let mut run = Run::start(&bytes, Some(dir.path()), false);
    assert_eq!(run.id(730), 730);
    let (reads, read) = run.reads();
    assert!(
        reads == 2 && read * 4 < whole,
        "two data pages of twenty: {read} of {whole}"
    );
    // By key: the index serves the search too.
    let table = &Run::start(&bytes, Some(dir.path()), false).table;
    let column = table.key_column("id").unwrap();
    let got = table
        .get_keys(&column, &[730i64.into()], &Projection::all())
        .unwrap();
    assert_eq!(got.column(0).as_primitive::<Int64Type>().values(), &[730]);
}

#[test]
fn an_index_that_lies_unseen_is_found_by_verify_and_never_believed_again() {
    let bytes = with_a_lie();
    let dir = tempfile::tempdir().unwrap();
    // What the header of one data page can tell, agrees: this is the lie that the documentation speaks of.
    assert_eq!(Run::start(&bytes, None, false).id(150), 140);
    let run = Run::start(&bytes, Some(dir.path()), true);
    for row in [150, 0, 105, 110, 999] {
        assert_eq!(run.id(row), row as i64);
    }
    assert_eq!(
        run.table.counters().indexes_given_up,
        1,
        "that of the texts is right"
    );
    // Found out once, known for good; also where nothing is verified.
    let mut run = Run::start(&bytes, Some(dir.path()), false);
    assert_eq!(run.id(150), 150);
    let (reads, read) = run.reads();
    assert!(reads == 2 && read < 4096, "two data pages: {reads} {read}");
    // What was found out in this process holds for all that share its cache, too.
    assert_eq!(Run::start(&bytes, None, true).id(150), 150);
}

#[test]
fn verify_reads_each_column_of_a_sound_file_once() {
    let bytes = in_small_pages(false);
    let mut plain = Run::start(&bytes, None, false);
    assert_eq!(plain.id(250), 250);
    let (_, two_pages) = plain.reads();
    let mut run = Run::start(&bytes, None, true);
    assert_eq!(run.id(250), 250);
    let (_, first) = run.reads();
    assert!(first > 8 * two_pages, "both columns: {first}");
    assert_eq!(run.id(251), 251);
    assert_eq!(run.reads(), (0, 0), "known by now");
    assert_eq!(run.id(730), 730);
    let (_, other) = run.reads();
    assert!(other < 2 * two_pages, "two data pages: {other}");
    assert_eq!(run.table.counters().indexes_given_up, 0);
}

/// Whatever is in the sidecar: right rows.
#[test]
fn damaged_sidecars_never_give_a_wrong_row() {
    let bytes = sample_bytes(Shape::Varying, 600);
    let lie = with_a_lie();
    let seed = std::env::var("LOOKUPFS_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(11);
    println!("seed {seed}");
    let mut r = Seeded::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let all = || {
        let run = Run::start(&bytes, Some(dir.path()), false);
        let got = run.table.get(&rows(0..600), &Projection::all()).unwrap();
        sample::check_rows(&run.table, &got, Shape::Varying, 4, 0..600).unwrap();
    };
    all();
    let whole = std::fs::read(only_file(dir.path())).unwrap();
    for _ in 0..200 {
        let mut bad = whole.clone();
        match r.below(3) {
            0 => bad.truncate(r.below(whole.len() as u64) as usize),
            1 => bad.extend((0..r.below(60)).map(|n| n as u8)),
            _ => {
                let at = r.below(whole.len() as u64) as usize;
                bad[at] ^= 1 << r.below(8);
            }
        }
        std::fs::write(
            dir.path().join("lookup-1").join(format!("v-{}", "09".repeat(16))),
            bad,
        )
        .unwrap();
        all();
    }
    // The sidecar of one version under the name of another is that of neither.
    std::fs::write(only_file(dir.path()), &whole).unwrap();
    let run = Run::start(&lie, Some(dir.path()), true);
    assert_eq!(run.id(150), 150);
}

/// What other versions of this program have written is read, and what they will read is written: byte by byte what
/// `SIDECAR.md` says. With `LOOKUPFS_WRITE_GOLDEN` set the files are made anew, for a new format.
#[test]
fn the_format_is_what_it_was() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for fixture in [
        "parquet-plain-uncompressed",
        "parquet-duckdb",
        "parquet-no-page-index",
        "parquet-codecs",
    ] {
        let file = std::fs::read_dir(fixtures_dir().join(fixture)).unwrap();
        let mut files: Vec<_> = file.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "parquet"));
        files.sort();
        let bytes = Bytes::from(std::fs::read(&files[0]).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let first = rows([0]);
        let cold = Run::start(&bytes, Some(dir.path()), false);
        let got = cold.table.get(&first, &Projection::all()).unwrap();
        let written = std::fs::read(only_file(dir.path())).unwrap();
        let golden = golden.join(format!("{fixture}.sidecar-1"));
        if std::env::var_os("LOOKUPFS_WRITE_GOLDEN").is_some() {
            std::fs::write(&golden, &written).unwrap();
        }
        let recorded = std::fs::read(&golden).unwrap();
        assert!(written == recorded, "{fixture}: not the bytes that were recorded");
        std::fs::write(only_file(dir.path()), recorded).unwrap();
        let run = Run::start(&bytes, Some(dir.path()), false);
        assert_eq!(
            run.table.get(&first, &Projection::all()).unwrap(),
            got,
            "{fixture}"
        );
        assert!(run.counts.bytes() <= cold.counts.bytes(), "{fixture}");
    }
}
