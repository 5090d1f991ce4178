//! [`BenchError`]: why a run could not be measured. A missed target is no error, and neither is a part that had nothing
//! to be measured with: that stands in the report.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The arguments do not fit each other, or what is in the directories does not.
    #[error("{0}")]
    Invalid(String),
    /// A file of the run cannot be opened, measured or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program beside the run did not do its part.
    #[error("{program}: {what}")]
    Program {
        /// Its command line.
        program: String,
        /// What it did, and how it ended.
        what: String,
    },
    /// A lookup failed.
    #[error(transparent)]
    Lookup(#[from] crate::ReadError),
    /// The report cannot be put into JSON.
    #[error("cannot write the report: {0}")]
    Json(#[from] serde_json::Error),
}

impl BenchError {
    pub(super) fn file(path: &Path, source: io::Error) -> BenchError {
        BenchError::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn program(program: &str, what: impl Into<String>) -> BenchError {
        BenchError::Program {
            program: program.to_owned(),
            what: what.into(),
        }
    }
}

/// What the parts of a run return.
pub(super) type Result<T, E = BenchError> = std::result::Result<T, E>;
