//! From missing pages to tasks: who fetches which page, in which extents, and what is fetched along or ahead.
//!
//! Owns the order that keeps a byte from being fetched twice: claim, look again, coalesce, start. Refuses to wait: whoever
//! wants the pages does. Called by `page_cache.rs`.

use std::sync::Arc;

use bytes::Bytes;

use super::{PageCache, key};
use crate::account::Account;
use crate::coalesce::{ExtentRule, extents};
use crate::fetch::{ExtentFetch, Opening};
use crate::flight::{Claim, Lead, Waiter};
use crate::page::{ByteRange, PageIndex, PageKey};
use crate::source::Source;
use crate::version::{FileVersion, VersionId};

/// The longest extent of what a reader has announced: a data page of several MiB is one request.
const ANNOUNCED_EXTENT_BYTES: u64 = 8 << 20;

/// A page that a reader missed.
pub(super) enum Arrival {
    /// It has landed meanwhile.
    Here(Bytes),
    /// It is on its way.
    Coming(Waiter<Bytes>),
}

impl PageCache {
    /// Has every page of `missing` fetched, unless it is on its way already; one arrival for each.
    pub(super) fn claim_missing(self: &Arc<Self>, opening: &Opening, missing: &[u64]) -> Vec<Arrival> {
        if missing.is_empty() {
            return Vec::new();
        }
        let version = opening.version();
        let tail = self.tails.wanted(version, missing);
        let layout = self.tails.layout(version);
        let mut leads = Vec::new();
        let mut taken = Vec::new();
        let mut arrivals = Vec::with_capacity(missing.len());
        for &page in missing {
            let kind = layout.kind_of(self.page_size.range_of(PageIndex(page), version.len()));
            let (arrival, lead) = self.claim(version.id(), page);
            match (&arrival, &lead) {
                (Arrival::Here(_), _) => self.counters.of(kind).hits.add(1),
                (_, Some(_)) => self.counters.of(kind).misses.add(1),
                (_, None) => {
                    self.counters.of(kind).joins.add(1);
                    taken.push(page);
                }
            }
            leads.extend(lead);
            arrivals.push(arrival);
        }
        let mut rule = self.extent_rule;
        if let Some(tail) = tail.filter(|_| !leads.is_empty()) {
            self.counters.tail_reads.add(1);
            rule.max_pages = rule.max_pages.max(self.tail_pages);
            for page in tail.filter(|page| !missing.contains(page) && !self.is_on_disk(version, *page)) {
                match self.claim(version.id(), page) {
                    (_, Some(lead)) => leads.push(lead),
                    (Arrival::Coming(_), None) => taken.push(page),
                    (Arrival::Here(_), None) => {}
                }
            }
            leads.sort_by_key(|lead| lead.key().index);
            taken.sort_unstable();
        }
        self.fetch(opening, leads, &taken, rule);
        arrivals
    }

    /// Leads the fetch of a page, or joins it, or finds that it has landed since it was missed.
    pub(super) fn claim(&self, version: VersionId, page: u64) -> (Arrival, Option<Lead<PageKey, Bytes>>) {
        let key = key(version, page);
        match self.flights.claim(key) {
            Claim::Join(waiter) => (Arrival::Coming(waiter), None),
            // A fetch keeps its pages before its slots go, so whoever leads after it finds them here.
            Claim::Lead(lead) => match self.memory.get(&key) {
                Some((bytes, _)) => {
                    lead.land(Ok(bytes.clone()));
                    (Arrival::Here(bytes), None)
                }
                None => (Arrival::Coming(lead.waiter()), Some(lead)),
            },
        }
    }

    /// Starts one task for each extent. `leads`, and the pages that are `taken`, are in ascending order.
    pub(super) fn fetch(
        self: &Arc<Self>,
        opening: &Opening,
        leads: Vec<Lead<PageKey, Bytes>>,
        taken: &[u64],
        rule: ExtentRule,
    ) {
        let file_len = opening.version().len();
        let indexes: Vec<u64> = leads.iter().map(|lead| lead.key().index.0).collect();
        let mut leads = leads.into_iter().peekable();
        for extent in extents(&indexes, taken, rule) {
            let page = self.page_size.bytes();
            let fetch = ExtentFetch {
                opening: opening.clone(),
                range: ByteRange::clamped(extent.start * page, (extent.end - extent.start) * page, file_len),
                leads: std::iter::from_fn(|| leads.next_if(|lead| lead.key().index.0 < extent.end)).collect(),
            };
            self.runtime.spawn(fetch.run(self.clone()));
        }
    }

    /// Starts to fetch what a sequential reader is about to ask for.
    pub(super) fn read_ahead(self: &Arc<Self>, opening: &Opening, ahead: &[ByteRange]) {
        for range in ahead {
            // Those who wait for their bytes come first.
            if self.budget.is_busy() {
                return;
            }
            let version = opening.version();
            let leads: Vec<_> = self
                .page_size
                .pages_of(*range)
                .filter(|page| !self.memory.contains(&key(version.id(), *page)))
                // The kernel reads ahead of those who read what is on disk.
                .filter(|page| !self.is_on_disk(version, *page))
                .filter_map(|page| self.claim(version.id(), page).1)
                .collect();
            let exact = ExtentRule {
                gap_pages: 0,
                ..self.extent_rule
            };
            for lead in &leads {
                let page = self.page_size.range_of(lead.key().index, opening.version().len());
                self.counters.read_ahead_bytes.add(page.len());
            }
            self.fetch(opening, leads, &[], exact);
        }
    }

    /// Starts to fetch what of `range` is neither kept nor on its way, in as few extents as the limits allow: its reader has
    /// said that it is about to read all of it, which the kernel would ask for in pieces. Returns once every page is
    /// claimed, so that the reads that follow join. What does not fit into a quarter of the bytes in flight is not begun.
    pub async fn will_need(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        range: ByteRange,
        account: Option<&Arc<Account>>,
    ) {
        let most = self.budget.limit() / 4;
        let range = ByteRange::clamped(range.start(), range.len().min(most), version.len());
        if range.is_empty() || self.budget.is_busy() {
            return;
        }
        let ahead = self.streams.announce(version.id(), version.len(), range);
        self.load_page_map(version).await;
        let leads: Vec<_> = self
            .page_size
            .pages_of(range)
            .filter(|page| {
                !self.memory.contains(&key(version.id(), *page)) && !self.is_on_disk(version, *page)
            })
            .filter_map(|page| self.claim(version.id(), page).1)
            .collect();
        let whole = ExtentRule {
            gap_pages: 0,
            max_pages: self
                .extent_rule
                .max_pages
                .max(ANNOUNCED_EXTENT_BYTES.min(most) / self.page_size.bytes()),
        };
        let opening = Opening::at(source.clone(), version.clone()).charged_to(account);
        self.fetch(&opening, leads, &[], whole);
        if let Some(ahead) = ahead {
            self.read_ahead(&opening, &ahead);
        }
    }

    /// As [`PageCache::read_ahead`], for a caller that may not even look at so many pages. Without an open file there
    /// is nothing to read from: the next miss opens it.
    pub(super) fn read_ahead_later(
        self: &Arc<Self>,
        version: &FileVersion,
        ahead: Vec<ByteRange>,
        account: Option<&Arc<Account>>,
    ) {
        if let Some(file) = self.handles.get(version.id()) {
            let (cache, opening) = (self.clone(), Opening::open(file).charged_to(account));
            self.runtime
                .spawn(async move { cache.read_ahead(&opening, &ahead) });
        }
    }
}
