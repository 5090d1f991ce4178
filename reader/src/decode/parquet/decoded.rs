//! Values of encodings without random access, decoded once: DELTA_*, BYTE_STREAM_SPLIT, RLE.
//!
//! Owns the use of the format library's decoders for whole data pages; what they give is written as PLAIN. Refuses
//! results above a limit. Called by [`super::mapped`].

use bytes::Bytes;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{AsBytes, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescPtr;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;

/// The values of `page`, which has `rows` rows, as PLAIN has them; booleans have a byte each. `None` if they are more
/// than `limit_bytes`.
pub(super) fn decode_plain(
    page: Page,
    column: ColumnDescPtr,
    rows: usize,
    limit_bytes: usize,
) -> Result<Option<Bytes>> {
    // A value of DELTA_BYTE_ARRAY may be as long as all bytes of its page, so that few are decoded at a time if these
    // are many.
    let batch_rows = (limit_bytes / page.buffer().len().max(1)).clamp(1, BATCH_ROWS);
    let reader = get_column_reader(column, Box::new(OnePage::new(page, rows)));
    let mut out = Plain {
        bytes: Vec::new(),
        rows,
        batch_rows,
        limit_bytes,
    };
    let fits = match reader {
        ColumnReader::BoolColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::Int32ColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::Int64ColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::Int96ColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::FloatColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::DoubleColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::FixedLenByteArrayColumnReader(reader) => out.append(reader, false)?,
        ColumnReader::ByteArrayColumnReader(reader) => out.append(reader, true)?,
    };
    // Without what was reserved ahead.
    Ok(fits.then(|| out.bytes.into_boxed_slice().into()))
}

struct Plain {
    bytes: Vec<u8>,
    rows: usize,
    batch_rows: usize,
    limit_bytes: usize,
}

impl Plain {
    /// Whether all values of the page fit.
    fn append<T: DataType>(&mut self, mut reader: ColumnReaderImpl<T>, lengths: bool) -> Result<bool> {
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let mut left = self.rows;
        while left > 0 {
            levels.clear();
            values.clear();
            let wanted = left.min(self.batch_rows);
            let (rows, _, _) = reader.read_records(wanted, Some(&mut levels), None, &mut values)?;
            if rows == 0 {
                return Err(ParquetError::EOF(
                    "a data page has fewer rows than it states".into(),
                ));
            }
            for value in &values {
                let bytes = value.as_bytes();
                if lengths {
                    self.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                }
                self.bytes.extend_from_slice(bytes);
                if self.bytes.len() > self.limit_bytes {
                    return Ok(false);
                }
            }
            left -= rows;
        }
        Ok(true)
    }
}

/// One data page, for a reader of the format library.
pub(super) struct OnePage {
    page: Option<Page>,
    rows: usize,
}

impl OnePage {
    pub(super) fn new(page: Page, rows: usize) -> OnePage {
        OnePage {
            page: Some(page),
            rows,
        }
    }
}

impl Iterator for OnePage {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.page.take().map(Ok)
    }
}

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        Ok(self.page.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Ok(self.page.as_ref().map(|_| PageMetadata {
            num_rows: Some(self.rows),
            num_levels: Some(self.rows),
            is_dict: false,
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.page = None;
        Ok(())
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        Ok(true)
    }
}
