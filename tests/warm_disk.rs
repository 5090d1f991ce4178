//! `lookupfs warm` and the local disk: what is kept there, and what is said of a disk that is small, full or hangs, and of
//! files that claim absurd lengths.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lookupfs_tests::warms::{object, source, try_warm, warm};
use lookupfs_tests::{Daemon, Tree, pattern, wait_until};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run(program: &str, args: &[&str], path: &Path) {
    let status = Command::new(program).args(args).arg(path).status().unwrap();
    assert!(
        status.success(),
        "{program} {args:?} {}: it needs root",
        path.display()
    );
}

/// Mounted on a directory, until dropped.
struct FileSystem<'a>(&'a Path);

impl FileSystem<'_> {
    fn in_memory<'a>(options: &str, at: &'a Path) -> FileSystem<'a> {
        run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"], at);
        FileSystem(at)
    }

    /// One that can be frozen.
    fn in_a_file<'a>(image: &Path, at: &'a Path) -> FileSystem<'a> {
        File::create(image).unwrap().set_len(128 << 20).unwrap();
        run("mkfs.ext4", &["-q"], image);
        run("mount", &["-o", "loop", image.to_str().unwrap()], at);
        FileSystem(at)
    }
}

impl Drop for FileSystem<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Whoever writes to the file system waits until this is dropped.
struct Frozen<'a>(&'a Path);

impl Frozen<'_> {
    fn new(at: &Path) -> Frozen<'_> {
        run("fsfreeze", &["--freeze"], at);
        Frozen(at)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
    }
}

#[test]
fn whole_files_are_verified_so_that_their_first_reader_is_passed_through() {
    let (tree, cache) = (Tree::new(), tempfile::tempdir().unwrap());
    for name in ["a", "b", "c"] {
        tree.write(name, &pattern(5_000_001));
    }
    let mut daemon = Daemon::new();
    let options = format!("passthrough,memory=64m,cache_dir={}", cache.path().display());
    let mount = daemon.mount(&tree.url(), &options);
    let output = try_warm(&daemon, &["--all"], &[&mount]);
    assert!(output.status.success(), "{}", errors(&output));
    let done = object(&output);
    assert_eq!(
        (&done["files_verified"], &done["pages_on_disk"]),
        (&3.into(), &done["pages"])
    );
    for name in ["a", "b", "c"] {
        let file = fs::File::open(mount.join(name)).unwrap();
        assert!(lookupfs_tests::read_mapped(&file) == pattern(5_000_001));
    }
    let opens = daemon.stats()["mounts"][0]["opens"].clone();
    assert_eq!(
        (&opens["passthrough"], &opens["kept"]),
        (&3.into(), &0.into()),
        "{opens}"
    );
}

#[test]
fn whole_files_that_the_disk_has_no_room_for_are_a_failure_and_named() {
    let (tree, cache) = (Tree::new(), tempfile::tempdir().unwrap());
    tree.write("large", &pattern(100 << 20));
    let mut daemon = Daemon::new();
    let options = format!("memory=32m,cache_size=64m,cache_dir={}", cache.path().display());
    let mount = daemon.mount(&tree.url(), &options);
    let output = try_warm(&daemon, &["--all"], &[&mount]);
    assert_eq!(output.status.code(), Some(1));
    let done = object(&output);
    let missing = done["pages"].as_u64().unwrap() - done["pages_on_disk"].as_u64().unwrap();
    assert!(missing > 0, "{done}");
    assert!(errors(&output).contains("cache_size"), "{}", errors(&output));
}

