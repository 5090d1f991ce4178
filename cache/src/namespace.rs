//! What is where in one source: statuses and listings, each with the time it was asked for.
//!
//! All mounts of one source share one [`Namespace`]. It never decides by itself that an answer is too old: callers
//! pass the age they accept, since mounts have different `ttl`s. A directory is revalidated by listing it again, never
//! by its modification time, which append and chmod below it leave unchanged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::shared_call::SharedCalls;
use crate::source::{FileStatus, Listing, Source};
use crate::version::SourcePath;

/// An answer, and when the source was asked. The answer may be as old as that.
#[derive(Clone, Debug)]
pub struct Known<T> {
    /// The answer.
    pub value: T,
    /// When the request was about to be sent.
    pub asked: Instant,
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug)]
pub struct MaxAge {
    /// That something is there, and what.
    pub positive: Duration,
    /// That nothing is there.
    pub negative: Duration,
}

impl MaxAge {
    fn of(&self, known: &Known<Option<FileStatus>>) -> Duration {
        if known.value.is_some() {
            self.positive
        } else {
            self.negative
        }
    }
}

/// Statuses and listings of one source.
#[derive(Debug)]
pub struct Namespace {
    source: Arc<dyn Source>,
    clock: Clock,
    /// `None`: nothing was at this path.
    statuses: Cache<SourcePath, Known<Option<FileStatus>>>,
    listings: Cache<SourcePath, Known<Arc<Listing>>>,
    /// Calls that ran into their deadline, and when they ended.
    silent: Cache<SourcePath, Known<Error>>,
    status_calls: SharedCalls<SourcePath, Known<Option<FileStatus>>>,
    list_calls: SharedCalls<SourcePath, Known<Arc<Listing>>>,
}

/// How long a source that did not answer for a path is not asked for it again. The kernel asks twice in one system call,
/// and each time would take the whole deadline.
const SILENCE: Duration = Duration::from_secs(1);
/// Paths of which that is remembered.
const SILENT_MAX: u64 = 10_000;

/// Rough memory of one status in the cache beside its path, in bytes.
const STATUS_BYTES: usize = 200;

impl Namespace {
    /// Keeps at most `memory_bytes` of statuses and listings, half of it each.
    pub fn new(source: Arc<dyn Source>, memory_bytes: u64, clock: Clock) -> Namespace {
        let weight = |bytes: usize| bytes.min(u32::MAX as usize) as u32;
        Namespace {
            source,
            clock,
            statuses: Cache::builder()
                .max_capacity(memory_bytes / 2)
                .weigher(move |path: &SourcePath, _| weight(STATUS_BYTES + 2 * path.as_bytes().len()))
                .build(),
            listings: Cache::builder()
                .max_capacity(memory_bytes / 2)
                .weigher(move |path: &SourcePath, known: &Known<Arc<Listing>>| {
                    let names: usize = known
                        .value
                        .entries
                        .iter()
                        .map(|e| STATUS_BYTES + e.name.len())
                        .sum();
                    weight(STATUS_BYTES + 2 * path.as_bytes().len() + names)
                })
                .build(),
            silent: Cache::new(SILENT_MAX),
            status_calls: SharedCalls::default(),
            list_calls: SharedCalls::default(),
        }
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The time, as ages are measured.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// What is known of `path` and young enough: the newer of its own status and of its parent's listing. Inner `None`:
    /// nothing is there. Never waits.
    pub fn known_status(&self, path: &SourcePath, max_age: MaxAge) -> Option<Known<Option<FileStatus>>> {
        let known = match (self.statuses.get(path), self.listed_status(path)) {
            (Some(own), Some(listed)) if listed.asked > own.asked => Some(listed),
            (None, listed) => listed,
            (own, _) => own,
        };
        // Age comes last: an older answer is not believed again because the newer one, that nothing is there, ages faster.
        known.filter(|known| self.is_young(known, max_age))
    }

    /// What is at `path`, asked of the source unless a young enough answer is known. Inner `None`: nothing is there.
    ///
    /// # Errors
    /// As [`Source::status`], but for `NotFound`.
    pub async fn find(&self, path: &SourcePath, max_age: MaxAge) -> Result<Known<Option<FileStatus>>> {
        if let Some(known) = self.known_status(path, max_age) {
            return Ok(known);
        }
        self.check_silence(path)?;
        let begun = self.now();
        let known = self.ask_status(path).await?;
        // The request of somebody else may have been under way for longer than an answer may be old. Whatever is asked
        // or joined after that one has ended is young enough.
        if begun.saturating_duration_since(known.asked) > max_age.of(&known) {
            return self.ask_status(path).await;
        }
        Ok(known)
    }

    /// The status of `path`, asked of the source unless a young enough one is known.
    ///
    /// # Errors
    /// `NotFound` where nothing is there, else as [`Source::status`].
    pub async fn status(&self, path: &SourcePath, max_age: MaxAge) -> Result<Known<FileStatus>> {
        let known = self.find(path, max_age).await?;
        match known.value {
            Some(status) => Ok(Known {
                value: status,
                asked: known.asked,
            }),
            None => Err(Error::new(
                ErrorKind::NotFound,
                format!("{path}: nothing is there"),
            )),
        }
    }

    /// The listing of the directory `path`, if a young enough one is known. Never waits.
    pub fn known_listing(&self, path: &SourcePath, max_age: Duration) -> Option<Known<Arc<Listing>>> {
        let known = self.listings.get(path)?;
        (self.age(known.asked) < max_age).then_some(known)
    }

    /// The listing of the directory `path`, asked of the source unless a young enough one is known.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn list(&self, path: &SourcePath, max_age: Duration) -> Result<Known<Arc<Listing>>> {
        if let Some(known) = self.known_listing(path, max_age) {
            return Ok(known);
        }
        self.check_silence(path)?;
        let begun = self.now();
        let known = self.ask_listing(path).await?;
        // As in `find`.
        if begun.saturating_duration_since(known.asked) > max_age {
            return self.ask_listing(path).await;
        }
        Ok(known)
    }

