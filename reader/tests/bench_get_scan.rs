//! `lookup bench get-scan` over local directories that stand for mounts: every verdict is there, every side brings the same rows,
//! and a file that is not what it says ends the run. No figure is asserted, since times prove nothing.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");

fn sample(path: &Path, more: &[&str]) {
    let made = Command::new(LOOKUP)
        .arg("sample")
        .arg(path)
        .args(["--columns", "key"])
        .args(more)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn bench(directory: &Path, more: &[&str]) -> Output {
    let link = directory.parent().unwrap().join("link");
    if !link.exists() {
        std::os::unix::fs::symlink(directory, &link).unwrap();
    }
    let mut command = Command::new(LOOKUP);
    command.args(["bench", "get-scan", "--quick", "--pairs", "1", "--mount"]);
    command.arg(directory).arg("--mount").arg(link);
    command.args(more).output().unwrap()
}

#[test]
fn both_layouts_have_a_verdict_and_all_sides_bring_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    // 5,000 rows: two data pages, the second not full; and 125.
    sample(&data.join("key.parquet"), &["--rows", "5000"]);
    sample(
        &data.join("key-40.parquet"),
        &["--rows", "5000", "--page-rows", "40"],
    );
    let json = directory.path().join("report.json");
    let page = directory.path().join("report.html");
    let output = bench(
        &data,
        &[
            "--json",
            json.to_str().unwrap(),
            "--report",
            page.to_str().unwrap(),
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["workload"], "get-scan");
    let verdicts = report["verdicts"].as_array().unwrap();
    let names: Vec<&str> = verdicts.iter().map(|v| v["name"].as_str().unwrap()).collect();
    let target = lookupfs_reader::bench::GET_SCAN_TARGETS[0].what;
    assert_eq!(
        names,
        [
            format!("{target}: 4,096 rows a data page, 16 threads"),
            format!("{target}: 40 rows a data page, 16 threads")
        ]
    );
    let cells = report["cells"].as_array().unwrap();
    let shape: Vec<_> = cells
        .iter()
        .map(|cell| {
            (
                cell["condition"].as_str().unwrap(),
                cell["threads"].as_u64().unwrap(),
            )
        })
        .collect();
    let [large, small] = ["4,096 rows a data page", "40 rows a data page"];
    assert_eq!(shape, [(large, 16), (large, 1), (small, 16), (small, 1)]);
    for cell in cells {
        let sides = cell["sides"].as_array().unwrap();
        assert_eq!(sides.len(), 3);
        assert!(sides.iter().all(|side| side["errors"] == 0), "{cell}");
        let runs = cell["rounds"][0].as_array().unwrap();
        let rows = |run: &Value| run["operations"].as_u64().unwrap();
        assert!(rows(&runs[0]) > 0 && rows(&runs[1]) == rows(&runs[2]), "{cell}");
        assert_eq!(rows(&runs[1]) % rows(&runs[0]), 0, "{cell}");
        // The sums are of the same rows, and there is something in them.
        assert!(
            runs.iter()
                .all(|run| run["checksum"] == runs[0]["checksum"] && run["checksum"] != 0)
        );
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("<html"));
}

#[test]
fn what_is_missing_is_skipped_and_what_is_wrong_fails() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let output = bench(&data, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("no key.parquet") && said.contains("no key-40.parquet"),
        "{said}"
    );
    sample(&data.join("key.parquet"), &["--rows", "500", "--seed", "5"]);
    let output = bench(&data, &[]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "the values are those of another seed"
    );
}
