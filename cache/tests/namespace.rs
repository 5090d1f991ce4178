//! The namespace against an in-memory source: what it asks, and how old its answers may be. Time is moved, not waited for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::clock::Clock;
use lookupfs_cache::error::ErrorKind;
use lookupfs_cache::namespace::{MaxAge, Namespace};
use lookupfs_cache::source::counting::{CountingSource, RequestCounters};
use lookupfs_cache::source::fault::{Call, FaultControls, FaultSource};
use lookupfs_cache::source::latency::LatencySource;
use lookupfs_cache::source::memory::MemorySource;
use lookupfs_cache::version::SourcePath;

const AGE: MaxAge = MaxAge {
    positive: Duration::from_secs(5),
    negative: Duration::from_secs(1),
};

struct Fixture {
    memory: Arc<MemorySource>,
    counters: Arc<RequestCounters>,
    faults: FaultControls,
    clock: Clock,
    namespace: Namespace,
}

fn path(text: &str) -> SourcePath {
    SourcePath::parse(text.as_bytes()).unwrap()
}

fn fixture() -> Fixture {
    let memory = Arc::new(MemorySource::new("test"));
    memory.mkdir(&path("/d")).unwrap();
    memory.write(&path("/d/f"), &b"one"[..]).unwrap();
    let (counters, faults, clock) = (Arc::default(), FaultControls::default(), Clock::movable());
    let source = FaultSource::new(memory.clone(), faults.clone());
    let source = Arc::new(CountingSource::new(source, Arc::clone(&counters)));
    let namespace = Namespace::new(source, 1 << 20, clock.clone());
    Fixture {
        memory,
        counters,
        faults,
        clock,
        namespace,
    }
}

impl Fixture {
    /// (statuses, listings) asked of the source since the last call.
    fn asked(&self) -> (u64, u64) {
        let counts = self.counters.counts();
        self.counters.reset();
        (counts.status, counts.list)
    }

    async fn len(&self, name: &str) -> Result<u64, ErrorKind> {
        let known = self.namespace.status(&path(name), AGE).await;
        known.map(|known| known.value.len).map_err(|error| error.kind())
    }
}

#[tokio::test]
async fn a_young_answer_is_not_asked_again_and_an_old_one_is() {
    let f = fixture();
    assert_eq!(
        (f.len("/d/f").await, f.len("/d/f").await, f.asked()),
        (Ok(3), Ok(3), (1, 0))
    );
    f.memory.write(&path("/d/f"), &b"longer"[..]).unwrap();
    f.clock.advance(Duration::from_millis(4900));
    assert_eq!((f.len("/d/f").await, f.asked()), (Ok(3), (0, 0)));
    f.clock.advance(Duration::from_millis(200));
    assert_eq!(
        (f.len("/d/f").await, f.asked()),
        (Ok(6), (1, 0)),
        "P2: more than ttl after the change"
    );
}

#[tokio::test]
async fn that_nothing_is_there_is_believed_for_a_shorter_time() {
    let f = fixture();
    assert_eq!(
        (f.len("/d/g").await, f.len("/d/g").await),
        (Err(ErrorKind::NotFound), Err(ErrorKind::NotFound))
    );
    assert_eq!(f.asked(), (1, 0));
    f.memory.write(&path("/d/g"), &b"x"[..]).unwrap();
    f.clock.advance(Duration::from_millis(1100));
    assert_eq!((f.len("/d/g").await, f.asked()), (Ok(1), (1, 0)));
}

#[tokio::test]
async fn a_listing_answers_the_lookups_after_it() {
    let f = fixture();
    f.namespace.list(&path("/d"), AGE.positive).await.unwrap();
    assert_eq!(
        (f.len("/d/f").await, f.len("/d/none").await),
        (Ok(3), Err(ErrorKind::NotFound))
    );
    assert_eq!(f.asked(), (0, 1));
    f.memory.write(&path("/d/none"), &b"x"[..]).unwrap();
    f.clock.advance(Duration::from_secs(2));
    assert_eq!(f.len("/d/f").await, Ok(3));
    assert_eq!(
        f.len("/d/none").await,
        Ok(1),
        "a listing says ENOENT only for negative_ttl"
    );
    assert_eq!(f.asked(), (1, 0));
    f.namespace.list(&path("/d"), AGE.positive).await.unwrap();
    assert_eq!(f.asked(), (0, 0), "and it is itself young for ttl");
}

