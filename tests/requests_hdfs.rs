//! What a lookup costs at a real HDFS, counted twice: by the counting source, and by the NameNode's audit log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;
use std::process::Command;

use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::{Daemon, program};

/// Requests of one kind that the NameNode's audit log has for `path`. A line is written before the NameNode answers.
fn audited(hdfs: &MiniHdfs, command: &str, path: &str) -> u64 {
    let count = hdfs.run(&[
        "audit",
        "count",
        &format!("cmd={command}"),
        &format!("src={path}"),
    ]);
    String::from_utf8_lossy(&count.stdout)
        .trim()
        .parse()
        .expect("a number")
}

/// (statuses, opens, listings) of `path` at the NameNode.
fn namenode(hdfs: &MiniHdfs, path: &str) -> (u64, u64, u64) {
    (
        audited(hdfs, "getfileinfo", path),
        audited(hdfs, "open", path),
        audited(hdfs, "listStatus", path),
    )
}

/// The payload of one row: its data page lies in one place. A row of more columns has a data page for each, and costs
/// a read for each that does not lie beside another.
fn get_one_row(file: &Path) {
    get(file, &["--rows", "777", "--columns", "payload"]);
}

fn get(file: &Path, args: &[&str]) {
    let output = Command::new(program("lookup"))
        .arg("get")
        .arg(file)
        .args(args)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "{errors}");
}

#[test]
fn one_row_of_a_parquet_file_costs_two_namenode_requests_and_two_reads_cold_and_none_warm() {
    let hdfs = MiniHdfs::from_env();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet-plain-uncompressed");
    let file = std::fs::read_dir(&fixture)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .expect("a Parquet file");
    let directory = hdfs.new_path("requests");
    for name in ["sibling.parquet", "a.parquet", "b.parquet", "c.parquet"] {
        hdfs.put(&file, &format!("{directory}/{name}"));
    }
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().unwrap());
    let mount = daemon.mount(&format!("{}{directory}", hdfs.url()), "ttl=600");
    get_one_row(&mount.join("sibling.parquet"));

    // (statuses, opens, listings) at the NameNode and reads at the DataNodes, for one row of a file.
    let cost = |name: &str| {
        let path = format!("{directory}/{name}");
        let count = || (namenode(&hdfs, &path), daemon.count("/sources/0/requests/read"));
        let (before, reads_before) = count();
        get_one_row(&mount.join(name));
        let (after, reads) = count();
        let asked = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        (asked, reads - reads_before)
    };

    // Attributes known: the file has been looked up.
    std::fs::metadata(mount.join("a.parquet")).unwrap();
    let (asked, reads) = cost("a.parquet");
    assert_eq!(asked, (1, 1, 0), "attributes known");
    assert!((1..=2).contains(&reads), "{reads} reads at the DataNodes");

    // Attributes not known: one status more.
    let (asked, reads) = cost("b.parquet");
    assert_eq!(asked, (2, 1, 0), "cold");
    assert!((1..=2).contains(&reads), "{reads} reads at the DataNodes");

    // Warm: nothing.
    assert_eq!(cost("b.parquet"), ((0, 0, 0), 0), "warm");

    // A row of two columns whose data pages lie apart: the tail, and one read for each.
    let before = daemon.count("/sources/0/requests/read");
    get(&mount.join("c.parquet"), &["--rows", "777"]);
    let reads = daemon.count("/sources/0/requests/read") - before;
    assert!(reads <= 3, "{reads} reads at the DataNodes for a whole row");
}

#[test]
fn a_data_page_of_several_mib_is_one_request() {
    let hdfs = MiniHdfs::from_env();
    let local = tempfile::tempdir().unwrap();
    let sample = local.path().join("sample.parquet");
    let made = Command::new(program("lookup"))
        .args(["sample", "--rows", "9000"])
        .arg(&sample)
        .status()
        .unwrap();
    assert!(made.success());
    let directory = hdfs.new_path("data-pages");
    for name in ["sibling.parquet", "a.parquet"] {
        hdfs.put(&sample, &format!("{directory}/{name}"));
    }
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().unwrap());
    let mount = daemon.mount(&format!("{}{directory}", hdfs.url()), "ttl=600");
    get_one_row(&mount.join("sibling.parquet"));
    let reads = || daemon.count("/sources/0/requests/read");
    let before = reads();
    get_one_row(&mount.join("a.parquet"));
    // Its footer and page index, and the data page of 4 MiB, which the kernel asks for in pieces of 128 KiB.
    assert_eq!(reads() - before, 2);
    // What the kernel has is not asked for again.
    get_one_row(&mount.join("a.parquet"));
    assert_eq!(reads() - before, 2);
}
