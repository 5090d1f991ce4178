//! `lookup bench mounts` over local directories that stand for mounts: every part that has its means is measured, every
//! other one is skipped with a reason, and the report has every field. No figure is asserted, since times prove nothing.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");
/// Of the file that is read by random; the one of cold reads has a hole behind them.
const BYTES: usize = 16 << 20;
/// Enough for reads of each size of which none is repeated: two pairs, 1, 4 and 16 threads, one mount and two.
const COLD_BYTES: u64 = 320 << 20;

const COUNT: &str = r#"N=$(($(cat "$0.n" 2>/dev/null || echo 0) + 1)); echo $N >"$0.n""#;

/// A directory with all that a run reads, and a program that answers for `lookupfs` and `minihdfs.sh`.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("data");
        std::fs::create_dir_all(root.join("many")).unwrap();
        std::fs::create_dir(root.join("rows")).unwrap();
        let bytes: Vec<u8> = (0..BYTES / 8)
            .flat_map(|word| (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .collect();
        std::fs::write(root.join("cold.bin"), &bytes).unwrap();
        let cold = std::fs::File::options()
            .write(true)
            .open(root.join("cold.bin"))
            .unwrap();
        cold.set_len(COLD_BYTES).unwrap();
        std::fs::write(root.join("warm.bin"), &bytes[..4 << 20]).unwrap();
        std::fs::write(root.join("sequential.bin"), &bytes[..3 << 20]).unwrap();
        (0..1500).for_each(|file| std::fs::write(root.join(format!("many/f{file}")), "").unwrap());
        for name in ["a", "b", "c"] {
            let file = root.join(format!("rows/{name}.parquet"));
            let made = Command::new(LOOKUP)
                .args(["sample", "--rows", "100"])
                .arg(file)
                .output()
                .unwrap();
            assert!(made.status.success());
        }
        Place { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A script that prints `text`, in which $N is the number of its calls.
    fn program(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{COUNT}\ncat <<END\n{text}\nEND\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn bench(&self, more: &[&str]) -> Output {
        let root = self.root();
        let root = root.to_str().unwrap();
        let native = format!("{LOOKUP} bench local {root}");
        let mut command = Command::new(LOOKUP);
        command.args([
            "bench", "mounts", "--quick", "--pairs", "2", "--mount", root, "--local", root, "--native",
            &native,
        ]);
        command.args(more).output().unwrap()
    }
}

fn report_of(output: &Output, path: &Path) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|item| item[field].as_str().unwrap())
        .collect()
}

#[test]
fn a_whole_run_has_every_field_and_every_verdict() {
    let place = Place::new();
    let (root, json, page) = (
        place.root(),
        place.directory.path().join("r.json"),
        place.directory.path().join("r.html"),
    );
    let root = root.to_str().unwrap();
    // Counters of requests that never move: a daemon that asks its source nothing, and so no cold read is proven to be
    // cold. Opens are passed through, one more at each question.
    let pid = std::process::id();
    let stats = format!(
        r#"{{"pid":{pid},"options":{{"memory":8388608}},
        "mounts":[{{"mount_point":"{root}","opens":{{"passthrough":$N,"kept":0}}}}],"sources":[{{"requests":{{"read":5,"read_bytes":5}}}}]}}"#
    );
    let lookupfs = place.program("lookupfs", &stats);
    let audit = place.program("audit", "12");
    let peer = format!("other={root}");
    let mut args = Vec::new();
    for flag in [
        "--mount",
        "--passthrough-mount",
        "--exact-mount",
        "--memory-mount",
        "--fresh-mount",
    ] {
        args.extend([flag, root]);
    }
    for (flag, value) in [
        ("--fresh-command", "true"),
        ("--peer-mount", &peer),
        ("--lookupfs", &lookupfs),
        ("--audit", &audit),
        ("--json", json.to_str().unwrap()),
        ("--report", page.to_str().unwrap()),
    ] {
        args.extend([flag, value]);
    }
    let output = place.bench(&args);
    let report = report_of(&output, &json);
    assert_eq!(
        (
            report["workload"].as_str(),
            report["quick"].as_bool(),
            report["pairs"].as_u64()
        ),
        (Some("mounts"), Some(true), Some(2))
    );
    assert!(report["machine"]["cores"].as_u64() > Some(0) && report["machine"]["load_before"].is_number());
    assert_eq!(report["daemon"]["memory"].as_u64(), Some(8 << 20));
    assert!(
        report["conditions"]["cold"]
            .as_str()
            .unwrap()
            .contains("none was read before")
    );
    check_verdicts(&report);
    check_cells(&report);
    check_skips(&report);
    check_page(&std::fs::read_to_string(page).unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(" met, ") && text.contains("skipped  "), "{text}");
}

