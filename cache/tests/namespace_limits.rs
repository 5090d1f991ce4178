//! What a namespace asks where many names are looked up, and what it may keep: counts of requests and of bytes. Time is
//! moved, not waited for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::clock::Clock;
use lookupfs_cache::error::ErrorKind;
use lookupfs_cache::namespace::{MaxAge, Namespace, NamespaceMemory};
use lookupfs_cache::rate::Rate;
use lookupfs_cache::source::counting::{CountingSource, RequestCounters};
use lookupfs_cache::source::fault::{Call, FaultControls, FaultSource};
use lookupfs_cache::source::memory::MemorySource;
use lookupfs_cache::version::SourcePath;

const AGE: MaxAge = MaxAge {
    positive: Duration::from_secs(5),
    negative: Duration::from_secs(1),
};

struct Fixture {
    tree: Arc<MemorySource>,
    counters: Arc<RequestCounters>,
    faults: FaultControls,
    clock: Clock,
    namespace: Namespace,
}

fn path(text: &str) -> SourcePath {
    SourcePath::parse(text.as_bytes()).unwrap()
}

/// A source with `files` files in `/d`, and its namespace.
fn fixture(files: usize, memory: Arc<NamespaceMemory>, rate: Rate) -> Fixture {
    let tree = Arc::new(MemorySource::new("test"));
    tree.mkdir(&path("/d")).unwrap();
    for file in 0..files {
        tree.write(&path(&format!("/d/{file}")), &b"one"[..]).unwrap();
    }
    let (counters, faults, clock) = (Arc::default(), FaultControls::default(), Clock::movable());
    let source = FaultSource::new(tree.clone(), faults.clone());
    let source = Arc::new(CountingSource::new(source, Arc::clone(&counters)));
    let namespace = Namespace::sharing(source, memory, rate, clock.clone());
    Fixture {
        tree,
        counters,
        faults,
        clock,
        namespace,
    }
}

fn plain(files: usize) -> Fixture {
    fixture(files, NamespaceMemory::new(8 << 20), Rate::unlimited())
}

impl Fixture {
    /// (statuses, listings) asked of the source since the last call.
    fn asked(&self) -> (u64, u64) {
        let counts = self.counters.counts();
        self.counters.reset();
        (counts.status, counts.list)
    }

    async fn len(&self, name: &str) -> Option<u64> {
        let known = self.namespace.find(&path(name), AGE).await.unwrap();
        known.value.map(|status| status.len)
    }

    async fn look_up(&self, names: std::ops::Range<usize>) {
        for name in names {
            assert!(self.len(&format!("/d/{name}")).await.is_some(), "{name}");
        }
    }
}

/// P2: revalidating is listing again, which shows every change.
#[tokio::test]
async fn many_names_of_a_directory_cost_one_listing_a_ttl_and_not_a_status_each_p2() {
    let f = plain(1000);
    f.look_up(0..1000).await;
    let (statuses, listings) = f.asked();
    // Names are counted by bits of their hashes, and two may share one.
    assert!(
        (7..10).contains(&statuses) && listings == 1,
        "from the eighth name on the listing answers: {statuses}"
    );
    f.look_up(0..1000).await;
    assert_eq!(f.asked(), (0, 0));
    for _ in 0..3 {
        f.clock.advance(Duration::from_millis(5100));
        f.tree.write(&path("/d/500"), &b"changed"[..]).unwrap();
        f.tree.delete(&path("/d/7")).unwrap();
        f.look_up(0..7).await;
        assert_eq!(f.asked(), (0, 1), "one request refreshes them all");
        assert_eq!((f.len("/d/500").await, f.len("/d/7").await), (Some(7), None));
        assert_eq!(f.asked(), (0, 0));
        f.tree.write(&path("/d/500"), &b"one"[..]).unwrap();
        f.tree.write(&path("/d/7"), &b"one"[..]).unwrap();
    }
    let stats = f.namespace.stats();
    assert_eq!(stats.listings_for_names, 4);
    assert_eq!(stats.statuses.misses, statuses + 4);
    assert!(stats.hits_by_listing > 1900, "{stats:?}");
}

#[tokio::test]
async fn a_few_names_cost_a_status_each() {
    let f = plain(1000);
    for _ in 0..3 {
        f.look_up(0..7).await;
        assert_eq!(f.asked(), (7, 0));
        f.clock.advance(Duration::from_millis(5100));
    }
}

#[tokio::test]
async fn a_probe_for_a_name_that_is_not_there_costs_a_status_and_no_listing() {
    let f = plain(1000);
    f.look_up(0..1000).await;
    f.asked();
    for _ in 0..3 {
        f.clock.advance(Duration::from_millis(1100));
        assert_eq!((f.len("/d/next").await, f.asked()), (None, (1, 0)));
    }
}

