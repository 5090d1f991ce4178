//! [`ReadError`]: which file, which row, which range, and what to do about it.
//!
//! Owns every way in which a lookup can fail. Refuses untyped strings as errors of our own; what a
//! format library says is carried as text, since it is only ever shown. Called by every module here.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What every fallible function here returns.
pub type Result<T, E = ReadError> = std::result::Result<T, E>;

/// Why a lookup failed. The text is one line and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path cannot be opened, listed or asked for its attributes.
    #[error("{}: {source}", path.display())]
    Open {
        /// The path as it was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is neither a file nor a directory of files.
    #[error("{}: not a regular file; give a Parquet file or a directory of Parquet files", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A directory without a file that could be read.
    #[error("{}: no files in this directory (names that begin with '.' or '_' are skipped)", path.display())]
    EmptyDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file is of a format that is recognised, but not read.
    #[error("{}: {format} is not supported yet; supported: Parquet", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        format: String,
    },
    /// The bytes are not what the format asks for.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// A positioned read failed.
    #[error("{}: read of bytes {}..{}: {source}", path.display(), range.start, range.end)]
    Read {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        range: Range<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not the version that was opened.
    #[error("{}: changed while it was read; run again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A mount shows another version than the one that was opened through the first.
    #[error(
        "{}: not the version that another --mount shows; run again if it was just replaced, else give mounts of one source",
        path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
    },
    /// Row ids past the end.
    #[error("{}: {}; the table has {row_count} rows (row ids start at 0)", path.display(), absent_rows(rows))]
    RowsAbsent {
        /// The table.
        path: PathBuf,
        /// The first few of the row ids that do not exist, in the order asked.
        rows: Vec<u64>,
        /// How many rows there are.
        row_count: u64,
    },
    /// Keys that no row has.
    #[error("{}: {}; --missing skip leaves them out", path.display(), absent_keys(column, keys, *count))]
    KeysAbsent {
        /// The table.
        path: PathBuf,
        /// The key column.
        column: String,
        /// The first few of them, in the order asked.
        keys: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// A column whose rows cannot be found by value.
    #[error("{}: rows cannot be found by '{column}': {what}; `lookup rewrite` makes a file that can be searched", path.display())]
    Unsearchable {
        /// The file.
        path: PathBuf,
        /// The key column.
        column: String,
        /// What stands in the way.
        what: String,
    },
    /// A column that the file does not have.
    #[error("{}: no column '{column}'; {}", path.display(), near_names(near))]
    UnknownColumn {
        /// The table.
        path: PathBuf,
        /// The name as it was given.
        column: String,
        /// Names that look like it, or the first few there are.
        near: Vec<String>,
    },
    /// Two files of one directory disagree.
    #[error("{}: its schema differs from that of {}; read them one by one", path.display(), first.display())]
    SchemaDiffers {
        /// The file that differs.
        path: PathBuf,
        /// The first file of the directory.
        first: PathBuf,
    },
    /// More than a limit allows.
    #[error("{what} needs {need_bytes} bytes, the limit is {limit_bytes}; {remedy}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// How much it needs.
        need_bytes: u64,
        /// How much it may have.
        limit_bytes: u64,
        /// How to go on.
        remedy: &'static str,
    },
    /// The deadline passed.
    #[error("the deadline of {seconds} s passed while {doing}; raise --deadline or ask for fewer rows")]
    Deadline {
        /// How long was allowed.
        seconds: f64,
        /// What was going on.
        doing: &'static str,
    },
    /// Somebody cancelled it.
    #[error("cancelled while {doing}")]
    Cancelled {
        /// What was going on.
        doing: &'static str,
    },
    /// The arguments do not make sense.
    #[error("{0}")]
    Invalid(String),
    /// Rows could not be written in the output format asked for.
    #[error("cannot write the rows: {0}")]
    Output(String),
    /// Writing failed.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file written, or `stdout`.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A value is not the one that was written (`lookup sample --verify`).
    #[error("{}: {what}", path.display())]
    WrongValue {
        /// The file.
        path: PathBuf,
        /// Which row and column, what is there, what should be.
        what: String,
    },
}

impl ReadError {
    /// A [`ReadError::Corrupt`] about `path`.
    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> ReadError {
        ReadError::Corrupt {
            path: path.to_owned(),
            what: one_line(what.into()),
        }
    }

    /// A failed read: `ESTALE` is how a mount says that the version has gone.
    pub(crate) fn read(path: &Path, range: Range<u64>, source: io::Error) -> ReadError {
        match source.raw_os_error() {
            Some(libc::ESTALE) => ReadError::Changed {
                path: path.to_owned(),
            },
            _ => ReadError::Read {
                path: path.to_owned(),
                range,
                source,
            },
        }
    }
}

/// Text of a library, on one line.
fn one_line(text: String) -> String {
    if text.contains('\n') {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text
    }
}

fn absent_rows(rows: &[u64]) -> String {
    let named = rows
        .iter()
        .take(5)
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    match rows.len() {
        1 => format!("row id {named} does not exist"),
        0..=5 => format!("row ids {named} do not exist"),
        _ => format!("row ids {named}, ... do not exist"),
    }
}

fn absent_keys(column: &str, keys: &[String], count: usize) -> String {
    let named = keys.join(", ");
    match count {
        1 => format!("no row has '{column}' {named}"),
        count if count <= keys.len() => format!("no row has '{column}' any of {named}"),
        count => format!("no row has '{column}' any of {count} keys: {named}, ..."),
    }
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() {
        return "the file has no columns".into();
    }
    format!("there is: {} (all: lookup inspect)", near.join(", "))
}
