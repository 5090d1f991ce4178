//! Tables through several mounts, tables of several files, and files that change underneath.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::read_at::{FileIdentity, MemoryFile, PreadFile, ReadAt};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, ReadError, RowRange, Spread, Table, Target};
use support::*;

fn fixture(name: &str) -> PathBuf {
    fixtures_dir().join(name).join("data.parquet")
}

/// Counts the reads of each path.
#[derive(Debug, Clone, Default)]
struct PerPath(Arc<Mutex<BTreeMap<PathBuf, u64>>>);

#[derive(Debug)]
struct CountedFile(PreadFile, PathBuf, PerPath);

impl ReadAt for CountedFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        self.0.identity()
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        *self.2.0.lock().unwrap().entry(self.1.clone()).or_default() += 1;
        self.0.read_at(offset, len)
    }
    fn identity_now(&self) -> std::io::Result<FileIdentity> {
        self.0.identity_now()
    }
}

/// Four directories that show the same file, as mounts of one source do.
fn mounts(dir: &Path) -> Vec<PathBuf> {
    (0..4)
        .map(|number| {
            let mount = dir.join(format!("m{number}"));
            std::fs::create_dir_all(mount.join("t")).unwrap();
            std::fs::hard_link(dir.join("file"), mount.join("t/file")).unwrap();
            mount
        })
        .collect()
}

#[test]
fn reads_are_spread_over_all_mounts_and_rows_stay_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = fixture("parquet-plain-uncompressed");
    std::fs::copy(&path, dir.path().join("file")).unwrap();
    let mounts = mounts(dir.path());
    let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
    for spread in [Spread::Hash, Spread::RoundRobin, Spread::Thread] {
        for deadline in [None, Some(Duration::from_secs(60))] {
            let counts = PerPath::default();
            let count = counts.clone();
            let opener = Opener::new(move |path| {
                let file = PreadFile::open(path)?;
                Ok(Box::new(CountedFile(file, path.to_owned(), count.clone())) as Box<_>)
            });
            let options = OpenOptions {
                spread,
                deadline,
                coalesce: Coalesce {
                    gap_bytes: 0,
                    extent_bytes_max: 0,
                },
                opener: Some(opener),
                ..OpenOptions::default()
            };
            let table = Table::open(Target::on_mounts(mounts.clone(), "t/file"), options).unwrap();
            let ids = rows((0..1500).rev().step_by(11));
            let got = table.get(&ids, &Projection::all()).unwrap();
            assert_same(&format!("{spread:?}"), &got, &pick(&all, &ids));
            let used = counts.0.lock().unwrap().len();
            let is_right = match spread {
                Spread::Thread => used == 1,
                Spread::RoundRobin => used == 4,
                // What lies near each other is read through the same mount, and this file is small.
                Spread::Hash => (2..=4).contains(&used),
            };
            assert!(is_right, "{spread:?}: {used}");
        }
    }
}

#[test]
fn a_table_is_shared_by_threads() {
    let path = fixture("parquet-mixed42-snappy-dict");
    let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
    let table = open(&path);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (table, all) = (table.clone(), &all);
            scope.spawn(move || {
                let mut r = Seeded::new(thread);
                for _ in 0..20 {
                    let ids = rows((0..5).map(|_| r.below(2000)));
                    let got = table.get(&ids, &Projection::all()).unwrap();
                    assert_same(&format!("thread {thread}"), &got, &pick(all, &ids));
                }
            });
        }
    });
}

#[test]
fn a_directory_is_its_files_in_name_order() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, rows, seed| {
        let options = SampleOptions {
            shape: Shape::Wide,
            rows,
            seed,
            force: false,
            ..SampleOptions::default()
        };
        sample::write(&dir.path().join(name), options).unwrap();
    };
    write("part-2", 300, 2);
    write("part-1", 200, 1);
    write("part-10", 0, 9);
    write("part-3", 7, 3);
    std::fs::write(dir.path().join("_SUCCESS"), "").unwrap();
    std::fs::write(dir.path().join(".part-1.crc"), "x").unwrap();
    let table = open(dir.path());
    assert_eq!(table.row_count(), 507);
    let check = |id: u64, seed, row: u64| {
        let got = table.get(&rows([id]), &Projection::all()).unwrap();
        sample::check_rows(&table, &got, Shape::Wide, seed, row..row + 1).unwrap();
    };
    check(0, 1, 0);
    check(199, 1, 199);
    check(200, 2, 0);
    check(499, 2, 299);
    check(506, 3, 6);
    let mixed = table
        .get(&rows([500, 199, 200, 500]), &Projection::columns(["c03", "c00"]))
        .unwrap();
    let one = |id| {
        table
            .get(&rows([id]), &Projection::columns(["c03", "c00"]))
            .unwrap()
    };
    for (place, id) in [500, 199, 200, 500].into_iter().enumerate() {
        assert_eq!(mixed.slice(place, 1), one(id));
    }
    let scanned: usize = table
        .scan(
            RowRange {
                start: 150.into(),
                end: Some(502.into()),
            },
            &Projection::all(),
            100,
        )
        .unwrap()
        .map(|page| page.unwrap().num_rows())
        .sum();
    assert_eq!(scanned, 352);
    assert!(table.get(&rows([507]), &Projection::all()).is_err());
}

