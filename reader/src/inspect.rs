//! What a table looks like on the inside: row groups, columns, data pages, index, footer.
//!
//! Owns the numbers of `lookup inspect` and their two forms. Reads footers and offset indexes only,
//! no data. Called by the command line.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use parquet::basic::Compression;
use serde::Serialize;

use crate::decode::parquet::ParquetFile;
use crate::plan::Layout;
use crate::table::Table;

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
    /// Row groups whose offset index can be used.
    pub indexed_row_groups: usize,
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
}

impl TableLayout {
    /// Of an open table.
    pub fn of(table: &Table) -> TableLayout {
        TableLayout {
            rows: table.row_count(),
            files: table.files().map(file_layout).collect(),
        }
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for file in &self.files {
            let _ = writeln!(
                out,
                "{}: {}, {} rows in {} row groups, {} bytes; footer {} bytes, with page index {} bytes{}",
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
            write_columns(&mut out, &file.columns);
        }
        out
    }
}

fn write_columns(out: &mut String, columns: &[ColumnLayout]) {
    let heads = [
        "column",
        "type",
        "codec",
        "data pages",
        "rows/page",
        "bytes/page",
        "index",
        "encodings",
    ];
    let mut lines = vec![heads.map(str::to_owned)];
    for c in columns {
        let number = |n: Option<f64>| n.map_or_else(|| "?".into(), |n| format!("{n:.0}"));
        lines.push([
            c.name.clone(),
            c.r#type.clone(),
            c.codecs.join("+"),
            c.data_pages.map_or_else(|| "?".into(), |n| n.to_string()),
            number(c.rows_per_data_page),
            number(c.bytes_per_data_page),
            format!("{}/{}", c.indexed_row_groups, c.row_groups),
            c.encodings.join(","),
        ]);
    }
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    for line in &lines {
        let cells = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn file_layout(file: &ParquetFile) -> FileLayout {
    let metadata = file.metadata();
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    FileLayout {
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
        columns: (0..leaves).map(|leaf| column_layout(file, leaf)).collect(),
    }
}

fn column_layout(file: &ParquetFile, leaf: usize) -> ColumnLayout {
    let metadata = file.metadata();
    let descriptor = metadata.file_metadata().schema_descr().column(leaf);
    let mut codecs = BTreeSet::new();
    let mut encodings = BTreeSet::new();
    let mut layout = ColumnLayout {
        name: descriptor.path().string(),
        r#type: descriptor.physical_type().to_string(),
        codecs: Vec::new(),
        encodings: Vec::new(),
        dictionaries: 0,
        indexed_row_groups: 0,
        row_groups: 0,
        compressed_bytes: 0,
        uncompressed_bytes: 0,
        data_pages: Some(0),
        rows_per_data_page_max: Some(0),
        rows_per_data_page: None,
        bytes_per_data_page: None,
    };
    if let Some(logical) = descriptor.logical_type_ref() {
        // Its name; parameters such as unit and scale are in the schema.
        let logical = format!("{logical:?}");
        let _ = write!(
            layout.r#type,
            " {}",
            logical.split('(').next().unwrap_or_default()
        );
    }
    let (mut rows, mut bytes) = (0, 0);
    for (number, row_group) in metadata.row_groups().iter().enumerate() {
        let column = row_group.column(leaf);
        codecs.insert(codec_name(column.compression()));
        encodings.extend(column.encodings().map(|encoding| encoding.to_string()));
        layout.compressed_bytes += column.compressed_size().max(0) as u64;
        layout.uncompressed_bytes += column.uncompressed_size().max(0) as u64;
        if row_group.num_rows() == 0 {
            continue;
        }
        layout.row_groups += 1;
        let Some(pages) = file.data_pages(number, leaf) else {
            layout.dictionaries += usize::from(column.dictionary_page_offset().is_some());
            layout.data_pages = None;
            continue;
        };
        layout.indexed_row_groups += 1;
        let first = file.data_page(number, leaf, 0).bytes.start;
        layout.dictionaries += usize::from(file.column_bytes(number, leaf).start < first);
        rows += file.rows(number);
        let mut end = file.rows(number);
        for page in (0..pages).rev() {
            let page = file.data_page(number, leaf, page);
            let longest = layout.rows_per_data_page_max.get_or_insert(0);
            *longest = (*longest).max(end - page.first_row);
            end = page.first_row;
            bytes += page.bytes.end - page.bytes.start;
        }
        layout.data_pages = layout.data_pages.map(|sum| sum + pages as u64);
    }
    match layout.data_pages {
        Some(pages) if pages > 0 => {
            layout.rows_per_data_page = Some(rows as f64 / pages as f64);
            layout.bytes_per_data_page = Some(bytes as f64 / pages as f64);
        }
        _ => layout.rows_per_data_page_max = None,
    }
    layout.codecs = codecs.into_iter().collect();
    layout.encodings = encodings.into_iter().collect();
    layout
}

/// The codec without its level, which a file does not state.
fn codec_name(codec: Compression) -> String {
    let name = codec.to_string();
    name.split('(').next().unwrap_or(&name).to_owned()
}
