//! The columns that the workload `writer` writes, and one write of them into memory.
//!
//! Owns the data (a pure function of column, seed and rows), the writer's settings, and the check that what was written is what
//! was given, with the size statistics that were asked for. Called by `writer.rs`, here and under callgrind.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{Field, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;

use super::super::error::{BenchError, Result};
use super::super::random::Random;
use crate::rewrite::SizeStatistics;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// A column that is written plain and uncompressed: a codec or a dictionary would hide what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenColumn {
    /// INT64.
    Integers,
    /// STRING of 4 to 19 bytes.
    Strings,
    /// LIST of 0 to 4 INT64.
    Lists,
}

impl WrittenColumn {
    pub(super) const ALL: [WrittenColumn; 3] = [
        WrittenColumn::Integers,
        WrittenColumn::Strings,
        WrittenColumn::Lists,
    ];

    /// The word on a command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            WrittenColumn::Integers => "int64",
            WrittenColumn::Strings => "string",
            WrittenColumn::Lists => "list",
        }
    }

    /// The name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            WrittenColumn::Integers => "INT64",
            WrittenColumn::Strings => "STRING",
            WrittenColumn::Lists => "LIST of INT64",
        }
    }
}

impl FromStr for WrittenColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<WrittenColumn, String> {
        let found = WrittenColumn::ALL
            .into_iter()
            .find(|column| column.word() == text);
        found.ok_or_else(|| format!("'{text}': write int64, string or list"))
    }
}

/// Which statistics a write makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// None, of any kind.
    Bare,
    /// Bounds and null counts of every data page, and these size statistics, as `lookup rewrite` leaves them.
    Bounds(SizeStatistics),
}

/// The rows of a column, of which about one in `null_each` is null, or none if that is 0.
pub(super) fn batches(
    column: WrittenColumn,
    rows: usize,
    null_each: u64,
    seed: u64,
) -> Result<Vec<RecordBatch>> {
    let mut random = Random::new(seed);
    let starts = (0..rows).step_by(BATCH_ROWS);
    starts
        .map(|start| {
            let array = array(column, BATCH_ROWS.min(rows - start), null_each, &mut random);
            let field = Field::new("c", array.data_type().clone(), true);
            let schema = Arc::new(Schema::new(vec![field]));
            RecordBatch::try_new(schema, vec![array]).map_err(|error| BenchError::Invalid(error.to_string()))
        })
        .collect()
}

fn array(column: WrittenColumn, rows: usize, null_each: u64, random: &mut Random) -> ArrayRef {
    let is_null = |random: &mut Random| null_each > 0 && random.below(null_each) == 0;
    match column {
        WrittenColumn::Integers => {
            let mut values = Int64Builder::with_capacity(rows);
            for _ in 0..rows {
                values.append_option((!is_null(random)).then(|| random.next_u64() as i64));
            }
            Arc::new(values.finish())
        }
        WrittenColumn::Strings => {
            let mut values = StringBuilder::new();
            for _ in 0..rows {
                let len = 4 + random.below(16) as usize;
                let text = format!("{:020x}", random.next_u64());
                values.append_option((!is_null(random)).then(|| &text[text.len() - len..]));
            }
            Arc::new(values.finish())
        }
        WrittenColumn::Lists => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            for _ in 0..rows {
                for _ in 0..random.below(5) {
                    let item = (!is_null(random)).then(|| random.next_u64() as i64);
                    lists.values().append_option(item);
                }
                // What is null has no items of its own.
                let valid = !is_null(random) || !lists_end_empty(&lists);
                lists.append(valid);
            }
            Arc::new(lists.finish())
        }
    }
}

/// Whether the list that is being filled has no item yet.
fn lists_end_empty(lists: &ListBuilder<Int64Builder>) -> bool {
    use arrow_array::builder::ArrayBuilder;
    let items = lists.values_ref().len();
    lists
        .offsets_slice()
        .last()
        .is_none_or(|end| *end as usize == items)
}

/// Writes a row group into memory. A function of its own in the binary, since callgrind counts what runs inside of it.
#[inline(never)]
pub(super) fn write_row_group(batches: &[RecordBatch], written: Written) -> Result<Bytes> {
    write_batches(batches, written).map_err(|error| BenchError::Invalid(format!("cannot write: {error}")))
}

