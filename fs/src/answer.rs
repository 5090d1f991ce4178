//! How the filesystem answers: at once on the thread that asks, or later from a task.

use std::future::Future;

use futures::FutureExt;
use futures::future::BoxFuture;
use lookupfs_cache::error::Result;

/// An answer to the kernel. What is in memory is answered [`Answer::Now`]: handing a hit to another thread costs
/// several times the hit itself. What needs the source is answered [`Answer::Later`], and never blocks an event loop.
#[must_use]
pub enum Answer<T> {
    /// The answer.
    Now(Result<T>),
    /// Where the answer will come from.
    Later(BoxFuture<'static, Result<T>>),
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Answer::Now(Ok(_)) => "Now(Ok)",
            Answer::Now(Err(_)) => "Now(Err)",
            Answer::Later(_) => "Later",
        })
    }
}

impl<T> Answer<T> {
    /// An answer that needs the source.
    pub fn later(future: impl Future<Output = Result<T>> + Send + 'static) -> Answer<T> {
        Answer::Later(future.boxed())
    }
}

impl<T: Send> Answer<T> {
    /// Waits for the answer; for tests and for what runs on tasks anyway.
    ///
    /// # Errors
    /// The answer's own.
    pub async fn wait(self) -> Result<T> {
        match self {
            Answer::Now(result) => result,
            Answer::Later(future) => future.await,
        }
    }
}