fn check_skips(report: &Value) {
    // Nothing came from the "source", so that no cold figure may be judged.
    let skipped = texts(&report["skipped"], "reason");
    assert!(
        skipped
            .iter()
            .filter(|reason| reason.starts_with("not cold"))
            .count()
            == 19,
        "{skipped:?}"
    );
}

fn check_page(page: &str) {
    assert!(
        page.contains("<svg")
            && page.contains("warm 4 KiB, mount / ext4")
            && page.ends_with("</body></html>\n")
    );
    assert!(
        !page.contains("http") && !page.contains("src="),
        "the page refers to something outside of it"
    );
}

fn check_verdicts(report: &Value) {
    let names = texts(&report["verdicts"], "name");
    for want in [
        "warm 4 KiB, mount / ext4: 1 mount, 1 thread",
        "warm 4 KiB, mount / ext4: 2 mounts, 16 threads",
        "warm 4 KiB, passthrough / ext4: 1 mount, 4 threads",
        "warm 4 KiB, 1 mount / all mounts: 2 mounts, 4 threads",
        "cold sequential, mount / hdfs-native",
        "cold sequential, mount / peer: other",
        "cold ls -l, listings at the source: 1500 files",
        "cold ls -l, mount / (ext4 + hdfs-native): 1500 files",
        "warm lookup, NameNode",
        "warm lookup, DataNode",
        "cold lookup, attributes known, NameNode",
        "cold lookup, NameNode",
        "cold lookup, sibling's footer read, DataNode",
        "memory above the budget",
    ] {
        assert!(names.contains(&want), "no verdict '{want}' in {names:?}");
    }
    for verdict in report["verdicts"].as_array().unwrap() {
        let interval = verdict["interval"].as_array().unwrap();
        assert!(
            interval.len() == 2 && verdict["figure"].is_number() && verdict["limit"].is_number(),
            "{verdict}"
        );
        assert!(
            ["met", "missed", "undecided"].contains(&verdict["verdict"].as_str().unwrap()),
            "{verdict}"
        );
        assert!(
            !verdict["source"].as_str().unwrap().is_empty() && verdict["target"].is_string(),
            "{verdict}"
        );
        let detail = verdict["detail"].as_str().unwrap();
        assert!(
            !detail.contains("other bytes"),
            "both sides read one file: {verdict}"
        );
    }
}

fn check_cells(report: &Value) {
    let cells = report["cells"].as_array().unwrap();
    let of = |condition: &str| cells.iter().filter(|cell| cell["condition"] == condition).count();
    // Three sizes and three concurrencies; cold with one mount and with both, and once in the lookup profile.
    assert_eq!(
        (of("warm"), of("cold"), of("cold sequential"), of("cold ls -l")),
        (9, 19, 1, 1)
    );
    for cell in cells {
        let sides = cell["sides"].as_array().unwrap();
        let rounds = cell["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{cell}");
        for round in rounds {
            let runs = round.as_array().unwrap();
            assert_eq!(runs.len(), sides.len());
            for run in runs {
                assert!(
                    run["seconds"].as_f64() > Some(0.0) && run["operations"].as_u64() > Some(0),
                    "{run}"
                );
                assert_eq!(run["errors"].as_u64(), Some(0), "{run}");
            }
        }
        for field in [
            "name",
            "median_per_second",
            "spread_per_second",
            "cv",
            "p50_us",
            "p99_us",
            "max_us",
            "errors",
        ] {
            assert!(sides.iter().all(|side| !side[field].is_null()), "{field}: {cell}");
        }
        assert!(
            sides[0]["ratio"].is_null()
                && sides
                    .iter()
                    .skip(1)
                    .all(|side| side["ratio"]["figure"].is_number())
        );
    }
    let warm = cells.iter().find(|cell| cell["condition"] == "warm").unwrap();
    let sides = texts(&warm["sides"], "name");
    assert_eq!(sides, ["ext4", "1 mount", "2 mounts", "passthrough, 1 mount"]);
}

