//! `lookup` on local files, without any mount.

use lookupfs_tests::lookups::{compare_with_scan, parquet_fixtures};
use lookupfs_tests::seed;

/// P10.
#[test]
fn rows_by_id_are_the_rows_of_a_scan() {
    let seed = seed();
    let mut rows = 0;
    for fixture in parquet_fixtures() {
        let file = fixture.join("data.parquet");
        rows += compare_with_scan(&file, file.to_str().expect("UTF-8"), &[], seed);
    }
    println!("{rows} rows compared");
    assert!(rows > 500);
}
