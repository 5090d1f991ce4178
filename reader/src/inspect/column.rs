//! The numbers of one leaf column.
//!
//! Owns the sums over row groups and data pages. Called by [`super`].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use parquet::basic::Compression;

use super::{ColumnLayout, MinMedianMax, one_row};
use crate::decode::parquet::{ColumnAudit, ParquetFile};
use crate::plan::Layout;

/// What is added up over row groups.
#[derive(Default)]
struct Sums {
    rows: Vec<u64>,
    bytes: Vec<u64>,
    row_groups: usize,
    indexed: usize,
    unsound: usize,
    dictionaries: usize,
    dictionary_bytes: Vec<Option<u64>>,
}

pub(super) fn layout(file: &ParquetFile, leaf: usize, audit: &ColumnAudit) -> ColumnLayout {
    let metadata = file.metadata();
    let descriptor = metadata.file_metadata().schema_descr().column(leaf);
    let mut kind = descriptor.physical_type().to_string();
    if let Some(logical) = descriptor.logical_type_ref() {
        // Its name; parameters such as unit and scale are in the schema.
        let logical = format!("{logical:?}");
        let _ = write!(kind, " {}", logical.split('(').next().unwrap_or_default());
    }
    let mut codecs = BTreeSet::new();
    let mut encodings = BTreeSet::new();
    let (mut compressed_bytes, mut uncompressed_bytes) = (0, 0);
    for row_group in metadata.row_groups() {
        let column = row_group.column(leaf);
        codecs.insert(codec_name(column.compression()));
        encodings.extend(column.encodings().map(|encoding| encoding.to_string()));
        compressed_bytes += column.compressed_size().max(0) as u64;
        uncompressed_bytes += column.uncompressed_size().max(0) as u64;
    }
    let sums = sums(file, leaf);
    let all_known = sums.indexed == sums.row_groups;
    let pages = all_known.then_some(sums.rows.len() as u64);
    let mean = |values: &[u64]| match pages {
        Some(pages) if pages > 0 => Some(values.iter().sum::<u64>() as f64 / pages as f64),
        _ => None,
    };
    ColumnLayout {
        name: descriptor.path().string(),
        r#type: kind,
        codecs: codecs.into_iter().collect(),
        encodings: encodings.into_iter().collect(),
        dictionaries: sums.dictionaries,
        dictionary_bytes_max: sums
            .dictionary_bytes
            .iter()
            .copied()
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max()),
        indexed_row_groups: sums.indexed,
        unsound_row_groups: sums.unsound,
        bounded_row_groups: audit.with_page_bounds,
        statistics_row_groups: audit.with_statistics,
        row_groups: sums.row_groups,
        compressed_bytes,
        uncompressed_bytes,
        data_pages: pages,
        rows_per_data_page: mean(&sums.rows),
        bytes_per_data_page: mean(&sums.bytes),
        rows_per_data_page_max: sums.rows.iter().copied().max().filter(|_| all_known),
        page_rows: MinMedianMax::of(sums.rows).filter(|_| all_known),
        page_bytes: MinMedianMax::of(sums.bytes).filter(|_| all_known),
        size_statistics: match (audit.with_page_sizes, audit.with_sizes) {
            (0, 0) => "none",
            (0, _) => "chunk",
            _ => "page",
        },
        sorted: match audit.sortedness.map(|sortedness| sortedness.ascending) {
            None => "unknown",
            Some(None) => "no",
            Some(Some(true)) => "ascending",
            Some(Some(false)) => "descending",
        },
        data_pages_per_key: audit.sortedness.map(|sortedness| sortedness.pages_per_key),
        one_row: one_row(file, &[leaf]),
    }
}

fn sums(file: &ParquetFile, leaf: usize) -> Sums {
    let mut sums = Sums::default();
    for (number, row_group) in file.metadata().row_groups().iter().enumerate() {
        if row_group.num_rows() == 0 {
            continue;
        }
        let column = row_group.column(leaf);
        sums.row_groups += 1;
        let Some(pages) = file.data_pages(number, leaf) else {
            sums.unsound += usize::from(column.offset_index_offset().is_some());
            if column.dictionary_page_offset().is_some() {
                sums.dictionaries += 1;
                sums.dictionary_bytes.push(None);
            }
            continue;
        };
        sums.indexed += 1;
        let start = file.column_bytes(number, leaf).start;
        let first = file.data_page(number, leaf, 0).bytes.start;
        if start < first {
            sums.dictionaries += 1;
            sums.dictionary_bytes.push(Some(first - start));
        }
        let mut end = file.rows(number);
        for page in (0..pages).rev() {
            let page = file.data_page(number, leaf, page);
            sums.rows.push(end - page.first_row);
            sums.bytes.push(page.bytes.end - page.bytes.start);
            end = page.first_row;
        }
    }
    sums
}

/// The codec without its level, which a file does not state.
fn codec_name(codec: Compression) -> String {
    let name = codec.to_string();
    name.split('(').next().unwrap_or(&name).to_owned()
}
