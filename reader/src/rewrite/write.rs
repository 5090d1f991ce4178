//! Rows into a Parquet file, row group by row group.
//!
//! Owns where row groups end, by rows and by memory, and that data pages begin at multiples of the rows asked for whatever the
//! batches are. Refuses batches of another schema. Called by [`super`].

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use super::columns::ColumnPlan;
use super::{Progress, RewriteOptions, useless_bounds};
use crate::error::ReadError;

/// Rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// Bytes of a row group before it is written.
const ROW_GROUP_BYTES_MAX: usize = 256 << 20;

/// Why a file was not written.
pub(super) enum Failure {
    /// Rows could not be read.
    Input(ReadError),
    /// Rows could not be written.
    Output(String),
}

impl From<ParquetError> for Failure {
    fn from(error: ParquetError) -> Failure {
        Failure::Output(error.to_string())
    }
}

/// Writes all rows; gives the number of row groups.
pub(super) fn write(
    file: &File,
    rows: impl Iterator<Item = Result<RecordBatch, ReadError>>,
    plan: &ColumnPlan,
    options: &RewriteOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<usize, Failure> {
    let properties = Arc::new(plan.properties.clone());
    let mut out = Output {
        file: SerializedFileWriter::new(BufWriter::new(file), plan.parquet.clone(), properties)?,
        plan,
        options,
        columns: Vec::new(),
        rows: 0,
        groups: 0,
    };
    let mut written = 0;
    for batch in rows {
        let batch = batch.map_err(Failure::Input)?;
        out.append(&batch)?;
        written += batch.num_rows() as u64;
        progress(Progress::Written(written));
    }
    out.end_row_group()?;
    let groups = out.groups;
    out.file.close()?;
    Ok(groups)
}

struct Output<'a> {
    file: SerializedFileWriter<BufWriter<&'a File>>,
    plan: &'a ColumnPlan,
    options: &'a RewriteOptions,
    /// Of the row group that is being filled.
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
    groups: usize,
}

impl Output<'_> {
    fn append(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let group_rows = self.options.row_group_rows.unwrap_or(ROW_GROUP_ROWS);
        let step = self.plan.step_rows;
        let mut at = 0;
        while at < batch.num_rows() {
            let room = group_rows - self.rows;
            let left = batch.num_rows() - at;
            // The writer looks whether a data page is full only where a step ends, and a step ends with a batch.
            let to_step = step - self.rows % step;
            let len = match left.checked_sub(to_step) {
                Some(rest) if to_step == step => to_step + rest / step * step,
                _ => to_step,
            };
            let len = len.min(left).min(room);
            self.write_part(&batch.slice(at, len))?;
            at += len;
            self.rows += len;
            let bytes: usize = self.columns.iter().map(ArrowColumnWriter::memory_size).sum();
            if self.rows >= group_rows || bytes > ROW_GROUP_BYTES_MAX {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn write_part(&mut self, part: &RecordBatch) -> Result<(), Failure> {
        if self.columns.is_empty() {
            let factory = ArrowRowGroupWriterFactory::new(&self.file, self.plan.schema.clone());
            self.columns = factory.create_column_writers(self.groups)?;
        }
        let mut columns = self.columns.iter_mut();
        for (field, array) in self.plan.schema.fields().iter().zip(part.columns()) {
            for leaf in compute_leaves(field, array)? {
                let column = columns.next();
                column
                    .ok_or_else(|| Failure::Output("more columns than the schema has".into()))?
                    .write(&leaf)?;
            }
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), Failure> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in std::mem::take(&mut self.columns) {
            let mut chunk = column.close()?;
            useless_bounds::leave_out(chunk.close_mut());
            self.options.size_statistics.keep(&mut chunk)?;
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        self.rows = 0;
        self.groups += 1;
        Ok(())
    }
}
