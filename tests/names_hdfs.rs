//! What names cost at a real HDFS, by the NameNode's audit log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::source_side::{HdfsSide, SourceSide};
use lookupfs_tests::{Daemon, wait_until};

const FILES: usize = 2500;
/// What one request of a NameNode lists.
const ENTRIES_PER_REQUEST: usize = 1000;

/// Counts what a NameNode was asked of a directory since the last question.
struct Audit<'a> {
    hdfs: &'a MiniHdfs,
    directory: String,
    mark: String,
}

impl Audit<'_> {
    /// (listings of the directory, statuses of what is in it).
    fn asked(&mut self) -> (usize, usize) {
        let count = |command: &str, path: String| {
            let output = self.hdfs.run(&[
                "audit",
                "count",
                "--since",
                &self.mark,
                &format!("cmd={command}"),
                &format!("src={path}"),
            ]);
            String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
        };
        let counts = (
            count("listStatus", self.directory.clone()),
            count("getfileinfo", format!("{}/*", self.directory)),
        );
        self.mark = mark(self.hdfs);
        counts
    }
}

fn mark(hdfs: &MiniHdfs) -> String {
    let output = hdfs.run(&["audit", "mark"]);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn ls_l(directory: &Path) -> usize {
    let output = Command::new("ls").arg("-l").arg(directory).output().unwrap();
    let lines = output.stdout.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(b"-rw")).count()
}

/// P2.
#[test]
fn ls_l_and_revalidation_cost_a_listing_request_a_thousand_names_and_no_status_p2() {
    let hdfs = MiniHdfs::from_env();
    let directory = hdfs.new_path("names");
    let mut side = HdfsSide::new(&hdfs, &directory);
    side.mkdir("d");
    for i in 0..FILES {
        side.create(&format!("d/f{i:04}"), b"");
    }
    let ttl = Duration::from_secs(10);
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().unwrap());
    let mount = daemon.mount(&format!("{}{directory}", hdfs.url()), "ttl=10");
    let listed = mount.join("d");
    let requests = FILES.div_ceil(ENTRIES_PER_REQUEST);
    let mut audit = Audit {
        hdfs: &hdfs,
        directory: format!("{directory}/d"),
        mark: mark(&hdfs),
    };
    let begun = Instant::now();
    assert_eq!(ls_l(&listed), FILES);
    assert_eq!(audit.asked(), (requests, 0), "ls -l");
    let stat_all = || {
        for i in 0..FILES {
            std::fs::metadata(listed.join(format!("f{i:04}"))).unwrap();
        }
    };
    stat_all();
    assert!(
        begun.elapsed() < ttl * 9 / 10,
        "too slow a machine for a ttl of {ttl:?}"
    );
    assert_eq!(audit.asked(), (0, 0), "stat after it");
    let changed = Instant::now();
    hdfs.run(&["fs", "-chmod", "600", &format!("{directory}/d/f1234")]);
    assert!(wait_until(ttl * 2, || changed.elapsed() > ttl));
    audit.asked();
    let refreshed = Instant::now();
    stat_all();
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(listed.join("f1234")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        refreshed.elapsed() < ttl * 9 / 10,
        "too slow a machine for a ttl of {ttl:?}"
    );
    let (listings, statuses) = audit.asked();
    assert_eq!(listings, requests, "all names refreshed by one listing");
    // The names after which a listing is cheaper; some share a bit in the count of names.
    assert!(statuses <= 12, "{statuses} statuses");
}
