//! `lookupfs warm`: what is asked of the daemon, and what it tells while it works.
//!
//! Owns the words of the conversation. After [`WarmRequest`] was accepted the command sends one [`Input`] a line, and the
//! daemon one [`Event`] a line, until [`Event::Done`]. Whoever closes the connection before ends the work. Called by
//! [`crate::control`]; the two sides are [`client`] and [`serve`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

pub mod bucket;
pub mod client;
mod disk_watch;
mod file;
mod inputs;
pub mod job;
mod report;
pub mod serve;
pub mod snapshot;
mod verify;
mod walk;

/// Files worked on at once, unless `--parallel` says otherwise.
pub const PARALLEL_DEFAULT: u32 = 8;
/// The most that `--parallel` may say.
pub const PARALLEL_MAX: u32 = 128;

/// Which bytes of each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Footers with their indexes, manifests, snapshots, schemas.
    Metadata,
    /// The same, and the chunks of these columns of Parquet files.
    Columns(Vec<String>),
    /// Every byte.
    All,
}

/// What to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Fetch what is not kept.
    Fill,
    /// Count what is kept; fetch nothing.
    Check,
    /// Drop every page of the files, here and in the kernel.
    Evict,
}

/// One `lookupfs warm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmRequest {
    /// Which bytes.
    pub what: What,
    /// What to do.
    pub action: Action,
    /// Files at once.
    pub parallel: u32,
    /// Bytes a second from the source.
    pub limit: Option<u64>,
}

/// A name as bytes: text where it is text, since file systems know no encoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawName {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl RawName {
    /// Its bytes as the system has them.
    pub fn to_os_string(&self) -> OsString {
        match self {
            RawName::Text(text) => text.into(),
            RawName::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        }
    }
}

impl From<&OsStr> for RawName {
    fn from(name: &OsStr) -> RawName {
        match name.to_str() {
            Some(text) => RawName::Text(text.to_owned()),
            None => RawName::Bytes(name.as_bytes().to_vec()),
        }
    }
}

/// One line to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A file or directory: the mount point that it is below, and the path from there.
    Path {
        /// A mount point of this daemon.
        mount_point: RawName,
        /// Relative; empty for the mount point itself.
        below: RawName,
    },
    /// There are no more.
    End,
}

/// One line from the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// So far.
    Progress(Totals),
    /// A file or a path could not be done; the others go on.
    Failed {
        /// For people.
        path: String,
        /// One sentence.
        reason: String,
    },
    /// All was tried.
    Done(Totals),
}

/// Why the local disk has not all that was to be kept on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskTrouble {
    /// Its file system is full.
    Full,
    /// It does not answer.
    Silent,
    /// It fails writes.
    Failed,
}

/// What was done. Pages are units of the cache, of `page_size` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Regular files found.
    pub files: u64,
    /// Files done, those without anything to do among them.
    pub files_done: u64,
    /// Files that have nothing to warm: plain ones, without `--all`.
    pub files_plain: u64,
    /// Files of which everything asked for is kept.
    pub files_kept: u64,
    /// Files of which it is not known what to look for, because their footer is not kept (`--check`).
    pub files_unknown: u64,
    /// Files and paths that failed.
    pub failed: u64,
    /// Bytes of the files found.
    pub bytes_found: u64,
    /// Bytes asked for that are done with: fetched, or kept before.
    pub bytes_done: u64,
    /// Bytes asked for, of the files that are done.
    pub bytes: u64,
    /// Bytes fetched from the source.
    pub fetched_bytes: u64,
    /// Pages asked for.
    pub pages: u64,
    /// Those of them that are kept, in memory or on disk.
    pub pages_kept: u64,
    /// Those in memory.
    pub pages_in_memory: u64,
    /// Those on disk.
    pub pages_on_disk: u64,
    /// Files that lie complete and verified on disk, for mounts with passthrough.
    #[serde(default)]
    pub files_verified: u64,
    /// Files for mounts with passthrough that do not, or of which it did not come out in time.
    #[serde(default)]
    pub files_unverified: u64,
    /// Whether there is a disk to keep pages on.
    #[serde(default)]
    pub has_disk: bool,
    /// What went wrong with that disk meanwhile.
    #[serde(default)]
    pub disk_trouble: Option<DiskTrouble>,
    /// Pages that `--evict` dropped.
    pub pages_dropped: u64,
    /// Pages that had to make room meanwhile, of whatever file.
    pub pages_pushed_out: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Whether all files have been found.
    pub is_all_found: bool,
}

/// A path for people: control characters are escaped, so that a hostile name cannot forge a line.
pub fn shown(path: &OsStr) -> String {
    let text = path.to_string_lossy();
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_conversation_whatever_their_bytes() {
        for name in [&b"plain"[..], "gr\u{fc}n".as_bytes(), b"\xff\xfe", b"a\nb"] {
            let input = Input::Path {
                mount_point: OsStr::new("/m").into(),
                below: OsStr::from_bytes(name).into(),
            };
            let line = serde_json::to_string(&input).unwrap();
            assert!(!line.contains('\n'));
            let Input::Path { below, .. } = serde_json::from_str(&line).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(below.to_os_string().as_bytes(), name);
        }
        assert_eq!(shown(OsStr::new("a\nlookupfs: b")), "a\\nlookupfs: b");
    }
}