#[tokio::test]
async fn a_directory_that_would_fill_the_memory_is_tried_once_and_then_asked_by_name() {
    let f = fixture(3000, NamespaceMemory::new(1 << 20), Rate::unlimited());
    f.look_up(0..1000).await;
    assert_eq!(f.asked(), (1000, 1));
    f.clock.advance(Duration::from_millis(5100));
    f.look_up(0..1000).await;
    assert_eq!(f.asked(), (1000, 0));
}

#[tokio::test]
async fn a_directory_that_may_not_be_listed_is_asked_by_name() {
    let f = plain(100);
    f.faults.fail_next(Call::List, ErrorKind::Denied, 1000);
    f.look_up(0..100).await;
    assert_eq!(f.asked(), (100, 1));
}

#[tokio::test]
async fn names_that_are_not_there_are_bounded_and_push_out_nothing_else() {
    let memory = NamespaceMemory::new(4 << 20);
    let f = fixture(2000, memory, Rate::unlimited());
    // A lifetime of 0 for what is there: no listing answers in place of a status.
    let by_name = MaxAge {
        positive: Duration::ZERO,
        ..AGE
    };
    for name in 0..2000 {
        f.namespace
            .find(&path(&format!("/d/{name}")), by_name)
            .await
            .unwrap();
    }
    let before = f.namespace.stats();
    for name in 0..20_000 {
        f.namespace
            .find(&path(&format!("/d/none{name}")), by_name)
            .await
            .unwrap();
    }
    let after = f.namespace.stats();
    assert!((1..=4 << 16).contains(&after.absent.memory_bytes), "{after:?}");
    assert!(after.absent.evictions > 15_000, "{after:?}");
    assert_eq!(
        (after.statuses.memory_bytes, after.statuses.evictions),
        (before.statuses.memory_bytes, 0)
    );
    f.asked();
    f.look_up(0..2000).await;
    assert_eq!(f.asked(), (0, 0), "all that is there is still known");
}

#[tokio::test]
async fn all_sources_of_a_daemon_together_stay_under_one_budget_and_leave_it_when_they_close() {
    const BUDGET: u64 = 2 << 20;
    let memory = NamespaceMemory::new(BUDGET);
    let sources: Vec<Fixture> = (0..4)
        .map(|_| fixture(1500, memory.clone(), Rate::unlimited()))
        .collect();
    let bytes = |f: &Fixture| {
        let stats = f.namespace.stats();
        stats.statuses.memory_bytes + stats.absent.memory_bytes + stats.listings.memory_bytes
    };
    for f in &sources {
        f.namespace.list(&path("/d"), AGE.positive).await.unwrap();
        for name in 0..1500 {
            let by_name = MaxAge {
                positive: Duration::ZERO,
                ..AGE
            };
            f.namespace
                .find(&path(&format!("/d/{name}")), by_name)
                .await
                .unwrap();
        }
        let total: u64 = sources.iter().map(bytes).sum();
        assert!(total <= BUDGET, "{total}");
    }
    let total: u64 = sources.iter().map(bytes).sum();
    assert!(total > BUDGET / 2, "{total} is hardly used");
    let evictions: u64 = sources
        .iter()
        .map(|f| f.namespace.stats().statuses.evictions)
        .sum();
    assert!(evictions > 0);
    let last = sources.last().unwrap();
    last.namespace.clear();
    assert_eq!(bytes(last), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_rate_wait_and_are_counted_and_refused_where_they_would_wait_too_long() {
    let rate = Rate::new(50, Duration::from_secs(1));
    let f = Arc::new(fixture(7, NamespaceMemory::new(1 << 20), rate));
    let fresh = MaxAge {
        positive: Duration::ZERO,
        negative: Duration::ZERO,
    };
    for directory in 0..200 {
        f.tree.mkdir(&path(&format!("/{directory}"))).unwrap();
    }
    let begun = tokio::time::Instant::now();
    let calls: Vec<_> = (0..200)
        .map(|directory| {
            let f = f.clone();
            tokio::spawn(async move { f.namespace.find(&path(&format!("/{directory}")), fresh).await })
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => answered += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                assert!(error.to_string().contains("namenode_rate=50"), "{error}");
                refused += 1;
            }
        }
    }
    let stats = f.namespace.stats().rate;
    assert_eq!(
        (answered, refused),
        (100, 100),
        "a second's worth at once, and one for those who wait a second"
    );
    assert_eq!((stats.delayed, stats.refused, f.asked()), (50, 100, (100, 0)));
    assert!((24_000..27_000).contains(&stats.delayed_ms), "{stats:?}");
    assert!(
        begun.elapsed() <= Duration::from_millis(1001),
        "{:?}",
        begun.elapsed()
    );
}
