//! `lookup bench point` over local directories that stand for mounts: every verdict is there, every side brings the same rows, and a
//! file that is not what it says ends the run. No figure is asserted, since times prove nothing.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");

fn sample(path: &Path, more: &[&str]) {
    let made = Command::new(LOOKUP)
        .arg("sample")
        .arg(path)
        .args(more)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn bench(directory: &Path, more: &[&str]) -> Output {
    let root = directory.to_str().unwrap();
    let link = directory.parent().unwrap().join("link");
    if !link.exists() {
        std::os::unix::fs::symlink(directory, &link).unwrap();
    }
    let mut command = Command::new(LOOKUP);
    command.args([
        "bench", "point", "--quick", "--pairs", "1", "--local", root, "--mount", root, "--mount",
    ]);
    command.arg(link).args(more).output().unwrap()
}

#[test]
fn every_target_has_a_verdict_and_all_sides_bring_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    sample(&data.join("narrow.parquet"), &["--rows", "3000"]);
    sample(
        &data.join("wide.parquet"),
        &["--rows", "3000", "--columns", "wide"],
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
            "--peer-mount",
            &format!("peer={}", data.display()),
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["workload"], "point");
    let names: Vec<&str> = report["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verdict| verdict["name"].as_str().unwrap())
        .collect();
    for target in lookupfs_reader::bench::POINT_TARGETS {
        assert!(
            names.iter().any(|name| name.starts_with(target.what)),
            "{}: {names:?}",
            target.what
        );
    }
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 10);
    let counts = report["counts"].as_array().unwrap();
    let spreads = |what: &str| {
        let names = counts.iter().map(|count| count["name"].as_str().unwrap());
        names
            .filter(|name| name.starts_with("spread ") && name.contains(what))
            .count()
    };
    // For each spread what the kernels hold, its rate by 1 and by 64 threads, and for two of them the ratio of these.
    assert_eq!(
        (spreads("in the kernels"), spreads(" threads")),
        (3, 10),
        "{counts:?}"
    );
    for cell in cells {
        for side in cell["sides"].as_array().unwrap() {
            assert_eq!(side["errors"], 0, "{cell}");
        }
        // The sides of one round have looked up the same rows; where one repeats them, more often.
        let rows = cell["rounds"][0][0]["operations"].as_u64().unwrap();
        assert!(rows > 0);
        for run in cell["rounds"][0].as_array().unwrap() {
            assert_eq!(run["operations"].as_u64().unwrap() % rows, 0, "{cell}");
        }
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
        output.status.success() && said.contains("no narrow.parquet"),
        "{said}"
    );
    sample(&data.join("narrow.parquet"), &["--rows", "500", "--seed", "5"]);
    let output = bench(&data, &[]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "the values are those of another seed"
    );
}
