//! The binary: output, messages and exit codes.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::*;

fn lookup(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lookup"))
        .args(args)
        .output()
        .unwrap()
}

fn fixture(name: &str) -> String {
    fixtures_dir()
        .join(name)
        .join("data.parquet")
        .to_str()
        .unwrap()
        .to_owned()
}

/// Standard output of a run that must succeed.
fn printed(args: &[&str]) -> String {
    let output = lookup(args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line on stderr of a run that must fail with exit code 1.
fn failure(args: &[&str]) -> String {
    let output = lookup(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?}: rows were printed");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("lookup: "), "{error}");
    error
}

#[test]
fn wrong_usage_is_one_line_with_exit_code_2() {
    for args in [
        &["get"][..],
        &["get", "f", "--rows", "5-2"],
        &["scan", "f", "--page", "0"],
        &["fly"],
    ] {
        let output = lookup(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.starts_with("lookup: ") && error.contains("--help"),
            "{error}"
        );
    }
    assert!(printed(&["--help"]).contains("Usage"));
}

/// Compares a cell of JSON output, where floats are numbers, with `expected.json`.
fn assert_json(what: &str, got: &Value, want: &Value, kind: &str) -> usize {
    match (got, want) {
        (Value::Number(got), Value::String(want)) => {
            let same = match kind {
                "float" => got.as_f64().unwrap() as f32 == want.parse::<f32>().unwrap(),
                _ => got.as_f64().unwrap() == want.parse::<f64>().unwrap(),
            };
            assert!(same, "{what}: {got} {want}");
            1
        }
        (Value::Array(got), Value::Array(want)) => {
            assert_eq!(got.len(), want.len(), "{what}");
            got.iter()
                .zip(want)
                .map(|(g, w)| assert_json(what, g, w, kind))
                .sum()
        }
        (Value::Object(got), Value::Object(want)) => {
            assert_eq!(got.len(), want.len(), "{what}");
            got.iter()
                .map(|(key, g)| assert_json(what, g, &want[key], kind))
                .sum()
        }
        (Value::String(got), Value::String(want)) => {
            let float = [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")];
            let same = got == want
                || float.contains(&(got, want))
                // Polars keeps times in ns.
                || kind.starts_with("time64") && *got == format!("{want}000");
            assert!(same, "{what}: {got} {want}");
            1
        }
        _ => {
            assert_eq!(got, want, "{what}");
            1
        }
    }
}

#[test]
fn get_prints_every_recorded_value_of_every_fixture_as_json_lines() {
    let mut compared = 0;
    for fixture in fixtures() {
        let expected = expected(&fixture);
        let samples = expected["samples"].as_array().unwrap();
        let path = fixture.join("data.parquet");
        let path = path.to_str().unwrap();
        if samples.is_empty() {
            assert!(failure(&["get", path, "--rows", "0"]).contains("has 0 rows"));
            continue;
        }
        let ids: Vec<_> = samples.iter().map(|s| s["row_id"].to_string()).collect();
        let text = printed(&["get", path, "--rows", &ids.join(","), "--output", "json"]);
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), samples.len());
        for (line, sample) in lines.iter().zip(samples) {
            assert_eq!(
                line.as_object().unwrap().len(),
                sample["values"].as_object().unwrap().len()
            );
            for column in expected["columns"].as_array().unwrap() {
                let name = column["name"].as_str().unwrap();
                let what = format!("{path}, row id {}, {name}", sample["row_id"]);
                let kind = column["type"].as_str().unwrap();
                compared += assert_json(&what, &line[name], &sample["values"][name], kind);
            }
        }
    }
    println!("{compared} values compared");
    assert!(compared > 14_000, "{compared}");
}

#[test]
fn ids_come_from_the_command_line_or_from_stdin() {
    let path = fixture("parquet-nested");
    let args = ["get", &path, "--columns", "flat", "--output", "csv", "--rows"];
    let listed = printed(&[&args[..], &["3,1,5-7,3"]].concat());
    assert_eq!(listed.lines().count(), 7);
    let mut child = Command::new(env!("CARGO_BIN_EXE_lookup"))
        .args(args)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"3\n1\n5-7\n\n3\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), listed);
}

#[test]
fn failures_are_one_line_that_says_what_to_do() {
    let nested = fixture("parquet-nested");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("garbage"), vec![7; 5000]).unwrap();
    let bytes = std::fs::read(&nested).unwrap();
    std::fs::write(at("cut"), &bytes[..bytes.len() - 1000]).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("orc"), [&b"ORC"[..], &[0; 200]].concat()).unwrap();

    let error = failure(&["get", &nested, "--rows", "7,2500"]);
    assert!(
        error.contains("row id 2500 does not exist") && error.contains("2500 rows"),
        "{error}"
    );
    let error = failure(&["get", &nested, "--rows", "1", "--columns", "id,flt"]);
    assert!(error.contains("no column 'flt'; there is: flat"), "{error}");
    assert!(failure(&["get", &nested, "--rows", ""]).contains("list of row ids is empty"));
    assert!(failure(&["get", &at("garbage"), "--rows", "1"]).contains("not a Parquet file"));
    assert!(failure(&["get", &at("cut"), "--rows", "1"]).contains("was cut"));
    assert!(failure(&["get", &at("empty"), "--rows", "1"]).contains("0 bytes"));
    assert!(failure(&["get", &at("orc"), "--rows", "1"]).contains("supported: Parquet"));
    assert!(failure(&["get", &at("absent"), "--rows", "1"]).contains("No such file"));
    assert!(failure(&["get", "/dev/null", "--rows", "1"]).contains("not a regular file"));
    assert!(failure(&["scan", &nested, "--rows", "2490..2501"]).contains("row id 2500"));
    assert!(failure(&["inspect", &at("garbage")]).contains("not a Parquet file"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let path = fixture("parquet-nested");
    for args in [
        &["get", &path][..],
        &["get", &path, "--rows", "x"],
        &["get", &path, "--rows", "1", "--output", "xml"],
        &["get", &path, "--rows", "1", "--missing", "maybe"],
        &["get", &path, "--rows", "1", "--memory", "0"],
        &["get", &path, "--rows", "1", "--deadline", "-1"],
        &["get", &path, "--rows", "1", "--spread", "evenly"],
        &["scan", &path, "--rows", "5..1"],
        &["scan", &path, "--page", "0"],
        &["sample", "/tmp/x"],
        &["nothing"],
        &[],
    ] {
        assert_eq!(lookup(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn missing_rows_can_be_nulls_or_left_out() {
    let path = fixture("parquet-nested");
    let args = [
        "get",
        &path,
        "--rows",
        "9999,1",
        "--columns",
        "flat",
        "--output",
        "json",
    ];
    let with = |missing| printed(&[&args[..], &["--missing", missing]].concat());
    assert_eq!(with("null"), "{\"flat\":null}\n{\"flat\":\"row 1\"}\n");
    assert_eq!(with("skip"), "{\"flat\":\"row 1\"}\n");
}

#[test]
fn scan_prints_a_range_without_its_end() {
    let path = fixture("parquet-nested");
    let args = ["--columns", "id", "--output", "csv"];
    let scan = |range| printed(&[&["scan", &path, "--rows", range], &args[..]].concat());
    let get = printed(&[&["get", &path, "--rows", "1095-1104"], &args[..]].concat());
    assert_eq!(scan("1095..1105"), get);
    assert_eq!(scan("2500.."), "id\n");
    assert_eq!(scan("..").lines().count(), 2501);
    assert_eq!(
        printed(&["scan", &path, "--columns", "id", "--page", "7", "--output", "csv"]),
        scan("..")
    );
}

#[test]
fn arrow_output_is_an_ipc_stream_of_the_same_rows() {
    let path = fixture("parquet-nested");
    let output = lookup(&["get", &path, "--rows", "5,1100,5", "--output", "arrow"]);
    let reader = arrow_ipc::reader::StreamReader::try_new(&output.stdout[..], None).unwrap();
    let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    let all = plain_read(std::fs::read(&path).unwrap().into(), None, None).unwrap();
    assert_eq!(batches.len(), 1);
    assert_same("arrow", &batches[0], &pick(&all, &rows([5, 1100, 5])));
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_output_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lookup"))
        .args(["scan", &fixture("parquet-plain-uncompressed"), "--output", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn explain_counts_what_was_done() {
    let path = fixture("parquet-plain-uncompressed");
    let output = lookup(&["get", &path, "--rows", "7", "--explain"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("rows 1  opens 1  reads 2  bytes "), "{text}");
}

#[test]
fn inspect_prints_the_layout() {
    let expected = expected(&fixtures_dir().join("parquet-dict-fallback"));
    let text = printed(&["inspect", &fixture("parquet-dict-fallback"), "--json"]);
    let layout: Value = serde_json::from_str(&text).unwrap();
    let file = &layout["files"][0];
    assert_eq!(file["row_groups"], expected["layout"]["row_groups"]);
    assert_eq!(file["bytes"], expected["layout"]["bytes"]);
    let pages: u64 = file["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["data_pages"].as_u64().unwrap())
        .sum();
    assert_eq!(pages, expected["layout"]["data_pages"].as_u64().unwrap());
    let text = printed(&["inspect", &fixture("parquet-no-page-index")]);
    assert!(
        text.contains("4000 rows in 2 row groups") && text.contains("0/2"),
        "{text}"
    );
    assert!(
        text.contains("no offset index: the first lookup walks the column"),
        "{text}"
    );
}

#[test]
fn a_sample_is_written_once_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let verify = |path: &str, seed: &str, shape: &str| {
        lookup(&["sample", path, "--verify", "--seed", seed, "--columns", shape])
    };
    for shape in ["narrow", "wide"] {
        let path = at(shape);
        printed(&[
            "sample",
            &path,
            "--rows",
            "5000",
            "--columns",
            shape,
            "--seed",
            "7",
        ]);
        assert_eq!(verify(&path, "7", shape).status.code(), Some(0));
        assert_eq!(verify(&path, "8", shape).status.code(), Some(1));
        let before = std::fs::read(&path).unwrap();
        let again = ["sample", &path, "--rows", "1", "--columns", shape];
        assert!(failure(&again).contains("exists already"));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        printed(&[
            "sample",
            &at("again"),
            "--rows",
            "5000",
            "--columns",
            shape,
            "--seed",
            "7",
            "--force",
        ]);
        assert_eq!(
            std::fs::read(at("again")).unwrap(),
            before,
            "the same seed, the same bytes"
        );
    }
    assert_eq!(leftovers(dir.path()), [] as [PathBuf; 0]);
    let text = String::from_utf8(verify(&at("narrow"), "7", "narrow").stdout).unwrap();
    assert!(text.contains("5000 rows, 10000 values, all as written"), "{text}");
}

#[test]
fn verify_names_the_first_wrong_value() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    printed(&["sample", &at("narrow"), "--rows", "5000", "--seed", "7"]);
    // One wrong byte of a payload, of which the file keeps no checksum.
    let mut bytes = std::fs::read(at("narrow")).unwrap();
    bytes[3_000_000] ^= 1;
    std::fs::write(at("narrow"), bytes).unwrap();
    let error = failure(&["sample", &at("narrow"), "--verify", "--seed", "7"]);
    assert!(
        error.contains("column payload") && error.contains("row 2"),
        "{error}"
    );
}

#[test]
fn a_sample_is_verified_through_mounts() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    printed(&[
        "sample",
        &at("wide"),
        "--rows",
        "5000",
        "--seed",
        "7",
        "--columns",
        "wide",
    ]);
    let roots = ["a", "b"].map(at);
    for root in &roots {
        std::fs::create_dir(root).unwrap();
        std::fs::hard_link(at("wide"), Path::new(root).join("w")).unwrap();
    }
    let mounts = [
        "--mount",
        &roots[0],
        "--mount",
        &roots[1],
        "--spread",
        "round-robin",
    ];
    let args = ["sample", "w", "--verify", "--columns", "wide", "--seed", "7"];
    assert!(printed(&[&args[..], &mounts].concat()).contains("210000 values"));
    assert!(failure(&["sample", &at("no/such/dir"), "--rows", "1"]).contains("No such file"));
}

fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|e| e == "tmp"))
        .collect()
}

#[test]
fn get_and_scan_by_key_print_rows_and_count_what_is_missing() {
    let path = fixture("parquet-plain-uncompressed");
    let all = printed(&["scan", &path, "--output", "json"]);
    let all: Vec<&str> = all.lines().collect();
    let keys = |line: &str| -> i64 {
        let value: Value = serde_json::from_str(line).unwrap();
        value["id"].as_i64().unwrap()
    };
    let (a, b) = (keys(all[7]), keys(all[3]));
    let get = |more: &[&str]| lookup(&[&["get", &path, "--output", "json"], more].concat());
    let output = get(&[
        "--key",
        &format!("id={a}"),
        "--key",
        "id=-77",
        "--key",
        &format!("id={b}"),
    ]);
    assert_eq!(output.status.code(), Some(0));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), [all[7], all[3]]);
    let counted = String::from_utf8(output.stderr).unwrap();
    assert_eq!(counted, "lookup: 1 of 3 keys are not in 'id'\n");
    let error = failure(&["get", &path, "--key", "id=-77", "--missing", "error"]);
    assert!(
        error.contains("'-77'") && error.contains("--missing skip"),
        "{error}"
    );
    let nulls = get(&["--key", "id=-77", "--missing", "null"]);
    assert!(String::from_utf8(nulls.stdout).unwrap().contains("\"id\":null"));

    let range = format!("id={}..{}", keys(all[10]), keys(all[20]));
    let scanned = printed(&[
        "scan",
        &path,
        "--key-range",
        &range,
        "--output",
        "json",
        "--page",
        "3",
    ]);
    assert_eq!(scanned.lines().collect::<Vec<_>>(), all[10..20]);

    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("keys");
    std::fs::write(&list, format!("{b}\n\n{a}\n")).unwrap();
    let listed = printed(&[
        "get",
        &path,
        "--key",
        "id",
        "--keys-file",
        list.to_str().unwrap(),
        "--output",
        "json",
    ]);
    assert_eq!(listed.lines().collect::<Vec<_>>(), [all[3], all[7]]);
    assert!(failure(&["get", &path, "--key", "id=x"]).contains("write a whole number"));
    assert!(failure(&["get", &path, "--key", "idd=7"]).contains("there is: id"));
}

#[test]
fn keys_that_make_no_sense_are_wrong_usage() {
    for args in [
        &["--key", "id"][..],
        &["--key", "=7"],
        &["--key", "id=7", "--key", "payload=00"],
        &["--key", "id=7", "--rows", "7"],
        &["--keys-file", "f"],
    ] {
        let output = lookup(&[&["get", "f"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    for range in ["id=7", "7..9", "=7..9"] {
        assert_eq!(
            lookup(&["scan", "f", "--key-range", range]).status.code(),
            Some(2),
            "{range}"
        );
    }
}