    async fn ask_listing(&self, path: &SourcePath) -> Result<Known<Arc<Listing>>> {
        let (source, asked, owned) = (self.source.clone(), self.now(), path.clone());
        let call = self.list_calls.join(path, || async move {
            let listing = source.list(&owned).await?;
            if listing.skipped > 0 {
                let skipped = listing.skipped;
                tracing::warn!(path = %owned, skipped, "left out names that Linux cannot show");
            }
            Ok(Known {
                value: Arc::new(listing),
                asked,
            })
        });
        match call.await {
            Ok(known) => {
                self.listings.insert(path.clone(), known.clone());
                Ok(known)
            }
            Err(error) => {
                self.note_silence(path, &error);
                self.listings.invalidate(path);
                if error.kind() == ErrorKind::NotFound {
                    // Who asked first, and when, is not known here: the next question goes to the source.
                    self.statuses.invalidate(path);
                }
                Err(error)
            }
        }
    }

    /// Drops what is known of `path` and of the directory it is in: the next question goes to the source.
    pub fn forget(&self, path: &SourcePath) {
        self.silent.invalidate(path);
        self.statuses.invalidate(path);
        self.listings.invalidate(path);
        self.listings.invalidate(&path.parent());
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.silent.invalidate_all();
        self.statuses.invalidate_all();
        self.listings.invalidate_all();
    }

    async fn ask_status(&self, path: &SourcePath) -> Result<Known<Option<FileStatus>>> {
        let (source, asked, owned) = (self.source.clone(), self.now(), path.clone());
        let call = self.status_calls.join(path, || async move {
            match source.status(&owned).await {
                Ok(status) => Ok(Known {
                    value: Some(status),
                    asked,
                }),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Known { value: None, asked }),
                Err(error) => Err(error),
            }
        });
        let known = call.await.inspect_err(|error| self.note_silence(path, error))?;
        self.statuses.insert(path.clone(), known.clone());
        Ok(known)
    }

    /// The error of a call for `path` that ran into its deadline a moment ago.
    fn check_silence(&self, path: &SourcePath) -> Result<()> {
        match self.silent.get(path) {
            Some(known) if self.age(known.asked) < SILENCE => Err(known.value),
            _ => Ok(()),
        }
    }

    fn note_silence(&self, path: &SourcePath, error: &Error) {
        if error.kind() == ErrorKind::TimedOut {
            let known = Known {
                value: error.clone(),
                asked: self.now(),
            };
            self.silent.insert(path.clone(), known);
        }
    }

    fn listed_status(&self, path: &SourcePath) -> Option<Known<Option<FileStatus>>> {
        if path.is_root() {
            return None;
        }
        let listing = self.listings.get(&path.parent())?;
        let status = listing.value.find(path.name()).map(|entry| entry.status.clone());
        Some(Known {
            value: status,
            asked: listing.asked,
        })
    }

    fn is_young(&self, known: &Known<Option<FileStatus>>, max_age: MaxAge) -> bool {
        self.age(known.asked) < max_age.of(known)
    }

    fn age(&self, asked: Instant) -> Duration {
        self.now().saturating_duration_since(asked)
    }
}
