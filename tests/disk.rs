//! The disk tier through real mounts: what is kept over restarts and crashes, and what a bad, full or deleted directory
//! does. Promises are named by their numbers in fs/SEMANTICS.md.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use lookupfs_tests::{Daemon, Tree, has_ended, pattern, wait_until};
use tempfile::TempDir;

const PAGE: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the daemon by unmounting, which lets it write what waits.
fn unmount(daemon: &Daemon, mount: &Path) {
    let pid = daemon.pid();
    let unmounted = daemon.lookupfs(&["umount".as_ref(), mount.as_os_str()]);
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert!(wait_until(PATIENCE, || has_ended(pid)));
}

fn kill(daemon: &Daemon) {
    let pid = daemon.pid();
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    assert!(wait_until(PATIENCE, || has_ended(pid)));
}

fn files(cache_dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in fs::read_dir(cache_dir.join("lookupfs-1")).unwrap() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            found.extend(files.filter(|file| file.extension().is_some_and(|it| it == extension)));
        }
    }
    found
}

/// Pages that the maps say are there, by cache/FORMAT.md.
fn pages_on_disk(cache_dir: &Path) -> u64 {
    let count = |path: PathBuf| {
        let map = fs::read(path).unwrap();
        let number = |at: usize| u32::from_le_bytes(map[at..at + 4].try_into().unwrap()) as usize;
        let len = u64::from_le_bytes(map[32..40].try_into().unwrap());
        let names_end = 72 + number(56) + number(60);
        let entries_len = len.div_ceil(PAGE) as usize * 8;
        let close = names_end.next_multiple_of(8);
        let at = if close + entries_len <= 4096 {
            close
        } else {
            names_end.next_multiple_of(4096)
        };
        let entries = map[at.min(map.len())..].chunks_exact(8);
        entries
            .filter(|entry| entry.iter().any(|byte| *byte != 0))
            .count() as u64
    };
    files(cache_dir, "map").into_iter().map(count).sum()
}

fn options(cache_dir: &Path) -> String {
    format!("cache_dir={},cache_size=1g,memory=64m", cache_dir.display())
}

#[test]
fn what_was_cached_when_the_daemon_was_killed_is_not_fetched_again_p7() {
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    let bytes = pattern(64 << 20);
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    let scan = thread::spawn(move || {
        let file = File::open(mount.join("f")).unwrap();
        let mut buffer = vec![0; 128 << 10];
        let mut at = 0;
        while let Ok(n @ 1..) = file.read_at(&mut buffer, at) {
            at += n as u64;
        }
        at
    });
    assert!(wait_until(PATIENCE, || daemon.count("/cache/disk/written_pages") > 200));
    kill(&daemon);
    let read = scan.join().unwrap();
    let kept = pages_on_disk(cache.path());
    println!(
        "killed when {read} of {} bytes were read and {kept} pages were on disk",
        bytes.len()
    );
    assert!(kept > 200);

    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    assert_eq!(daemon.count("/cache/disk/versions"), 1);
    assert!(fs::read(mount.join("f")).unwrap() == bytes, "P1");
    // More than that if memory has let go of a page that was fetched ahead, by the time its reader comes.
    let hits = daemon.count("/cache/disk/data/hits");
    assert!(
        hits >= kept,
        "{hits} hits of {kept} pages; {}",
        daemon.stats()["cache"]
    );
    let missing = bytes.len() as u64 / PAGE - kept;
    // Small gaps of pages that are on disk may be fetched along, instead of a second request.
    let fetched = daemon.count("/cache/extent_bytes");
    assert!(
        fetched >= missing * PAGE && fetched <= (missing + 16) * PAGE,
        "{fetched}, {missing} pages"
    );
    assert_eq!(daemon.count("/cache/disk/corrupt_pages"), 0);
}

#[test]
fn a_warm_restart_costs_the_source_no_read_p7() {
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    let nested = include_bytes!("../cache/tests/data/nested.parquet");
    tree.write("t.parquet", nested);
    tree.write("f", &pattern(3_000_001));
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    fs::read(mount.join("f")).unwrap();
    fs::read(mount.join("t.parquet")).unwrap();
    unmount(&daemon, &mount);
    assert_eq!(
        fs::metadata(cache.path().join("lookupfs-1")).unwrap().mode() & 0o7777,
        0o700
    );
    for path in files(cache.path(), "data") {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
    }
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    let footer = File::open(mount.join("t.parquet")).unwrap();
    let mut last = [0; 8];
    footer.read_exact_at(&mut last, nested.len() as u64 - 8).unwrap();
    assert_eq!(last[..], nested[nested.len() - 8..]);
    assert!(
        daemon.count("/cache/disk/metadata/hits") > 0,
        "footers are kept as such"
    );
    assert_eq!(fs::read(mount.join("f")).unwrap(), pattern(3_000_001));
    assert_eq!(fs::read(mount.join("t.parquet")).unwrap(), nested);
    assert_eq!(daemon.count("/sources/0/requests/read"), 0, "{}", daemon.stats());
}

