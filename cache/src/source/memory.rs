//! A tree in memory that changes when it is told to: the source of tests, and their model of what a source holds.
//!
//! Modification times come from a clock that ticks once a change, so two versions never share one.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{Entry, FileKind, FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::page::ByteRange;
use crate::version::{FileVersion, SourceId, SourcePath};

/// Time of the first change.
const CLOCK_START_MS: u64 = 1_000_000;

#[derive(Clone)]
enum Content {
    Directory,
    File(Bytes),
    Symlink(Vec<u8>),
}

#[derive(Clone)]
struct Node {
    content: Content,
    mtime_ms: u64,
    mode: u16,
}

impl Node {
    fn status(&self) -> FileStatus {
        let (kind, len) = match &self.content {
            Content::Directory => (FileKind::Directory, 0),
            Content::File(bytes) => (FileKind::File, bytes.len() as u64),
            Content::Symlink(target) => (FileKind::Symlink, target.len() as u64),
        };
        FileStatus {
            kind,
            len,
            mtime_ms: self.mtime_ms,
            tag: 0,
            owner: Arc::from("owner"),
            group: Arc::from("group"),
            mode: self.mode,
        }
    }
}

struct Tree {
    nodes: BTreeMap<SourcePath, Node>,
    clock_ms: u64,
}

/// A source in memory. Clones share the tree.
#[derive(Clone)]
pub struct MemorySource {
    id: SourceId,
    tree: Arc<Mutex<Tree>>,
}

impl std::fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MemorySource").field(&self.id).finish()
    }
}

impl MemorySource {
    /// An empty tree with the id `memory://NAME`.
    pub fn new(name: &str) -> MemorySource {
        let root = Node {
            content: Content::Directory,
            mtime_ms: CLOCK_START_MS,
            mode: 0o755,
        };
        MemorySource {
            id: SourceId::new(format!("memory://{name}")),
            tree: Arc::new(Mutex::new(Tree {
                nodes: BTreeMap::from([(SourcePath::root(), root)]),
                clock_ms: CLOCK_START_MS,
            })),
        }
    }

    /// Makes or replaces the file `path`; a replaced file keeps its mode.
    ///
    /// # Errors
    /// `NotFound` or `NotDirectory` where there is no parent directory, `IsDirectory` where `path` is one.
    pub fn write(&self, path: &SourcePath, bytes: impl Into<Bytes>) -> Result<()> {
        self.put(path, Content::File(bytes.into()))
    }

    /// Makes the symbolic link `path`.
    ///
    /// # Errors
    /// As [`MemorySource::write`].
    pub fn symlink(&self, path: &SourcePath, target: &[u8]) -> Result<()> {
        self.put(path, Content::Symlink(target.to_vec()))
    }

    /// Appends to the file `path`.
    ///
    /// # Errors
    /// `NotFound` or `IsDirectory` where there is no such file.
    pub fn append(&self, path: &SourcePath, more: &[u8]) -> Result<()> {
        let mut bytes = self.bytes(path)?.to_vec();
        bytes.extend_from_slice(more);
        self.write(path, bytes)
    }

    /// Makes the directory `path` where it is missing; its parent must be there.
    ///
    /// # Errors
    /// As [`MemorySource::write`]; `NotDirectory` where `path` is a file.
    pub fn mkdir(&self, path: &SourcePath) -> Result<()> {
        match self.kind(path) {
            Some(FileKind::Directory) => Ok(()),
            Some(_) => Err(error(ErrorKind::NotDirectory, path)),
            None => self.put(path, Content::Directory),
        }
    }

    /// Moves `from` with all below it to `to`, over a file that is there. Keeps modification times.
    ///
    /// # Errors
    /// `NotFound` where there is no `from` or no parent of `to`; `IsDirectory` where `to` is a directory.
    pub fn rename(&self, from: &SourcePath, to: &SourcePath) -> Result<()> {
        let mut tree = self.tree.lock();
        if !tree.nodes.contains_key(from) {
            return Err(error(ErrorKind::NotFound, from));
        }
        check_parent(&tree, to)?;
        if let Some(Content::Directory) = tree.nodes.get(to).map(|node| &node.content) {
            return Err(error(ErrorKind::IsDirectory, to));
        }
        for path in below(&tree, from) {
            let Some(node) = tree.nodes.remove(&path) else {
                continue;
            };
            let mut moved = to.clone();
            let rest = &path.as_bytes()[from.as_bytes().len()..];
            for name in rest.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
                moved = moved.join(name)?;
            }
            tree.nodes.insert(moved, node);
        }
        Ok(())
    }

    /// Deletes `path` with all below it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete(&self, path: &SourcePath) -> Result<()> {
        let mut tree = self.tree.lock();
        let paths = below(&tree, path);
        if paths.is_empty() {
            return Err(error(ErrorKind::NotFound, path));
        }
        for path in paths {
            tree.nodes.remove(&path);
        }
        Ok(())
    }

    /// Sets permission bits; a mode without any read bit makes the source answer `Denied`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn chmod(&self, path: &SourcePath, mode: u16) -> Result<()> {
        match self.tree.lock().nodes.get_mut(path) {
            Some(node) => {
                node.mode = mode & 0o1777;
                Ok(())
            }
            None => Err(error(ErrorKind::NotFound, path)),
        }
    }

    /// The file's bytes now.
    ///
    /// # Errors
    /// `NotFound` or `IsDirectory`.
    pub fn bytes(&self, path: &SourcePath) -> Result<Bytes> {
        match self.tree.lock().nodes.get(path).map(|node| &node.content) {
            Some(Content::File(bytes)) => Ok(bytes.clone()),
            Some(Content::Directory) => Err(error(ErrorKind::IsDirectory, path)),
            _ => Err(error(ErrorKind::NotFound, path)),
        }
    }

    fn kind(&self, path: &SourcePath) -> Option<FileKind> {
        let tree = self.tree.lock();
        Some(tree.nodes.get(path)?.status().kind)
    }

    fn put(&self, path: &SourcePath, content: Content) -> Result<()> {
        let mut tree = self.tree.lock();
        check_parent(&tree, path)?;
        let mode = match tree.nodes.get(path) {
            Some(node) if matches!(node.content, Content::Directory) => {
                return Err(error(ErrorKind::IsDirectory, path));
            }
            Some(node) => node.mode,
            None if matches!(content, Content::Directory) => 0o755,
            None => 0o644,
        };
        tree.clock_ms += 1;
        let mtime_ms = tree.clock_ms;
        let node = Node {
            content,
            mtime_ms,
            mode,
        };
        tree.nodes.insert(path.clone(), node);
        if let Some(parent) = tree.nodes.get_mut(&path.parent()) {
            parent.mtime_ms = mtime_ms;
        }
        Ok(())
    }
}

