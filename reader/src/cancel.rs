//! [`CancelToken`]: tells requests that nobody wants their rows any more.
//!
//! Owns one flag. Refuses to interrupt: a request looks at it between its reads, between data pages, and each
//! [`CANCEL_SEEN_WITHIN`] while it waits for a read. Given to [`Table::cancelled_by`](crate::Table::cancelled_by).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a request that waits for a read takes to see that it was cancelled, at most.
pub const CANCEL_SEEN_WITHIN: Duration = Duration::from_millis(20);

/// Cancels the requests that it was given to, from any thread, for good. Cheap to clone; clones are the same token.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Nothing is cancelled yet.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends all requests that have this token with [`ReadError::Cancelled`](crate::ReadError::Cancelled), those to come too.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}
