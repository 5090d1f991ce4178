//! What a table looks like on the inside, and what that costs a lookup: row groups, columns, data pages, index, footer.
//!
//! Owns the numbers of `lookup inspect`, and `findings` in plain words; `text` prints them. Reads footers and page
//! indexes, no data. Called by the command line.

mod column;
mod findings;
mod text;

use serde::Serialize;

use crate::decode::parquet::{ParquetFile, audit};
use crate::error::{ReadError, Result};
use crate::plan::{Coalesce, Layout, plan_file};
use crate::table::Table;
pub use findings::Finding;

/// Rows whose lookup is planned to tell what one costs.
const SAMPLE_ROWS: u64 = 65;

/// A table, file by file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableLayout {
    /// Rows in all files.
    pub rows: u64,
    /// In the order of their row ids.
    pub files: Vec<FileLayout>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileLayout {
    /// Where it is.
    pub path: String,
    /// Always `parquet` so far.
    pub format: &'static str,
    /// Its length.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// Rows of each row group.
    pub row_groups: Vec<u64>,
    /// What wrote it, by its own account.
    pub created_by: Option<String>,
    /// The footer, with its 8 bytes of length and magic.
    pub footer_bytes: u64,
    /// Page index and footer: what a reader has to fetch before it can fetch data.
    pub tail_bytes: u64,
    /// Leaf columns.
    pub columns: Vec<ColumnLayout>,
    /// What one row of all columns costs, nothing known but the footer. `None` without rows.
    pub one_row: Option<LookupCost>,
    /// What stands in the way of lookups.
    pub findings: Vec<Finding>,
}

/// The least, the one in the middle and the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MinMedianMax {
    /// The least.
    pub min: u64,
    /// The one in the middle.
    pub median: u64,
    /// The greatest.
    pub max: u64,
}

impl MinMedianMax {
    fn of(mut values: Vec<u64>) -> Option<MinMedianMax> {
        values.sort_unstable();
        Some(MinMedianMax {
            min: *values.first()?,
            median: values[values.len() / 2],
            max: *values.last()?,
        })
    }
}

/// What the lookup of one row reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LookupCost {
    /// Reads, near ranges together.
    pub reads: MinMedianMax,
    /// Bytes of these.
    pub bytes: MinMedianMax,
}

/// One leaf column over all row groups.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnLayout {
    /// Its path.
    pub name: String,
    /// Physical type, and logical type if it has one.
    pub r#type: String,
    /// Codecs, usually one.
    pub codecs: Vec<String>,
    /// Encodings of levels and values, over all row groups.
    pub encodings: Vec<String>,
    /// Row groups where it has a dictionary.
    pub dictionaries: usize,
    /// Bytes of the longest dictionary. Unknown where a row group with one has no index.
    pub dictionary_bytes_max: Option<u64>,
    /// Row groups whose offset index can be used.
    pub indexed_row_groups: usize,
    /// Row groups whose offset index does not agree with itself or with the footer.
    pub unsound_row_groups: usize,
    /// Row groups with bounds of their data pages.
    pub bounded_row_groups: usize,
    /// Row groups with a least and a greatest value in the footer.
    pub statistics_row_groups: usize,
    /// Row groups with rows.
    pub row_groups: usize,
    /// Bytes in the file.
    pub compressed_bytes: u64,
    /// Bytes before compression.
    pub uncompressed_bytes: u64,
    /// Data pages. Unknown where a row group has no index.
    pub data_pages: Option<u64>,
    /// Rows in the largest data page.
    pub rows_per_data_page_max: Option<u64>,
    /// Rows a data page on average.
    pub rows_per_data_page: Option<f64>,
    /// Bytes a data page on average.
    pub bytes_per_data_page: Option<f64>,
    /// Rows a data page.
    pub page_rows: Option<MinMedianMax>,
    /// Bytes a data page in the file, header included.
    pub page_bytes: Option<MinMedianMax>,
    /// Size statistics: `none`, `chunk` (in the footer) or `page` (in the page index as well).
    pub size_statistics: &'static str,
    /// By the bounds of its data pages: `ascending`, `descending`, `no`, or `unknown`.
    pub sorted: &'static str,
    /// In how many data pages a key may lie on average, by their bounds.
    pub data_pages_per_key: Option<f64>,
    /// What one row of this column costs, nothing known but the footer.
    pub one_row: Option<LookupCost>,
}

impl TableLayout {
    /// Of an open table. Reads the footer of each file once more, with all its column indexes.
    pub fn of(table: &Table) -> Result<TableLayout> {
        let files = table.files().enumerate();
        Ok(TableLayout {
            rows: table.row_count(),
            files: files
                .map(|(number, file)| file_layout(table, number, file))
                .collect::<Result<_>>()?,
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        text::one(self)
    }
}

/// Two files beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The first.
    pub a: FileLayout,
    /// The second.
    pub b: FileLayout,
}

impl Comparison {
    /// Of two tables of one file each.
    pub fn of(a: &Table, b: &Table) -> Result<Comparison> {
        let one = |table: &Table| {
            let mut files = TableLayout::of(table)?.files;
            match (files.pop(), files.is_empty()) {
                (Some(file), true) => Ok(file),
                _ => {
                    let path = table.path().display();
                    Err(ReadError::Invalid(format!(
                        "{path}: to compare, give two files and no directory"
                    )))
                }
            }
        };
        Ok(Comparison {
            a: one(a)?,
            b: one(b)?,
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        text::two(&self.a, &self.b)
    }
}

fn file_layout(table: &Table, number: usize, file: &ParquetFile) -> Result<FileLayout> {
    let metadata = file.metadata();
    let audits = audit(file, &mut |range| table.read_file(number, range))?;
    table.check_file_unchanged(number)?;
    let leaves: Vec<usize> = (0..audits.len()).collect();
    let mut layout = FileLayout {
        path: file.path().display().to_string(),
        format: "parquet",
        bytes: file.len(),
        rows: file.row_count(),
        row_groups: (0..file.row_groups())
            .map(|row_group| file.rows(row_group))
            .collect(),
        created_by: metadata.file_metadata().created_by().map(str::to_owned),
        footer_bytes: file.footer_bytes(),
        tail_bytes: file.tail_bytes(),
        columns: audits
            .iter()
            .enumerate()
            .map(|(leaf, audit)| column::layout(file, leaf, audit))
            .collect(),
        one_row: one_row(file, &leaves),
        findings: Vec::new(),
    };
    layout.findings = findings::of(&layout);
    Ok(layout)
}

/// What rows spread over the file cost, by the plans of their lookups.
fn one_row(file: &ParquetFile, leaves: &[usize]) -> Option<LookupCost> {
    let count = file.row_count();
    let (mut reads, mut bytes) = (Vec::new(), Vec::new());
    for part in 0..SAMPLE_ROWS.min(count) {
        let row = (u128::from(count) * u128::from(part) / u128::from(SAMPLE_ROWS.min(count))) as u64;
        let plan = plan_file(0, &[row], &file, leaves, Coalesce::default());
        reads.push(plan.extents.len() as u64);
        bytes.push(plan.extents.iter().map(|extent| extent.end - extent.start).sum());
    }
    Some(LookupCost {
        reads: MinMedianMax::of(reads)?,
        bytes: MinMedianMax::of(bytes)?,
    })
}
