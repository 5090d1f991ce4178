//! Files that the disk did not let go of: they take room, and nothing in the index stands for them.
//!
//! Owns their count of bytes, bounded by the files there are. Called by `writer.rs` and `evict.rs`.

use std::collections::HashMap;

use crate::version::VersionId;

/// Versions whose files could not be deleted, with the bytes they take.
#[derive(Debug, Default)]
pub(super) struct Stuck(HashMap<VersionId, u64>);

impl Stuck {
    /// Files of a version stay on disk, without it: so many bytes, or none any more.
    pub(super) fn note(&mut self, id: VersionId, bytes: u64) {
        match bytes {
            0 => self.0.remove(&id),
            bytes => self.0.insert(id, bytes),
        };
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.0.values().sum()
    }
}
