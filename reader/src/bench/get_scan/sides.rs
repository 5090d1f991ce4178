//! The sides of the workload `get-scan`: this library by key, and a scan of one row by the `parquet` crate.
//!
//! Owns how each of them finds the row of a key, and the check that it is that row. Called by `get_scan.rs`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter,
    RowSelection,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use super::super::error::{BenchError, Result};
use super::super::random::mix;
use super::super::values::sum_of_values;
use crate::keys::{Key, KeyColumn};
use crate::mounts::Target;
use crate::table::{OpenOptions, Projection, Table};

/// The sorted column.
const KEY: &str = "key";

/// Rows that a scan reads through the same mount.
const STRIPE_ROWS: u64 = 4096;

/// A table that is kept, and its key.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) table: Table,
    column: KeyColumn,
}

impl Client {
    /// With structures of its own, where `options` is not a clone of another's.
    pub(super) fn open(mounts: &[PathBuf], file: &str, options: OpenOptions) -> Result<Client> {
        let table = Table::open(Target::on_mounts(mounts.to_vec(), file), options)?;
        let column = table.key_column(KEY)?;
        Ok(Client { table, column })
    }

    /// The row of a key, all columns.
    pub(super) fn get(&self, key: i64) -> Result<u64> {
        let batch = self
            .table
            .get_keys(&self.column, &[Key::from(key)], &Projection::all())?;
        sum_of(&batch, key)
    }

    /// The rows of many keys at once, so that their data pages are known.
    pub(super) fn touch(&self, keys: &[i64]) -> Result<()> {
        let keys: Vec<Key> = keys.iter().copied().map(Key::from).collect();
        let batch = self.table.get_keys(&self.column, &keys, &Projection::all())?;
        match batch.num_rows() == keys.len() {
            true => Ok(()),
            false => Err(other_rows(batch.num_rows())),
        }
    }
}

/// A file that stays open and is read by `pread`, which costs a scan less than the crate's own way with files: that makes a
/// descriptor and sets its position for each read.
#[derive(Debug, Clone)]
struct KeptFile {
    file: Arc<File>,
    len: u64,
}

impl Length for KeptFile {
    fn len(&self) -> u64 {
        self.len
    }
}

/// The bytes from a place on.
#[derive(Debug)]
struct From {
    file: Arc<File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl ChunkReader for KeptFile {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(From {
            file: self.file.clone(),
            at: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        // The crate asks for what the footer says: that is bounded by the file before memory is taken for it.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of {}",
                self.len
            )));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The crate's reader with everything kept that can be: metadata, page index, and the file on each mount.
#[derive(Debug)]
pub(super) struct Scanner {
    path: PathBuf,
    files: Vec<KeptFile>,
    kept: ArrowReaderMetadata,
}

impl Scanner {
    pub(super) fn open(mounts: &[PathBuf], file: &str) -> Result<Scanner> {
        let open = |mount: &PathBuf| {
            let path = mount.join(file);
            let failed = |error| BenchError::file(&path, error);
            let file = Arc::new(File::open(&path).map_err(failed)?);
            let len = file.metadata().map_err(failed)?.len();
            Ok(KeptFile { file, len })
        };
        let files = mounts.iter().map(open).collect::<Result<Vec<_>>>()?;
        let first = files
            .first()
            .ok_or_else(|| BenchError::Invalid("no mount was given".into()))?;
        let path = Path::new(file).to_owned();
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let kept = ArrowReaderMetadata::load(first, options).map_err(|error| said(&path, &error))?;
        Ok(Scanner { path, files, kept })
    }

    /// The row of a key, all columns: row groups and data pages whose bounds hold it, filtered by it.
    pub(super) fn scan(&self, row: u64, key: i64) -> Result<u64> {
        let failed = |error| said(&self.path, &error);
        let (groups, selection) = self.may_hold(key)?;
        let mask = ProjectionMask::leaves(self.kept.parquet_schema(), [0]);
        let is_key = ArrowPredicateFn::new(mask, move |batch: RecordBatch| {
            let keys = batch.column(0).as_primitive::<Int64Type>();
            let equal = |found: &i64| Some(*found == key);
            Ok(keys.values().iter().map(equal).collect::<BooleanArray>())
        });
        let file = self.files[(mix(row / STRIPE_ROWS) % self.files.len() as u64) as usize].clone();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.kept.clone())
            .with_row_groups(groups)
            .with_row_selection(selection)
            .with_row_filter(RowFilter::new(vec![Box::new(is_key)]))
            .with_limit(1)
            .build()
            .map_err(failed)?;
        let mut sum = None;
        for batch in reader {
            let batch = batch.map_err(|error| said(&self.path, &error.into()))?;
            if batch.num_rows() > 0 && sum.replace(sum_of(&batch, key)?).is_some() {
                return Err(other_rows(2));
            }
        }
        sum.ok_or_else(|| other_rows(0))
    }

