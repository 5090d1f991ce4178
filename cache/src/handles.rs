//! Opened files: one handle a version, opened once for everyone who asks meanwhile.
//!
//! Owns the handles: so many at most, the least recently used closed first, idle ones closed in time. Remembers no
//! failed open. Called by `fetch.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;

use crate::error::{Error, ErrorKind, Result};
use crate::flight::{Claim, Flights};
use crate::source::{OpenFile, Source};
use crate::stats::Counter;
use crate::version::{FileVersion, VersionId};

type Handle = Arc<dyn OpenFile>;

/// Opened files by version.
#[derive(Debug)]
pub(crate) struct Handles {
    open: moka::sync::Cache<VersionId, Handle>,
    opening: Arc<Flights<VersionId, Handle>>,
    opens: Counter,
    deadline: Duration,
    runtime: runtime::Handle,
}

impl Handles {
    pub(crate) fn new(
        max_open_files: u64,
        idle: Duration,
        deadline: Duration,
        runtime: runtime::Handle,
    ) -> Handles {
        Handles {
            open: moka::sync::Cache::builder()
                .max_capacity(max_open_files)
                .eviction_policy(moka::policy::EvictionPolicy::lru())
                .time_to_idle(idle)
                .build(),
            opening: Flights::new(),
            opens: Counter::default(),
            deadline,
            runtime,
        }
    }

    /// The handle, if the version is open.
    pub(crate) fn get(&self, version: VersionId) -> Option<Handle> {
        self.open.get(&version)
    }

    /// The handle; opens the version if need be. The open is a task of its own, ends within the deadline, and serves
    /// everyone who asks meanwhile.
    pub(crate) async fn open(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
    ) -> Result<Handle> {
        if let Some(handle) = self.get(version.id()) {
            return Ok(handle);
        }
        let waiter = match self.opening.claim(version.id()) {
            Claim::Join(waiter) => waiter,
            Claim::Lead(lead) => {
                let waiter = lead.waiter();
                if let Some(handle) = self.get(version.id()) {
                    lead.land(Ok(handle));
                } else {
                    let (handles, source, version) = (self.clone(), source.clone(), version.clone());
                    self.runtime.spawn(async move {
                        let answer = handles.open_at(&source, &version).await;
                        if let Ok(handle) = &answer {
                            handles.open.insert(version.id(), handle.clone());
                        }
                        lead.land(answer);
                    });
                }
                waiter
            }
        };
        waiter.wait().await
    }

    async fn open_at(&self, source: &Arc<dyn Source>, version: &FileVersion) -> Result<Handle> {
        self.opens.add(1);
        match tokio::time::timeout(self.deadline, source.open(version)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(
                ErrorKind::TimedOut,
                format!("{version}: not opened within {:?}", self.deadline),
            )),
        }
    }

    /// Closes the version: the next read opens it again.
    pub(crate) fn close(&self, version: VersionId) {
        self.open.invalidate(&version);
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        self.open.invalidate_all();
        self.open.run_pending_tasks();
    }

    /// Opens made of sources so far.
    pub(crate) fn opens(&self) -> u64 {
        self.opens.get()
    }

    /// Files open now.
    pub(crate) fn len(&self) -> u64 {
        self.open.run_pending_tasks();
        self.open.entry_count()
    }
}
