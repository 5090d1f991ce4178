//! [`SizeStatistics`]: level histograms and unencoded sizes, which the format library has no switch for.
//!
//! Owns their removal from a column chunk as it is closed: from the footer, the column index and the offset index. Called
//! by [`super::write`] and by benchmarks.

use std::str::FromStr;

use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::AsBytes;
use parquet::errors::Result;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use crate::error::ReadError;

/// Which size statistics a file has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SizeStatistics {
    /// None at all.
    None,
    /// Of each column of each row group, in the footer.
    #[default]
    Chunk,
    /// These, and of each data page in the page index.
    Page,
}

impl FromStr for SizeStatistics {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<SizeStatistics, ReadError> {
        match text {
            "none" => Ok(SizeStatistics::None),
            "chunk" => Ok(SizeStatistics::Chunk),
            "page" => Ok(SizeStatistics::Page),
            _ => Err(ReadError::Invalid(format!("'{text}': write none, chunk or page"))),
        }
    }
}

impl SizeStatistics {
    /// Leaves in a closed column chunk what should be there.
    pub fn keep(self, chunk: &mut ArrowColumnChunk) -> Result<()> {
        let close = chunk.close_mut();
        if self == SizeStatistics::None {
            let metadata = close.metadata.clone().into_builder();
            close.metadata = metadata
                .set_unencoded_byte_array_data_bytes(None)
                .set_repetition_level_histogram(None)
                .set_definition_level_histogram(None)
                .build()?;
        }
        match self {
            SizeStatistics::Page => Ok(()),
            _ => without_pages(close),
        }
    }
}

fn without_pages(close: &mut ColumnCloseResult) -> Result<()> {
    if let Some(index) = &mut close.offset_index {
        index.unencoded_byte_array_data_bytes = None;
    }
    close.column_index = match &close.column_index {
        Some(index) => Some(without_histograms(index)?),
        None => None,
    };
    Ok(())
}

/// The same bounds and counts.
fn without_histograms(index: &ColumnIndexMetaData) -> Result<ColumnIndexMetaData> {
    use parquet::basic::Type;
    macro_rules! copied {
        ($kind:expr, $index:expr) => {{
            let mut copy = ColumnIndexBuilder::new($kind);
            if let Some(order) = index.get_boundary_order() {
                copy.set_boundary_order(order);
            }
            for page in 0..index.num_pages() as usize {
                let bytes = |value: Option<_>| value.map_or_else(Vec::new, |v| AsBytes::as_bytes(v).to_vec());
                copy.append(
                    index.is_null_page(page),
                    bytes($index.min_value(page)),
                    bytes($index.max_value(page)),
                    index.null_count(page).unwrap_or(0),
                    index.nan_count(page),
                );
            }
            copy.build()
        }};
    }
    match index {
        ColumnIndexMetaData::BOOLEAN(typed) => copied!(Type::BOOLEAN, typed),
        ColumnIndexMetaData::INT32(typed) => copied!(Type::INT32, typed),
        ColumnIndexMetaData::INT64(typed) => copied!(Type::INT64, typed),
        ColumnIndexMetaData::INT96(typed) => copied!(Type::INT96, typed),
        ColumnIndexMetaData::FLOAT(typed) => copied!(Type::FLOAT, typed),
        ColumnIndexMetaData::DOUBLE(typed) => copied!(Type::DOUBLE, typed),
        ColumnIndexMetaData::BYTE_ARRAY(typed) => copied!(Type::BYTE_ARRAY, typed),
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(typed) => copied!(Type::FIXED_LEN_BYTE_ARRAY, typed),
    }
}
