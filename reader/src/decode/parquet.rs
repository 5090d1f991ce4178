//! [`ParquetFile`]: the structure of one Parquet file, and rows out of its bytes.
//!
//! Owns the use of the `parquet` crate: it parses footers, and its Arrow readers turn bytes into
//! arrays, so that every type conversion is theirs. Reads nothing itself: bytes come through a
//! closure when it is opened, and as [`crate::fetch::Fetched`] when rows are decoded. Columns that are not repeated
//! come out of mapped data pages ([`gather`]), all others, and what cannot be mapped, out of inflated ones ([`rest`]). Called by [`crate::table`].

mod audit;
pub(crate) mod bounds;
mod codec;
mod columns;
mod decoded;
mod delta;
mod footer;
mod gather;
mod index;
mod indexes;
mod inflated;
mod kept;
mod key_page;
mod key_search;
mod levels;
mod mapped;
mod page_header;
mod plain;
mod projection;
mod records;
mod remembered;
mod rest;
mod schema_guard;
mod thrift;
mod values;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_schema::SchemaRef;
use bytes::Bytes;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

use crate::decode::guarded;
use crate::error::Result;
use crate::plan::{DataPage, Layout};
use crate::sidecar::Sidecar;
use crate::structures::StructureCache;
pub(crate) use audit::{ColumnAudit, audit};
pub(crate) use bounds::KeyBounds;
use columns::KnownProjections;
pub(crate) use columns::{Columns, FlatColumns, Split};
pub(crate) use gather::{FileRows, Gather, GatherCounts, Stop, Walked};
use index::CheckedIndex;
pub(crate) use inflated::Inflated;
pub(crate) use kept::Shape;
pub(crate) use key_page::KeyPage;
pub(crate) use key_search::{KeyPiece, Known, Search, Searched};
pub(crate) use mapped::MappedPage;
pub(crate) use plain::Dictionary;
pub(crate) use rest::{Rest, RestColumns, Span, Spanned};

/// A Parquet file under one of its paths. Cheap to make of its structure.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    path: PathBuf,
    structure: Arc<FileStructure>,
}

/// Footer and checked offset index of one file version, under whatever path it is known.
#[derive(Debug)]
pub(crate) struct FileStructure {
    /// No other structure in this process has it, so that what is kept of one version is never found for another.
    id: u64,
    len: u64,
    arrow: ArrowReaderMetadata,
    shape: Arc<Shape>,
    index: Arc<CheckedIndex>,
    /// Where each row group begins, and the end of the last.
    row_group_starts: Vec<u64>,
    footer_bytes: u64,
    tail_bytes: u64,
    projections: Mutex<KnownProjections>,
    /// What is known of this version on disk.
    sidecar: Option<Sidecar>,
    weight: usize,
}

impl FileStructure {
    /// Reads the footer through `read`; `guess` is how many bytes of the tail to read at first.
    pub(crate) fn open(
        path: &Path,
        len: u64,
        guess: u64,
        cache: &StructureCache,
        sidecar: Option<Sidecar>,
        read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<FileStructure> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let footer = footer::load(path, len, guess, read)?;
        let index = Arc::new(footer.index);
        if let Some(sidecar) = &sidecar {
            remembered::distrust_known(sidecar, &index);
        }
        let metadata = footer
            .metadata
            .into_builder()
            .set_page_index(Some(index.clone()))
            .build();
        let arrow = guarded(path, "reading the schema", || {
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        })?;
        let shape = cache.shape(Shape {
            parquet: arrow.metadata().file_metadata().schema_descr_ptr(),
            arrow: arrow.schema().clone(),
        });
        let mut row_group_starts = vec![0];
        let mut start = 0;
        for row_group in arrow.metadata().row_groups() {
            start += row_group.num_rows() as u64;
            row_group_starts.push(start);
        }
        // Parsed schemas and projections take about as much again as the metadata.
        let weight = 2 * arrow.metadata().memory_size()
            + index.weight()
            + 8 * row_group_starts.len()
            + sidecar.as_ref().map_or(0, Sidecar::weight);
        Ok(FileStructure {
            id: NEXT.fetch_add(1, Relaxed),
            len,
            arrow,
            shape,
            index,
            row_group_starts,
            footer_bytes: footer.footer_bytes,
            tail_bytes: footer.tail_bytes,
            projections: Mutex::default(),
            sidecar,
            weight,
        })
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// From now on an offset index is only used once it was compared with the headers of all data pages of its column.
    pub(crate) fn verify(&self) {
        self.index.verify();
    }
}

impl ParquetFile {
    /// The file at `path`, which errors name.
    pub(crate) fn new(path: &Path, structure: Arc<FileStructure>) -> ParquetFile {
        ParquetFile {
            path: path.to_owned(),
            structure,
        }
    }

    /// Whether what is built for the schema of one serves the other.
    pub(crate) fn has_shape_of(&self, other: &ParquetFile) -> bool {
        Arc::ptr_eq(&self.structure.shape, &other.structure.shape)
    }

    /// What errors name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.structure.len
    }

    /// The whole schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.structure.arrow.schema()
    }

    /// The parsed footer.
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.structure.arrow.metadata()
    }

    /// Footer with its 8 bytes of length and magic.
    pub(crate) fn footer_bytes(&self) -> u64 {
        self.structure.footer_bytes
    }

    /// Page index and footer.
    pub(crate) fn tail_bytes(&self) -> u64 {
        self.structure.tail_bytes
    }

    /// Rows of all row groups.
    pub(crate) fn row_count(&self) -> u64 {
        self.structure.row_group_starts.last().copied().unwrap_or(0)
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

    /// Grows with every index that is found to lie.
    pub(crate) fn index_generation(&self) -> u64 {
        self.structure.index.generation()
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
        Some(self.structure.index.locations(row_group, column)?.len())
    }

    fn data_page(&self, row_group: usize, column: usize, page: usize) -> DataPage {
        let locations = self
            .structure
            .index
            .locations(row_group, column)
            .unwrap_or_default();
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
