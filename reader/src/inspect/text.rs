//! Layouts as text: one table, or two files line by line.
//!
//! Owns widths and units. Called by [`super`].

use std::fmt::Write as _;

use super::{ColumnLayout, FileLayout, LookupCost, MinMedianMax, TableLayout};

const HEADS: [&str; 12] = [
    "column",
    "type",
    "codec",
    "data pages",
    "rows/page",
    "bytes/page",
    "one row: reads",
    "bytes",
    "index",
    "sizes",
    "sorted",
    "encodings",
];

pub(super) fn one(table: &TableLayout) -> String {
    let mut out = String::new();
    for file in &table.files {
        write_head(&mut out, "", file);
        let lines = file.columns.iter().map(|column| cells(column).to_vec());
        write_lines(&mut out, std::iter::once(heads()).chain(lines).collect());
        write_findings(&mut out, "  ", file);
    }
    out
}

/// Every column of either, its lines together.
pub(super) fn two(a: &FileLayout, b: &FileLayout) -> String {
    let mut out = String::new();
    write_head(&mut out, "A ", a);
    write_head(&mut out, "B ", b);
    let mut head = heads();
    head.insert(1, "file".into());
    let mut lines = vec![head];
    let in_a = |name: &str| a.columns.iter().any(|column| column.name == name);
    let only_b = b.columns.iter().filter(|column| !in_a(&column.name));
    for name in a.columns.iter().chain(only_b).map(|column| &column.name) {
        for (which, file) in [("A", a), ("B", b)] {
            if let Some(column) = file.columns.iter().find(|column| column.name == *name) {
                let mut line = cells(column).to_vec();
                line.insert(1, which.into());
                lines.push(line);
            }
        }
    }
    write_lines(&mut out, lines);
    write_findings(&mut out, "A ", a);
    write_findings(&mut out, "B ", b);
    out
}

fn heads() -> Vec<String> {
    HEADS.map(str::to_owned).to_vec()
}

fn write_head(out: &mut String, which: &str, file: &FileLayout) {
    let _ = writeln!(
        out,
        "{which}{}: {}, {} rows in {} row groups, {} bytes; footer {} bytes, with page index {} bytes{}",
        file.path,
        file.format,
        file.rows,
        file.row_groups.len(),
        file.bytes,
        file.footer_bytes,
        file.tail_bytes,
        file.created_by
            .as_ref()
            .map(|by| format!("; by {by}"))
            .unwrap_or_default(),
    );
    if let Some(LookupCost { reads, bytes }) = file.one_row {
        let _ = writeln!(
            out,
            "{which}one row of all columns, nothing known but the footer: {} reads, {} bytes",
            range(reads),
            range(bytes)
        );
    }
}

fn write_findings(out: &mut String, which: &str, file: &FileLayout) {
    for finding in &file.findings {
        let _ = writeln!(out, "{which}- {}", finding.to_text());
    }
}

/// `min/median/max`, or one number if they are the same.
fn range(spread: MinMedianMax) -> String {
    let MinMedianMax { min, median, max } = spread;
    match min == max {
        true => min.to_string(),
        false => format!("{min}/{median}/{max}"),
    }
}

fn cells(c: &ColumnLayout) -> [String; 12] {
    let spread = |spread: Option<MinMedianMax>| spread.map_or_else(|| "?".into(), range);
    [
        c.name.clone(),
        c.r#type.clone(),
        c.codecs.join("+"),
        c.data_pages.map_or_else(|| "?".into(), |n| n.to_string()),
        spread(c.page_rows),
        spread(c.page_bytes),
        spread(c.one_row.map(|cost| cost.reads)),
        spread(c.one_row.map(|cost| cost.bytes)),
        format!("{}/{}", c.indexed_row_groups, c.row_groups),
        c.size_statistics.to_owned(),
        match c.data_pages_per_key {
            Some(pages) => format!("{} ({pages:.1})", c.sorted),
            None => "?".into(),
        },
        c.encodings.join(","),
    ]
}

fn write_lines(out: &mut String, lines: Vec<Vec<String>>) {
    let count = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    for line in &lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