fn write_batches(batches: &[RecordBatch], written: Written) -> Result<Bytes, ParquetError> {
    let first = batches
        .first()
        .ok_or_else(|| ParquetError::General("no rows".into()))?;
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(match written {
            Written::Bare => EnabledStatistics::None,
            Written::Bounds(_) => EnabledStatistics::Page,
        })
        .build();
    let schema = first.schema();
    let columns = ArrowSchemaConverter::new().convert(&schema)?;
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, columns.root_schema_ptr(), Arc::new(properties))?;
    let factory = ArrowRowGroupWriterFactory::new(&file, schema.clone());
    let mut writers = factory.create_column_writers(0)?;
    for batch in batches {
        let arrays = schema.fields().iter().zip(batch.columns());
        let mut writers = writers.iter_mut();
        for (field, array) in arrays {
            for leaf in compute_leaves(field, array)? {
                let writer = writers.next();
                writer
                    .ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?
                    .write(&leaf)?;
            }
        }
    }
    let mut group = file.next_row_group()?;
    for writer in writers {
        let mut chunk = writer.close()?;
        if let Written::Bounds(size_statistics) = written {
            size_statistics.keep(&mut chunk)?;
        }
        chunk.append_to_row_group(&mut group)?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes.into())
}

/// Reads back what was written: every value, and which statistics there are.
pub(super) fn check(bytes: Bytes, batches: &[RecordBatch], written: Written) -> Result<()> {
    let wrong = |what: String| BenchError::Invalid(format!("{written:?} was written wrongly: {what}"));
    let failed = |error: ParquetError| wrong(error.to_string());
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options).map_err(failed)?;
    let found = size_statistics_of(builder.metadata());
    let asked = match written {
        Written::Bare => None,
        Written::Bounds(size_statistics) => Some(size_statistics),
    };
    // Without bounds nothing asks for the removal of what the crate adds unasked.
    if asked.is_some_and(|asked| asked != found) {
        return Err(wrong(format!("its size statistics are {found:?}")));
    }
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(failed)?;
    let mut expected = batches.iter();
    let schema = reader.schema();
    for batch in reader {
        let batch = batch.map_err(|error| wrong(error.to_string()))?;
        let same = expected
            .next()
            .is_some_and(|rows| rows.columns() == batch.columns());
        if !same {
            return Err(wrong(format!("other values of {schema:?}")));
        }
    }
    match expected.next() {
        None => Ok(()),
        Some(_) => Err(wrong("rows are missing".into())),
    }
}

fn size_statistics_of(metadata: &ParquetMetaData) -> SizeStatistics {
    let column = metadata.row_group(0).column(0);
    let of_pages = metadata
        .page_index()
        .and_then(|index| index.column_index(0, 0))
        .is_some_and(|index| match index {
            ColumnIndexMetaData::INT64(index) => index.definition_level_histogram(0).is_some(),
            ColumnIndexMetaData::BYTE_ARRAY(index) => index.definition_level_histogram(0).is_some(),
            _ => false,
        });
    match (of_pages, column.definition_level_histogram().is_some()) {
        (true, _) => SizeStatistics::Page,
        (false, true) => SizeStatistics::Chunk,
        (false, false) => SizeStatistics::None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn what_is_written_is_what_was_given_and_another_write_is_told_apart() {
        for column in WrittenColumn::ALL {
            let rows = batches(column, 10_000, 10, 7).unwrap();
            assert_eq!(
                rows.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(),
                [8192, 1808]
            );
            let is_list = matches!(rows[0].column(0).data_type(), DataType::List(_));
            assert_eq!(is_list, column == WrittenColumn::Lists);
            let nulls = rows[0].column(0).null_count();
            assert!(nulls > 100, "{column:?}: {nulls}");
            let full = batches(column, 100, 0, 7).unwrap();
            assert_eq!(full[0].column(0).null_count(), 0);
            let others = batches(column, 10_000, 10, 8).unwrap();
            use SizeStatistics::{Chunk, None, Page};
            for written in [
                Written::Bare,
                Written::Bounds(None),
                Written::Bounds(Chunk),
                Written::Bounds(Page),
            ] {
                let bytes = write_row_group(&rows, written).unwrap();
                check(bytes.clone(), &rows, written).unwrap();
                assert!(check(bytes.clone(), &others, written).is_err());
                assert!(check(bytes.clone(), &rows[..1], written).is_err());
                if written != Written::Bare {
                    let other = if written == Written::Bounds(Page) {
                        None
                    } else {
                        Page
                    };
                    assert!(check(bytes, &rows, Written::Bounds(other)).is_err());
                }
            }
            assert_eq!(column.word().parse::<WrittenColumn>().unwrap(), column);
        }
        assert!("binary".parse::<WrittenColumn>().is_err());
    }
}