    /// Row groups by their statistics, then their data pages by the column index.
    fn may_hold(&self, key: i64) -> Result<(Vec<usize>, RowSelection)> {
        let none = || BenchError::Invalid(format!("{}: no bounds of '{KEY}'", self.path.display()));
        let metadata = self.kept.metadata();
        let index = metadata.page_index().ok_or_else(none)?;
        let (mut groups, mut ranges, mut start) = (Vec::new(), Vec::new(), 0usize);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            if !group_may_hold(group, key) {
                continue;
            }
            let (Some(ColumnIndexMetaData::INT64(bounds)), Some(offsets)) =
                (index.column_index(number, 0), index.offset_index(number, 0))
            else {
                return Err(none());
            };
            let rows = group.num_rows() as usize;
            let pages = offsets.page_locations();
            let holds = |page: &usize| {
                bounds.min_value(*page).is_some_and(|min| *min <= key)
                    && bounds.max_value(*page).is_some_and(|max| *max >= key)
            };
            for page in (0..pages.len()).filter(holds) {
                let first = pages[page].first_row_index as usize;
                let next = pages.get(page + 1);
                let end = next.map_or(rows, |next| next.first_row_index as usize);
                ranges.push(start + first..start + end);
            }
            groups.push(number);
            start += rows;
        }
        let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), start);
        Ok((groups, selection))
    }
}

fn group_may_hold(group: &RowGroupMetaData, key: i64) -> bool {
    let Some(Statistics::Int64(bounds)) = group.column(0).statistics() else {
        return true;
    };
    bounds.min_opt().is_none_or(|min| *min <= key) && bounds.max_opt().is_none_or(|max| *max >= key)
}

fn sum_of(batch: &RecordBatch, key: i64) -> Result<u64> {
    let keys = batch.column_by_name(KEY);
    let keys = keys.and_then(|keys| keys.as_primitive_opt::<Int64Type>());
    match keys.is_some_and(|keys| *keys.values() == [key]) {
        true => Ok(sum_of_values(batch)),
        false => Err(other_rows(batch.num_rows())),
    }
}

fn other_rows(count: usize) -> BenchError {
    BenchError::Invalid(format!(
        "{count} rows came, or another row than the one asked for"
    ))
}

fn said(path: &Path, error: &ParquetError) -> BenchError {
    BenchError::Invalid(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, SampleOptions, Shape};

    #[test]
    fn both_ways_find_every_key_and_refuse_one_that_is_absent() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.parquet");
        let write = SampleOptions {
            shape: Shape::Key,
            rows: 900,
            page_rows: Some(40),
            ..SampleOptions::default()
        };
        sample::write(&file, write).unwrap();
        let mounts = [directory.path().to_owned(), directory.path().join(".")];
        let client = Client::open(&mounts, "key.parquet", OpenOptions::default()).unwrap();
        let scanner = Scanner::open(&mounts, "key.parquet").unwrap();
        let keys = sample::expected_rows(Shape::Key, 0, 0..900).unwrap();
        let keys = keys.column(0).as_primitive::<Int64Type>().values().to_vec();
        for (row, key) in keys.iter().enumerate() {
            let sum = client.get(*key).unwrap();
            assert_eq!(scanner.scan(row as u64, *key).unwrap(), sum, "row {row}");
        }
        // A data page or two, never all of them: bounds choose.
        let (groups, selection) = scanner.may_hold(keys[450]).unwrap();
        assert_eq!((groups, selection.row_count()), (vec![0], 40));
        let absent = (0..).find(|key| !keys.contains(key)).unwrap();
        for key in [absent, -1, i64::MAX] {
            assert!(client.get(key).is_err() && scanner.scan(0, key).is_err());
        }
        client.touch(&keys[..100]).unwrap();
        assert!(client.touch(&[absent]).is_err());
    }
}
