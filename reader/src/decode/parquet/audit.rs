//! What a file states about its columns beside where their data pages are: bounds, statistics, size statistics.
//!
//! Owns the one reading of footer and column indexes for `lookup inspect`, which looks at all of them. Refuses page indexes
//! beyond a limit: their columns count as unknown. Called by [`crate::inspect`].

use std::ops::Range;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::ParquetFile;
use super::bounds::{self, Sortedness, index_range, parse_index};
use crate::decode::guarded;
use crate::error::Result;
use crate::fetch::Fetched;
use crate::keys::{KeyOrder, leaf_types};
use crate::plan::{Coalesce, Layout, coalesce_ranges};

/// Column indexes that are looked at, all together.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// What is stated about a leaf column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnAudit {
    /// Row groups whose footer has a least and a greatest value.
    pub(crate) with_statistics: usize,
    /// Row groups with bounds of their data pages.
    pub(crate) with_page_bounds: usize,
    /// Row groups with level histograms or unencoded sizes in the footer.
    pub(crate) with_sizes: usize,
    /// Row groups with these of data pages.
    pub(crate) with_page_sizes: usize,
    /// How the data pages lie by their bounds; `None` if there are none, or the type has no order.
    pub(crate) sortedness: Option<Sortedness>,
}

/// Reads what the file states, through `read`.
pub(crate) fn audit(
    file: &ParquetFile,
    read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
) -> Result<Vec<ColumnAudit>> {
    let footer = file.len() - file.footer_bytes();
    let footer_bytes = read(footer..file.len())?;
    let metadata = guarded(file.path(), "reading statistics", || {
        parse_all(&footer_bytes, file.len())
    })?;
    let groups = file.metadata().row_groups();
    let stated = groups
        .iter()
        .filter(|group| group.num_rows() > 0)
        .flat_map(|group| group.columns())
        .filter_map(|column| index_range(column, footer));
    let extents = coalesce_ranges(stated.collect(), Coalesce::default());
    let length: u64 = extents.iter().map(|range| range.end - range.start).sum();
    let mut bytes = Vec::new();
    if length <= INDEX_BYTES_MAX {
        for extent in extents {
            bytes.push((extent.clone(), read(extent)?));
        }
    }
    bytes.push((footer..file.len(), footer_bytes));
    let fetched = Fetched::new(bytes);
    let types = leaf_types(file.schema().fields());
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    (0..leaves)
        .map(|leaf| audit_column(file, &metadata, leaf, types.get(leaf), &fetched))
        .collect()
}

fn parse_all(footer: &Bytes, len: u64) -> Result<ParquetMetaData, ParquetError> {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
    reader.try_parse_sized(footer, len)?;
    reader.finish()
}

fn audit_column(
    file: &ParquetFile,
    metadata: &ParquetMetaData,
    leaf: usize,
    kind: Option<&arrow_schema::DataType>,
    fetched: &Fetched,
) -> Result<ColumnAudit> {
    let descriptor = metadata.file_metadata().schema_descr().column(leaf);
    let footer = file.len() - file.footer_bytes();
    let mut audit = ColumnAudit {
        with_statistics: 0,
        with_page_bounds: 0,
        with_sizes: 0,
        with_page_sizes: 0,
        sortedness: None,
    };
    for (number, group) in metadata.row_groups().iter().enumerate() {
        if file.rows(number) == 0 {
            continue;
        }
        let column = group.column(leaf);
        let statistics = column.statistics();
        audit.with_statistics += usize::from(
            statistics.is_some_and(|s| s.min_bytes_opt().is_some() && s.max_bytes_opt().is_some()),
        );
        audit.with_sizes += usize::from(
            column.unencoded_byte_array_data_bytes().is_some()
                || column.definition_level_histogram().is_some()
                || column.repetition_level_histogram().is_some(),
        );
        let offsets = file.structure.index.offset_index(number, leaf);
        let mut page_sizes = offsets.is_some_and(|o| o.unencoded_byte_array_data_bytes().is_some());
        let index = index_range(column, footer).and_then(|range| fetched.get(&range));
        if let Some(index) = index.and_then(|bytes| parse_index(file.path(), &bytes, column)) {
            audit.with_page_bounds += 1;
            page_sizes |= index.num_pages() > 0
                && (index.definition_level_histogram(0).is_some()
                    || index.repetition_level_histogram(0).is_some());
        }
        audit.with_page_sizes += usize::from(page_sizes);
    }
    if let Some(order) = kind.and_then(|kind| KeyOrder::of(&descriptor, kind).ok()) {
        audit.sortedness = bounds::read(file, leaf, order, fetched)?.sortedness();
    }
    Ok(audit)
}
