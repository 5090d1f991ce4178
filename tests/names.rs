//! What names cost, counted at the source of a local mount: listings, lookups after them, revalidation, the bound on
//! requests. Promises are named by their numbers in fs/SEMANTICS.md.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lookupfs_tests::{Daemon, Tree, wait_until};

const FILES: usize = 2500;

/// (listings, statuses) asked of the source so far.
fn asked(daemon: &Daemon) -> (u64, u64) {
    let stats = daemon.stats();
    let count = |name: &str| {
        let pointer = format!("/sources/0/requests/{name}");
        stats.pointer(&pointer).unwrap().as_u64().unwrap()
    };
    (count("list"), count("status"))
}

fn tree(files: usize) -> Tree {
    let tree = Tree::new();
    fs::create_dir(tree.path().join("d")).unwrap();
    for i in 0..files {
        tree.write(&format!("d/f{i:04}"), b"x");
    }
    tree
}

fn ls_l(directory: &Path) -> usize {
    let output = Command::new("ls").arg("-l").arg(directory).output().unwrap();
    let lines = output.stdout.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(b"-rw")).count()
}

fn stat_all(directory: &Path, files: usize) {
    for i in 0..files {
        assert_eq!(fs::metadata(directory.join(format!("f{i:04}"))).unwrap().len(), 1);
    }
}

#[test]
fn ls_l_costs_one_listing_and_stat_after_it_nothing() {
    let tree = tree(FILES);
    let mut daemon = Daemon::new();
    let directory = daemon.mount(&tree.url(), "ttl=60").join("d");
    fs::metadata(&directory).unwrap();
    let before = asked(&daemon);
    assert_eq!(ls_l(&directory), FILES);
    let listed = asked(&daemon);
    assert_eq!((listed.0 - before.0, listed.1 - before.1), (1, 0));
    stat_all(&directory, FILES);
    assert_eq!(asked(&daemon), listed, "stat after it");
    let namespace = "/sources/0/namespace";
    assert_eq!(daemon.count(&format!("{namespace}/listings/misses")), 1);
    assert_eq!(daemon.count(&format!("{namespace}/listings/evictions")), 0);
    assert!(daemon.count(&format!("{namespace}/listings/memory_bytes")) > FILES as u64 * 64);
}

/// P2: chmod changes no modification time of the directory; listing it again shows it nonetheless.
#[test]
fn names_that_have_become_old_are_refreshed_by_one_listing_which_shows_a_chmod_p2() {
    let tree = tree(FILES);
    let ttl = Duration::from_secs(2);
    let mut daemon = Daemon::new();
    let directory = daemon.mount(&tree.url(), "ttl=2").join("d");
    assert_eq!(ls_l(&directory), FILES);
    let before = asked(&daemon);
    let changed = Instant::now();
    fs::set_permissions(tree.path().join("d/f1234"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = || {
        fs::metadata(directory.join("f1234"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert!(wait_until(ttl * 2, || changed.elapsed() > ttl));
    assert_eq!(mode(), 0o600, "a lookup more than ttl after the change");
    stat_all(&directory, FILES);
    let (listings, statuses) = asked(&daemon);
    assert!(listings - before.0 <= 2, "{listings} listings after {before:?}");
    // The directories on the way to it, and the few names after which a listing is cheaper; some share a bit in the count.
    assert!(statuses - before.1 <= 14, "{statuses} statuses after {before:?}");
}

#[test]
fn a_listing_says_that_nothing_is_there_for_negative_ttl_only_p2() {
    let tree = tree(100);
    let mut daemon = Daemon::new();
    let directory = daemon.mount(&tree.url(), "ttl=600,negative_ttl=0.5").join("d");
    assert_eq!(ls_l(&directory), 100);
    let before = asked(&daemon);
    assert!(fs::metadata(directory.join("new")).is_err());
    assert_eq!(asked(&daemon).1, before.1, "the listing answers");
    let written = Instant::now();
    tree.write("d/new", b"x");
    assert!(wait_until(Duration::from_secs(2), || written.elapsed()
        > Duration::from_millis(500)));
    assert_eq!(fs::metadata(directory.join("new")).unwrap().len(), 1);
    assert_eq!(asked(&daemon), (before.0, before.1 + 1));
}

/// P2: tables on immutable mounts still get new snapshots.
#[test]
fn an_immutable_mount_sees_what_is_written_under_mutable_names_and_asks_for_nothing_else_p2() {
    let tree = tree(0);
    tree.write("d/LATEST", b"1");
    tree.write("d/data.parquet", b"x");
    let mut daemon = Daemon::new();
    let directory = daemon.mount(&tree.url(), "immutable,ttl=0.2").join("d");
    let len = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
    assert_eq!((len("LATEST"), len("data.parquet"), ls_l(&directory)), (1, 1, 2));
    tree.write("d/LATEST", b"22");
    tree.write("d/snapshot-22", b"x");
    let written = Instant::now();
    assert!(wait_until(Duration::from_secs(2), || written.elapsed()
        > Duration::from_millis(200)));
    assert_eq!((len("LATEST"), ls_l(&directory)), (2, 3));
    let before = asked(&daemon);
    for _ in 0..20 {
        assert_eq!(len("data.parquet"), 1);
    }
    assert_eq!(asked(&daemon), before);
}

#[test]
fn requests_beyond_namenode_rate_wait_their_turn_and_are_counted() {
    let tree = Tree::new();
    for i in 0..40 {
        fs::create_dir(tree.path().join(format!("d{i}"))).unwrap();
        tree.write(&format!("d{i}/f"), b"x");
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "namenode_rate=20,ttl=600");
    let begun = Instant::now();
    for i in 0..40 {
        assert_eq!(fs::metadata(mount.join(format!("d{i}/f"))).unwrap().len(), 1);
    }
    let (listings, statuses) = asked(&daemon);
    let rate = "/sources/0/namespace/rate";
    let delayed = daemon.count(&format!("{rate}/delayed"));
    assert!(
        delayed >= 10,
        "{delayed} delayed of {listings} listings and {statuses} statuses"
    );
    assert!(daemon.count(&format!("{rate}/delayed_ms")) > 0);
    assert_eq!(daemon.count(&format!("{rate}/refused")), 0);
    // A second's worth at once, the rest one after another; a lower bound, so a slow machine does not matter.
    let least = Duration::from_secs(1) * (listings + statuses - 20) as u32 / 20;
    assert!(
        begun.elapsed() >= least * 9 / 10,
        "{:?} < {least:?}",
        begun.elapsed()
    );
}
