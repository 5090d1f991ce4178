//! The rows of a table in the order of a key.
//!
//! Owns the sorting: keys and row ids in memory, up to a limit, equal keys in the table's order, nulls last. Refuses tables
//! whose keys are more. Called by [`super`].

use crate::error::{ReadError, Result};
use crate::keys::Ordered;
use crate::row::RowId;
use crate::table::{KeyedRow, Table};

/// Row ids in the order of their keys.
pub(super) fn by_key(table: &Table, column: &str, memory_bytes: u64) -> Result<Vec<RowId>> {
    let column = table.key_column(column)?;
    let count = table.row_count();
    let mut keyed: Vec<KeyedRow> = Vec::new();
    // A bit a row, and the result.
    let mut bytes = count.div_ceil(8) + count * size_of::<RowId>() as u64;
    table.each_keyed_row(&column, &mut |rows| {
        bytes += rows.iter().map(row_bytes).sum::<u64>();
        if bytes > memory_bytes {
            return Err(ReadError::TooLarge {
                what: format!("{}: sorting by '{}'", table.path().display(), column.name()),
                need_bytes: bytes,
                limit_bytes: memory_bytes,
                remedy: "raise --memory, or sort the files in parts",
            });
        }
        keyed.extend(rows);
        Ok(())
    })?;
    // Rows are all different, so that this is as good as a stable sort.
    keyed.sort_unstable();
    let rows = usize::try_from(count).unwrap_or(usize::MAX);
    let mut has_key = vec![false; rows];
    let mut order = Vec::with_capacity(rows);
    for KeyedRow { row, .. } in keyed {
        match usize::try_from(row).ok().and_then(|row| has_key.get_mut(row)) {
            Some(seen) if !*seen => *seen = true,
            _ => {
                let what = format!("row id {row} was found twice while sorting");
                return Err(ReadError::corrupt(table.path(), what));
            }
        }
        order.push(RowId(row));
    }
    let without = has_key.iter().zip(0..).filter(|(has_key, _)| !**has_key);
    order.extend(without.map(|(_, row)| RowId(row)));
    Ok(order)
}

fn row_bytes(row: &KeyedRow) -> u64 {
    let own = match &row.key {
        Ordered::Number(_) => 0,
        // An allocation takes more than what is asked for.
        Ordered::Bytes(bytes) => bytes.len() + 16,
    };
    (size_of::<KeyedRow>() + own) as u64
}
