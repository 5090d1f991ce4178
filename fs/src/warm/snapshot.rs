//! `lookupfs warm --snapshot`: which files one snapshot of a table refers to.
//!
//! Owns the way from a table's directory to paths; reads its metadata through the mount, which keeps it. The command does
//! this, not the daemon: a strange manifest can hurt nobody but whoever named it. Refuses metadata files beyond
//! 64 MiB. Called by `client.rs`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::inputs::shown_path;

mod avro;
mod iceberg;
mod paimon;
mod schema;

/// The largest file of metadata that is read, and the most that a part of one may become when it is unpacked.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Which snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotId {
    /// The newest.
    Latest,
    /// By the number that the table's format gives it.
    Number(i64),
}

impl FromStr for SnapshotId {
    type Err = String;

    fn from_str(text: &str) -> Result<SnapshotId, String> {
        match text {
            "latest" => Ok(SnapshotId::Latest),
            number => number
                .parse()
                .map(SnapshotId::Number)
                .map_err(|_| format!("{text:?} is neither a snapshot's number nor `latest`")),
        }
    }
}

/// Why the files of a snapshot are not known.
#[derive(Debug, Error)]
pub(super) enum SnapshotError {
    /// No table.
    #[error(
        "{0}: it is no table: neither a directory `snapshot` (Paimon) nor `metadata/*.metadata.json` (Iceberg) is in it"
    )]
    NoTable(String),
    /// No such snapshot.
    #[error("{table}: it has no snapshot {id}; its newest is {newest}")]
    NoSnapshot {
        table: String,
        id: String,
        newest: String,
    },
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    /// A file is not what it should be.
    #[error("{path}: {what}")]
    Damaged { path: String, what: String },
}

type Result<T, E = SnapshotError> = std::result::Result<T, E>;

/// The files of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// Those whose path is known, metadata first.
    pub(super) paths: Vec<PathBuf>,
    /// Names of files that are somewhere below the table.
    names: HashSet<OsString>,
    /// What was referred to and is not there.
    pub(super) missing: Vec<String>,
}

/// Finds the files of a snapshot of the table at `table`.
pub(super) fn find(table: &Path, id: SnapshotId) -> Result<Snapshot> {
    let mut snapshot = if table.join("snapshot").is_dir() {
        paimon::find(table, id)?
    } else {
        iceberg::find(table, id)?
    };
    let mut open = vec![table.to_owned()];
    while !snapshot.names.is_empty()
        && let Some(directory) = open.pop()
    {
        let unreadable = |source| SnapshotError::Unreadable {
            path: shown_path(&directory),
            source,
        };
        for entry in directory.read_dir().map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else if snapshot.names.remove(&entry.file_name()) {
                snapshot.paths.push(entry.path());
            }
        }
    }
    let missing = snapshot.names.drain();
    snapshot
        .missing
        .extend(missing.map(|name| shown_path(Path::new(&name))));
    snapshot.missing.sort();
    Ok(snapshot)
}

/// The whole of a file of metadata.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let unreadable = |source| SnapshotError::Unreadable {
        path: shown_path(path),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(damaged(path, format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn damaged(path: &Path, what: impl Into<String>) -> SnapshotError {
    SnapshotError::Damaged {
        path: shown_path(path),
        what: what.into(),
    }
}

fn json(path: &Path, bytes: &[u8]) -> Result<serde_json::Value> {
    serde_json::from_slice(bytes).map_err(|error| damaged(path, format!("no JSON: {error}")))
}

/// The texts and numbers of an Avro file's records that are of use; see [`avro::records`].
fn records(path: &Path, visit: impl FnMut(avro::Event<'_>)) -> Result<()> {
    let bytes = read(path)?;
    avro::records(&bytes, visit).map_err(|what| damaged(path, what))
}

/// The names of the files in a directory of metadata that begin with `prefix`, with what follows it.
fn numbered(directory: &Path, prefix: &str) -> Result<Vec<(i64, PathBuf)>> {
    let unreadable = |source| SnapshotError::Unreadable {
        path: shown_path(directory),
        source,
    };
    let mut found = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix)?.parse().ok());
        found.extend(number.map(|number| (number, directory.join(&name))));
    }
    found.sort();
    Ok(found)
}

/// A name out of a file of metadata, as a file in `directory`. A name with a slash would lead elsewhere.
fn inside(directory: &Path, name: &str) -> Option<PathBuf> {
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    is_name.then(|| directory.join(name))
}