impl Tree {
    fn node(&self, path: &SourcePath) -> Result<&Node> {
        if let Some(node) = self.nodes.get(path) {
            return Ok(node);
        }
        let mut parent = path.parent();
        while !self.nodes.contains_key(&parent) {
            parent = parent.parent();
        }
        match self.nodes.get(&parent).map(|node| &node.content) {
            Some(Content::Directory) | None => Err(error(ErrorKind::NotFound, path)),
            Some(_) => Err(error(ErrorKind::NotDirectory, path)),
        }
    }

    fn readable(&self, path: &SourcePath) -> Result<&Node> {
        let node = self.node(path)?;
        if node.mode & 0o444 == 0 {
            return Err(error(ErrorKind::Denied, path));
        }
        Ok(node)
    }

    /// The bytes of `version` if the file is still that.
    fn version(&self, source: &SourceId, version: &FileVersion) -> Result<Bytes> {
        let node = self.readable(version.path())?;
        match &node.content {
            Content::Directory => Err(error(ErrorKind::IsDirectory, version.path())),
            Content::File(bytes) if node.status().version(source, version.path()) == *version => {
                Ok(bytes.clone())
            }
            _ => Err(error(ErrorKind::Changed, version.path())),
        }
    }
}

fn check_parent(tree: &Tree, path: &SourcePath) -> Result<()> {
    if path.is_root() {
        return Err(error(ErrorKind::IsDirectory, path));
    }
    match tree.node(&path.parent())?.content {
        Content::Directory => Ok(()),
        _ => Err(error(ErrorKind::NotDirectory, path)),
    }
}

/// `path` and all below it.
fn below(tree: &Tree, path: &SourcePath) -> Vec<SourcePath> {
    let mut prefix = path.as_bytes().to_vec();
    if !path.is_root() {
        prefix.push(b'/');
    }
    let inside = |other: &&SourcePath| *other == path || other.as_bytes().starts_with(&prefix);
    tree.nodes.keys().filter(inside).cloned().collect()
}

fn error(kind: ErrorKind, path: &SourcePath) -> Error {
    Error::new(kind, format!("{path}: {kind:?}"))
}

#[async_trait]
impl Source for MemorySource {
    fn id(&self) -> &SourceId {
        &self.id
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        Ok(self.tree.lock().node(path)?.status())
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let tree = self.tree.lock();
        if !matches!(tree.readable(path)?.content, Content::Directory) {
            return Err(error(ErrorKind::NotDirectory, path));
        }
        let entries = tree
            .nodes
            .iter()
            .filter(|(other, _)| !other.is_root() && other.parent() == *path)
            .map(|(other, node)| Entry {
                name: Arc::from(other.name()),
                status: node.status(),
            });
        Ok(Listing::new(entries.collect()))
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        super::check_source(&self.id, version)?;
        self.tree.lock().version(&self.id, version)?;
        Ok(Arc::new(MemoryFile {
            source: self.clone(),
            version: version.clone(),
        }))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        match &self.tree.lock().node(path)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(error(ErrorKind::Invalid, path)),
        }
    }
}

/// An open file that loses its bytes when they are replaced, as in HDFS.
#[derive(Debug)]
struct MemoryFile {
    source: MemorySource,
    version: FileVersion,
}

#[async_trait]
impl OpenFile for MemoryFile {
    fn version(&self) -> &FileVersion {
        &self.version
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        super::check_range(&self.version, range)?;
        let tree = self.source.tree.lock();
        let bytes = match tree.version(&self.source.id, &self.version) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(
                ErrorKind::Changed,
                format!("{} has been deleted", self.version),
            )),
            other => other,
        }?;
        // Both fit: the range lies inside of bytes that are in memory.
        Ok(bytes.slice(range.start() as usize..range.end() as usize))
    }
}
