//! A file that was written against the rows that it was made of.
//!
//! Owns the comparison: every value of every row, read back from the disk. The first difference is an error that names
//! it. Called by [`super`].

use std::path::Path;

use arrow_array::RecordBatch;

use super::source::Batches;
use super::{Progress, rows};
use crate::error::{ReadError, Result};
use crate::row::RowId;
use crate::sample::first_difference;
use crate::table::{OpenOptions, Table};

/// Compares the file at `written` with the rows of `table` in their order.
pub(super) fn verify(
    table: &Table,
    order: Option<&[RowId]>,
    written: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let copy = Table::open(written, OpenOptions::default())?;
    let wrong = |what: String| ReadError::WrongValue {
        path: written.to_owned(),
        what,
    };
    if copy.row_count() != table.row_count() {
        let what = format!("{} rows, {} expected", copy.row_count(), table.row_count());
        return Err(wrong(what));
    }
    let mut got = Batches::new(&copy);
    let (mut held, mut held_at) = (RecordBatch::new_empty(copy.schema().clone()), 0);
    let mut done = 0u64;
    for batch in rows(table, order)? {
        let want = batch?;
        let mut at = 0;
        while at < want.num_rows() {
            if held_at == held.num_rows() {
                held = match got.next() {
                    Some(batch) => batch?,
                    None => return Err(wrong(format!("ends after row {done}"))),
                };
                held_at = 0;
            }
            let len = (want.num_rows() - at).min(held.num_rows() - held_at);
            let (a, b) = (held.slice(held_at, len), want.slice(at, len));
            if let Some(what) = first_difference(&a, &b, done..done + len as u64)? {
                return Err(wrong(what));
            }
            held_at += len;
            at += len;
            done += len as u64;
            progress(Progress::Verified(done));
        }
    }
    Ok(())
}
