//! Counters of what the kernel asked of one mount; `lookupfs stats` shows them, and their sum over all mounts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the kernel asked of one mount since it was made. All values are counts, but for `bytes_read`.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        /// The values of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// The values now. They are read one after another, not at one instant.
            pub fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.get(),)* }
            }
        }

        impl CounterValues {
            /// The sums of both.
            #[must_use]
            pub fn plus(&self, other: &CounterValues) -> CounterValues {
                CounterValues { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add_one(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

counters! {
    /// LOOKUP requests.
    lookups,
    /// GETATTR requests.
    getattrs,
    /// OPEN requests; on a mount without messages for opens only the first one shows.
    opens,
    /// OPENDIR requests.
    opendirs,
    /// READDIR and READDIRPLUS requests.
    readdirs,
    /// READ requests.
    reads,
    /// READ requests answered at once, from memory or disk, on the thread that received them.
    reads_at_once,
    /// Bytes that READ requests were answered with.
    bytes_read,
    /// READLINK requests.
    readlinks,
    /// Ioctls: what a version is called, and what is about to be read.
    ioctls,
    /// Requests that would write, answered EROFS.
    refused_writes,
    /// Requests answered with an errno other than "nothing is there" and EROFS.
    errors,
    /// Reads answered ESTALE because the file is no longer the version that was looked up.
    changed,
    /// Handlers that panicked; each was answered EIO. Always worth a bug report.
    panics,
}
