//! Every source that needs no cluster, and every layer, keeps the contract.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lookupfs_cache::conformance::{Tree, check};
use lookupfs_cache::error::ErrorKind;
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::source::Source;
use lookupfs_cache::source::counting::{CountingSource, RequestCounters};
use lookupfs_cache::source::deadline::{DeadlineSource, Deadlines};
use lookupfs_cache::source::fault::{Call, FaultControls, FaultSource};
use lookupfs_cache::source::latency::LatencySource;
use lookupfs_cache::source::local::LocalSource;
use lookupfs_cache::source::memory::MemorySource;
use lookupfs_cache::source::open::{SourceOptions, layer};
use lookupfs_cache::source::retry::{RetryLimits, RetrySource};
use lookupfs_cache::version::SourcePath;

struct MemoryTree(MemorySource);

fn memory() -> (MemorySource, MemoryTree) {
    let source = MemorySource::new("conformance");
    let tree = MemoryTree(source.clone());
    source.mkdir(&tree.root()).unwrap();
    (source, tree)
}

#[async_trait]
impl Tree for MemoryTree {
    fn root(&self) -> SourcePath {
        SourcePath::parse(b"/test").unwrap()
    }

    fn block_bytes(&self) -> usize {
        65536
    }

    async fn mkdir(&mut self, path: &SourcePath) {
        self.0.mkdir(path).unwrap();
    }

    async fn write(&mut self, path: &SourcePath, bytes: &[u8]) {
        self.0.write(path, bytes.to_vec()).unwrap();
    }

    async fn append(&mut self, path: &SourcePath, bytes: &[u8]) {
        self.0.append(path, bytes).unwrap();
    }

    async fn rename(&mut self, from: &SourcePath, to: &SourcePath) {
        self.0.rename(from, to).unwrap();
    }

    async fn delete(&mut self, path: &SourcePath) {
        self.0.delete(path).unwrap();
    }

    async fn chmod(&mut self, path: &SourcePath, mode: u16) {
        self.0.chmod(path, mode).unwrap();
    }

    fn obeys_modes(&self) -> bool {
        true
    }
}

struct LocalTree(tempfile::TempDir);

impl LocalTree {
    fn real(&self, path: &SourcePath) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let relative = std::ffi::OsStr::from_bytes(&path.as_bytes()[1..]);
        self.0.path().join(relative)
    }

    /// Past one tick of the clock that stamps files.
    async fn wait_for_a_tick(&self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[async_trait]
impl Tree for LocalTree {
    fn root(&self) -> SourcePath {
        SourcePath::parse(b"/test").unwrap()
    }

    fn block_bytes(&self) -> usize {
        65536
    }

    async fn mkdir(&mut self, path: &SourcePath) {
        std::fs::create_dir(self.real(path)).unwrap();
    }

    async fn write(&mut self, path: &SourcePath, bytes: &[u8]) {
        self.wait_for_a_tick().await;
        std::fs::write(self.real(path), bytes).unwrap();
    }

    async fn append(&mut self, path: &SourcePath, bytes: &[u8]) {
        use std::io::Write;
        self.wait_for_a_tick().await;
        let mut file = std::fs::File::options()
            .append(true)
            .open(self.real(path))
            .unwrap();
        file.write_all(bytes).unwrap();
    }

    async fn rename(&mut self, from: &SourcePath, to: &SourcePath) {
        std::fs::rename(self.real(from), self.real(to)).unwrap();
    }

    async fn delete(&mut self, path: &SourcePath) {
        std::fs::remove_file(self.real(path)).unwrap();
    }

    async fn chmod(&mut self, path: &SourcePath, mode: u16) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(u32::from(mode));
        std::fs::set_permissions(self.real(path), mode).unwrap();
    }

    fn obeys_modes(&self) -> bool {
        !nix::unistd::geteuid().is_root()
    }
}

fn options() -> SourceOptions {
    SourceOptions::default()
}

