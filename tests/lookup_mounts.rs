//! `lookup` through several mounts of one daemon.

use lookupfs_tests::lookups::{compare_with_scan, parquet_fixtures};
use lookupfs_tests::{Daemon, seed};

/// P10.
#[test]
fn rows_through_four_mounts_are_the_rows_of_a_local_scan() {
    let seed = seed();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&format!("file://{}", root.display()), "", 4);
    let mut rows = 0;
    for fixture in parquet_fixtures() {
        let name = fixture
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        rows += compare_with_scan(
            &fixture.join("data.parquet"),
            &format!("{name}/data.parquet"),
            &mounts,
            seed,
        );
    }
    println!("{rows} rows compared");
    assert!(rows > 500 && daemon.count("/kernel/errors") == 0);
}
