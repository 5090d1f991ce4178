//! Rows to text or to Arrow: `table`, `json`, `csv`, `arrow`.
//!
//! Owns the four output formats. Refuses to change values: what JSON has no number for is a string.
//! Called by the command line.

mod json;
mod text;

use std::io::Write;
use std::str::FromStr;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};

use crate::error::{ReadError, Result};
pub use json::write_cell;

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    /// Columns side by side, for people. Long cells are cut.
    #[default]
    Table,
    /// One JSON object a line.
    Json,
    /// Comma-separated values with a header line; nested values as JSON text.
    Csv,
    /// An Arrow IPC stream.
    Arrow,
}

impl FromStr for Output {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Output> {
        match text {
            "table" => Ok(Output::Table),
            "json" => Ok(Output::Json),
            "csv" => Ok(Output::Csv),
            "arrow" => Ok(Output::Arrow),
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write table, json, csv or arrow"
            ))),
        }
    }
}

/// Writes batches of one schema.
pub struct RowWriter<W: Write>(Kind<W>);

impl<W: Write> std::fmt::Debug for RowWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RowWriter")
    }
}

enum Kind<W: Write> {
    Table(W),
    Json(W),
    Csv(W),
    Arrow(Box<StreamWriter<W>>),
}

impl<W: Write> RowWriter<W> {
    /// Begins to write: `csv` and `arrow` state the columns even if no row follows.
    pub fn new(mut out: W, output: Output, schema: &SchemaRef) -> Result<RowWriter<W>> {
        Ok(RowWriter(match output {
            Output::Table => Kind::Table(out),
            Output::Json => Kind::Json(out),
            Output::Csv => {
                text::write_csv_header(&mut out, schema)?;
                Kind::Csv(out)
            }
            Output::Arrow => Kind::Arrow(Box::new(StreamWriter::try_new(out, schema).map_err(from_arrow)?)),
        }))
    }

    /// Writes the rows of one batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.0 {
            Kind::Table(out) => text::write_table(out, batch),
            Kind::Json(out) => json::write_lines(out, batch),
            Kind::Csv(out) => text::write_csv(out, batch),
            Kind::Arrow(out) => out.write(batch).map_err(from_arrow),
        }
    }

    /// Ends the output.
    pub fn finish(self) -> Result<()> {
        match self.0 {
            Kind::Table(mut out) | Kind::Json(mut out) | Kind::Csv(mut out) => out.flush().map_err(written),
            Kind::Arrow(mut out) => out.finish().map_err(from_arrow),
        }
    }
}

/// A failed write to the output.
pub(crate) fn written(source: std::io::Error) -> ReadError {
    ReadError::Write {
        path: "output".into(),
        source,
    }
}

fn from_arrow(error: ArrowError) -> ReadError {
    match error {
        ArrowError::IoError(_, source) => written(source),
        error => ReadError::Output(error.to_string()),
    }
}