#[test]
fn a_full_disk_is_named_and_the_rest_is_fetched() {
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    let _small = FileSystem::in_memory("size=6m", cache.path());
    let bytes = pattern(24 << 20);
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let options = format!("memory=256m,cache_size=1g,cache_dir={}", cache.path().display());
    let mount = daemon.mount(&tree.url(), &options);
    let output = try_warm(&daemon, &["--all"], &[&mount]);
    assert_eq!(output.status.code(), Some(1));
    let done = object(&output);
    assert_eq!(
        (&done["disk_trouble"], &done["failed"]),
        (&"full".into(), &0.into())
    );
    assert_eq!(done["fetched_bytes"], bytes.len());
    let (pages, on_disk) = (
        done["pages"].as_u64().unwrap(),
        done["pages_on_disk"].as_u64().unwrap(),
    );
    assert!(on_disk < pages, "{done}");
    let text = errors(&output).replace(',', "");
    for words in [
        "cache_dir: the disk is full",
        &format!("{} pages are not on disk: it is full", pages - on_disk),
        "goes on where it stopped",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    // For people the same figure is in the summary. Memory has all of it, so nothing is fetched again.
    let output = daemon.lookupfs(&["warm".as_ref(), "--all".as_ref(), mount.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" pages not written to disk"), "{text}");
    assert!(text.contains("100 % in memory"), "{text}");
    assert_eq!(source(&daemon).bytes, bytes.len() as u64);
}

/// The command's output; fails where it waits for a disk that hangs.
fn end_of_warm(daemon: &Daemon, flag: &str, mount: &Path) -> Output {
    let child = Command::new(lookupfs_tests::program("lookupfs"))
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .args(["warm", flag, "--json", "--parallel=1"])
        .arg(mount)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let child = RefCell::new(child);
    let has_ended = wait_until(PATIENCE, || child.borrow_mut().try_wait().unwrap().is_some());
    let mut child = child.into_inner();
    if !has_ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(has_ended, "{flag} waits for the disk: {}", errors(&output));
    output
}

/// Passthrough waits for the disk in its own way.
#[test]
fn a_disk_that_hangs_is_named_and_holds_up_neither_the_work_nor_its_end() {
    // More than the queue holds, and less: of that it only comes out in the end.
    for (files, file_bytes) in [(12, 1 << 20), (12, 10_000)] {
        let (tree, cache, images) = (Tree::new(), TempDir::new().unwrap(), TempDir::new().unwrap());
        let _disk = FileSystem::in_a_file(&images.path().join("image"), cache.path());
        for at in 0..files {
            tree.write(&at.to_string(), &pattern(file_bytes));
        }
        let mut daemon = Daemon::new();
        let options = format!(
            "passthrough,memory=64m,cache_size=64m,cache_dir={}",
            cache.path().display()
        );
        let mount = daemon.mount(&tree.url(), &options);
        let frozen = Frozen::new(cache.path());
        // One after the other: whoever waited anew for each file would wait twelve times as long.
        let output = end_of_warm(&daemon, "--all", &mount);
        assert_eq!(output.status.code(), Some(1));
        let done = object(&output);
        assert_eq!(done["disk_trouble"], "silent", "{done}");
        assert_eq!(
            (
                &done["files_done"],
                &done["files_unverified"],
                &done["pages_on_disk"]
            ),
            (&files.into(), &files.into(), &0.into())
        );
        assert_eq!(done["pages_in_memory"], done["pages"]);
        assert!(
            errors(&output).contains("cache_dir: the disk does not answer"),
            "{}",
            errors(&output)
        );
        for at in 0..files {
            assert!(fs::read(mount.join(at.to_string())).unwrap() == pattern(file_bytes));
        }
        assert_eq!(
            source(&daemon).bytes,
            (files * file_bytes) as u64,
            "each byte once"
        );
        // Whether the pages there have gone cannot be known, so that is a failure, and none that waits.
        let output = end_of_warm(&daemon, "--evict", &mount);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(object(&output)["failed"], files, "{}", errors(&output));
        assert!(
            errors(&output).contains("the disk of cache_dir does not answer"),
            "{}",
            errors(&output)
        );
        drop(frozen);
    }
}

#[test]
fn files_of_absurd_lengths_are_counted_and_dropped_at_once() {
    const LEN: u64 = i64::MAX as u64;
    let (tree, cache) = (Tree::new(), TempDir::new().unwrap());
    // Its files may be as long as any file.
    let _sparse = FileSystem::in_memory("size=1m", tree.path());
    for name in ["a", "b", "c", "d.parquet"] {
        File::create(tree.path().join(name))
            .unwrap()
            .set_len(LEN)
            .unwrap();
    }
    let mut daemon = Daemon::new();
    let options = format!("cache_dir={}", cache.path().display());
    let mount = daemon.mount(&tree.url(), &options);
    let mut first = [0; 10];
    std::io::Read::read_exact(&mut File::open(mount.join("a")).unwrap(), &mut first).unwrap();
    let done = warm(&daemon, &["--all", "--check"], &[&mount]);
    let page = done["page_size"].as_u64().unwrap();
    assert_eq!(done["pages"], 4 * LEN.div_ceil(page));
    // More than a number of 64 bits says.
    assert_eq!(
        (&done["bytes"], &done["bytes_found"]),
        (&u64::MAX.into(), &u64::MAX.into())
    );
    let kept = done["pages_kept"].as_u64().unwrap();
    assert!((1..100).contains(&kept), "{done}");
    let done = warm(&daemon, &["--metadata"], &[&mount]);
    assert!(done["fetched_bytes"].as_u64().unwrap() < 1 << 20, "{done}");
    let done = warm(&daemon, &["--evict"], &[&mount]);
    assert!(done["pages_dropped"].as_u64().unwrap() >= kept, "{done}");
    let done = warm(&daemon, &["--all", "--check"], &[&mount]);
    assert_eq!(done["pages_kept"], 0, "{done}");
}
