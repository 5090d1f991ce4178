//! [`Handles`]: which files of a table are open, so that a large directory does not use up the process's descriptors.
//!
//! Owns the order of last use. Refuses more than [`OPEN_FILES_MAX`]: beyond that, the file that was used longest ago is
//! closed, and opened again when it is asked for. Called by [`super::lookup`].

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

/// Files of a directory whose handles stay open between requests.
pub(super) const OPEN_FILES_MAX: usize = 128;

/// Files by last use.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    clock: u64,
    used_at: HashMap<usize, u64>,
    by_time: BTreeMap<u64, usize>,
}

impl Handles {
    /// Takes note that these files are open and used now; gives those that are to be closed. Files of one call may be more
    /// than the limit: then only the last of them stay.
    pub(super) fn used(&self, files: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut recent = self.0.lock();
        for file in files {
            recent.clock += 1;
            let now = recent.clock;
            if let Some(before) = recent.used_at.insert(file, now) {
                recent.by_time.remove(&before);
            }
            recent.by_time.insert(now, file);
        }
        let mut closed = Vec::new();
        while recent.used_at.len() > OPEN_FILES_MAX
            && let Some((_, file)) = recent.by_time.pop_first()
        {
            recent.used_at.remove(&file);
            closed.push(file);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_used_last_stay_open() {
        let handles = Handles::default();
        assert!(handles.used(0..OPEN_FILES_MAX).is_empty());
        assert!(handles.used([0, 1].into_iter()).is_empty());
        assert_eq!(handles.used([1000, 1001, 1000].into_iter()), [2, 3]);
        let many = handles.used(2000..2000 + OPEN_FILES_MAX + 5);
        assert_eq!(many.len(), OPEN_FILES_MAX + 5);
        assert!(many.contains(&0) && many.contains(&2004) && !many.contains(&2005));
    }
}
