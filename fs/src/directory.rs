//! Open directories: `opendir` pins one listing, so that a long `ls` sees one state of the directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lookupfs_cache::namespace::Known;
use lookupfs_cache::source::{Entry, Listing};
use parking_lot::RwLock;

use crate::inode::Inode;

/// A directory as it was when it was opened.
#[derive(Debug)]
pub struct OpenDirectory {
    /// The directory.
    pub inode: Arc<Inode>,
    /// Its entries, and when the source was asked for them.
    pub listing: Known<Arc<Listing>>,
}

/// A place in an [`OpenDirectory`]: `.` and `..` come first.
#[derive(Debug)]
pub enum Place<'a> {
    /// The directory itself.
    Dot,
    /// Its parent.
    DotDot,
    /// An entry.
    Entry(&'a Entry),
}

impl OpenDirectory {
    /// What stands at `offset`, as the kernel counts from 0; `None` at the end.
    pub fn at(&self, offset: u64) -> Option<Place<'_>> {
        match offset {
            0 => Some(Place::Dot),
            1 => Some(Place::DotDot),
            _ => self
                .listing
                .value
                .entries
                .get(usize::try_from(offset - 2).ok()?)
                .map(Place::Entry),
        }
    }
}

/// The open directories of one mount, by handle.
#[derive(Debug, Default)]
pub struct OpenDirectories {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<OpenDirectory>>>,
}

impl OpenDirectories {
    /// Keeps `directory` until [`OpenDirectories::close`]; the answer is its handle.
    pub fn open(&self, directory: OpenDirectory) -> u64 {
        let handle = self.next.fetch_add(1, Relaxed) + 1;
        self.open.write().insert(handle, Arc::new(directory));
        handle
    }

    /// The directory of a handle.
    pub fn get(&self, handle: u64) -> Option<Arc<OpenDirectory>> {
        self.open.read().get(&handle).cloned()
    }

    /// Lets the listing go.
    pub fn close(&self, handle: u64) {
        self.open.write().remove(&handle);
    }
}