#[test]
fn a_directory_that_is_no_table_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wide = SampleOptions {
        shape: Shape::Wide,
        rows: 3,
        ..Default::default()
    };
    sample::write(&dir.path().join("part-1"), wide).unwrap();
    sample::write(
        &dir.path().join("part-4"),
        SampleOptions {
            rows: 1,
            ..Default::default()
        },
    )
    .unwrap();
    let error = Table::open(dir.path(), OpenOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::SchemaDiffers { .. }), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = Table::open(empty.path(), OpenOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::EmptyDirectory { .. }), "{error}");
    std::fs::create_dir(empty.path().join("sub")).unwrap();
    let error = Table::open(empty.path(), OpenOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("'sub'"), "{error}");
}

#[test]
fn a_file_that_changes_in_place_gives_an_error_and_not_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::copy(fixture("parquet-nested"), &path).unwrap();
    let table = open(&path);
    table.get(&rows([1]), &Projection::all()).unwrap();
    std::fs::copy(fixture("parquet-duckdb"), &path).unwrap();
    let error = table.get(&rows([1]), &Projection::all()).unwrap_err().to_string();
    assert!(error.ends_with("changed while it was read; run again"), "{error}");
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let error = table.get(&rows([1]), &Projection::all()).unwrap_err().to_string();
    assert!(error.ends_with("changed while it was read; run again"), "{error}");
}

#[test]
fn a_file_that_is_replaced_by_another_stays_readable_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::copy(fixture("parquet-nested"), &path).unwrap();
    let table = open(&path);
    let before = table.get(&rows([1, 2000]), &Projection::all()).unwrap();
    std::fs::copy(fixture("parquet-duckdb"), dir.path().join("new")).unwrap();
    std::fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(table.get(&rows([1, 2000]), &Projection::all()).unwrap(), before);
}

/// A mount whose version goes away after it was opened.
#[derive(Debug)]
struct Stale(MemoryFile, Arc<AtomicBool>);

impl ReadAt for Stale {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        FileIdentity::Version([3; 16])
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        match self.1.load(SeqCst) {
            true => Err(std::io::Error::from_raw_os_error(libc::ESTALE)),
            false => self.0.read_at(offset, len),
        }
    }
    fn identity_now(&self) -> std::io::Result<FileIdentity> {
        Ok(self.identity())
    }
}

#[test]
fn estale_says_that_the_file_changed() {
    let bytes = Bytes::from(std::fs::read(fixture("parquet-nested")).unwrap());
    let gone = Arc::new(AtomicBool::new(false));
    let gone_too = gone.clone();
    let opener =
        Opener::new(move |_| Ok(Box::new(Stale(MemoryFile(bytes.clone()), gone_too.clone())) as Box<_>));
    let table = Table::open(
        "/f",
        OpenOptions {
            opener: Some(opener),
            ..Default::default()
        },
    )
    .unwrap();
    let known = Projection::columns(["id", "ints"]);
    let before = table.get(&rows([1]), &known).unwrap();
    gone.store(true, SeqCst);
    assert_eq!(table.get(&rows([1]), &known).unwrap(), before, "it is known");
    let error = table.get(&rows([1]), &Projection::all()).unwrap_err();
    assert_eq!(error.to_string(), "/f: changed while it was read; run again");
}

#[test]
fn a_footer_larger_than_the_guess_takes_one_more_read_and_no_byte_twice() {
    let path = fixture("parquet-wide400");
    for (tail_bytes_guess, reads) in [(8, 3), (1 << 20, 1)] {
        let options = OpenOptions {
            tail_bytes_guess,
            ..Default::default()
        };
        let table = Table::open(&path, options).unwrap();
        let counters = table.counters();
        assert_eq!(counters.reads, reads, "guess {tail_bytes_guess}");
        assert!(counters.bytes <= std::fs::metadata(&path).unwrap().len());
    }
}
