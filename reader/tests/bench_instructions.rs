//! `lookup bench instructions` with a stand-in for callgrind: every way has a figure, and a verdict or a reason, and a figure that has
//! grown is missed. The figures are made up; what callgrind itself counts is nobody's to assert.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");

/// A program that runs what it is given, as callgrind does, and says that it took `total` instructions.
fn stand_in(directory: &Path, total: u64) -> PathBuf {
    let path = directory.join("valgrind");
    let script = format!(
        "#!/bin/sh\nset -eu\nwhile :; do case $1 in\n--callgrind-out-file=*) out=${{1#*=}} ;;\n--*) ;;\n*) break ;;\nesac; shift; done\n\
         \"$@\"\necho \"$*\" >>{}/ran\nprintf 'events: Ir\\ntotals: {total}\\n' >\"$out\"\n",
        directory.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn bench(valgrind: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(LOOKUP);
    command
        .args(["bench", "instructions", "--quick", "--valgrind"])
        .arg(valgrind);
    command.args(more).output().unwrap()
}

fn report(valgrind: &Path, json: &Path, more: &[&str]) -> Value {
    let flags = [&["--json", json.to_str().unwrap()][..], more].concat();
    let output = bench(valgrind, &flags);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn what_was_recorded_is_met_and_a_tenth_more_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let recorded = path("recorded.json");
    let recorded_path = recorded.to_str().unwrap();
    // 100 lookups, or 10 of 1,024 rows.
    let first = report(
        &stand_in(directory.path(), 102_400_000),
        &path("1.json"),
        &["--record", recorded_path],
    );
    assert_eq!(first["workload"], "instructions");
    let counts = first["counts"].as_array().unwrap();
    let figures: Vec<f64> = counts
        .iter()
        .map(|count| count["value"].as_f64().unwrap())
        .collect();
    let (one, many) = (1_024_000.0, 10_000.0);
    assert_eq!(figures, [one, one, one, one, many, one]);
    // Figures of this version are of a release build.
    let skipped = first["skipped"].as_array().unwrap();
    assert_eq!(
        skipped.len(),
        if cfg!(debug_assertions) { 6 } else { 0 },
        "{skipped:?}"
    );
    // Each way ran on a file of its shape, with all values compared.
    let ran = std::fs::read_to_string(path("ran")).unwrap();
    for word in [
        "narrow",
        "narrow-opened",
        "wide",
        "wide-opened",
        "wide-many",
        "key",
    ] {
        assert_eq!(
            ran.lines()
                .filter(|line| line.contains(&format!("look-up {word} ")))
                .count(),
            1,
            "{ran}"
        );
    }
    for (total, verdict) in [
        (102_400_000, "met"),
        (107_000_000, "met"),
        (112_640_000, "missed"),
    ] {
        let again = report(
            &stand_in(directory.path(), total),
            &path("2.json"),
            &["--recorded", recorded_path],
        );
        let verdicts = again["verdicts"].as_array().unwrap();
        assert_eq!(verdicts.len(), 6);
        assert!(
            verdicts.iter().all(|v| v["verdict"] == verdict),
            "{total}: {verdicts:?}"
        );
    }
}

#[test]
fn what_cannot_be_counted_or_compared_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = |valgrind: &Path, more: &[&str]| {
        let output = bench(valgrind, more);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = error(&directory.path().join("none"), &[]);
    assert!(missing.contains("none"), "{missing}");
    let nothing = error(&stand_in(directory.path(), 0), &[]);
    assert!(nothing.contains("counted nothing"), "{nothing}");
    let odd = directory.path().join("odd.json");
    std::fs::write(&odd, "{}").unwrap();
    let odd = error(
        &stand_in(directory.path(), 1),
        &["--recorded", odd.to_str().unwrap()],
    );
    assert!(odd.contains("not what --record writes"), "{odd}");
    let wrong = Command::new(LOOKUP)
        .args([
            "bench",
            "look-up",
            "sideways",
            "x",
            "--lookups",
            "1",
            "--seed",
            "1",
        ])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "wrong usage");
}
