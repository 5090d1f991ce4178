//! What is where in one source: statuses and listings, each with the time it was asked for.
//!
//! All mounts of one source share one [`Namespace`]. It never decides by itself that an answer is too old: callers
//! pass the age they accept, since mounts have different `ttl`s. A directory is revalidated by listing it again, never
//! by its modification time, which append and chmod below it leave unchanged.
//!
//! `ask.rs` asks the source, `answers.rs` keeps the answers of all sources, `names.rs` knows when a listing is cheaper than statuses, `rate.rs` beside
//! this module bounds the requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::rate::Rate;
use crate::shared_call::SharedCalls;
use crate::source::{FileStatus, Listing, Source};
use crate::stats::{Counter, NamespaceStats};
use crate::version::SourcePath;

mod answers;
mod ask;
mod names;

pub use answers::NamespaceMemory;
use answers::{Key, Owner};
use names::NamesOfDirectory;

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
    rate: Arc<Rate>,
    memory: Arc<NamespaceMemory>,
    owner: Arc<Owner>,
    /// Calls that ran into their deadline, and when they ended.
    silent: Cache<SourcePath, Known<Error>>,
    status_calls: SharedCalls<SourcePath, Known<Option<FileStatus>>>,
    list_calls: SharedCalls<SourcePath, Known<Arc<Listing>>>,
    /// Listings in place of statuses; `None`: the directory is too large for that.
    short_list_calls: SharedCalls<SourcePath, Option<Known<Arc<Listing>>>>,
    hits_by_listing: Counter,
    listings_for_names: Counter,
}

/// Paths of which it is remembered that the source did not answer.
const SILENT_MAX: u64 = 10_000;

impl Drop for Namespace {
    fn drop(&mut self) {
        self.memory.clear(&self.owner);
    }
}

impl Namespace {
    /// A namespace with a memory of its own, that may ask as often as it likes.
    pub fn new(source: Arc<dyn Source>, memory_bytes: u64, clock: Clock) -> Namespace {
        Namespace::sharing(
            source,
            NamespaceMemory::new(memory_bytes),
            Rate::unlimited(),
            clock,
        )
    }

    /// A namespace whose answers lie in `memory` beside those of other sources, and whose requests `rate` bounds.
    pub fn sharing(
        source: Arc<dyn Source>,
        memory: Arc<NamespaceMemory>,
        rate: Rate,
        clock: Clock,
    ) -> Namespace {
        Namespace {
            source,
            clock,
            rate: Arc::new(rate),
            owner: memory.new_owner(),
            memory,
            silent: Cache::new(SILENT_MAX),
            status_calls: SharedCalls::default(),
            list_calls: SharedCalls::default(),
            short_list_calls: SharedCalls::default(),
            hits_by_listing: Counter::default(),
            listings_for_names: Counter::default(),
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

    /// What it has done and holds.
    pub fn stats(&self) -> NamespaceStats {
        self.memory.settle();
        NamespaceStats {
            statuses: self.owner.statuses.stats(),
            absent: self.owner.absent.stats(),
            listings: self.owner.listings.stats(),
            hits_by_listing: self.hits_by_listing.get(),
            listings_for_names: self.listings_for_names.get(),
            rate: self.rate.stats(),
        }
    }

    /// What is known of `path` and young enough: the newest of its own status, its own absence and its parent's listing.
    /// Inner `None`: nothing is there. Never waits.
    pub fn known_status(&self, path: &SourcePath, max_age: MaxAge) -> Option<Known<Option<FileStatus>>> {
        if !path.is_root() {
            let names = self.names_of(&path.parent());
            names.note(path.name(), self.now(), max_age.positive);
        }
        let (own, listed) = (self.own_status(path), self.listed_status(path));
        let is_listed = match (&own, &listed) {
            (Some(own), Some(listed)) => listed.asked > own.asked,
            (own, _) => own.is_none(),
        };
        let known = if is_listed { listed } else { own };
        // Age comes last: an older answer is not believed again because the newer one, that nothing is there, ages faster.
        let known = known.filter(|known| self.is_young(known, max_age))?;
        if known.value.is_some() {
            self.owner.statuses.hits.add(1);
        } else {
            self.owner.absent.hits.add(1);
        }
        self.hits_by_listing.add(u64::from(is_listed));
        Some(known)
    }

    /// What is at `path`, asked of the source unless a young enough answer is known. Inner `None`: nothing is there.
    ///
    /// Where many names of a directory are looked up, all of it is listed instead; see `namespace/names.rs`.
    ///
    /// # Errors
    /// As [`Source::status`], but for `NotFound`; `TimedOut` too where the bound on requests is spent.
    pub async fn find(&self, path: &SourcePath, max_age: MaxAge) -> Result<Known<Option<FileStatus>>> {
        if let Some(known) = self.known_status(path, max_age) {
            return Ok(known);
        }
        self.owner.statuses.misses.add(1);
        self.check_silence(path)?;
        let begun = self.now();
        if let Some(known) = self.find_by_listing(path, max_age, begun).await? {
            return Ok(known);
        }
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
        let known = self.memory.listings.get(&self.key(path))?;
        let is_young = self.age(known.asked) < max_age;
        self.owner.listings.hits.add(u64::from(is_young));
        is_young.then_some(known)
    }

    /// The listing of the directory `path`, asked of the source unless a young enough one is known.
    ///
    /// # Errors
    /// As [`Source::list`]; `TimedOut` too where the bound on requests is spent.
    pub async fn list(&self, path: &SourcePath, max_age: Duration) -> Result<Known<Arc<Listing>>> {
        if let Some(known) = self.known_listing(path, max_age) {
            return Ok(known);
        }
        self.owner.listings.misses.add(1);
        self.check_silence(path)?;
        let begun = self.now();
        let known = self.ask_listing(path).await?;
        // As in `find`.
        if begun.saturating_duration_since(known.asked) > max_age {
            return self.ask_listing(path).await;
        }
        Ok(known)
    }

    /// Drops what is known of `path` and of the directory it is in: the next question goes to the source.
    pub fn forget(&self, path: &SourcePath) {
        self.silent.invalidate(path);
        self.forget_status(path);
        self.memory.listings.invalidate(&self.key(path));
        self.memory.listings.invalidate(&self.key(&path.parent()));
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.silent.invalidate_all();
        self.memory.clear(&self.owner);
    }

    fn key(&self, path: &SourcePath) -> Key {
        NamespaceMemory::key(&self.owner, path)
    }

    fn names_of(&self, directory: &SourcePath) -> Arc<NamesOfDirectory> {
        self.memory
            .directories
            .get_with(self.key(directory), Arc::default)
    }

    fn forget_status(&self, path: &SourcePath) {
        self.memory.statuses.invalidate(&self.key(path));
        self.memory.absent.invalidate(&self.key(path));
    }

    /// The newer of what was answered about `path` itself: that something is there, or that nothing is.
    fn own_status(&self, path: &SourcePath) -> Option<Known<Option<FileStatus>>> {
        let key = self.key(path);
        let absent = self.memory.absent.get(&key);
        match self.memory.statuses.get(&key) {
            Some(Known { value, asked }) if absent.is_none_or(|absent| absent <= asked) => Some(Known {
                value: Some(value),
                asked,
            }),
            _ => absent.map(|asked| Known { value: None, asked }),
        }
    }

    fn listed_status(&self, path: &SourcePath) -> Option<Known<Option<FileStatus>>> {
        if path.is_root() {
            return None;
        }
        let listing = self.memory.listings.get(&self.key(&path.parent()))?;
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