fn limits() -> RetryLimits {
    RetryLimits {
        tries: 3,
        deadlines: Deadlines::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_in_memory_conforms() {
    let (source, mut tree) = memory();
    check(&source, &mut tree).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_directory_conforms() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("test")).unwrap();
    let source = LocalSource::new(dir.path()).unwrap();
    check(&source, &mut LocalTree(dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_layer_conforms() {
    let (source, mut tree) = memory();
    check(&DeadlineSource::new(source, Deadlines::default()), &mut tree).await;

    let (source, mut tree) = memory();
    check(&RetrySource::new(source, limits()), &mut tree).await;

    let (source, mut tree) = memory();
    check(&FaultSource::new(source, FaultControls::default()), &mut tree).await;

    let (source, mut tree) = memory();
    check(&LatencySource::new(source, Duration::from_micros(100)), &mut tree).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_layers_together_conform_and_no_call_is_left_over() {
    let (source, mut tree) = memory();
    let counters = Arc::new(RequestCounters::default());
    let layered = layer(
        LatencySource::new(source, Duration::from_micros(100)),
        &options(),
        Arc::clone(&counters),
    );
    check(&layered, &mut tree).await;
    let counts = counters.counts();
    assert!(counts.open > 0 && counts.read > 0 && counts.list > 0 && counts.failed > 0);
    assert_eq!(counts.in_flight, 0, "{counts:?}");
}

#[tokio::test]
async fn counts_are_exact() {
    let (source, _tree) = memory();
    let path = SourcePath::parse(b"/test/file").unwrap();
    source.write(&path, &b"12345"[..]).unwrap();
    let counters = Arc::new(RequestCounters::default());
    let source = CountingSource::new(source, Arc::clone(&counters));
    let status = source.status(&path).await.unwrap();
    source.list(&path.parent()).await.unwrap();
    source.list(&path).await.unwrap_err();
    let file = source.open(&status.version(source.id(), &path)).await.unwrap();
    for end in [1, 5] {
        file.read(ByteRange::new(0, end).unwrap()).await.unwrap();
    }
    let counts = counters.counts();
    assert_eq!((counts.status, counts.list, counts.open), (1, 2, 1));
    assert_eq!((counts.read, counts.read_bytes, counts.failed), (2, 6, 1));
    counters.reset();
    assert_eq!(counters.counts().read, 0);
}

/// Retry inside deadline around faults, over one file of 1,000 bytes.
async fn faulty(controls: &FaultControls, deadlines: Deadlines) -> (impl Source, SourcePath) {
    let (source, _tree) = memory();
    let path = SourcePath::parse(b"/test/file").unwrap();
    source.write(&path, vec![7; 1000]).unwrap();
    let limits = RetryLimits { tries: 3, deadlines };
    let retried = RetrySource::new(FaultSource::new(source, controls.clone()), limits);
    (DeadlineSource::new(retried, deadlines), path)
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_no_more_than_allowed() {
    let controls = FaultControls::default();
    let (source, path) = faulty(&controls, Deadlines::default()).await;
    for kind in [ErrorKind::Unavailable, ErrorKind::TimedOut] {
        controls.fail_next(Call::Status, kind, 2);
        source.status(&path).await.unwrap();
    }
    assert_eq!(controls.struck(), 4);
    controls.fail_next(Call::Status, ErrorKind::Unavailable, 5);
    let error = source.status(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(controls.struck(), 7, "three tries");
    controls.clear();
    for kind in [ErrorKind::NotFound, ErrorKind::Denied, ErrorKind::Changed] {
        controls.fail_next(Call::List, kind, 1);
        let error = source.list(&path.parent()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "not tried again");
    }
    let version = source.status(&path).await.unwrap().version(source.id(), &path);
    let file = source.open(&version).await.unwrap();
    controls.fail_next(Call::Read, ErrorKind::Unavailable, 2);
    let range = ByteRange::new(0, 1000).unwrap();
    assert_eq!(file.read(range).await.unwrap(), vec![7; 1000]);
    controls.flip_next_reads(1);
    assert_ne!(file.read(range).await.unwrap(), vec![7; 1000]);
    controls.truncate_next_reads(1);
    assert_eq!(file.read(range).await.unwrap().len(), 999);
}

#[tokio::test(start_paused = true)]
async fn every_call_that_never_answers_ends_at_its_deadline() {
    let controls = FaultControls::default();
    let deadlines = Deadlines {
        metadata: Duration::from_secs(10),
        read: Duration::from_secs(60),
    };
    let (source, path) = faulty(&controls, deadlines).await;
    let version = source.status(&path).await.unwrap().version(source.id(), &path);
    let file = source.open(&version).await.unwrap();
    for call in [Call::Status, Call::List, Call::Open, Call::ReadLink, Call::Read] {
        controls.stall_next(call, 1);
    }
    let begun = tokio::time::Instant::now();
    let metadata = [
        source.status(&path).await.map(drop),
        source.list(&path.parent()).await.map(drop),
        source.open(&version).await.map(drop),
        source.read_link(&path).await.map(drop),
    ];
    for answer in metadata {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    // The clock is the test's own: it stands still but for what is waited for.
    assert_eq!(begun.elapsed().as_secs(), 40);
    let error = file.read(ByteRange::new(0, 1).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), 100);
}
