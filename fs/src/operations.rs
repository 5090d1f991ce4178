//! Operations under way on one mount: how many there are, and which has waited longest.
//!
//! Owns a table of fixed size. What is answered at once never comes here, so that a hit costs nothing. Refuses to know
//! what an operation does. Entered by [`crate::filesystem`], shown by `lookupfs stats`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lookupfs_cache::version::SourcePath;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::file_usage::shown_path;

/// Operations that are remembered by name. The kernel sends 64 at once in the background, and one for each thread that
/// waits; those beyond are counted. The oldest is right as long as there was room for it when it began.
const REMEMBERED_MAX: usize = 1024;

/// The operations of one mount.
#[derive(Debug, Default)]
pub struct Operations(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    places: Vec<Option<Begun>>,
    free: Vec<usize>,
    in_flight: u64,
}

#[derive(Debug)]
struct Begun {
    operation: &'static str,
    path: SourcePath,
    at: Instant,
}

/// An operation under way; it has ended when this is dropped.
#[derive(Debug)]
pub struct Operation {
    table: Arc<Mutex<Table>>,
    /// `None` where there was no room.
    place: Option<usize>,
}

/// The operation that has waited longest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Oldest {
    /// What it is, in FUSE's words.
    pub operation: String,
    /// What it is about, at the source.
    pub path: String,
    /// How long it has waited.
    pub age_s: f64,
}

impl Operations {
    /// An operation begins.
    pub fn begin(&self, operation: &'static str, path: &SourcePath) -> Operation {
        let begun = Begun {
            operation,
            path: path.clone(),
            at: Instant::now(),
        };
        let mut table = self.0.lock();
        table.in_flight += 1;
        let place = match table.free.pop() {
            Some(place) => Some(place),
            None if table.places.len() < REMEMBERED_MAX => {
                table.places.push(None);
                Some(table.places.len() - 1)
            }
            None => None,
        };
        if let Some(place) = place {
            table.places[place] = Some(begun);
        }
        drop(table);
        Operation {
            table: self.0.clone(),
            place,
        }
    }

    /// How many are under way.
    pub fn in_flight(&self) -> u64 {
        self.0.lock().in_flight
    }

    /// The one that has waited longest at `now`.
    pub fn oldest(&self, now: Instant) -> Option<Oldest> {
        let table = self.0.lock();
        let begun = table.places.iter().flatten().min_by_key(|begun| begun.at)?;
        let age: Duration = now.saturating_duration_since(begun.at);
        Some(Oldest {
            operation: begun.operation.to_owned(),
            path: shown_path(&begun.path),
            age_s: age.as_secs_f64(),
        })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.in_flight -= 1;
        if let Some(place) = self.place {
            table.places[place] = None;
            table.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> SourcePath {
        SourcePath::parse(format!("/f{number}").as_bytes()).unwrap()
    }

    #[test]
    fn the_oldest_is_the_one_that_began_first_and_has_not_ended() {
        let operations = Operations::default();
        assert_eq!(operations.oldest(Instant::now()), None);
        let begun = Instant::now();
        let mut under_way: Vec<_> = (0..5).map(|n| operations.begin("read", &path(n))).collect();
        drop(under_way.remove(0));
        let oldest = operations.oldest(begun + Duration::from_secs(100)).unwrap();
        assert_eq!((oldest.operation.as_str(), oldest.path.as_str()), ("read", "/f1"));
        assert!(oldest.age_s <= 100.0, "{oldest:?}");
        assert_eq!(operations.in_flight(), 4);
        under_way.clear();
        assert_eq!((operations.in_flight(), operations.oldest(begun)), (0, None));
    }

    #[test]
    fn more_than_are_remembered_are_counted_and_places_are_used_again() {
        let operations = Operations::default();
        for _ in 0..3 {
            let all: Vec<_> = (0..REMEMBERED_MAX + 500)
                .map(|n| operations.begin("lookup", &path(n)))
                .collect();
            assert_eq!(operations.in_flight(), all.len() as u64);
            assert_eq!(operations.oldest(Instant::now()).unwrap().path, "/f0");
        }
        let table = operations.0.lock();
        assert_eq!((table.in_flight, table.places.len()), (0, REMEMBERED_MAX));
    }
}