#[test]
fn a_damaged_byte_is_noticed_and_fetched_again_p4() {
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    let bytes = pattern(1 << 20);
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    fs::read(mount.join("f")).unwrap();
    unmount(&daemon, &mount);
    let data = &files(cache.path(), "data")[0];
    let file = File::options().read(true).write(true).open(data).unwrap();
    file.write_all_at(&[bytes[300_000] ^ 1], 300_000).unwrap();
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    assert!(fs::read(mount.join("f")).unwrap() == bytes);
    assert_eq!(daemon.count("/cache/disk/corrupt_pages"), 1);
    assert_eq!(daemon.count("/cache/extent_bytes"), PAGE);
}

/// A file system of its own, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> SmallDisk {
        let directory = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
            .arg(directory.path())
            .status();
        assert!(mounted.unwrap().success(), "mounting needs root");
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_fails_no_read_p7() {
    let (tree, disk) = (Tree::new(), SmallDisk::new());
    let bytes = pattern(24 << 20);
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(disk.0.path()));
    assert!(fs::read(mount.join("f")).unwrap() == bytes);
    assert!(wait_until(PATIENCE, || daemon.count("/cache/disk/full_pauses") > 0));
    let skipped = daemon.count("/cache/disk/skipped_pages");
    assert!(skipped > 0, "{}", daemon.stats()["cache"]);
    // What did fit is right, and still read.
    unmount(&daemon, &mount);
    let kept = pages_on_disk(disk.0.path());
    let mount = daemon.mount(&tree.url(), &options(disk.0.path()));
    assert!(fs::read(mount.join("f")).unwrap() == bytes);
    let hits = daemon.count("/cache/disk/data/hits");
    assert!(hits <= kept, "{hits} hits of {kept} pages");
    assert_eq!(daemon.count("/cache/disk/corrupt_pages"), 0);
    assert_eq!(daemon.count("/kernel/errors"), 0);
}

#[test]
fn a_cache_directory_may_be_deleted_at_any_time_p7() {
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    let bytes = pattern(4 << 20);
    for name in ["a", "b", "c"] {
        tree.write(name, &bytes);
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path()));
    assert!(fs::read(mount.join("a")).unwrap() == bytes);
    fs::remove_dir_all(cache.path().join("lookupfs-1")).unwrap();
    let again = daemon.mount(&tree.url(), "");
    for name in ["b", "a", "c"] {
        assert!(fs::read(again.join(name)).unwrap() == bytes, "{name}");
    }
    assert!(wait_until(PATIENCE, || daemon
        .count("/cache/disk/lost_directories")
        == 1));
    assert!(
        wait_until(PATIENCE, || pages_on_disk(cache.path()) > 0),
        "it is in use again"
    );
    assert_eq!(daemon.count("/cache/disk/corrupt_pages"), 0);
}

#[test]
fn one_daemon_has_a_cache_directory_and_others_are_told_which() {
    let (tree, cache, other) = (Tree::new(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut daemon = Daemon::new();
    let mount = daemon.new_mount_point();
    let with = |name: &str, cache_dir: &Path, point: &Path| -> Vec<std::ffi::OsString> {
        let mut args: Vec<std::ffi::OsString> =
            vec!["mount".into(), tree.url().into(), point.into(), "-o".into()];
        args.push(options(cache_dir).into());
        if !name.is_empty() {
            args.extend(["--daemon".into(), name.into()]);
        }
        args
    };
    let said = |args: &[std::ffi::OsString]| {
        let output = daemon.lookupfs(args);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(
        said(&with("special", cache.path(), &mount)),
        (true, String::new())
    );
    let points = ["p1", "p2", "p3", "p4"].map(|name| {
        let point = daemon.run_directory().parent().unwrap().join(name);
        fs::create_dir(&point).unwrap();
        point
    });
    let (done, error) = said(&with("second", cache.path(), &points[0]));
    let pid = daemon.pid();
    assert!(
        !done && error.contains(&format!("daemon special, pid {pid}")),
        "{error}"
    );
    assert!(
        error.contains("--daemon NAME") && error.lines().count() == 1,
        "{error}"
    );

    // Without a name the daemon is found by its directory.
    assert_eq!(said(&with("", cache.path(), &points[1])), (true, String::new()));
    assert_eq!(daemon.stats()["mounts"].as_array().unwrap().len(), 2);
    let (done, error) = said(&with("special", other.path(), &points[2]));
    assert!(!done && error.contains("another cache_dir"), "{error}");
    for point in [&mount, &points[1]] {
        daemon.lookupfs(&["umount".as_ref(), point.as_os_str()]);
    }
    daemon.mount(&tree.url(), "");
    let (done, error) = said_default(&daemon, &tree, cache.path(), &points[3]);
    assert!(!done && error.contains("another cache_dir"), "{error}");
}

/// A mount that would join the default daemon, which has no cache directory.
fn said_default(daemon: &Daemon, tree: &Tree, cache_dir: &Path, point: &Path) -> (bool, String) {
    let options = format!("cache_dir={}", cache_dir.display());
    let args = [
        "mount".as_ref(),
        tree.path().as_os_str(),
        point.as_os_str(),
        "-o".as_ref(),
        options.as_ref(),
    ];
    let output = daemon.lookupfs(&args);
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
