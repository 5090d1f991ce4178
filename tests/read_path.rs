//! The read path against the reference model, on a local directory; see `reference.rs`.

use lookupfs_tests::reference::Reference;
use lookupfs_tests::source_side::FileSide;
use lookupfs_tests::{Daemon, seed};

#[test]
fn a_mounted_directory_shows_what_the_model_says_after_every_change() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(
        &format!("file://{}", root.display()),
        "ttl=0,negative_ttl=0,memory=64m",
    );
    let stale = Reference::new(&mut FileSide(root), &mount, seed()).run(300);
    println!("{stale} reads of open files were told that their version had gone");
    assert_eq!(daemon.count("/kernel/panics"), 0);
}
