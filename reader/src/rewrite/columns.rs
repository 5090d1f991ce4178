//! [`ColumnPlan`]: schema, codecs, encodings and page sizes of a file to be written.
//!
//! Owns these choices. The Parquet schema stays the input's where the writer can write it. Called by [`super`].

use std::sync::Arc;

use arrow_schema::SchemaRef;
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, Encoding, Type};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, TypePtr};

use super::{RewriteOptions, ValueEncoding};
use crate::decode::guarded;
use crate::decode::parquet::ParquetFile;
use crate::error::{ReadError, Result};
use crate::table::Table;

/// The key under which Arrow's own schema lies in a footer.
const ARROW_SCHEMA_KEY: &str = "ARROW:schema";

/// Bytes of a data page, if no number of rows was asked for: what HDFS sends in one packet.
const PAGE_BYTES: usize = 64 << 10;

/// Rows of a data page, likewise.
const PAGE_ROWS: usize = 4096;

/// Everything that the writer needs to know.
pub(super) struct ColumnPlan {
    pub(super) schema: SchemaRef,
    pub(super) parquet: TypePtr,
    pub(super) properties: WriterProperties,
    /// Rows that the writer takes in one go before it looks whether a data page is full.
    pub(super) step_rows: usize,
}

/// Chooses the layout.
pub(super) fn plan(table: &Table, options: &RewriteOptions) -> Result<ColumnPlan> {
    let Some(first) = table.files().next() else {
        return Err(ReadError::Invalid("a table has at least one file".into()));
    };
    let schema = table.schema().clone();
    let parquet = parquet_schema(first, &schema)?;
    let step_rows = step_rows(table, options);
    let mut builder = WriterProperties::builder()
        .set_created_by("lookup rewrite".into())
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_write_batch_size(step_rows)
        .set_data_page_row_count_limit(options.page_rows.unwrap_or(PAGE_ROWS))
        // Where rows are asked for, only rows end a data page.
        .set_data_page_size_limit(options.page_rows.map_or(PAGE_BYTES, |_| i32::MAX as usize / 2));
    let kept = first
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .into_iter()
        .flatten();
    let kept: Vec<_> = kept
        .filter(|pair| pair.key != ARROW_SCHEMA_KEY)
        .cloned()
        .collect();
    builder = builder.set_key_value_metadata((!kept.is_empty()).then_some(kept));
    for (leaf, column) in parquet.columns().iter().enumerate() {
        let path = column.path().clone();
        builder = builder.set_column_compression(path.clone(), codec(table, leaf, options)?);
        let dictionary = match options.encoding {
            ValueEncoding::Auto => has_dictionary(table, leaf),
            ValueEncoding::Dictionary => true,
            _ => false,
        };
        builder = builder
            .set_column_dictionary_enabled(path.clone(), dictionary)
            .set_column_encoding(path, encoding(column.physical_type(), options.encoding));
    }
    if let Some(name) = &options.sort_by {
        let column = table.key_column(name)?;
        let sorting = SortingColumn {
            column_idx: column.leaf() as i32,
            descending: false,
            nulls_first: false,
        };
        builder = builder.set_sorting_columns(Some(vec![sorting]));
    }
    let mut properties = builder.build();
    add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
    Ok(ColumnPlan {
        schema,
        parquet: parquet.root_schema_ptr(),
        properties,
        step_rows,
    })
}

/// The input's own schema, unless Arrow's writer would write other levels or types than it says.
fn parquet_schema(file: &ParquetFile, schema: &SchemaRef) -> Result<Arc<SchemaDescriptor>> {
    let converted = guarded(file.path(), "converting the schema", || {
        ArrowSchemaConverter::new().convert(schema)
    })?;
    let own = file.metadata().file_metadata().schema_descr_ptr();
    let same = |(a, b): (&Arc<ColumnDescriptor>, &Arc<ColumnDescriptor>)| {
        a.physical_type() == b.physical_type()
            && a.type_length() == b.type_length()
            && a.max_def_level() == b.max_def_level()
            && a.max_rep_level() == b.max_rep_level()
    };
    let is_same = own.num_columns() == converted.num_columns()
        && own.columns().iter().zip(converted.columns()).all(same);
    Ok(if is_same { own } else { Arc::new(converted) })
}

fn codec(table: &Table, leaf: usize, options: &RewriteOptions) -> Result<Compression> {
    if let Some(codec) = options.codec {
        return Ok(codec.0);
    }
    let groups = table.files().flat_map(|file| file.metadata().row_groups());
    let first = groups.map(|group| group.column(leaf).compression()).next();
    Ok(match first.unwrap_or(Compression::UNCOMPRESSED) {
        Compression::LZ4 => Compression::LZ4_RAW,
        Compression::LZO => return Err(ReadError::Invalid("LZO is not written; choose a --codec".into())),
        codec => codec,
    })
}

fn has_dictionary(table: &Table, leaf: usize) -> bool {
    let groups = table.files().flat_map(|file| file.metadata().row_groups());
    groups.map(|group| group.column(leaf)).any(|column| {
        column.dictionary_page_offset().is_some()
            || column
                .encodings()
                .any(|e| matches!(e, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY))
    })
}

fn encoding(kind: Type, wanted: ValueEncoding) -> Encoding {
    match (wanted, kind) {
        (ValueEncoding::Delta, Type::INT32 | Type::INT64) => Encoding::DELTA_BINARY_PACKED,
        (ValueEncoding::Delta, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY) => Encoding::DELTA_BYTE_ARRAY,
        (
            ValueEncoding::ByteStreamSplit,
            Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE | Type::FIXED_LEN_BYTE_ARRAY,
        ) => Encoding::BYTE_STREAM_SPLIT,
        _ => Encoding::PLAIN,
    }
}

/// With a number of rows a data page, a part of it, so that data pages have just that number. Without, few enough that the
/// column with the longest values does not run far beyond the bytes of a data page.
fn step_rows(table: &Table, options: &RewriteOptions) -> usize {
    if let Some(rows) = options.page_rows {
        let divides = |step: &usize| rows.is_multiple_of(*step);
        return (1..=rows.min(1024))
            .rev()
            .find(divides)
            .filter(|step| *step >= 64)
            .unwrap_or(rows);
    }
    let longest = table.files().map(|file| {
        let leaves = file.metadata().file_metadata().schema_descr().num_columns();
        (0..leaves).map(|leaf| file.row_bytes(&[leaf])).max().unwrap_or(1)
    });
    let longest = longest.max().unwrap_or(1).max(1);
    // A power of two, so that it divides the rows of a data page.
    1 << (PAGE_BYTES as u64 / 4 / longest).clamp(1, 1024).ilog2()
}
