//! Inode numbers of one mount: which version or directory each one stands for, and how often the kernel holds it.
//!
//! A file's number is a hash of its version, a directory's of its path: the same on every mount and after a restart.
//! One number never stands for two things: a collision is an error, seen when the second one is entered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lookupfs_cache::account::Account;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::namespace::Known;
use lookupfs_cache::source::{FileKind, FileStatus};
use lookupfs_cache::version::{FileVersion, SourceId, SourcePath, VersionId, directory_id};
use parking_lot::{Mutex, RwLock};

use crate::file_usage::Usage;

/// The kernel's number for the root of a mount.
pub const ROOT: u64 = 1;

/// Locks that the table is split into, so that event-loop threads seldom meet.
const SHARDS: usize = 16;

/// What an inode number stands for.
#[derive(Debug)]
pub struct Inode {
    /// The number.
    pub number: u64,
    /// The 128 bits that the number was made of.
    pub id: VersionId,
    /// The version, for a regular file.
    pub version: Option<Arc<FileVersion>>,
    /// Where it was looked up.
    pub path: SourcePath,
    /// What was last learned of it: of *this* version; a newer one has another inode.
    known: Mutex<Known<FileStatus>>,
    /// What was read of it, once something was.
    usage: OnceLock<Usage>,
}

impl Inode {
    /// What was last learned of it.
    pub fn known(&self) -> Known<FileStatus> {
        self.known.lock().clone()
    }

    /// What was read of it so far.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.get()
    }

    /// Where a read of it is counted, on the mount whose account `mount` is.
    pub fn usage_on(&self, mount: &Arc<Account>) -> &Usage {
        self.usage.get_or_init(|| Usage::new(mount))
    }

    /// Notes a newer answer of the source about the same version.
    pub fn learn(&self, status: FileStatus, asked: Instant) {
        let mut known = self.known.lock();
        if known.asked <= asked {
            *known = Known { value: status, asked };
        }
    }
}

struct Held {
    inode: Arc<Inode>,
    /// How many answers carried the number and were not yet forgotten by the kernel.
    lookups: u64,
}

/// The inodes that the kernel holds on one mount.
pub struct Inodes {
    source: SourceId,
    root: Arc<Inode>,
    shards: [RwLock<HashMap<u64, Held>>; SHARDS],
}

impl std::fmt::Debug for Inodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inodes({} below {})", self.len(), self.source)
    }
}

impl Inodes {
    /// A table that holds the root directory only.
    pub fn new(source: SourceId, root: SourcePath, status: Known<FileStatus>) -> Inodes {
        let id = directory_id(&source, &root);
        let root = Inode {
            number: ROOT,
            id,
            version: None,
            path: root,
            known: Mutex::new(status),
            usage: OnceLock::new(),
        };
        Inodes {
            source,
            root: Arc::new(root),
            shards: Default::default(),
        }
    }

