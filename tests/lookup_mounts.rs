//! `lookup` through several mounts of one daemon.

use lookupfs_tests::lookups::compare_all;
use lookupfs_tests::{Daemon, seed};

/// P10.
#[test]
fn rows_through_four_mounts_are_the_rows_of_a_local_scan() {
    let seed = seed();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&format!("file://{}", root.display()), "", 4);
    compare_all(&mounts, seed);
    assert_eq!(daemon.count("/kernel/errors"), 0);
}
