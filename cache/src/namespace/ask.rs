//! How a namespace asks its source: each question once at a time, in its turn, and not again while the source is silent.
//!
//! A call may outlive the caller that began it, so it owns what it needs. Called by `namespace.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::names::{ENTRIES_MAX, ENTRIES_PER_REQUEST};
use super::{Known, MaxAge, Namespace};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::rate::Rate;
use crate::source::{FileStatus, Listing, Source};
use crate::version::SourcePath;

/// How long a source that did not answer for a path is not asked for it again. The kernel asks twice in one system call,
/// and each time would take the whole deadline.
const SILENCE: Duration = Duration::from_secs(1);

impl Namespace {
    pub(super) async fn ask_listing(&self, path: &SourcePath) -> Result<Known<Arc<Listing>>> {
        let (source, rate, clock, owned) = self.for_call(path);
        let call = self.list_calls.join(path, || async move {
            rate.turn(|| format!("listing of {owned}")).await?;
            let asked = clock.now();
            let listing = source.list(&owned).await?;
            Ok(listed(&owned, &rate, listing, asked))
        });
        match call.await {
            Ok(known) => {
                self.keep_listing(path, &known);
                Ok(known)
            }
            Err(error) => {
                self.note_silence(path, &error);
                self.memory.listings.invalidate(&self.key(path));
                if error.kind() == ErrorKind::NotFound {
                    // Who asked first, and when, is not known here: the next question goes to the source.
                    self.forget_status(path);
                }
                Err(error)
            }
        }
    }

    /// The answer for `path` from a new listing of its directory, where that is cheaper than asking for its names one by
    /// one; `None` where it is not, or where the listing does not answer.
    pub(super) async fn find_by_listing(
        &self,
        path: &SourcePath,
        max_age: MaxAge,
        begun: Instant,
    ) -> Result<Option<Known<Option<FileStatus>>>> {
        let parent = path.parent();
        let names = self.names_of(&parent);
        if path.is_root() || !names.call_for_listing(begun, max_age.positive) {
            return Ok(None);
        }
        let listing = self.memory.listings.get(&self.key(&parent));
        // What it has is young: this question is about what it lacks, which gets old sooner.
        if listing.is_some_and(|listing| self.age(listing.asked) < max_age.positive) {
            return Ok(None);
        }
        let most = ENTRIES_MAX.min(self.memory.listing_entries_max());
        let (source, rate, clock, owned) = self.for_call(&parent);
        let call = self.short_list_calls.join(&parent, || async move {
            rate.turn(|| format!("listing of {owned}")).await?;
            let asked = clock.now();
            let listing = source.list_at_most(&owned, most).await?;
            if listing.is_none() {
                rate.charge((most / ENTRIES_PER_REQUEST) as u64);
            }
            Ok(listing.map(|listing| listed(&owned, &rate, listing, asked)))
        });
        let known = match call.await {
            Ok(Some(known)) => known,
            Err(error) if error.kind().is_transient() => {
                self.note_silence(path, &error);
                return Err(error);
            }
            // The directory has gone, and may come again.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(None) | Err(_) => {
                names.give_up();
                return Ok(None);
            }
        };
        self.listings_for_names.add(1);
        self.keep_listing(&parent, &known);
        let answer = Known {
            value: known.value.find(path.name()).map(|entry| entry.status.clone()),
            asked: known.asked,
        };
        let is_young = begun.saturating_duration_since(known.asked) <= max_age.of(&answer);
        Ok(is_young.then_some(answer))
    }

    pub(super) async fn ask_status(&self, path: &SourcePath) -> Result<Known<Option<FileStatus>>> {
        let (source, rate, clock, owned) = self.for_call(path);
        let call = self.status_calls.join(path, || async move {
            rate.turn(|| format!("status of {owned}")).await?;
            let asked = clock.now();
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
        match &known.value {
            Some(status) => {
                let (value, asked) = (status.clone(), known.asked);
                self.memory.insert_status(self.key(path), Known { value, asked });
            }
            None => {
                self.owner.absent.misses.add(1);
                self.memory.insert_absent(self.key(path), known.asked);
            }
        }
        Ok(known)
    }

    /// What a call needs that may outlive its first caller.
    fn for_call(&self, path: &SourcePath) -> (Arc<dyn Source>, Arc<Rate>, Clock, SourcePath) {
        (
            self.source.clone(),
            self.rate.clone(),
            self.clock.clone(),
            path.clone(),
        )
    }

    pub(super) fn keep_listing(&self, path: &SourcePath, known: &Known<Arc<Listing>>) {
        self.names_of(path)
            .note_listing(known.value.entries.len(), known.asked);
        self.memory.insert_listing(self.key(path), known.clone());
    }

    /// The error of a call for `path` that ran into its deadline a moment ago.
    pub(super) fn check_silence(&self, path: &SourcePath) -> Result<()> {
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
}

/// A listing that has come: its further requests are charged, and what it lacks is said.
fn listed(path: &SourcePath, rate: &Rate, listing: Listing, asked: Instant) -> Known<Arc<Listing>> {
    rate.charge((listing.entries.len() / ENTRIES_PER_REQUEST) as u64);
    if listing.skipped > 0 {
        let skipped = listing.skipped;
        tracing::warn!(path = %path, skipped, "left out names that Linux cannot show");
    }
    Known {
        value: Arc::new(listing),
        asked,
    }
}