#[tokio::test]
async fn the_newer_of_two_answers_counts() {
    let f = fixture();
    f.namespace.list(&path("/d"), AGE.positive).await.unwrap();
    f.clock.advance(Duration::from_secs(1));
    f.memory.write(&path("/d/f"), &b"longer"[..]).unwrap();
    f.namespace
        .status(
            &path("/d/f"),
            MaxAge {
                positive: Duration::ZERO,
                ..AGE
            },
        )
        .await
        .unwrap();
    assert_eq!(f.len("/d/f").await, Ok(6), "the status is newer than the listing");
    f.clock.advance(Duration::from_secs(1));
    f.memory.write(&path("/d/f"), &b"longest"[..]).unwrap();
    f.namespace.list(&path("/d"), Duration::ZERO).await.unwrap();
    assert_eq!(f.len("/d/f").await, Ok(7), "the listing is newer than the status");
}

#[tokio::test]
async fn a_name_that_a_newer_listing_lacks_does_not_come_back_with_an_older_status() {
    let f = fixture();
    assert_eq!(f.len("/d/f").await, Ok(3));
    f.clock.advance(Duration::from_secs(1));
    f.memory.delete(&path("/d/f")).unwrap();
    f.namespace.list(&path("/d"), Duration::ZERO).await.unwrap();
    assert_eq!(f.len("/d/f").await, Err(ErrorKind::NotFound));
    f.clock.advance(Duration::from_secs(2));
    assert_eq!(
        f.len("/d/f").await,
        Err(ErrorKind::NotFound),
        "the status of 3 s ago is young enough, but known to be wrong"
    );
}

/// P2.
#[tokio::test(start_paused = true)]
async fn an_answer_that_was_asked_for_too_long_ago_is_asked_for_again_by_who_joined_p2() {
    let memory = Arc::new(MemorySource::new("test"));
    memory.write(&path("/f"), &b"one"[..]).unwrap();
    let (counters, clock) = (Arc::new(RequestCounters::default()), Clock::movable());
    let slow = LatencySource::new(memory, Duration::from_secs(1));
    let source = Arc::new(CountingSource::new(slow, counters.clone()));
    let namespace = Arc::new(Namespace::new(source, 1 << 20, clock.clone()));
    let status = || {
        let namespace = namespace.clone();
        tokio::spawn(async move { namespace.status(&path("/f"), AGE).await.unwrap() })
    };
    let early = status();
    tokio::task::yield_now().await;
    assert_eq!(counters.counts().status, 1, "it is under way");
    clock.advance(Duration::from_secs(6));
    let begun = namespace.now();
    let late = status();
    assert!(early.await.unwrap().asked < begun);
    assert!(late.await.unwrap().asked >= begun);
    assert_eq!(counters.counts().status, 2);
}

#[tokio::test]
async fn forgotten_names_are_asked_for() {
    let f = fixture();
    f.namespace.list(&path("/d"), AGE.positive).await.unwrap();
    f.len("/d/f").await.unwrap();
    f.asked();
    f.namespace.forget(&path("/d/f"));
    assert_eq!((f.len("/d/f").await, f.asked()), (Ok(3), (1, 0)));
    f.namespace.clear();
    assert_eq!((f.len("/d/f").await, f.asked()), (Ok(3), (1, 0)));
}

#[tokio::test]
async fn an_error_is_passed_on_and_not_kept() {
    let f = fixture();
    f.faults.fail_next(Call::Status, ErrorKind::Unavailable, 1);
    assert_eq!(f.len("/d/f").await, Err(ErrorKind::Unavailable));
    assert_eq!(f.len("/d/f").await, Ok(3));
    f.faults.fail_next(Call::List, ErrorKind::Denied, 1);
    let denied = f.namespace.list(&path("/d"), AGE.positive).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied);
    assert!(f.namespace.list(&path("/d"), AGE.positive).await.is_ok());
}

/// P3: the kernel asks twice in one system call; the second time costs no deadline.
#[tokio::test]
async fn a_source_that_did_not_answer_is_not_asked_again_at_once() {
    let f = fixture();
    f.faults.fail_next(Call::Status, ErrorKind::TimedOut, 1);
    f.faults.fail_next(Call::List, ErrorKind::TimedOut, 1);
    assert_eq!(
        (f.len("/d/f").await, f.len("/d/f").await),
        (Err(ErrorKind::TimedOut), Err(ErrorKind::TimedOut))
    );
    assert!(f.namespace.list(&path("/d"), AGE.positive).await.is_err());
    assert!(f.namespace.list(&path("/d"), AGE.positive).await.is_err());
    assert_eq!(f.asked(), (1, 1));
    f.clock.advance(Duration::from_millis(1100));
    assert_eq!((f.len("/d/f").await, f.asked()), (Ok(3), (1, 0)));
    assert!(f.namespace.list(&path("/d"), AGE.positive).await.is_ok());
}

#[tokio::test]
async fn many_callers_at_once_ask_once() {
    let f = Arc::new(fixture());
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let f = f.clone();
            tokio::spawn(async move { f.len("/d/f").await })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok(3));
    }
    assert_eq!(f.asked(), (1, 0));
}
