//! `lookupfs warm --snapshot` of Paimon and Iceberg tables: exactly the files of one snapshot, and none beside.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lookupfs_tests::warms::{object, source, try_warm, warm};
use lookupfs_tests::{Daemon, Tree};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// What the writer of the fixture says of its newest snapshot.
fn expected(name: &str, key: &str) -> BTreeSet<String> {
    let text = fs::read(fixture(name).join("expected.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let files = json["layout"]["data_files"].as_array().unwrap();
    let name = |file: &serde_json::Value| {
        let path = file[key].as_str().unwrap();
        path.rsplit('/').next().unwrap().to_owned()
    };
    files.iter().map(name).collect()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Warms a snapshot of the fixture; the names of the files below it of which anything is kept: (data, metadata).
fn kept_after(name: &str, id: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let table = fixture(name).join("table");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&format!("file://{}", table.display()), "ttl=600");
    let done = warm(&daemon, &["--snapshot", id], &[&mount]);
    assert_eq!(done["failed"], 0);
    let before = source(&daemon);
    let (mut data, mut metadata) = (BTreeSet::new(), BTreeSet::new());
    for file in files_below(&mount) {
        let kept = warm(&daemon, &["--all", "--check"], &[&file]);
        if kept["pages_kept"].as_u64().unwrap() == 0 {
            continue;
        }
        // These files are small: their footers bring all of them.
        assert_eq!(kept["files_kept"], 1, "{}", file.display());
        let below = file.strip_prefix(&mount).unwrap();
        let first = below.components().next().unwrap().as_os_str().to_str().unwrap();
        let is_metadata = ["snapshot", "schema", "manifest", "index", "metadata"].contains(&first);
        let file_name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if is_metadata { &mut metadata } else { &mut data }.insert(file_name);
    }
    assert_eq!(
        done["files"],
        (data.len() + metadata.len()) as u64,
        "{data:?} {metadata:?}"
    );
    assert_eq!(source(&daemon), before);
    let again = warm(&daemon, &["--snapshot", id], &[&mount]);
    assert_eq!(again["fetched_bytes"], 0);
    (data, metadata)
}

fn count(names: &BTreeSet<String>, prefix: &str) -> usize {
    names.iter().filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn a_paimon_snapshot_is_warmed_with_its_living_data_and_index_files() {
    let (data, metadata) = kept_after("paimon-deletion-vectors", "latest");
    assert_eq!(data, expected("paimon-deletion-vectors", "name"));
    assert_eq!(count(&metadata, "snapshot-"), 1);
    assert_eq!(count(&metadata, "schema-"), 1);
    assert_eq!(count(&metadata, "manifest-list-"), 2);
    assert_eq!(count(&metadata, "index-manifest-"), 1);
    // Two of four are of older snapshots.
    assert_eq!(
        count(&metadata, "index-") - count(&metadata, "index-manifest-"),
        2
    );
    let (data, metadata) = kept_after("paimon-deletion-vectors", "1");
    assert_eq!(data.len(), 1, "{data:?}");
    assert!(metadata.contains("snapshot-1"));
}

#[test]
fn an_iceberg_snapshot_is_warmed_from_its_location_wherever_that_lies() {
    let (data, metadata) = kept_after("iceberg-v2-append", "latest");
    assert_eq!(data, expected("iceberg-v2-append", "file"));
    assert_eq!(metadata.len(), 1 + 1 + 6, "{metadata:?}");
    let (data, metadata) = kept_after("iceberg-v2-append", "8019484338590209204");
    assert_eq!((data.len(), metadata.len()), (1, 3), "{data:?} {metadata:?}");
}

#[test]
fn deleted_entries_are_left_out_and_deletion_vectors_are_not() {
    let (mut data, metadata) = kept_after("iceberg-v3-dv", "latest");
    let vectors: Vec<String> = data
        .iter()
        .filter(|name| name.ends_with(".puffin"))
        .cloned()
        .collect();
    assert_eq!(vectors.len(), 1, "both in one file");
    data.remove(&vectors[0]);
    assert_eq!(data, expected("iceberg-v3-dv", "file"));
    assert_eq!(metadata.len(), 1 + 1 + 4, "{metadata:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

#[test]
fn what_a_snapshot_misses_is_named_and_wrong_ones_are_errors() {
    let tree = Tree::new();
    for name in ["paimon-deletion-vectors", "iceberg-v3-dv"] {
        copy(&fixture(name).join("table"), &tree.path().join(name));
    }
    let (paimon, iceberg) = (
        tree.path().join("paimon-deletion-vectors"),
        tree.path().join("iceberg-v3-dv"),
    );
    let lost = [
        expected("paimon-deletion-vectors", "name").pop_first().unwrap(),
        expected("iceberg-v3-dv", "file").pop_first().unwrap(),
    ];
    for table in [&paimon, &iceberg] {
        for file in files_below(table) {
            if lost.iter().any(|name| file.ends_with(name)) {
                fs::remove_file(file).unwrap();
            }
        }
    }
    // Metadata that is no metadata.
    let torn = tree.path().join("torn");
    copy(&iceberg, &torn);
    for file in files_below(&torn) {
        if file.extension().is_some_and(|extension| extension == "avro") {
            fs::write(file, [7; 3000]).unwrap();
        }
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600");
    for (table, lost) in ["paimon-deletion-vectors", "iceberg-v3-dv"].iter().zip(&lost) {
        let output = try_warm(&daemon, &["--snapshot=latest"], &[&mount.join(table)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(lost.as_str()), "{errors}");
        assert_eq!(object(&output)["failed"], 1);
    }
    let outside = tree.path().to_owned();
    for (arguments, path, code, word) in [
        ("--snapshot=99", mount.join("iceberg-v3-dv"), 1, "no snapshot 99"),
        (
            "--snapshot=99",
            mount.join("paimon-deletion-vectors"),
            1,
            "its newest is 7",
        ),
        ("--snapshot=latest", mount.clone(), 1, "it is no table"),
        ("--snapshot=latest", mount.join("torn"), 1, "no Avro file"),
        (
            "--snapshot=latest",
            outside.join("iceberg-v3-dv"),
            1,
            "not below a mount",
        ),
        ("--snapshot=newest", mount.join("iceberg-v3-dv"), 2, "latest"),
        ("--snapshot=latest", PathBuf::from("-"), 2, "one table"),
    ] {
        let output = try_warm(&daemon, &[arguments], &[&path]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(
            errors.contains(word) && errors.lines().count() == 1,
            "{word}: {errors}"
        );
    }
}
