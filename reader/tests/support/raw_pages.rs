//! Files made by hand, a data page at a time: what no writer writes.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

/// A 32-bit number as Thrift's compact protocol has it.
pub(crate) fn thrift_int(value: i32) -> Vec<u8> {
    let (mut value, mut out) = (((value << 1) ^ (value >> 31)) as u32, Vec::new());
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// The header of a data page of version 1 with PLAIN values; `more` are fields behind the third.
pub(crate) fn header(inflated: i32, compressed: usize, levels: u8, more: &[u8]) -> Vec<u8> {
    let mut out = vec![0x15, 0, 0x15];
    out.extend(thrift_int(inflated));
    out.push(0x15);
    out.extend(thrift_int(compressed as i32));
    out.extend([0x2c, 0x15, levels << 1, 0x15, 0, 0x15, 6, 0x15, 6, 0]);
    out.extend(more);
    out.push(0);
    out
}

/// Repetition and definition levels of a bit each, 8 of them, and values.
pub(crate) fn list_body(repetition: u8, definition: u8, values: &[i64]) -> Vec<u8> {
    let mut body = Vec::new();
    for bits in [repetition, definition] {
        body.extend([2, 0, 0, 0, 3, bits]);
    }
    values.iter().for_each(|value| body.extend(value.to_le_bytes()));
    body
}

/// A data page of version 1; `states` is what it says that it inflates to, where that is not true.
pub(crate) fn list_page(
    codec: Compression,
    repetition: u8,
    definition: u8,
    levels: u8,
    values: &[i64],
    states: Option<i32>,
) -> Vec<u8> {
    let mut body = list_body(repetition, definition, values);
    let inflated = body.len() as i32;
    if codec == Compression::SNAPPY {
        // A literal of up to 60 bytes.
        assert!(body.len() <= 60);
        let mut packed = vec![body.len() as u8, ((body.len() - 1) << 2) as u8];
        packed.extend(&body);
        body = packed;
    }
    let mut out = header(states.unwrap_or(inflated), body.len(), levels, &[]);
    out.extend(body);
    out
}

/// A file of one column with these pages, and no index.
pub(crate) fn of_pages(column: &str, codec: Compression, pages: &[Vec<u8>], rows: i64) -> Bytes {
    of_indexed_pages(column, codec, pages, rows, &[])
}

/// A file of one column with these pages, and an index that says which is the first row of each; none if that is empty.
pub(crate) fn of_indexed_pages(
    column: &str,
    codec: Compression,
    pages: &[Vec<u8>],
    rows: i64,
    first_rows: &[i32],
) -> Bytes {
    let message = format!("message m {{ {column}; }}");
    let schema = Arc::new(parse_message_type(&message).unwrap());
    let schema = Arc::new(SchemaDescriptor::new(schema));
    let mut bytes = b"PAR1".to_vec();
    pages.iter().for_each(|page| bytes.extend(page));
    let len = bytes.len() as i64 - 4;
    let index_start = bytes.len();
    if !first_rows.is_empty() {
        bytes.extend([0x19, (first_rows.len() as u8) << 4 | 0x0c]);
        let mut at = 4;
        for (page, first_row) in pages.iter().zip(first_rows) {
            for (field, value) in [(0x16, at), (0x15, page.len() as i32), (0x16, *first_row)] {
                bytes.push(field);
                bytes.extend(thrift_int(value));
            }
            bytes.push(0);
            at += page.len() as i32;
        }
        bytes.push(0);
    }
    let index_len = bytes.len() - index_start;
    let column = ColumnChunkMetaData::builder(schema.column(0))
        .set_compression(codec)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
        .set_num_values(7)
        .set_data_page_offset(4)
        .set_total_compressed_size(len)
        .set_total_uncompressed_size(len)
        .set_offset_index_offset((index_len > 0).then_some(index_start as i64))
        .set_offset_index_length((index_len > 0).then_some(index_len as i32))
        .build()
        .unwrap();
    let group = RowGroupMetaData::builder(schema.clone())
        .set_num_rows(rows)
        .set_total_byte_size(len)
        .set_column_metadata(vec![column])
        .build()
        .unwrap();
    let file = FileMetaData::new(1, rows, None, None, schema, None);
    let metadata = ParquetMetaDataBuilder::new(file)
        .set_row_groups(vec![group])
        .build();
    ParquetMetaDataWriter::new(&mut bytes, &metadata)
        .finish()
        .unwrap();
    bytes.into()
}
