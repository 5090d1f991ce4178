//! [`Finding`]: what stands in the way of lookups in a file, in plain words, with what to do about it.
//!
//! Owns the limits from which on something is worth saying. Called by [`super`].

use serde::Serialize;

use super::text::size;
use super::{ColumnLayout, FileLayout};

/// A data page that is longer is many packets of HDFS for one value.
const PAGE_BYTES_MAX: u64 = 256 << 10;

/// What a data page should be.
const PAGE_BYTES_GOOD: u64 = 64 << 10;

/// A dictionary that is longer than this costs more than most data pages.
const DICTIONARY_BYTES_MAX: u64 = 256 << 10;

/// A longer tail takes more than one read to open the file.
const TAIL_BYTES_MAX: u64 = 4 << 20;

/// Smaller row groups cost more metadata than they are worth.
const ROW_GROUP_ROWS_MIN: u64 = 1000;

/// Columns that a finding names.
const NAMED_MAX: usize = 8;

/// Something worth saying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The columns it is about; none is the file.
    pub columns: Vec<String>,
    /// What it is, and what to do.
    pub what: String,
}

impl Finding {
    /// On one line.
    pub(super) fn to_text(&self) -> String {
        let more = self.columns.len().saturating_sub(NAMED_MAX);
        let mut names = self.columns[..self.columns.len() - more].join(", ");
        if more > 0 {
            names += &format!(" and {more} more");
        }
        match names.is_empty() {
            true => self.what.clone(),
            false => format!("{names}: {}", self.what),
        }
    }
}

/// Columns of which the same is to be said are named together.
pub(super) fn of(file: &FileLayout) -> Vec<Finding> {
    let mut all: Vec<Finding> = of_file(file)
        .into_iter()
        .map(|what| Finding {
            columns: Vec::new(),
            what,
        })
        .collect();
    let begin = all.len();
    for column in &file.columns {
        for what in of_column(column) {
            match all[begin..].iter_mut().find(|finding| finding.what == what) {
                Some(known) => known.columns.push(column.name.clone()),
                None => all.push(Finding {
                    columns: vec![column.name.clone()],
                    what,
                }),
            }
        }
    }
    all
}

fn of_file(file: &FileLayout) -> Vec<String> {
    let mut found = Vec::new();
    if file.tail_bytes > TAIL_BYTES_MAX {
        found.push(format!(
            "footer and page index have {}: opening takes more than one read; rewrite with larger --page-rows",
            size(file.tail_bytes)
        ));
    }
    let groups = file.row_groups.len() as u64;
    if groups > 1 && file.rows / groups < ROW_GROUP_ROWS_MIN {
        found.push(format!(
            "{groups} row groups of {} rows on average: rewrite with --row-group-rows 131072",
            file.rows / groups
        ));
    }
    found
}

fn of_column(column: &ColumnLayout) -> Vec<String> {
    let mut found = Vec::new();
    let (groups, without) = (column.row_groups, column.row_groups - column.indexed_row_groups);
    if column.unsound_row_groups > 0 {
        found.push(format!(
            "the offset index of {} of {groups} row groups does not hold and is not used; rewrite",
            column.unsound_row_groups
        ));
    }
    if without > column.unsound_row_groups {
        found.push("no offset index: the first lookup walks the column; rewrite".into());
    }
    if let Some(bytes) = column.page_bytes.filter(|bytes| bytes.median > PAGE_BYTES_MAX) {
        let rows = column.page_rows.map_or(1, |rows| rows.median.max(1));
        let fit = (PAGE_BYTES_GOOD * rows / bytes.median).max(1);
        let fit = 1u64 << fit.ilog2();
        found.push(format!(
            "data pages of {}: the first row of each reads all of it; rewrite with --page-rows {fit}",
            size(bytes.median)
        ));
    }
    if let Some(bytes) = column
        .dictionary_bytes_max
        .filter(|bytes| *bytes > DICTIONARY_BYTES_MAX)
    {
        found.push(format!(
            "dictionaries of up to {}: the first row of each row group reads one; rewrite with --encoding plain",
            size(bytes)
        ));
    }
    if let ("ascending" | "descending", Some(pages)) = (column.sorted, column.data_pages_per_key) {
        found.push(format!(
            "sorted ({}): a lookup by key looks at {pages:.1} of {} data pages",
            column.sorted,
            column
                .data_pages
                .map_or_else(|| "its".into(), |pages| pages.to_string())
        ));
    }
    found
}
