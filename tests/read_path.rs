//! The read path against the reference model, on a local directory; see `reference.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use lookupfs_tests::reference::Reference;
use lookupfs_tests::source_side::FileSide;
use lookupfs_tests::{Daemon, seed};

fn run(seed: u64, steps: usize) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(
        &format!("file://{}", root.display()),
        "ttl=0,negative_ttl=0,memory=64m",
    );
    let stale = Reference::new(&mut FileSide(root), &mount, seed).run(steps);
    println!("{stale} reads of open files were told that their version had gone");
    assert_eq!(daemon.count("/kernel/panics"), 0);
}

#[test]
fn a_mounted_directory_shows_what_the_model_says_after_every_change() {
    run(seed(), 300);
}

/// A file was open while its directory was deleted and a file took the directory's place: `fstat` was ENOTDIR.
#[test]
fn an_open_file_keeps_its_attributes_when_a_file_takes_its_directorys_place() {
    run(678_363_066, 40);
}
