//! What `lookup` prints, compared with a naive scan of the same file: shared by the tests with and without mounts.

use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::program;

/// The Parquet fixtures, each a directory with `data.parquet` and `expected.json`; sorted.
pub fn parquet_fixtures() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let entries = std::fs::read_dir(&all).expect("tests/fixtures");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("parquet-"))
        })
        .collect();
    found.sort();
    assert!(found.len() >= 17, "fixtures are missing: {found:?}");
    found
}

/// Runs `lookup ARGS` and answers the lines it printed.
pub fn lookup(args: &[&str]) -> Vec<String> {
    let output = Command::new(program("lookup"))
        .args(args)
        .output()
        .expect("lookup runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lookup {args:?}: {errors}");
    String::from_utf8(output.stdout)
        .expect("JSON is UTF-8")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Row ids of a file of `rows` rows: the first, the last, random ones, and some of them again. In no order.
pub fn random_ids(rows: usize, seed: u64) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut ids = vec![rows - 1, 0];
    ids.extend((0..60).map(|_| random.random_range(0..rows)));
    ids.extend_from_within(1..6);
    ids
}

/// P10: `lookup get` through `mounts` (or without any) prints the rows that a scan of the local file has at those
/// positions. Answers how many rows were compared.
pub fn compare_with_scan(local: &Path, target: &str, mounts: &[PathBuf], seed: u64) -> usize {
    let local = local.to_str().expect("UTF-8");
    let layout: serde_json::Value =
        serde_json::from_str(&lookup(&["inspect", local, "--json"]).concat()).expect("JSON");
    let rows = layout["rows"].as_u64().expect("a number of rows");
    if rows == 0 {
        return 0;
    }
    let scan = lookup(&["scan", local, "--output", "json", "--rows", &format!("0..{rows}")]);
    assert_eq!(scan.len() as u64, rows);
    let ids = random_ids(scan.len(), seed);
    let list: Vec<String> = ids.iter().map(usize::to_string).collect();
    let list = list.join(",");
    let mut args = vec!["get", target, "--output", "json", "--rows", &list];
    for mount in mounts {
        args.extend(["--mount", mount.to_str().expect("UTF-8")]);
    }
    let got = lookup(&args);
    assert_eq!(got.len(), ids.len(), "{target}");
    for (row, id) in got.iter().zip(&ids) {
        assert_eq!(row, &scan[*id], "{target}: row {id}");
    }
    got.len()
}

/// [`compare_with_scan`] for every fixture, through mounts that show `tests/fixtures`. Answers the rows compared.
pub fn compare_all(mounts: &[PathBuf], seed: u64) -> usize {
    let compare = |fixture: &PathBuf| {
        let name = fixture
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        compare_with_scan(
            &fixture.join("data.parquet"),
            &format!("{name}/data.parquet"),
            mounts,
            seed,
        )
    };
    let rows = parquet_fixtures().iter().map(compare).sum();
    println!("{rows} rows compared");
    assert!(rows > 500, "{rows}");
    rows
}
