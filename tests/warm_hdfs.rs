//! `lookupfs warm` through a mount of a real HDFS.

use lookupfs_tests::Daemon;
use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::source_side::{HdfsSide, SourceSide};
use lookupfs_tests::warms::{compare_steps, sample, try_warm};

fn daemon(hdfs: &MiniHdfs) -> Daemon {
    Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().expect("UTF-8"))
}

#[test]
fn what_was_warmed_costs_nothing_and_what_was_evicted_costs_again() {
    let hdfs = MiniHdfs::from_env();
    let root = hdfs.new_path("warm");
    let mut side = HdfsSide::new(&hdfs, &root);
    let bytes = sample();
    side.mkdir("t");
    for at in 0..4 {
        side.create(&format!("t/{at}.parquet"), &bytes);
    }
    let mut daemon = daemon(&hdfs);
    let mount = daemon.mount(&format!("{}{root}", hdfs.url()), "ttl=600,memory=256m");
    compare_steps(&daemon, &mount, &bytes, 4);
}

#[test]
fn what_the_user_may_not_read_is_named_and_the_rest_is_done() {
    let hdfs = MiniHdfs::from_env();
    let root = hdfs.new_path("warm-denied");
    let mut side = HdfsSide::new(&hdfs, &root);
    let bytes = sample();
    side.create("open.parquet", &bytes);
    side.create("closed.parquet", &bytes);
    hdfs.run(&["fs", "-chmod", "600", &format!("{root}/closed.parquet")]);
    let mut daemon = daemon(&hdfs);
    let mount = daemon.mount(&format!("{}{root}", hdfs.url()), "ttl=600,user=nobody_else");
    let output = try_warm(&daemon, &["--all"], &[&mount]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("closed.parquet: "), "{errors}");
    let done = lookupfs_tests::warms::object(&output);
    assert_eq!((&done["files_done"], &done["failed"]), (&1.into(), &1.into()));
    assert_eq!(done["fetched_bytes"], bytes.len());
}