    /// Numbers held beside the root.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Whether the kernel holds nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What `number` stands for.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        if number == ROOT {
            return Some(self.root.clone());
        }
        self.shard(number)
            .read()
            .get(&number)
            .map(|held| held.inode.clone())
    }

    /// The number that `path` with this status has; enters nothing.
    pub fn number_of(&self, path: &SourcePath, status: &FileStatus) -> u64 {
        if *path == self.root.path {
            return ROOT;
        }
        number(self.identity(path, status).0)
    }

    /// The directory of the source that is the root.
    pub fn root_path(&self) -> &SourcePath {
        &self.root.path
    }

    /// The number of a file's version; enters nothing.
    pub fn version_number(&self, version: &FileVersion) -> u64 {
        number(version.id())
    }

    /// The number of the directory `path`; enters nothing.
    pub fn directory_number(&self, path: &SourcePath) -> u64 {
        if *path == self.root.path {
            ROOT
        } else {
            number(directory_id(&self.source, path))
        }
    }

    /// Enters what the source says of `path`, for an answer that the kernel will hold: one lookup more.
    ///
    /// # Errors
    /// `Unavailable` if the number is taken by something else, which two 64-bit hashes out of 10⁹ hardly ever do.
    pub fn enter(&self, path: &SourcePath, known: Known<FileStatus>) -> Result<Arc<Inode>> {
        let (id, version) = self.identity(path, &known.value);
        let number = number(id);
        let mut shard = self.shard(number).write();
        let held = match shard.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let known = Mutex::new(known.clone());
                let inode = Inode {
                    number,
                    id,
                    version,
                    path: path.clone(),
                    known,
                    usage: OnceLock::new(),
                };
                entry.insert(Held {
                    inode: Arc::new(inode),
                    lookups: 0,
                })
            }
        };
        if held.inode.id != id {
            let other = &held.inode.path;
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{path}: its inode number {number} is in use by {other}; rename one of the two"),
            ));
        }
        held.lookups += 1;
        held.inode.learn(known.value, known.asked);
        Ok(held.inode.clone())
    }

    /// The inodes that the kernel holds now, shard by shard.
    pub fn held(&self) -> impl Iterator<Item = Arc<Inode>> {
        self.shards.iter().flat_map(|shard| {
            let held: Vec<_> = shard.read().values().map(|held| held.inode.clone()).collect();
            held
        })
    }

    /// The kernel gives back `lookups` answers. With the last one it lets go of the inode, which is handed out.
    pub fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Inode>> {
        if number == ROOT {
            return None;
        }
        let mut shard = self.shard(number).write();
        if let Entry::Occupied(mut entry) = shard.entry(number) {
            let held = entry.get_mut();
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                return Some(entry.remove().inode);
            }
        }
        None
    }

    fn identity(&self, path: &SourcePath, status: &FileStatus) -> (VersionId, Option<Arc<FileVersion>>) {
        match status.kind {
            FileKind::Directory => (directory_id(&self.source, path), None),
            FileKind::Symlink => (status.version(&self.source, path).id(), None),
            FileKind::File => {
                let version = status.version(&self.source, path);
                (version.id(), Some(Arc::new(version)))
            }
        }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Held>> {
        // The number is a hash: its low bits are as good as any.
        &self.shards[number as usize % SHARDS]
    }
}

/// 0 means "no entry" to the kernel, and 1 is the root: neither is ever used.
fn number(id: VersionId) -> u64 {
    match id.low_u64() {
        low @ (0 | ROOT) => low + 2,
        low => low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kind: FileKind, len: u64) -> Known<FileStatus> {
        let status = FileStatus {
            kind,
            len,
            mtime_ms: 5,
            tag: 0,
            owner: "o".into(),
            group: "g".into(),
            mode: 0o644,
        };
        Known {
            value: status,
            asked: Instant::now(),
        }
    }

    fn table() -> Inodes {
        Inodes::new(
            SourceId::new("memory://a"),
            SourcePath::root(),
            known(FileKind::Directory, 0),
        )
    }

    fn path(text: &str) -> SourcePath {
        SourcePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_number_lives_as_long_as_the_kernel_holds_it() {
        let inodes = table();
        let number = inodes
            .enter(&path("/f"), known(FileKind::File, 1))
            .unwrap()
            .number;
        inodes.enter(&path("/f"), known(FileKind::File, 1)).unwrap();
        inodes.forget(number, 1);
        assert_eq!(inodes.get(number).unwrap().path, path("/f"));
        inodes.forget(number, 1);
        assert!(inodes.get(number).is_none() && inodes.is_empty());
        inodes.forget(number, 9);
        inodes.forget(ROOT, 9);
        assert_eq!(inodes.get(ROOT).unwrap().path, SourcePath::root());
    }

    #[test]
    fn a_new_version_has_a_new_number_and_a_changed_directory_keeps_its_own() {
        let inodes = table();
        let enter = |name, kind, len| inodes.enter(&path(name), known(kind, len)).unwrap().number;
        assert_ne!(enter("/f", FileKind::File, 1), enter("/f", FileKind::File, 2));
        assert_eq!(
            enter("/d", FileKind::Directory, 1),
            enter("/d", FileKind::Directory, 2)
        );
        assert_eq!(
            inodes.number_of(&path("/f"), &known(FileKind::File, 1).value),
            enter("/f", FileKind::File, 1)
        );
    }

    #[test]
    fn chmod_is_learned_by_the_inode_that_is_there() {
        let inodes = table();
        let first = known(FileKind::File, 1);
        let inode = inodes.enter(&path("/f"), first.clone()).unwrap();
        let mut changed = first.value.clone();
        changed.mode = 0o600;
        inodes
            .enter(
                &path("/f"),
                Known {
                    value: changed,
                    asked: Instant::now(),
                },
            )
            .unwrap();
        assert_eq!(inode.known().value.mode, 0o600);
        inode.learn(first.value.clone(), first.asked);
        assert_eq!(
            inode.known().value.mode,
            0o600,
            "an older answer does not undo a newer one"
        );
    }
}
