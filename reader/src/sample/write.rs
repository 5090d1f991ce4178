//! Writes a sample: under a temporary name in the same directory, then moved into place.
//!
//! Owns the writer's settings and the guarantee that a final name holds a whole file. Called by
//! `lookup sample`.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::{Shape, values};
use crate::error::{ReadError, Result};

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
}

/// Rows that are generated at a time; also the rows of a data page of the narrow shape.
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
    let properties = properties(options.shape)?;
    let mut writer = ArrowWriter::try_new(BufWriter::new(file), schema, Some(properties))?;
    let mut start = 0;
    while start < options.rows {
        let end = options.rows.min(start + BATCH_ROWS);
        writer.write(&values::rows(options.shape, options.seed, start..end)?)?;
        start = end;
    }
    writer.close().map(drop)
}

fn properties(shape: Shape) -> Result<WriterProperties, ParquetError> {
    let builder = WriterProperties::builder().set_created_by("lookup sample".into());
    Ok(match shape {
        Shape::Narrow => builder
            .set_compression(Compression::UNCOMPRESSED)
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN)
            .set_data_page_row_count_limit(BATCH_ROWS as usize)
            .set_write_batch_size(BATCH_ROWS as usize)
            // Larger than a data page of 4,096 payloads, so that only rows end one.
            .set_data_page_size_limit(8 << 20)
            .set_max_row_group_row_count(Some(1 << 17))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build(),
        Shape::Wide => builder
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_max_row_group_row_count(Some(1 << 18))
            .build(),
    })
}

/// A file that is removed unless it was moved.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> io::Result<Temporary> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        Ok(Temporary(path.with_file_name(hidden)))
    }

    fn create(&self) -> io::Result<File> {
        File::options().write(true).create_new(true).open(&self.0)
    }

    fn move_to(self, path: &Path, replace: bool) -> io::Result<()> {
        if replace {
            return fs::rename(&self.0, path);
        }
        // A link, unlike a rename, fails if somebody made the name meanwhile.
        match fs::hard_link(&self.0, path) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
                if path.symlink_metadata().is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(&self.0, path)
            }
            linked => linked,
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already after a rename.
        let _ = fs::remove_file(&self.0);
    }
}
