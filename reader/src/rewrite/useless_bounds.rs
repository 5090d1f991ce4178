//! Bounds of data pages that would choose nothing, which a file is better without.
//!
//! Owns the judgement: of strings and binary, whose bounds are long, an index that leaves a key in a quarter of all data pages
//! or more costs every reader of the footer more than it saves anybody. Statistics of the whole column stay. Called by
//! [`super::write`].

use parquet::basic::SortOrder;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::page_index::column_index::{ByteArrayColumnIndex, ColumnIndexMetaData};

/// Fewer data pages are not worth a thought.
const PAGES_MIN: usize = 16;

/// Takes bounds that choose nothing out of a closed column chunk.
pub(super) fn leave_out(close: &mut ColumnCloseResult) {
    // Decimals and floats of 16 bits are not compared as their bytes are.
    let as_bytes = close.metadata.column_descr().sort_order() == SortOrder::UNSIGNED;
    let is_useless = match &close.column_index {
        Some(ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index)) => {
            as_bytes && chooses_nothing(index)
        }
        _ => false,
    };
    if is_useless {
        close.column_index = None;
    }
}

fn chooses_nothing(index: &ByteArrayColumnIndex) -> bool {
    let mut mins: Vec<&[u8]> = index.min_values_iter().flatten().collect();
    let mut maxs: Vec<&[u8]> = index.max_values_iter().flatten().collect();
    let pages = mins.len();
    if pages < PAGES_MIN {
        return false;
    }
    mins.sort_unstable();
    maxs.sort_unstable();
    // Pages that begin at or before the least value of a page, without those that end before it.
    let holding =
        |(before, key): (usize, &&[u8])| (before + 1).saturating_sub(maxs.partition_point(|max| max < key));
    let sum: usize = mins.iter().enumerate().map(holding).sum();
    sum / pages >= pages / 4
}
