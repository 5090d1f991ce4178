//! Fetched bytes to rows. One module a format below it.
//!
//! Owns the border to format libraries: what they do on bytes that somebody else wrote is guarded
//! here. Called by [`crate::table`].

pub(crate) mod parquet;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{ReadError, Result};

thread_local!(static GUARDED: Cell<u32> = const { Cell::new(0) });

/// Whether this thread is inside of a format library that may panic on bytes it does not like.
/// A program's panic hook can ask, and stay silent: the panic comes back as a [`ReadError`].
pub fn panic_is_expected() -> bool {
    GUARDED.get() > 0
}

/// Calls a format library. A panic in it is an error about the file, as what it read came from there.
pub(crate) fn guarded<T>(
    path: &Path,
    doing: &str,
    call: impl FnOnce() -> std::result::Result<T, ::parquet::errors::ParquetError>,
) -> Result<T> {
    GUARDED.set(GUARDED.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(GUARDED.get() - 1);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ReadError::corrupt(path, format!("{doing}: {error}"))),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown cause");
            Err(ReadError::corrupt(
                path,
                format!("{doing}: malformed bytes ({text})"),
            ))
        }
    }
}
