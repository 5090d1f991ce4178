//! Lookups from many threads through many mounts while the file is replaced: every row is right for the version that it was
//! asked of, or there is an error that says so; never a row of another version among them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, ReadError, RowId, Table, Target};
use lookupfs_tests::{Daemon, Tree, seed, wait_until};

const MOUNTS: usize = 16;
const THREADS: u64 = 16;
const REPLACEMENTS: u64 = 10;
const ROWS: u64 = 3000;
/// Lookups without `LOOKUPFS_TEST_SCALE`; with 50 it is a million.
const LOOKUPS: u64 = 20_000;

fn write(path: &Path, generation: u64) {
    let options = SampleOptions {
        shape: Shape::Narrow,
        rows: ROWS,
        seed: generation,
        ..SampleOptions::default()
    };
    sample::write(path, options).unwrap();
}

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a lookup may say while the file is replaced.
fn is_fair(error: &ReadError) -> bool {
    match error {
        ReadError::Changed { .. } | ReadError::OtherVersion { .. } => true,
        // The inode has gone, and its bytes are not cached.
        ReadError::Open { source, .. } | ReadError::Read { source, .. } => {
            source.raw_os_error() == Some(libc::ESTALE)
        }
        _ => false,
    }
}

struct Counts {
    right: AtomicU64,
    errors: AtomicU64,
    done: AtomicU64,
}

/// Looks rows up, each time from a file that is opened for it or through a table that is kept for a while.
fn look_up(target: &Target, options: &OpenOptions, mut random: u64, lookups: u64, counts: &Counts) {
    let mut kept: Option<Table> = None;
    for number in 0..lookups {
        let table = match kept.take().filter(|_| !number.is_multiple_of(50)) {
            Some(table) => Ok(table),
            None => Table::open(target.clone(), options.clone()),
        };
        let rows: Vec<u64> = (0..=next(&mut random) % 3)
            .map(|_| next(&mut random) % ROWS)
            .collect();
        let ids: Vec<RowId> = rows.iter().copied().map(RowId).collect();
        let got = table.and_then(|table| Ok((table.get(&ids, &Projection::all())?, table)));
        match got {
            Ok((batch, table)) => {
                let is_of = |generation: &u64| {
                    sample::check_rows(&table, &batch, Shape::Narrow, *generation, rows.iter().copied())
                        .is_ok()
                };
                let versions = (0..=REPLACEMENTS).filter(is_of).count();
                assert_eq!(versions, 1, "rows {rows:?} are those of {versions} versions");
                counts.right.fetch_add(1, Ordering::Relaxed);
                kept = next(&mut random).is_multiple_of(2).then_some(table);
            }
            Err(error) => {
                assert!(is_fair(&error), "{error}");
                counts.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        counts.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// P10.
#[test]
fn no_lookup_mixes_versions_while_the_file_is_replaced_p10() {
    let scale: u64 = std::env::var("LOOKUPFS_TEST_SCALE").map_or(1, |text| text.parse().unwrap());
    let (seed, lookups) = (seed(), LOOKUPS * scale / THREADS);
    let tree = Tree::new();
    let path = tree.path().join("f.parquet");
    write(&path, 0);
    let next_path = |generation: u64| -> PathBuf { tree.path().join(format!(".next-{generation}")) };
    (1..=REPLACEMENTS).for_each(|generation| write(&next_path(generation), generation));
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "ttl=0.05,negative_ttl=0.05,memory=64m", MOUNTS);
    let target = Target::on_mounts(mounts, "f.parquet");
    let options = OpenOptions::default();
    let counts = Counts {
        right: 0.into(),
        errors: 0.into(),
        done: 0.into(),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (target, options, counts) = (&target, &options, &counts);
            scope.spawn(move || look_up(target, options, seed.wrapping_add(thread), lookups, counts));
        }
        for generation in 1..=REPLACEMENTS {
            let due = THREADS * lookups * generation / (REPLACEMENTS + 1);
            let has_come = wait_until(Duration::from_secs(600), || {
                counts.done.load(Ordering::Relaxed) >= due
            });
            assert!(has_come, "lookups stopped");
            std::fs::rename(next_path(generation), &path).unwrap();
        }
    });
    let (right, errors) = (counts.right.into_inner(), counts.errors.into_inner());
    println!("{right} lookups were right, {errors} were told that the file had changed");
    assert_eq!(right + errors, THREADS * lookups);
    assert!(right > errors, "most lookups meet no change");
    // Once the last change is old, there is nothing but the last version.
    let is_last = || {
        let table = Table::open(target.clone(), options.clone());
        let got = table.and_then(|table| Ok((table.get(&[RowId(7)], &Projection::all())?, table)));
        got.is_ok_and(|(batch, table)| {
            sample::check_rows(&table, &batch, Shape::Narrow, REPLACEMENTS, [7].into_iter()).is_ok()
        })
    };
    assert!(wait_until(Duration::from_secs(10), is_last));
    assert_eq!(daemon.count("/kernel/panics"), 0);
}
