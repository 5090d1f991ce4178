//! [`Sidecars`]: what is known of files, kept on disk between runs.
//!
//! Owns the directory: its layout, its permissions, names of files, and how much of the disk they take. Those that were
//! used longest ago go first. Refuses a directory that others may write to, since rows are found by what is in it. What
//! is kept is a cache: deleting any of it costs a read. `SIDECAR.md` has the format, [`file`] reads and writes one
//! sidecar. Called by [`crate::table`] where files are opened.

mod file;
mod format;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::error::{ReadError, Result};
use crate::read_at::VersionKey;
pub(crate) use file::Sidecar;
pub(crate) use format::{RecordKey, RecordKind};

/// The directory below the one that is given; another layout never meets this one.
const LAYOUT: &str = "lookup-1";

/// Bytes of all sidecars by default.
const BYTES_MAX: u64 = 256 << 20;

/// A directory of sidecars. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Sidecars(Arc<Directory>);

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    max_bytes: u64,
    /// Bytes that are there, as far as this process knows; `u64::MAX` until somebody looked.
    bytes: AtomicU64,
    damaged: AtomicU64,
    trimming: Mutex<()>,
}

impl Sidecars {
    /// Sidecars below `dir`, which is made if it is not there, up to 256 MiB.
    ///
    /// # Errors
    /// `Open` where it cannot be made or looked at, `Invalid` where it belongs to another user or others may write to it.
    pub fn open(dir: impl AsRef<Path>) -> Result<Sidecars> {
        Sidecars::holding(dir, BYTES_MAX)
    }

    /// As [`Sidecars::open`], up to `max_bytes`.
    ///
    /// # Errors
    /// As [`Sidecars::open`].
    pub fn holding(dir: impl AsRef<Path>, max_bytes: u64) -> Result<Sidecars> {
        let path = dir.as_ref().join(LAYOUT);
        let failed = |source| ReadError::Open {
            path: path.clone(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let attributes = fs::symlink_metadata(&path).map_err(failed)?;
        // SAFETY: geteuid(2) only answers.
        let user = unsafe { libc::geteuid() };
        let what = match () {
            () if !attributes.is_dir() => "is not a directory",
            () if attributes.uid() != user => "belongs to another user",
            () if attributes.mode() & 0o022 != 0 => "can be written to by others; chmod go-w it",
            () => "",
        };
        if !what.is_empty() {
            let text = format!(
                "{}: {what}; give --sidecars another directory, or none",
                path.display()
            );
            return Err(ReadError::Invalid(text));
        }
        Ok(Sidecars(Arc::new(Directory {
            path,
            max_bytes,
            bytes: AtomicU64::new(u64::MAX),
            damaged: AtomicU64::new(0),
            trimming: Mutex::new(()),
        })))
    }

    /// Where `lookup` has them: `lookupfs` in `XDG_CACHE_HOME`, else in `~/.cache`. `None` without a home.
    pub fn default_dir() -> Option<PathBuf> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(cache.join("lookupfs"))
    }

    /// Sidecars that were found damaged, and taken away.
    pub fn damaged(&self) -> u64 {
        self.0.damaged.load(Relaxed)
    }

    /// What there is of a version of `len` bytes.
    pub(crate) fn of(&self, key: &VersionKey, len: u64) -> Sidecar {
        Sidecar::load(self.clone(), self.0.path.join(name_of(key)), key, len)
    }

    fn count_damaged(&self) {
        self.0.damaged.fetch_add(1, Relaxed);
    }

    /// So many bytes were written. Makes room where these are too many.
    fn count_bytes(&self, written: u64) {
        let known = self.0.bytes.load(Relaxed);
        let bytes = match known {
            u64::MAX => u64::MAX,
            known => known.saturating_add(written),
        };
        self.0.bytes.store(bytes, Relaxed);
        if bytes > self.0.max_bytes
            && let Some(_trimming) = self.0.trimming.try_lock()
        {
            self.0.bytes.store(self.trim(), Relaxed);
        }
    }

    /// Deletes what was used longest ago, down to three quarters of the limit, if it is exceeded. Bytes that are left.
    fn trim(&self) -> u64 {
        let entries = fs::read_dir(&self.0.path).into_iter().flatten().flatten();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let attributes = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                let modified = attributes.modified().ok()?;
                Some((modified, attributes.len(), entry.path()))
            })
            .collect();
        let mut bytes: u64 = files.iter().map(|(_, len, _)| *len).sum();
        if bytes > self.0.max_bytes {
            files.sort();
            for (_, len, path) in files {
                if bytes <= self.0.max_bytes / 4 * 3 {
                    break;
                }
                if fs::remove_file(path).is_ok() {
                    bytes -= len;
                }
            }
        }
        bytes
    }
}

/// All of the key: no two versions share a name.
fn name_of(key: &VersionKey) -> String {
    let mut name = String::new();
    match key {
        VersionKey::Version(version) => {
            name.push_str("v-");
            for byte in version {
                let _ = write!(name, "{byte:02x}");
            }
        }
        VersionKey::Attributes {
            dev,
            ino,
            len,
            mtime_ns,
            ctime_ns,
        } => {
            let _ = write!(name, "a-{dev:x}-{ino:x}-{len:x}-{mtime_ns:x}-{ctime_ns:x}");
        }
    }
    name
}

#[cfg(test)]
mod tests;
