//! A table over time: refreshed, cancelled, at its deadline, and with more files than may stay open.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::read_at::{FileIdentity, PreadFile, ReadAt};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{CancelToken, OpenOptions, Projection, ReadError, RowId, RowRange, Table};

fn write(path: &Path, rows: u64, seed: u64) {
    let options = SampleOptions {
        shape: Shape::Narrow,
        rows,
        seed,
        force: true,
        ..SampleOptions::default()
    };
    sample::write(path, options).unwrap();
}

fn check(table: &Table, seed: u64, row: u64) {
    let got = table.get(&[RowId(row)], &Projection::all()).unwrap();
    sample::check_rows(table, &got, Shape::Narrow, seed, row..row + 1).unwrap();
}

#[test]
fn a_refreshed_table_is_the_same_one_until_its_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, 1000, 1);
    let table = Table::open(&path, OpenOptions::default()).unwrap();
    check(&table, 1, 7);
    let again = table.refresh().unwrap();
    check(&again, 1, 8);
    assert_eq!(table.counters(), again.counters(), "one table, one count");
    // Replaced, as writers do: the old file is another inode.
    let next = dir.path().join("next");
    write(&next, 1200, 2);
    std::fs::rename(&next, &path).unwrap();
    let new = table.refresh().unwrap();
    assert_eq!((table.row_count(), new.row_count()), (1000, 1200));
    check(&new, 2, 1199);
    // Rows of the old one stay what they were: its file is open.
    check(&table, 1, 999);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(new.refresh(), Err(ReadError::Open { .. })));
}

#[test]
fn a_refreshed_directory_has_the_files_that_are_there_now() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), 100, 1);
    let table = Table::open(dir.path(), OpenOptions::default()).unwrap();
    assert_eq!(table.refresh().unwrap().row_count(), 100);
    write(&dir.path().join("b"), 50, 1);
    assert_eq!(table.refresh().unwrap().row_count(), 150);
    std::fs::rename(dir.path().join("a"), dir.path().join("c")).unwrap();
    assert_eq!(table.refresh().unwrap().row_count(), 150);
}

/// Opens and reads wait here while it is shut.
#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        let shut = self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut);
        drop(shut.unwrap());
    }
}

#[derive(Debug)]
struct GatedFile(PreadFile, Arc<Gate>);

impl ReadAt for GatedFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        self.0.identity()
    }
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.1.pass();
        self.0.read_at(offset, len)
    }
    fn identity_now(&self) -> io::Result<FileIdentity> {
        self.0.identity_now()
    }
}

fn gated(gate: &Arc<Gate>) -> OpenOptions {
    let gate = gate.clone();
    let opener = Opener::new(move |path| {
        gate.pass();
        Ok(Box::new(GatedFile(PreadFile::open(path)?, gate.clone())) as Box<_>)
    });
    OpenOptions {
        opener: Some(opener),
        ..OpenOptions::default()
    }
}

#[test]
fn a_cancelled_request_ends_though_its_read_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, 1000, 1);
    let gate = Arc::new(Gate::default());
    let table = Table::open(&path, gated(&gate)).unwrap();
    let token = CancelToken::new();
    let mine = table.cancelled_by(&token);
    check(&mine, 1, 5);
    gate.set(true);
    let before = gate.waiting.load(SeqCst);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| mine.get(&[RowId(900)], &Projection::all()));
        while gate.waiting.load(SeqCst) == before {
            std::thread::yield_now();
        }
        token.cancel();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, ReadError::Cancelled { .. }), "{error}");
    });
    gate.set(false);
    // For good, for streams and refreshed tables too; others of the same table go on.
    for error in [
        mine.get(&[RowId(5)], &Projection::all()).unwrap_err(),
        mine.refresh().unwrap_err(),
        mine.scan(RowRange::ALL, &Projection::all(), 10)
            .unwrap()
            .next()
            .unwrap()
            .unwrap_err(),
    ] {
        assert!(matches!(error, ReadError::Cancelled { .. }), "{error}");
    }
    check(&table, 1, 900);
}

#[test]
fn an_open_that_hangs_ends_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, 10, 1);
    let gate = Arc::new(Gate::default());
    gate.set(true);
    let options = OpenOptions {
        deadline: Some(Duration::from_millis(30)),
        ..gated(&gate)
    };
    let error = Table::open(&path, options).unwrap_err();
    assert!(matches!(error, ReadError::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("opening"), "{error}");
    gate.set(false);
}

/// Counts how many are open.
#[derive(Debug)]
struct OpenFile(PreadFile, Arc<AtomicUsize>);

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

impl ReadAt for OpenFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        self.0.identity()
    }
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.0.read_at(offset, len)
    }
    fn identity_now(&self) -> io::Result<FileIdentity> {
        self.0.identity_now()
    }
}

#[test]
fn of_many_files_those_used_last_stay_open() {
    const FILES: u64 = 300;
    const OPEN_MAX: usize = 128;
    let dir = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        write(&dir.path().join(format!("{number:03}")), 3, number);
    }
    let (open, opens) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, all) = (open.clone(), opens.clone());
    let opener = Opener::new(move |path| {
        let file = PreadFile::open(path)?;
        now.fetch_add(1, SeqCst);
        all.fetch_add(1, SeqCst);
        Ok(Box::new(OpenFile(file, now.clone())) as Box<_>)
    });
    let options = OpenOptions {
        opener: Some(opener),
        ..OpenOptions::default()
    };
    let table = Table::open(dir.path(), options).unwrap();
    assert!(open.load(SeqCst) <= OPEN_MAX);
    let get = |file: u64| {
        let got = table.get(&[RowId(file * 3 + 1)], &Projection::all()).unwrap();
        assert_eq!(got.num_rows(), 1);
        assert!(open.load(SeqCst) <= OPEN_MAX, "{}", open.load(SeqCst));
    };
    // The last hundred, which were not the first to be opened.
    (200..FILES).for_each(get);
    let before = opens.load(SeqCst);
    for _ in 0..3 {
        (200..FILES).for_each(get);
    }
    assert_eq!(opens.load(SeqCst), before, "these stay open");
    get(0);
    assert_eq!(opens.load(SeqCst), before + 1);
    // A request of all files leaves no more open than the others.
    let every: Vec<RowId> = (0..FILES).map(|file| RowId(file * 3)).collect();
    assert_eq!(table.get(&every, &Projection::all()).unwrap().num_rows(), 300);
    assert!(open.load(SeqCst) <= OPEN_MAX);
}
