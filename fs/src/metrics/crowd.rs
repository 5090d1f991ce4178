//! Connections whose request has not come yet: so many of them, and no longer than needed where others wait.
//!
//! Owns who makes way: a newcomer that finds no place has the oldest one sent away, once that has had a moment to
//! speak. Clients that stay silent and come again as soon as they are cut off so delay a scraper, which speaks at once,
//! by a fraction of a second. Refuses to know what is said. Called by [`super::http`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Door, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until};

/// How long a connection has its place to itself, however many wait.
const PROTECTED: Duration = Duration::from_millis(250);

/// The places for those who have not spoken yet.
#[derive(Debug)]
pub struct Crowd {
    places: Arc<Semaphore>,
    /// Newcomers enter one by one, in the order in which they came.
    door: Door<()>,
    silent: Mutex<Silent>,
}

#[derive(Debug, Default)]
struct Silent {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    entered: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    since: Instant,
    _stay: oneshot::Sender<()>,
}

/// A place; whoever has spoken drops it.
#[derive(Debug)]
pub struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    is_wanted: oneshot::Receiver<()>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Crowd {
    /// Room for so many.
    pub fn new(places: usize) -> Arc<Crowd> {
        Arc::new(Crowd {
            places: Arc::new(Semaphore::new(places)),
            door: Door::new(()),
            silent: Mutex::default(),
        })
    }

    /// Waits for a place, for which the oldest makes way.
    pub async fn enter(self: &Arc<Self>) -> Place {
        let _first_in_line = self.door.lock().await;
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => Ok(permit),
            Err(_) => {
                let protected_until = self
                    .silent
                    .lock()
                    .waiting
                    .front()
                    .map(|oldest| oldest.since + PROTECTED);
                tokio::select! {
                    permit = self.places.clone().acquire_owned() => permit,
                    () = sleep_until(protected_until.unwrap_or_else(Instant::now)) => {
                        // Its sender goes with it, which it hears.
                        drop(self.silent.lock().waiting.pop_front());
                        self.places.clone().acquire_owned().await
                    }
                }
            }
        };
        let (stay, is_wanted) = oneshot::channel();
        let mut silent = self.silent.lock();
        silent.entered += 1;
        let number = silent.entered;
        silent.waiting.push_back(Waiting {
            number,
            since: Instant::now(),
            _stay: stay,
        });
        Place {
            crowd: self.clone(),
            number,
            is_wanted,
            // Nobody closes the semaphore.
            _permit: permit.ok(),
        }
    }
}

impl Place {
    /// Ends when somebody else needs the place more, or never.
    pub async fn is_to_make_way(&mut self) {
        let _ = (&mut self.is_wanted).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number;
        self.crowd
            .silent
            .lock()
            .waiting
            .retain(|waiting| waiting.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_way_once_it_has_had_its_time_and_nobody_does_while_there_is_room() {
        let crowd = Crowd::new(2);
        let begun = Instant::now();
        let (mut first, mut second) = (crowd.enter().await, crowd.enter().await);
        let newcomer = tokio::spawn({
            let crowd = crowd.clone();
            async move { crowd.enter().await }
        });
        first.is_to_make_way().await;
        assert_eq!(begun.elapsed(), PROTECTED);
        drop(first);
        let third = newcomer.await.unwrap();
        assert!(
            tokio::time::timeout(Duration::from_secs(60), second.is_to_make_way())
                .await
                .is_err(),
            "nobody else came"
        );
        // Who has spoken leaves its place to the next, and nobody is sent away.
        drop(third);
        let _fourth = crowd.enter().await;
        assert!(
            tokio::time::timeout(Duration::from_secs(60), second.is_to_make_way())
                .await
                .is_err()
        );
        assert_eq!(crowd.silent.lock().waiting.len(), 2);
    }
}
