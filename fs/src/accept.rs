//! Accepting connections without end and without excess: so many at once, and a pause where none can be had.
//!
//! Owns the bound and the pause. Refuses to know what is said on a connection. Called by [`crate::daemon`] for the
//! control socket and for metrics.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use lookupfs_cache::log_limit::LogLimit;

/// After a failure to accept. Without descriptors (`EMFILE`) the connection stays in the backlog, and the next try would
/// fail at once: a loop without a pause would burn a processor.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that connections come from.
pub trait Listen: Send + 'static {
    /// One connection.
    type Stream: Send + 'static;

    /// The next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves every connection with `serve` in a task of its own, `connections_max` at once; more of them wait in the
/// socket's backlog, so that each `serve` must end in a bounded time. Never returns.
pub async fn accept_all<L, F>(
    listener: L,
    what: &'static str,
    connections_max: usize,
    serve: impl Fn(L::Stream) -> F,
) where
    L: Listen,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(connections_max));
    let log_limit = LogLimit::default();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return; // Nobody closes it.
        };
        match listener.next().await {
            Ok(stream) => {
                let serving = serve(stream);
                tokio::spawn(async move {
                    if let Err(error) = serving.await {
                        tracing::debug!(%error, what, "a connection ended early");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                if let Some(held_back) = log_limit.admit(Instant::now()) {
                    tracing::warn!(%error, what, held_back, "no connection can be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    /// Fails so often, then gives connections (which are numbers).
    struct Failing {
        failures_left: AtomicUsize,
        asked: Arc<AtomicUsize>,
    }

    impl Listen for Failing {
        type Stream = usize;

        async fn next(&self) -> io::Result<usize> {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst);
            let spend = |left: usize| left.checked_sub(1);
            match self
                .failures_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend)
            {
                Ok(_) => Err(io::Error::from_raw_os_error(24)),
                Err(_) => Ok(asked),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_descriptors_it_pauses_and_goes_on() {
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = Failing {
            failures_left: AtomicUsize::new(10),
            asked: asked.clone(),
        };
        let (served, mut is_served) = mpsc::channel(1);
        let begun = tokio::time::Instant::now();
        tokio::spawn(accept_all(listener, "test", 1, move |number| {
            let served = served.clone();
            async move {
                let _ = served.send(number).await;
                Ok(())
            }
        }));
        assert_eq!(is_served.recv().await, Some(10), "the eleventh try");
        assert_eq!(begun.elapsed(), PAUSE * 10, "ten pauses on the test's own clock");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_connections_than_allowed_are_taken() {
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = Failing {
            failures_left: AtomicUsize::new(0),
            asked: asked.clone(),
        };
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        tokio::spawn(accept_all(listener, "test", 3, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        }));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(served.load(Ordering::SeqCst), 3);
        assert_eq!(asked.load(Ordering::SeqCst), 3, "the rest stays in the backlog");
    }
}
