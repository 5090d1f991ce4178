//! Files that the disk did not let go of: they take room, and nothing in the index stands for them.
//!
//! Owns their count of bytes, bounded by the files there are. Called by `writer.rs` and `evict.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::version::VersionId;

/// How often it is tried again to delete them.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// Versions whose files could not be deleted, with the bytes they take.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    files: HashMap<VersionId, u64>,
    tried: Option<Instant>,
}

impl Stuck {
    /// Files of a version stay on disk, without it: so many bytes, or none any more.
    pub(super) fn note(&mut self, id: VersionId, bytes: u64) {
        match bytes {
            0 => self.files.remove(&id),
            bytes => self.files.insert(id, bytes),
        };
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.files.values().sum()
    }

    /// Those to try again now: somebody may have mended what stood in the way, or deleted them.
    pub(super) fn due(&mut self, now: Instant) -> Vec<VersionId> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let tried = *self.tried.get_or_insert(now);
        if now.saturating_duration_since(tried) < RETRY {
            return Vec::new();
        }
        self.tried = Some(now);
        self.files.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{FileVersion, SourceId, SourcePath};

    #[test]
    fn what_is_stuck_is_tried_again_now_and_then() {
        let path = SourcePath::root().join(b"a").unwrap();
        let id = FileVersion::new(SourceId::new("memory://s"), path, 1, 0, 0).id();
        let (mut stuck, start) = (Stuck::default(), Instant::now());
        assert!(stuck.due(start).is_empty());
        stuck.note(id, 4096);
        assert_eq!(stuck.bytes(), 4096);
        assert!(stuck.due(start).is_empty());
        assert_eq!(stuck.due(start + RETRY), [id]);
        assert!(stuck.due(start + RETRY).is_empty());
        assert_eq!(stuck.due(start + 2 * RETRY), [id]);
        stuck.note(id, 0);
        assert_eq!((stuck.bytes(), stuck.due(start + 4 * RETRY)), (0, Vec::new()));
    }
}
