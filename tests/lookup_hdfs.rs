//! `lookup` on a real HDFS, through sixteen mounts of one daemon.

use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::lookups::compare_all;
use lookupfs_tests::{Daemon, seed};

/// P10.
#[test]
fn rows_through_sixteen_mounts_of_a_real_hdfs_are_the_rows_of_a_local_scan() {
    let seed = seed();
    let hdfs = MiniHdfs::from_env();
    let directory = hdfs.new_path("lookup");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    hdfs.put(&root, &directory);
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().expect("UTF-8"));
    let mounts = daemon.mount_many(&format!("{}{directory}", hdfs.url()), "ttl=60", 16);
    compare_all(&mounts, seed);
    assert_eq!(daemon.count("/kernel/errors"), 0);
}
