//! What `lookup inspect` says, against what the lookups that it speaks of do, and files that are known to be good or bad.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use lookupfs_reader::inspect::{ColumnLayout, FileLayout, TableLayout};
use lookupfs_reader::rewrite::{RewriteOptions, SizeStatistics, rewrite};
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{Key, OpenOptions, Projection, RowId, Table};
use parquet::file::metadata::ParquetMetaDataReader;
use serde_json::Value;
use support::*;

fn layout(path: &Path) -> FileLayout {
    TableLayout::of(&open(path)).unwrap().files.remove(0)
}

fn column<'a>(file: &'a FileLayout, name: &str) -> &'a ColumnLayout {
    file.columns.iter().find(|column| column.name == name).unwrap()
}

fn sample_file(dir: &Path, name: &str, shape: Shape, page_rows: Option<usize>) -> PathBuf {
    let path = dir.join(name);
    let options = SampleOptions {
        shape,
        rows: 10_000,
        page_rows,
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    path
}

fn said(file: &FileLayout, what: &str) -> Vec<String> {
    let found = file.findings.iter().filter(|finding| finding.what.contains(what));
    found.flat_map(|finding| finding.columns.clone()).collect()
}

#[test]
fn what_one_row_is_said_to_cost_is_what_it_costs() {
    let mut looked_at = 0;
    for fixture in fixtures() {
        let path = fixture.join("data.parquet");
        let file = layout(&path);
        let Some(cost) = file.one_row else {
            assert_eq!(file.rows, 0, "{}", path.display());
            continue;
        };
        for part in 0..8 {
            let row = file.rows * part / 8;
            let table = Table::open(path.as_path(), OpenOptions::default()).unwrap();
            let before = table.counters();
            table.get(&[RowId(row)], &Projection::all()).unwrap();
            let after = table.counters();
            let (reads, bytes) = (after.reads - before.reads, after.bytes - before.bytes);
            // Columns that have to be walked first are read before the others.
            let walks = file
                .columns
                .iter()
                .any(|column| column.indexed_row_groups < column.row_groups);
            let most = if walks { 2 * cost.reads.max } else { cost.reads.max };
            let what = format!(
                "{}, row {row}: {reads} reads, {bytes} bytes, {cost:?}",
                path.display()
            );
            assert!(reads <= most && reads >= 1, "{what}");
            assert!(
                walks || (cost.bytes.min..=cost.bytes.max).contains(&bytes),
                "{what}"
            );
            looked_at += 1;
        }
    }
    println!("{looked_at} rows looked up");
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn large_pages_are_found_and_the_remedy_helps() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample_file(dir.path(), "narrow", Shape::Narrow, None);
    let before = layout(&path);
    let payload = column(&before, "payload");
    assert_eq!(
        (payload.data_pages, payload.page_rows.unwrap().median),
        (Some(3), 4096)
    );
    assert_eq!((payload.sorted, payload.size_statistics), ("unknown", "page"));
    assert_eq!(
        said(&before, "rewrite with --page-rows 32"),
        ["payload"],
        "{:?}",
        before.findings
    );
    let out = dir.path().join("out");
    let options = RewriteOptions {
        page_rows: Some(32),
        size_statistics: SizeStatistics::None,
        ..RewriteOptions::default()
    };
    rewrite(&open(&path), &out, &options, &mut |_| {}).unwrap();
    let after = layout(&out);
    assert!(said(&after, "--page-rows").is_empty(), "{:?}", after.findings);
    assert!(after.one_row.unwrap().bytes.max * 50 < before.one_row.unwrap().bytes.median);
    assert_eq!(column(&after, "payload").size_statistics, "none");
    assert_eq!(
        (column(&after, "id").sorted, column(&after, "payload").sorted),
        ("ascending", "unknown")
    );
}

#[test]
fn sortedness_tells_what_a_key_costs() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample_file(dir.path(), "key", Shape::Key, Some(500));
    let file = layout(&path);
    let key = column(&file, "key");
    assert_eq!((key.sorted, key.data_pages_per_key), ("ascending", Some(1.0)));
    assert_eq!(said(&file, "looks at 1.0 of 20 data pages"), ["key"]);
    let value = column(&file, "v3");
    assert_eq!((value.sorted, value.bounded_row_groups), ("no", 1));
    assert!(value.data_pages_per_key.unwrap() > 10.0, "{value:?}");
    let table = open(&path);
    let column = table.key_column("key").unwrap();
    let absent_or_not = Key::Integer(15_000);
    table.find_keys(&column, &[absent_or_not]).unwrap();
    assert!(table.counters().key_pages_made <= 1);
}

#[test]
fn what_is_absent_or_unsound_is_said() {
    let bad = layout(&fixtures_dir().join("parquet-no-page-index/data.parquet"));
    let names: Vec<_> = bad.columns.iter().map(|column| column.name.clone()).collect();
    assert_eq!(said(&bad, "no offset index"), names);
    assert!(
        bad.columns
            .iter()
            .all(|column| column.data_pages.is_none() && column.page_rows.is_none())
    );
    for fixture in fixtures() {
        let file = layout(&fixture.join("data.parquet"));
        assert!(
            said(&file, "does not hold").is_empty(),
            "{}: {:?}",
            file.path,
            file.findings
        );
    }
}

#[test]
fn an_index_that_does_not_hold_is_said_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample_file(dir.path(), "lying", Shape::Narrow, Some(100));
    let mut bytes = std::fs::read(&path).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&bytes::Bytes::from(bytes.clone()))
        .unwrap();
    let range = metadata.row_group(0).column(1).offset_index_range().unwrap();
    // A location is three numbers, each behind a byte that says so: 0x16 for the last, its first row, here of two bytes. Rows
    // go back at the last data page.
    let index = &mut bytes[range.start as usize..range.end as usize];
    let last = index.iter().rposition(|byte| *byte == 0x16).unwrap();
    assert_eq!(index[last + 1] & 0x80, 0x80);
    index[last + 1] = 0x82;
    index[last + 2] = 0;
    std::fs::write(&path, bytes).unwrap();
    let file = layout(&path);
    assert_eq!(said(&file, "does not hold"), ["payload"], "{:?}", file.findings);
    assert_eq!(column(&file, "payload").data_pages, None);
    assert_eq!(column(&file, "id").data_pages, Some(100));
}

#[test]
fn two_files_are_shown_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let a = sample_file(dir.path(), "a", Shape::Narrow, None);
    let b = sample_file(dir.path(), "b", Shape::Narrow, Some(100));
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lookup"))
            .arg("inspect")
            .args([&a, &b])
            .args(args)
            .output();
        let output = output.unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.trim_start().starts_with("payload"))
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains(" A ") && lines[1].contains(" B ") && lines[1].contains(" 100 "),
        "{text}"
    );
    let json: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(json["a"]["columns"][1]["data_pages"], 3);
    assert_eq!(json["b"]["columns"][1]["data_pages"], 100);
    let output = Command::new(env!("CARGO_BIN_EXE_lookup"))
        .arg("inspect")
        .args([&a, dir.path()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}