#[test]
fn what_has_no_means_is_skipped_by_name() {
    let place = Place::new();
    let json = place.directory.path().join("r.json");
    std::fs::remove_file(place.root().join("sequential.bin")).unwrap();
    let report = report_of(&place.bench(&["--json", json.to_str().unwrap()]), &json);
    let skipped = texts(&report["skipped"], "name");
    for want in [
        "warm 4 KiB, passthrough / ext4",
        "warm reads through many mounts",
        "cold 4 KiB, source bytes / bytes asked, lookup profile",
        "cold sequential reads",
        "cold ls -l",
        "requests of lookups",
        "memory above the budget",
    ] {
        assert!(
            skipped.contains(&want),
            "'{want}' is neither measured nor skipped: {skipped:?}"
        );
    }
    assert!(
        texts(&report["skipped"], "reason")
            .iter()
            .all(|reason| !reason.is_empty())
    );
}

#[test]
fn other_bytes_on_a_mount_are_found() {
    let place = Place::new();
    let (root, other) = (place.root(), place.directory.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    // Without the hole, which would have to be filled to differ everywhere.
    let cold = std::fs::File::options()
        .write(true)
        .open(root.join("cold.bin"))
        .unwrap();
    cold.set_len(BYTES as u64).unwrap();
    for name in ["warm.bin", "cold.bin"] {
        let mut bytes = std::fs::read(root.join(name)).unwrap();
        bytes.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
        std::fs::write(other.join(name), bytes).unwrap();
    }
    let json = place.directory.path().join("r.json");
    let output = Command::new(LOOKUP)
        .args(["bench", "mounts", "--quick", "--pairs", "1", "--mount"])
        .arg(&other)
        .arg("--local")
        .arg(&root)
        .args(["--native", &format!("{LOOKUP} bench local {}", root.display())])
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let report = report_of(&output, &json);
    let verdicts = report["verdicts"].as_array().unwrap();
    let missed = verdicts.iter().filter(|verdict| verdict["verdict"] == "missed");
    assert!(
        missed.clone().count() == verdicts.len() && verdicts.len() >= 6,
        "{verdicts:?}"
    );
    assert!(
        missed
            .into_iter()
            .all(|verdict| verdict["detail"].as_str().unwrap().contains("other bytes"))
    );
}

#[test]
fn wrong_usage_is_said_on_one_line() {
    for (args, part) in [
        (&["bench", "mounts", "--local", "/x"][..], "--mount"),
        (&["bench", "mounts", "--mount", "/x"], "--local"),
        (
            &[
                "bench",
                "mounts",
                "--mount",
                "/x",
                "--local",
                "/x",
                "--fresh-mount",
                "/x",
            ],
            "--fresh-command",
        ),
        (
            &[
                "bench",
                "mounts",
                "--mount",
                "/x",
                "--local",
                "/x",
                "--peer-mount",
                "rclone",
                "--fresh-command",
                "x",
            ],
            "NAME=DIR",
        ),
        (
            &[
                "bench", "mounts", "--mount", "/x", "--local", "/x", "--pairs", "0",
            ],
            "--pairs",
        ),
        (&["bench", "frobnicate"], "frobnicate"),
    ] {
        let output = Command::new(LOOKUP).args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(
            errors.contains(part) && errors.trim().lines().count() == 1,
            "{args:?}: {errors}"
        );
    }
}
