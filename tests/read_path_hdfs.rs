//! The read path against the reference model, on a real HDFS; see `reference.rs`.

use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::reference::Reference;
use lookupfs_tests::source_side::HdfsSide;
use lookupfs_tests::{Daemon, seed};

#[test]
fn a_mounted_hdfs_shows_what_the_model_says_after_every_change() {
    let hdfs = MiniHdfs::from_env();
    let root = hdfs.new_path("reference");
    let mut side = HdfsSide::new(&hdfs, &root);
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().unwrap());
    let mount = daemon.mount(
        &format!("{}{root}", hdfs.url()),
        "ttl=0,negative_ttl=0,memory=64m",
    );
    let stale = Reference::new(&mut side, &mount, seed()).run(150);
    println!("{stale} reads of open files were told that their version had gone");
    assert_eq!(daemon.count("/kernel/panics"), 0);
}
