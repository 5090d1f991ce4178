//! Many callers, one request: equal metadata requests under way at the same time are sent once.
//!
//! Used by [`crate::namespace`]. Pages have their own single flight, which works per extent.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use crate::error::Result;

type Call<T> = BoxFuture<'static, Result<T>>;
type Calls<K, T> = Mutex<HashMap<K, WeakShared<Call<T>>>>;

/// Requests under way, by key. The map holds weak references: when the last caller goes away the request is dropped
/// with it, and the next caller sends a new one.
pub(crate) struct SharedCalls<K, T: Clone>(Arc<Calls<K, T>>);

impl<K, T: Clone> Debug for SharedCalls<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedCalls({} under way)", self.0.lock().len())
    }
}

impl<K, T: Clone> Default for SharedCalls<K, T> {
    fn default() -> Self {
        SharedCalls(Arc::new(Mutex::new(HashMap::new())))
    }
}

/// Removes the key when the request has ended, or was dropped half-way.
struct Slot<K: Hash + Eq, T: Clone> {
    calls: Arc<Calls<K, T>>,
    key: K,
}

impl<K: Hash + Eq, T: Clone> Drop for Slot<K, T> {
    fn drop(&mut self) {
        // This may remove the slot of a newer request for the same key, which then is merely not joined any more.
        self.calls.lock().remove(&self.key);
    }
}

impl<K, T> SharedCalls<K, T>
where
    K: Hash + Eq + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the request for `key` that is under way, or starts `call`.
    pub(crate) fn join<F>(&self, key: &K, call: impl FnOnce() -> F) -> Shared<Call<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut calls = self.0.lock();
        if let Some(running) = calls.get(key).and_then(WeakShared::upgrade) {
            return running;
        }
        let slot = Slot {
            calls: self.0.clone(),
            key: key.clone(),
        };
        let call = call();
        let shared = async move {
            let result = call.await;
            drop(slot);
            result
        }
        .boxed()
        .shared();
        if let Some(weak) = shared.downgrade() {
            calls.insert(key.clone(), weak);
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn callers_at_the_same_time_share_one_request_and_later_ones_do_not() {
        let calls = SharedCalls::<&str, u64>::default();
        let sent = Arc::new(AtomicU64::new(0));
        let start = |sent: &Arc<AtomicU64>| {
            let sent = sent.clone();
            move || async move {
                tokio::task::yield_now().await;
                Ok(sent.fetch_add(1, Ordering::Relaxed))
            }
        };
        let (a, b) = (calls.join(&"k", start(&sent)), calls.join(&"k", start(&sent)));
        assert_eq!((a.await.unwrap(), b.await.unwrap()), (0, 0));
        assert_eq!(calls.join(&"k", start(&sent)).await.unwrap(), 1);
        assert!(calls.0.lock().is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_takes_nobody_with_it() {
        let calls = SharedCalls::<&str, u64>::default();
        let start = || async {
            tokio::task::yield_now().await;
            Ok(7)
        };
        let (gone, stays) = (calls.join(&"k", start), calls.join(&"k", start));
        drop(gone);
        assert_eq!(stays.await.unwrap(), 7);
        drop(calls.join(&"k", start));
        assert!(
            calls.0.lock().is_empty(),
            "a request dropped by all its callers leaves no slot"
        );
    }
}
