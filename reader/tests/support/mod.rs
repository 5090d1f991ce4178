//! Oracles that the tests of this crate share: the `parquet` crate's plain read of a whole file, and
//! the values that foreign writers recorded beside each fixture.
#![expect(dead_code, reason = "each test uses a part of it")]

pub(crate) mod raw_pages;

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use bytes::Bytes;
use lookupfs_reader::output::write_cell;
use lookupfs_reader::read_at::{FileIdentity, MemoryFile, ReadAt};
use lookupfs_reader::{OpenOptions, RowId, StructureCache, Table};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection};
use parquet::file::metadata::PageIndexPolicy;
use serde_json::Value;

/// A seeded generator; tests print the seed.
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Bytes that are one version of a file, as a mount shows it: what is learned of them may be shared.
#[derive(Debug)]
pub(crate) struct Versioned(MemoryFile, [u8; 16]);

impl Versioned {
    pub(crate) fn new(bytes: &Bytes, version: [u8; 16]) -> Versioned {
        Versioned(MemoryFile(bytes.clone()), version)
    }
}

impl ReadAt for Versioned {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn identity(&self) -> FileIdentity {
        FileIdentity::Version(self.1)
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        self.0.read_at(offset, len)
    }
    fn identity_now(&self) -> std::io::Result<FileIdentity> {
        Ok(self.identity())
    }
}

pub(crate) fn fixtures_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// Every `parquet-*` fixture.
pub(crate) fn fixtures() -> Vec<PathBuf> {
    let mut fixtures: Vec<_> = std::fs::read_dir(fixtures_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("parquet-")
        })
        .collect();
    fixtures.sort();
    assert!(fixtures.len() >= 17, "fixtures are missing: {fixtures:?}");
    fixtures
}

pub(crate) fn expected(fixture: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(fixture.join("expected.json")).unwrap()).unwrap()
}

pub(crate) fn open(path: &Path) -> Table {
    Table::open(path, OpenOptions::default()).unwrap()
}

pub(crate) fn rows(ids: impl IntoIterator<Item = u64>) -> Vec<RowId> {
    ids.into_iter().map(RowId).collect()
}

/// What the `parquet` crate reads, without any index: all rows, or some.
pub(crate) fn plain_read(
    bytes: Bytes,
    columns: Option<&[usize]>,
    selection: Option<RowSelection>,
) -> Result<RecordBatch, String> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Skip);
    let builder =
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options).map_err(|e| e.to_string())?;
    let mask = match columns {
        Some(leaves) => ProjectionMask::leaves(builder.parquet_schema(), leaves.iter().copied()),
        None => ProjectionMask::all(),
    };
    let mut builder = builder.with_projection(mask).with_batch_size(1000);
    if let Some(selection) = selection {
        builder = builder.with_row_selection(selection);
    }
    let reader = builder.build().map_err(|e| e.to_string())?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    concat_batches(&schema, &batches).map_err(|e| e.to_string())
}

/// The rows of `all` in the order of `ids`.
pub(crate) fn pick(all: &RecordBatch, ids: &[RowId]) -> RecordBatch {
    let places = UInt64Array::from_iter_values(ids.iter().map(|id| id.0));
    let columns = all
        .columns()
        .iter()
        .map(|c| take(c, &places, None).unwrap())
        .collect();
    RecordBatch::try_new(all.schema(), columns).unwrap()
}

/// Asserts that both hold the same values; gives how many.
pub(crate) fn assert_same(what: &str, got: &RecordBatch, want: &RecordBatch) -> usize {
    assert_eq!(got.num_rows(), want.num_rows(), "{what}: rows");
    assert_eq!(got.num_columns(), want.num_columns(), "{what}: columns");
    for (number, field) in want.schema().fields().iter().enumerate() {
        assert_eq!(got.schema().field(number), field.as_ref(), "{what}");
        assert_eq!(
            got.column(number),
            want.column(number),
            "{what}: column {}",
            field.name()
        );
    }
    got.num_rows() * got.num_columns()
}

/// Asserts that a cell is what `expected.json` says; gives how many scalars were compared.
pub(crate) fn assert_cell(what: &str, array: &dyn Array, row: usize, want: &Value) -> usize {
    if array.is_null(row) || want.is_null() {
        assert!(
            array.is_null(row) && want.is_null(),
            "{what}: row {row}: want {want}"
        );
        return 1;
    }
    let items = |items: &dyn Array, want: &Value| {
        let want = want.as_array().unwrap();
        assert_eq!(items.len(), want.len(), "{what}: length");
        want.iter()
            .enumerate()
            .map(|(i, v)| assert_cell(what, items, i, v))
            .sum()
    };
    match array.data_type() {
        DataType::Float32 => {
            let (got, want) = (array.as_primitive::<Float32Type>().value(row), text(want));
            let want: f32 = want.parse().unwrap();
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{what}: {got} {want}"
            );
            1
        }
        DataType::Float64 => {
            let (got, want) = (array.as_primitive::<Float64Type>().value(row), text(want));
            let want: f64 = want.parse().unwrap();
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{what}: {got} {want}"
            );
            1
        }
        DataType::List(_) => items(&array.as_list::<i32>().value(row), want),
        DataType::LargeList(_) => items(&array.as_list::<i64>().value(row), want),
        DataType::Struct(fields) => {
            let object = want.as_object().unwrap();
            assert_eq!(object.len(), fields.len(), "{what}: fields");
            let columns = fields.iter().zip(array.as_struct().columns());
            columns
                .map(|(f, c)| assert_cell(what, c, row, &object[f.name()]))
                .sum()
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let want = want.as_array().unwrap();
            assert_eq!(entries.len(), want.len(), "{what}: entries");
            let entry = |(i, pair): (usize, &Value)| {
                assert_cell(what, entries.column(0), i, &pair[0])
                    + assert_cell(what, entries.column(1), i, &pair[1])
            };
            want.iter().enumerate().map(entry).sum()
        }
        _ => {
            let mut json = String::new();
            write_cell(&mut json, array, row).unwrap();
            let mut got: Value = serde_json::from_str(&json).unwrap();
            // Polars keeps times in ns; the values it was given had us.
            if array.data_type() == &DataType::Time64(TimeUnit::Nanosecond) {
                got = text(&got).strip_suffix("000").unwrap().into();
            }
            assert_eq!(&got, want, "{what}: row {row}");
            1
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Budgets and what of a body stays in memory: nothing is kept; values are read by their own bytes; all is kept; some is.
pub(crate) fn structures(r: &mut Seeded) -> StructureCache {
    match r.below(4) {
        0 => StructureCache::holding_bodies(0, 0),
        1 => StructureCache::holding_bodies(64 << 20, 0),
        2 => StructureCache::new(64 << 20),
        _ => StructureCache::holding_bodies(40_000, 100),
    }
}
