//! One extent, from its turn in the byte budget to pages in memory. A task of its own: it outlives the reader that
//! wanted it, and ends within the deadline.
//!
//! Owns nothing; refuses an answer of the wrong length. Called by `page_cache.rs`.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::account::Account;
use crate::budget::Permit;
use crate::disk::NewPage;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::Lead;
use crate::page::{ByteRange, PageKey};
use crate::page_cache::PageCache;
use crate::source::{OpenFile, Source};
use crate::version::FileVersion;

/// How to come by the opened file, and who pays for what is read from it.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    way: Way,
    account: Option<Arc<Account>>,
    /// Whether the disk gets what is fetched from whoever waits for it.
    is_brought: bool,
}

#[derive(Clone, Debug)]
enum Way {
    /// It is open.
    Open(Arc<dyn OpenFile>),
    /// Open it if it is not.
    At(Arc<dyn Source>, Arc<FileVersion>),
}

impl Opening {
    /// The file is open.
    pub(crate) fn open(file: Arc<dyn OpenFile>) -> Opening {
        Opening {
            way: Way::Open(file),
            account: None,
            is_brought: false,
        }
    }

    /// Open it if it is not.
    pub(crate) fn at(source: Arc<dyn Source>, version: Arc<FileVersion>) -> Opening {
        Opening {
            way: Way::At(source, version),
            account: None,
            is_brought: false,
        }
    }

    /// Who pays; without it nobody does.
    pub(crate) fn charged_to(self, account: Option<&Arc<Account>>) -> Opening {
        Opening {
            account: account.cloned(),
            ..self
        }
    }

    /// Whoever waits for the pages brings them to disk; nobody else does.
    pub(crate) fn brought_to_disk(self) -> Opening {
        Opening {
            is_brought: true,
            ..self
        }
    }

    pub(crate) fn version(&self) -> &FileVersion {
        match &self.way {
            Way::Open(file) => file.version(),
            Way::At(_, version) => version,
        }
    }
}

/// The pages of one extent that this fetch owes an answer.
pub(crate) struct ExtentFetch {
    pub(crate) opening: Opening,
    /// Page-aligned but at the end of the file.
    pub(crate) range: ByteRange,
    /// Pages inside `range`, ascending. Pages of `range` that are not among them are a gap, and dropped.
    pub(crate) leads: Vec<Lead<PageKey, Bytes>>,
}

impl ExtentFetch {
    /// Fetches, keeps and hands out the pages. An error reaches those who wait for these pages, and nobody else.
    pub(crate) async fn run(self, cache: Arc<PageCache>) {
        cache.counters.extents.add(1);
        cache.counters.extent_bytes.add(self.range.len());
        match self.fetch(&cache).await {
            Ok((permit, pages)) => {
                if let Some(account) = &self.opening.account {
                    account.charge(self.range.len());
                }
                self.publish(&cache, pages);
                drop(permit);
            }
            Err(error) => {
                cache.counters.failed_extents.add(1);
                for lead in self.leads {
                    lead.land(Err(error.clone()));
                }
            }
        }
    }

    async fn fetch(&self, cache: &PageCache) -> Result<(Permit, Vec<Box<[u8]>>)> {
        let end = Instant::now() + cache.deadline;
        let turn = timeout_at(end, cache.budget.acquire(self.range.len())).await;
        // Nobody's fault but that of too many readers: the file stays open.
        let permit = turn.unwrap_or_else(|_| Err(self.too_late(cache, "had no turn")))?;
        let bytes = timeout_at(end, self.ask(cache)).await;
        let bytes = bytes
            .unwrap_or_else(|_| Err(self.too_late(cache, "were not read")))
            .inspect_err(|error| {
                // The next read opens the file again: its reader may have died, or its version may have gone.
                if error.kind() != ErrorKind::Invalid {
                    cache.handles.close(self.opening.version().id());
                }
            })?;
        Ok((permit, bytes))
    }

    async fn ask(&self, cache: &PageCache) -> Result<Vec<Box<[u8]>>> {
        let file = match &self.opening.way {
            Way::Open(file) => file.clone(),
            Way::At(source, version) => cache.handles.open(source, version).await?,
        };
        let pages = file.read_pages(self.range, cache.page_size).await?;
        let len: u64 = pages.iter().map(|page| page.len() as u64).sum();
        if len != self.range.len() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{}: the source answered {len} bytes for {}..{}",
                    file.version(),
                    self.range.start(),
                    self.range.end(),
                ),
            ));
        }
        Ok(pages)
    }

    fn too_late(&self, cache: &PageCache, what: &str) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            format!(
                "{}: bytes {}..{} {what} within {:?}",
                self.opening.version(),
                self.range.start(),
                self.range.end(),
                cache.deadline
            ),
        )
    }

    /// Keeps each page before it lands, so that a reader that comes after finds one or the other.
    fn publish(self, cache: &PageCache, pages: Vec<Box<[u8]>>) {
        let version = self.opening.version();
        let layout = cache.tails.learn(version, self.range, || pages.concat().into());
        let first = cache.page_size.pages_of(self.range).start;
        let mut leads = self.leads.into_iter().peekable();
        let mut kept = Vec::with_capacity(leads.len());
        for (index, bytes) in (first..).zip(pages) {
            let Some(lead) = leads.next_if(|lead| lead.key().index.0 == index) else {
                continue;
            };
            let kind = layout.kind_of(cache.page_size.range_of(lead.key().index, version.len()));
            let page = cache.memory.insert(*lead.key(), bytes, kind);
            kept.push(NewPage {
                page: index,
                bytes: page.clone(),
                kind,
            });
            lead.land(Ok(page));
        }
        // Only now that readers have their answer.
        if !self.opening.is_brought {
            cache.keep_on_disk(version, kept);
        }
        if let Some(footer) = cache.tails.unread_footer(version)
            && let Some(bytes) = cache.peek(version, footer)
        {
            cache.tails.learn(version, footer, || bytes);
        }
    }
}
