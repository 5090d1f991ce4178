//! On whose behalf bytes are fetched, where several share one cache.
//!
//! Owns two counters and the way to a parent's. An extent is charged to whoever's read led to it: what others find on its
//! way costs them nothing. Called by `fetch.rs`, for the accounts that the filesystem gives with its reads.

use std::sync::Arc;

use crate::stats::Counter;

/// What was fetched for one reader: a file, with its mount as the parent.
#[derive(Debug, Default)]
pub struct Account {
    parent: Option<Arc<Account>>,
    fetched_bytes: Counter,
    extents: Counter,
}

impl Account {
    /// An account of its own, whose extents are `parent`'s too.
    pub fn below(parent: Arc<Account>) -> Account {
        Account {
            parent: Some(parent),
            ..Account::default()
        }
    }

    /// Bytes that a source answered for this account.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.get()
    }

    /// Extents that a source answered for this account.
    pub fn extents(&self) -> u64 {
        self.extents.get()
    }

    /// Charges an extent that has landed.
    pub(crate) fn charge(&self, bytes: u64) {
        let mut next = Some(self);
        while let Some(account) = next {
            account.fetched_bytes.add(bytes);
            account.extents.add(1);
            next = account.parent.as_deref();
        }
    }
}
