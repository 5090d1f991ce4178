//! Writes a sample: under a temporary name in the same directory, then moved into place.
//!
//! Owns the writer's settings and the guarantee that a final name holds a whole file. Called by
//! `lookup sample`.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::{Shape, values};
use crate::error::{ReadError, Result};
use crate::temporary::Temporary;

/// What to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct SampleOptions {
    /// Which columns.
    pub shape: Shape,
    /// How many rows.
    pub rows: u64,
    /// The same seed gives the same values.
    pub seed: u64,
    /// Whether a file that is there already is replaced.
    pub force: bool,
    /// Rows of every data page but the last of a row group; without it, what the shape says.
    pub page_rows: Option<usize>,
}

/// Rows that are generated at a time, about; also the rows of a data page, but of the wide shape.
const BATCH_ROWS: u64 = 4096;

/// Writes a sample to `path`.
pub fn write(path: &Path, options: SampleOptions) -> Result<()> {
    let failed = |source| ReadError::Write {
        path: path.to_owned(),
        source,
    };
    if !options.force && path.symlink_metadata().is_ok() {
        return Err(failed(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "exists already; choose another name, or --force to replace it",
        )));
    }
    let temporary = Temporary::beside(path).map_err(failed)?;
    let file = temporary.create().map_err(failed)?;
    match write_rows(&file, options) {
        Ok(()) => {}
        Err(ParquetError::External(source)) => {
            return Err(failed(io::Error::other(source.to_string())));
        }
        Err(error) => return Err(ReadError::Output(error.to_string())),
    }
    file.sync_all().map_err(failed)?;
    temporary.move_to(path, options.force).map_err(failed)
}

fn write_rows(file: &File, options: SampleOptions) -> Result<(), ParquetError> {
    let schema = values::schema(options.shape);
    let properties = properties(options.shape, options.page_rows)?;
    let mut writer = ArrowWriter::try_new(BufWriter::new(file), schema, Some(properties))?;
    // A multiple of the rows of a data page, since the writer ends a step where a batch ends.
    let page_rows = options.page_rows.map_or(1, |rows| rows as u64);
    let batch_rows = page_rows * (BATCH_ROWS / page_rows).max(1);
    let mut start = 0;
    while start < options.rows {
        let end = options.rows.min(start + batch_rows);
        writer.write(&values::rows(options.shape, options.seed, start..end)?)?;
        start = end;
    }
    writer.close().map(drop)
}

fn properties(shape: Shape, page_rows: Option<usize>) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder().set_created_by("lookup sample".into());
    if let Some(rows) = page_rows.or((shape != Shape::Wide).then_some(BATCH_ROWS as usize)) {
        builder = builder
            .set_data_page_row_count_limit(rows)
            // The writer looks whether a page is full after so many rows.
            .set_write_batch_size(rows)
            // Larger than a data page of 4,096 payloads, so that only rows end one.
            .set_data_page_size_limit(i32::MAX as usize / 2);
    }
    Ok(match shape {
        Shape::Wide => builder
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_max_row_group_row_count(Some(1 << 18))
            .build(),
        _ => builder
            .set_compression(Compression::UNCOMPRESSED)
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN)
            .set_max_row_group_row_count(Some(1 << 17))
            .set_statistics_enabled(match shape {
                Shape::Key => EnabledStatistics::Page,
                _ => EnabledStatistics::Chunk,
            })
            .build(),
    })
}
