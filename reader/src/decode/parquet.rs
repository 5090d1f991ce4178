//! [`ParquetFile`]: the structure of one Parquet file, and rows out of its bytes.
//!
//! Owns the use of the `parquet` crate: it parses footers, and its Arrow readers turn bytes into
//! arrays, so that every type conversion is theirs. Reads nothing itself: bytes come through a
//! closure when it is opened, and as [`crate::fetch::Fetched`] when rows are decoded. Called by [`crate::table`].

mod footer;
mod index;
mod pages;
mod projection;
mod rows;
mod schema_guard;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_schema_by_columns};
use parquet::file::metadata::ParquetMetaData;

use crate::decode::guarded;
use crate::error::{ReadError, Result};
use crate::plan::{DataPage, Layout};
use index::CheckedIndex;

/// Footer and checked offset index of one file version.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    path: PathBuf,
    len: u64,
    arrow: ArrowReaderMetadata,
    index: Arc<CheckedIndex>,
    footer_bytes: u64,
    tail_bytes: u64,
}

/// Which columns, resolved against one schema.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    /// Leaf columns in the file's order.
    pub(crate) leaves: Vec<usize>,
    /// The schema of the result, in the order asked.
    pub(crate) schema: SchemaRef,
    /// For each column of the result, its place among the chosen columns in the file's order.
    order: Vec<usize>,
}

impl ParquetFile {
    /// Reads the footer through `read`; `guess` is how many bytes of the tail to read at first.
    pub(crate) fn open(
        path: &Path,
        len: u64,
        guess: u64,
        read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<ParquetFile> {
        let footer = footer::load(path, len, guess, read)?;
        let index = Arc::new(footer.index);
        let metadata = footer
            .metadata
            .into_builder()
            .set_page_index(Some(index.clone()))
            .build();
        let arrow = guarded(path, "reading the schema", || {
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        })?;
        Ok(ParquetFile {
            path: path.to_owned(),
            len,
            arrow,
            index,
            footer_bytes: footer.footer_bytes,
            tail_bytes: footer.tail_bytes,
        })
    }

    /// What errors name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The whole schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.arrow.schema()
    }

    /// The parsed footer.
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.arrow.metadata()
    }

    /// Footer with its 8 bytes of length and magic.
    pub(crate) fn footer_bytes(&self) -> u64 {
        self.footer_bytes
    }

    /// Page index and footer.
    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Rows of all row groups.
    pub(crate) fn row_count(&self) -> u64 {
        (0..self.row_groups()).map(|row_group| self.rows(row_group)).sum()
    }

    /// Bytes a row of these columns takes on average once decoded, by what the footer states.
    pub(crate) fn row_bytes(&self, leaves: &[usize]) -> u64 {
        let sum: u64 = self
            .metadata()
            .row_groups()
            .iter()
            .flat_map(|g| {
                leaves
                    .iter()
                    .map(|leaf| g.column(*leaf).uncompressed_size().max(0) as u64)
            })
            .fold(0, u64::saturating_add);
        sum.checked_div(self.row_count()).unwrap_or(0) + leaves.len() as u64
    }

    /// Resolves column paths; `None` is all columns.
    pub(crate) fn project(&self, paths: Option<&[String]>) -> Result<Columns> {
        let descriptor = self.arrow.parquet_schema();
        let (leaves, roots) = match paths {
            None => {
                let roots = self.schema().fields().len();
                ((0..descriptor.num_columns()).collect(), (0..roots).collect())
            }
            Some(paths) => self.resolve(paths)?,
        };
        let all = paths.is_none();
        let schema = guarded(&self.path, "choosing columns", || {
            if all {
                return Ok(self.schema().clone());
            }
            let mask = ProjectionMask::leaves(descriptor, leaves.iter().copied());
            let key_values = self.metadata().file_metadata().key_value_metadata();
            parquet_to_arrow_schema_by_columns(descriptor, mask, key_values).map(Arc::new)
        })?;
        let mut in_file_order: Vec<usize> = roots.clone();
        in_file_order.sort_unstable();
        let order: Vec<usize> = roots
            .iter()
            .filter_map(|root| in_file_order.binary_search(root).ok())
            .collect();
        let schema = schema
            .project(&order)
            .map_err(|e| ReadError::corrupt(&self.path, format!("choosing columns: {e}")))?;
        Ok(Columns {
            leaves,
            schema: schema.into(),
            order,
        })
    }

    /// Sorted leaves, and the top-level columns in the order in which they are first named.
    fn resolve(&self, paths: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let descriptor = self.arrow.parquet_schema();
        let names = projection::leaves(self.schema().fields(), descriptor);
        let mut leaves: Vec<usize> = Vec::new();
        let mut roots: Vec<usize> = Vec::new();
        for path in paths {
            let named = projection::leaves_of(path, &names);
            if named.is_empty() {
                return Err(ReadError::UnknownColumn {
                    path: self.path.clone(),
                    column: path.clone(),
                    near: projection::near(path, &names),
                });
            }
            for leaf in named {
                let root = descriptor.get_column_root_idx(leaf);
                if !roots.contains(&root) {
                    roots.push(root);
                }
                leaves.push(leaf);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        Ok((leaves, roots))
    }

    /// Grows when [`ParquetFile::check_pages`] finds an index that lies.
    pub(crate) fn index_generation(&self) -> u64 {
        self.index.generation()
    }
}

impl Layout for &ParquetFile {
    fn row_groups(&self) -> usize {
        self.metadata().num_row_groups()
    }

    fn rows(&self, row_group: usize) -> u64 {
        self.metadata().row_group(row_group).num_rows() as u64
    }

    fn column_bytes(&self, row_group: usize, column: usize) -> Range<u64> {
        // Checked when the footer was read; a row group without rows is never asked for.
        footer::column_bytes(self.metadata().row_group(row_group).column(column)).unwrap_or(0..0)
    }

    fn data_pages(&self, row_group: usize, column: usize) -> Option<usize> {
        Some(self.index.locations(row_group, column)?.len())
    }

    fn data_page(&self, row_group: usize, column: usize, page: usize) -> DataPage {
        let locations = self.index.locations(row_group, column).unwrap_or_default();
        match locations.get(page) {
            Some(l) => DataPage {
                first_row: l.first_row_index as u64,
                bytes: l.offset as u64..l.offset as u64 + l.compressed_page_size as u64,
            },
            None => DataPage {
                first_row: u64::MAX,
                bytes: 0..0,
            },
        }
    }
}
