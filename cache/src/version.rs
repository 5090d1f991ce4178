//! When are two files the same bytes: [`FileVersion`], and the names it is built from.
//!
//! Every cache key, inode number and open handle is made of a [`VersionId`], so this file owns the one rule on which
//! correctness rests: two versions that may differ in their bytes never share an id.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// Names a source of bytes, for instance `hdfs://ns1` or `file:///srv/data`. Part of every version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(Arc<str>);

impl SourceId {
    /// Takes the name as it is; callers normalise (lower-case authority, no trailing slash).
    pub fn new(name: impl Into<Arc<str>>) -> SourceId {
        SourceId(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An absolute path inside a source, as bytes: file systems know no encoding.
///
/// Invariants, checked by every constructor: begins with `/`, no empty, `.` or `..` component, no NUL byte,
/// no trailing slash but for the root itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourcePath(Arc<[u8]>);

impl SourcePath {
    /// The root, `/`.
    pub fn root() -> SourcePath {
        SourcePath(Arc::from(&b"/"[..]))
    }

    /// Parses an absolute path; repeated and trailing slashes are dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a relative path, a `.` or `..` component, or a NUL byte.
    pub fn parse(path: &[u8]) -> Result<SourcePath, Error> {
        if path.first() != Some(&b'/') {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{:?} is not an absolute path", String::from_utf8_lossy(path)),
            ));
        }
        let mut out = SourcePath::root();
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            out = out.join(name)?;
        }
        Ok(out)
    }

    /// The path of the entry `name` in this directory.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where `name` is no file name: see [`is_file_name`].
    pub fn join(&self, name: &[u8]) -> Result<SourcePath, Error> {
        if !is_file_name(name) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{:?} is not a file name", String::from_utf8_lossy(name)),
            ));
        }
        let mut joined = Vec::with_capacity(self.0.len() + 1 + name.len());
        joined.extend_from_slice(&self.0);
        if !self.is_root() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        Ok(SourcePath(joined.into()))
    }

    /// The directory that holds this path; the root is its own parent.
    pub fn parent(&self) -> SourcePath {
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(0) | None => SourcePath::root(),
            Some(at) => SourcePath(Arc::from(&self.0[..at])),
        }
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        let at = self.0.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        &self.0[at..]
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as text, for sources that know only UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: such a source cannot hold a path that is not UTF-8.
    pub fn as_utf8(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.0).map_err(|_| {
            Error::new(
                ErrorKind::NotFound,
                format!("{self}: no path of this source is not UTF-8"),
            )
        })
    }
}

impl fmt::Display for SourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped, so that a hostile name cannot forge a log line.
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for SourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Whether Linux can show `name` as one directory entry: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
pub fn is_file_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != b"."
        && name != b".."
        && !name.iter().any(|b| *b == b'/' || *b == 0)
}

/// 128 bits that stand for one version in cache keys and inode numbers, and that the version ioctl hands out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionId([u8; 16]);

impl VersionId {
    /// A cryptographic hash, since paths are chosen by strangers. Each name is delimited by its length, so that no two
    /// different lists give the same input.
    fn hash<const N: usize>(purpose: &[u8], names: [&[u8]; 2], numbers: [u64; N]) -> VersionId {
        let mut hash = blake3::Hasher::new();
        hash.update(purpose);
        for name in names {
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name);
        }
        for number in numbers {
            hash.update(&number.to_le_bytes());
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        VersionId(id)
    }

    /// The id of these 16 bytes, as a file in the disk tier is named by.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> VersionId {
        VersionId(bytes)
    }

    /// The 16 bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The first 8 bytes as a number, for inode numbers. Not unique by itself: whoever uses it checks collisions.
    pub fn low_u64(self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(low)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The id of a directory: source and path only. Its modification time is an attribute, since an inode number that
/// changes with it would break `getcwd` and relative paths of processes inside.
pub fn directory_id(source: &SourceId, path: &SourcePath) -> VersionId {
    VersionId::hash(
        b"lookupfs directory 1\0",
        [source.as_str().as_bytes(), path.as_bytes()],
        [],
    )
}

/// Identity of bytes: source, path, length and modification time, and what else the source knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    source: SourceId,
    path: SourcePath,
    len: u64,
    mtime_ms: u64,
    tag: u64,
    id: VersionId,
}

impl FileVersion {
    /// `len` in bytes, `mtime_ms` in milliseconds since 1970. `tag` is what else the source knows of the identity
    /// (inode number and finer time of a local file); 0 where it knows nothing more, as with HDFS.
    pub fn new(source: SourceId, path: SourcePath, len: u64, mtime_ms: u64, tag: u64) -> Self {
        let names = [source.as_str().as_bytes(), path.as_bytes()];
        let id = VersionId::hash(b"lookupfs version 1\0", names, [len, mtime_ms, tag]);
        FileVersion {
            source,
            path,
            len,
            mtime_ms,
            tag,
            id,
        }
    }

    /// The source that has the bytes.
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// The path in the source.
    pub fn path(&self) -> &SourcePath {
        &self.path
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Modification time, milliseconds since 1970.
    pub fn mtime_ms(&self) -> u64 {
        self.mtime_ms
    }

    /// What else the source knows of the identity; see [`FileVersion::new`].
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The id.
    pub fn id(&self) -> VersionId {
        self.id
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} bytes, mtime {} ms)",
            self.path, self.len, self.mtime_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(path: &[u8], len: u64, mtime_ms: u64, tag: u64) -> FileVersion {
        let path = SourcePath::parse(path).unwrap();
        FileVersion::new(SourceId::new("memory://a"), path, len, mtime_ms, tag)
    }

    #[test]
    fn each_part_of_the_identity_changes_the_id() {
        let base = version(b"/a/b", 1, 2, 0);
        assert_eq!(base.id(), version(b"//a/b/", 1, 2, 0).id());
        for other in [
            version(b"/a/c", 1, 2, 0),
            version(b"/a/b", 2, 2, 0),
            version(b"/a/b", 1, 3, 0),
            version(b"/a/b", 1, 2, 1),
        ] {
            assert_ne!(base.id(), other.id(), "{other:?}");
        }
    }

    #[test]
    fn the_id_of_a_version_is_the_same_after_a_restart() {
        // Golden value: inode numbers and files in the disk tier are named by it. A change needs a new hash prefix.
        assert_eq!(
            version(b"/a/b", 1, 2, 3).id().to_string(),
            "bc020593cbccca26d7a35dc6535bdf60"
        );
    }

    #[test]
    fn paths_that_are_not_plain_are_refused() {
        for bad in [&b""[..], b"a", b"/a/../b", b"/./a", b"/a\0b"] {
            assert_eq!(
                SourcePath::parse(bad).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{bad:?}"
            );
        }
        let long = [b'a'; 256];
        assert!(!is_file_name(&long) && is_file_name(&long[1..]));
    }

    #[test]
    fn parent_and_name_undo_join() {
        let path = SourcePath::parse(b"/a/b").unwrap();
        assert_eq!(
            (path.parent(), path.name()),
            (SourcePath::parse(b"/a").unwrap(), &b"b"[..])
        );
        assert_eq!(SourcePath::root().parent(), SourcePath::root());
        assert_eq!(SourcePath::root().name(), b"");
        assert_eq!(path.parent().parent(), SourcePath::root());
    }
}
