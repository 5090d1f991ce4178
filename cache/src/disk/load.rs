//! What an earlier daemon left: found at the start, looked into when it is used.
//!
//! Owns what is believed of it. Refuses to repair: what is not exactly right is deleted, which is a miss, and bytes without
//! an entry are given back. Called by `disk.rs`, `writer.rs` and `verify.rs`; may wait for the disk.

use std::io;
use std::sync::Arc;

use super::Core;
use super::directory::Left;
use super::geometry::{Geometry, Shape};
use super::index::{self, Standing};
use super::unit::Units;
use super::version_file::VersionFiles;
use crate::error::{Error, ErrorKind};
use crate::memory::Kind;
use crate::version::VersionId;

impl Core {
    /// Takes in what an earlier daemon left.
    pub(super) fn take_in(&self, left: &[Left]) {
        {
            let mut index = self.index.lock();
            let room = (index.limits.memory_bytes / index::VERSION_COST / 2) as usize;
            // The oldest first, so that the newest are the last to go.
            let (too_many, kept) = left.split_at(left.len().saturating_sub(room));
            for version in kept {
                index.add_left(version.id, version.bytes);
            }
            drop(index);
            for version in too_many {
                self.remove_files(version.id);
            }
        }
    }

    /// Reads the map of a version that an earlier daemon left. What is not a map of ours is deleted: a miss.
    pub(super) fn make_sure_it_is_loaded(&self, id: VersionId, goes_first: bool) -> io::Result<()> {
        if !matches!(self.index.lock().standing(id), Standing::Left(_)) {
            return Ok(());
        }
        // One at a time: what is taken back as an orphan must not have been written meanwhile.
        let _alone = self.files_lock.lock();
        let Standing::Left(ticket) = self.index.lock().standing(id) else {
            return Ok(());
        };
        match self.read_map(id) {
            // Nothing is left of it, and nothing would ever evict it.
            Ok(Some((_, _, pages))) if pages.is_empty() => {
                self.drop_version_alone(id);
                Err(io::ErrorKind::NotFound.into())
            }
            Ok(Some((shape, files, pages))) => {
                let units = Units::of(Geometry::new(self.page_size), shape, &pages);
                self.index
                    .lock()
                    .load(id, ticket, shape, files, units, goes_first);
                Ok(())
            }
            Ok(None) => {
                self.counters.dropped_versions.add(1);
                self.drop_version_alone(id);
                Err(io::ErrorKind::InvalidData.into())
            }
            Err(error) => {
                self.counters.failed_reads.add(1);
                tracing::warn!(version = %id, %error, "a version on disk cannot be opened; it is dropped");
                self.drop_version_alone(id);
                Err(error)
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "taken apart at once by the only caller")]
    fn read_map(&self, id: VersionId) -> io::Result<Option<(Shape, Arc<VersionFiles>, Vec<(u64, Kind)>)>> {
        let (data, map) = self.directory.open(id)?;
        let Some(files) = VersionFiles::open(data, map, id, self.page_size)? else {
            return Ok(None);
        };
        let mut pages = Vec::new();
        files.load(|page, kind| pages.push((page, kind)))?;
        let shape = files.shape();
        self.take_back_orphans(&files, shape, &pages)?;
        Ok(Some((shape, Arc::new(files), pages)))
    }

    /// Bytes without an entry, as a crash leaves them, take room that is on nobody's account.
    fn take_back_orphans(&self, files: &VersionFiles, shape: Shape, pages: &[(u64, Kind)]) -> io::Result<()> {
        /// What file systems take for their own bookkeeping of a file.
        const SLACK_BYTES: u64 = 64 << 10;
        let geometry = Geometry::new(self.page_size);
        let account: u64 = pages
            .iter()
            .map(|(page, _)| geometry.page_bytes(shape, *page))
            .sum();
        if files.allocated_bytes()? <= account + shape.map_bytes_max() + SLACK_BYTES {
            return Ok(());
        }
        let ends = pages.iter().map(|(page, _)| *page).chain([shape.pages]);
        let mut from = 0;
        for page in ends {
            if page > from {
                files.punch(from..page)?;
            }
            from = page + 1;
        }
        Ok(())
    }

    /// The files of a loaded version whose descriptors were closed.
    pub(super) fn reopen(&self, id: VersionId) -> Option<Arc<VersionFiles>> {
        let opened = self
            .directory
            .open(id)
            .and_then(|(data, map)| VersionFiles::open(data, map, id, self.page_size));
        match opened {
            Ok(Some(files)) => {
                let files = Arc::new(files);
                self.index.lock().keep_open(id, files.clone());
                Some(files)
            }
            Ok(None) | Err(_) => {
                // Somebody deleted or replaced it behind our back.
                self.counters.failed_reads.add(1);
                self.drop_version(id);
                None
            }
        }
    }
}

pub(super) fn unreadable(error: io::Error) -> Error {
    Error::with_cause(
        ErrorKind::Invalid,
        "the directory of the disk tier cannot be read; mend it, or give another cache_dir",
        error,
    )
}
