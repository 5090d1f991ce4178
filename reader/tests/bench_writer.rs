//! `lookup bench writer` with a stand-in for callgrind: every column has a verdict or a reason, every side writes the same rows, and
//! a share is what the stand-in's output says. No figure of time is asserted, since times prove nothing.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");

fn bench(tools: [&Path; 2], more: &[&str]) -> Output {
    let mut command = Command::new(LOOKUP);
    command.args(["bench", "writer", "--quick", "--pairs", "1"]);
    for (flag, tool) in ["--valgrind", "--addr2line"].iter().zip(tools) {
        command.arg(flag).arg(tool);
    }
    command.args(more).output().unwrap()
}

fn program(path: &Path, script: &str) {
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that runs what it is given, as callgrind does, and writes `output`, where `LOOKUP` is the program itself; and one that
/// finds line 2 of a file of the library, which speaks of a histogram, at address 0x20, and no source at others.
fn stand_ins(directory: &Path, output: &str) -> [PathBuf; 2] {
    let library = directory.join("parquet-0");
    std::fs::create_dir_all(&library).unwrap();
    let source = library.join("writer.rs");
    std::fs::write(&source, "fn write() {\n  histogram.add(1);\n}\n").unwrap();
    std::fs::write(directory.join("output"), output.replace("LOOKUP", LOOKUP)).unwrap();
    let tools = ["valgrind", "addr2line"].map(|name| directory.join(name));
    let shown = directory.display();
    program(
        &tools[0],
        &format!(
            "#!/bin/sh\nset -eu\nwhile :; do case $1 in\n--callgrind-out-file=*) out=${{1#*=}} ;;\n--*) ;;\n*) break ;;\nesac; shift; done\n\
             \"$@\"\necho \"$*\" >>{shown}/ran\ncp {shown}/output \"$out\"\n"
        ),
    );
    program(
        &tools[1],
        &format!(
            "#!/bin/sh\nset -eu\nfor word; do case $word in\n0x20) printf '0x20\\n/core.rs:9\\n{}:2\\n' ;;\n\
             0x*) printf '%s\\n??:0\\n' \"$word\" ;;\nesac; done\n",
            source.display()
        ),
    );
    tools
}

#[test]
fn every_column_has_a_verdict_and_all_sides_write_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let output = "events: Ir\nob=LOOKUP\nfl=/core.rs\nfn=write\n0x10 1 970\n0x20 9 30\n";
    let [valgrind, addr2line] = stand_ins(directory.path(), output);
    let json = directory.path().join("report.json");
    let page = directory.path().join("report.html");
    let [json_path, page_path] = [&json, &page].map(|path| path.to_str().unwrap());
    let output = bench(
        [&valgrind, &addr2line],
        &["--json", json_path, "--report", page_path],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["workload"], "writer");
    let target = lookupfs_reader::bench::WRITER_TARGETS[0].what;
    let verdicts = report["verdicts"].as_array().unwrap();
    let names: Vec<&str> = verdicts.iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["INT64", "STRING", "LIST of INT64"].map(|column| format!("{target}: {column}"))
    );
    // 30 of 1,000 instructions is more than the 2 in 100 that are allowed.
    for verdict in verdicts {
        assert_eq!(
            (&verdict["figure"], &verdict["verdict"]),
            (&3.0.into(), &"missed".into())
        );
    }
    let ran = std::fs::read_to_string(directory.path().join("ran")).unwrap();
    let columns: Vec<&str> = ran.lines().map(|line| line.split(' ').nth(3).unwrap()).collect();
    assert_eq!(columns, ["int64", "int64", "string", "string", "list", "list"]);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    for cell in cells {
        let sides = cell["sides"].as_array().unwrap();
        let names: Vec<&str> = sides.iter().map(|side| side["name"].as_str().unwrap()).collect();
        let of = |level: &str| format!("size statistics {level}");
        let expected = [
            of("none"),
            of("chunk"),
            of("page"),
            "no statistics of any kind".into(),
        ];
        assert_eq!(names, expected);
        for run in cell["rounds"][0].as_array().unwrap() {
            assert_eq!(run["operations"], 200_000, "{cell}");
        }
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("<html"));
}

#[test]
fn without_callgrind_or_its_figures_the_verdicts_are_skipped_and_the_report_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let [valgrind, addr2line] = stand_ins(directory.path(), "events: Ir\nob=LOOKUP\n0x10 1 970\n");
    let absent = directory.path().join("absent");
    for (tools, reason) in [
        ([&*absent, &*addr2line], "cannot be run"),
        ([&*valgrind, &*absent], "cannot be run"),
        ([&*valgrind, &*addr2line], "line tables"),
    ] {
        let output = bench(tools, &[]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        let skipped: Vec<&str> = said.lines().filter(|line| line.starts_with("skipped")).collect();
        assert!(
            skipped.len() == 3 && skipped.iter().all(|line| line.contains(reason)),
            "{said}"
        );
    }
}
