//! A mount of a source that answers what no honest source answers, or does not answer: every call ends in right bytes
//! or an errno, and the mount goes on. The source is in this process, behind the real filesystem and a real mount.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lookupfs_cache::clock::Clock;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::namespace::{MaxAge, Namespace};
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::source::deadline::{DeadlineSource, Deadlines};
use lookupfs_cache::source::fault::{Call, FaultControls, FaultSource};
use lookupfs_cache::source::memory::MemorySource;
use lookupfs_cache::source::{Entry, FileKind, FileStatus, Listing, OpenFile, Source};
use lookupfs_cache::version::{FileVersion, SourceId, SourcePath};
use lookupfs_fs::attributes::{Immutable, Ttl};
use lookupfs_fs::filesystem::{Filesystem, Shared};
use lookupfs_fs::mounts::{MountPlan, Mounts};
use lookupfs_fs::open_files::OpenReport;
use lookupfs_fs::owner::{Ids, OwnerConfig};
use lookupfs_tests::{pattern, wait_until};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A real mount of a source in this process.
struct InProcess {
    runtime: Runtime,
    mounts: Arc<Mounts>,
    filesystem: Arc<Filesystem>,
    point: TempDir,
}

impl InProcess {
    fn mount(source: Arc<dyn Source>) -> InProcess {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let ttl = Ttl {
            positive: Duration::ZERO,
            negative: Duration::ZERO,
            immutable: Immutable::Nothing,
        };
        let shared = Shared {
            pages: PageCache::new(CacheConfig::default(), runtime.handle().clone()).unwrap(),
            ids: Arc::new(Ids::default()),
        };
        let namespace = Arc::new(Namespace::new(source, 1 << 20, Clock::system()));
        let root = SourcePath::root();
        let now = MaxAge {
            positive: Duration::ZERO,
            negative: Duration::ZERO,
        };
        let status = runtime.block_on(namespace.status(&root, now)).unwrap();
        let filesystem = Filesystem::new(
            namespace,
            shared,
            root,
            status,
            (ttl, OwnerConfig::default()),
            OpenReport::default(),
        );
        let point = tempfile::tempdir().unwrap();
        let plan = MountPlan {
            path: point.path().canonicalize().unwrap(),
            source: "test".into(),
            allow_other: false,
            default_permissions: false,
            deadline: Duration::from_secs(5),
            metadata_deadline: Duration::from_secs(5),
        };
        let mounts = Arc::new(Mounts::default());
        mounts.mount(&plan, filesystem.clone(), runtime.handle()).unwrap();
        InProcess {
            runtime,
            mounts,
            filesystem,
            point,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let path = self.point.path().canonicalize().unwrap();
        self.runtime.block_on(
            self.mounts
                .unmount(&[path], "the test is over", Duration::from_secs(5)),
        );
    }
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// A source in memory with one file, and the faults to be planned.
fn faulty() -> (InProcess, FaultControls, Vec<u8>) {
    let memory = MemorySource::new("faulty");
    let bytes = pattern(1_000_000);
    memory
        .write(&SourcePath::parse(b"/f").unwrap(), bytes.clone())
        .unwrap();
    let faults = FaultControls::default();
    let deadlines = Deadlines {
        metadata: Duration::from_millis(200),
        read: Duration::from_millis(300),
    };
    let source = DeadlineSource::new(FaultSource::new(memory, faults.clone()), deadlines);
    (InProcess::mount(Arc::new(source)), faults, bytes)
}

#[test]
fn each_kind_of_error_is_its_errno_and_the_next_call_works() {
    let (mount, faults, _) = faulty();
    for (kind, expected) in [
        (ErrorKind::Denied, libc::EACCES),
        (ErrorKind::Unavailable, libc::EIO),
        (ErrorKind::TimedOut, libc::ETIMEDOUT),
        (ErrorKind::Corrupt, libc::EIO),
        (ErrorKind::Unsupported, libc::EOPNOTSUPP),
        (ErrorKind::NotDirectory, libc::ENOTDIR),
        (ErrorKind::Changed, libc::ESTALE),
    ] {
        // The kernel asks again by itself after ESTALE.
        faults.fail_next(Call::Status, kind, 10);
        assert_eq!(errno(fs::metadata(mount.path("f"))), expected, "{kind:?}");
        faults.clear();
        // A source that did not answer in time is left alone for a moment.
        let answers = || fs::metadata(mount.path("f")).is_ok();
        let patience = Duration::from_secs(if kind == ErrorKind::TimedOut { 10 } else { 0 });
        assert!(wait_until(patience, answers), "after {kind:?}");
    }
}

#[test]
fn a_listing_that_cannot_be_decoded_is_eio() {
    let (mount, faults, _) = faulty();
    faults.fail_next(Call::List, ErrorKind::Corrupt, 1);
    assert_eq!(errno(fs::read_dir(mount.point.path())), libc::EIO);
    assert_eq!(fs::read_dir(mount.point.path()).unwrap().count(), 1);
}

/// P1: a short answer of the source never reaches the kernel, where it would shrink the file and show zeros.
#[test]
fn a_source_that_answers_too_few_bytes_is_an_error_and_never_zeros() {
    let (mount, faults, bytes) = faulty();
    let file = File::open(mount.path("f")).unwrap();
    let mut part = vec![0; 65_536];
    faults.truncate_next_reads(8);
    assert_eq!(errno(file.read_exact_at(&mut part, 131_072)), libc::EIO);
    faults.clear();
    file.read_exact_at(&mut part, 131_072).unwrap();
    assert_eq!(part, bytes[131_072..][..65_536]);
    assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
}

/// P3: a source that never answers is an errno within the deadline, and what is in memory stays readable.
#[test]
fn a_source_that_never_answers_is_an_errno_and_cached_bytes_stay_readable() {
    let (mount, faults, bytes) = faulty();
    let file = File::open(mount.path("f")).unwrap();
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).unwrap();
    faults.stall_next(Call::Read, 100);
    faults.stall_next(Call::Open, 100);
    assert_eq!(errno(file.read_exact_at(&mut part, 900_000)), libc::ETIMEDOUT);
    faults.stall_next(Call::Status, 100);
    assert_eq!(errno(fs::metadata(mount.path("other"))), libc::ETIMEDOUT);
    file.read_exact_at(&mut part, 0).unwrap();
    assert_eq!(part, bytes[..4096]);
    // The kernel asks for the length at the end of a file, and for the attributes of an open one: both are the version's.
    assert_eq!(file.metadata().unwrap().len(), 1_000_000);
    assert_eq!(file.read_at(&mut part, 1_000_000).unwrap(), 0);
    faults.clear();
    assert!(wait_until(Duration::from_secs(10), || fs::metadata(
        mount.path("f")
    )
    .is_ok()));
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
}

/// Answers metadata that no file system would.
#[derive(Debug)]
struct Hostile(SourceId);

const HOSTILE_NAMES: [&[u8]; 10] = [
    b"",
    b".",
    b"..",
    b"a/b",
    b"a\0b",
    &[b'x'; 256],
    b"\xff\xfe",
    b"new\nline",
    b"twice",
    b"twice",
];

fn hostile_status(kind: FileKind) -> FileStatus {
    FileStatus {
        kind,
        // The longest that Linux knows.
        len: i64::MAX as u64,
        mtime_ms: u64::MAX,
        tag: 0,
        owner: "no\nsuch\0user".into(),
        group: "".into(),
        mode: u16::MAX,
    }
}

#[async_trait]
impl Source for Hostile {
    fn id(&self) -> &SourceId {
        &self.0
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        match path.name() {
            b"" => Ok(hostile_status(FileKind::Directory)),
            b"panic" => panic!("a source that panics"),
            b"link" => Ok(hostile_status(FileKind::Symlink)),
            b"endless" => Ok(FileStatus {
                len: u64::MAX,
                ..hostile_status(FileKind::File)
            }),
            b"none" => Err(Error::new(ErrorKind::NotFound, "nothing")),
            _ => Ok(hostile_status(FileKind::File)),
        }
    }

    async fn list(&self, _path: &SourcePath) -> Result<Listing> {
        let entry = |name: &[u8]| Entry {
            name: name.into(),
            status: hostile_status(FileKind::File),
        };
        Ok(Listing::new(HOSTILE_NAMES.iter().copied().map(entry).collect()))
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        Err(Error::new(ErrorKind::Unavailable, format!("{version}: no")))
    }

    async fn read_link(&self, _path: &SourcePath) -> Result<Vec<u8>> {
        Ok(vec![b'x'; 1 << 20])
    }
}

#[test]
fn hostile_names_and_numbers_are_shown_as_far_as_linux_can() {
    let mount = InProcess::mount(Arc::new(Hostile(SourceId::new("hostile://"))));
    let mut names: Vec<Vec<u8>> = fs::read_dir(mount.point.path())
        .unwrap()
        .map(|entry| std::os::unix::ffi::OsStringExt::into_vec(entry.unwrap().file_name()))
        .collect();
    names.sort();
    assert_eq!(names, [&b"new\nline"[..], b"twice", b"\xff\xfe"]);
    let shown = fs::metadata(mount.path("twice")).unwrap();
    let ownership = (shown.uid(), shown.gid(), shown.mode() & 0o7777);
    assert_eq!(ownership, (65_534, 65_534, 0o1777), "P8");
    assert_eq!(shown.len(), i64::MAX as u64);
    assert_eq!(
        errno(
            File::open(mount.path("twice"))
                .unwrap()
                .read_at(&mut [0; 10], 1 << 62)
        ),
        libc::EIO
    );
    // The kernel itself refuses a longer file.
    assert_eq!(errno(fs::metadata(mount.path("endless"))), libc::EIO);
    assert_eq!(errno(fs::read_link(mount.path("link"))), libc::EIO);
    assert_eq!(errno(fs::metadata(mount.path("none"))), libc::ENOENT);
}

#[test]
fn a_panic_is_eio_is_counted_and_the_mount_goes_on() {
    let mount = InProcess::mount(Arc::new(Hostile(SourceId::new("hostile://"))));
    for _ in 0..10 {
        assert_eq!(errno(fs::metadata(mount.path("panic"))), libc::EIO);
    }
    assert!(mount.filesystem.counters().values().panics >= 1, "counted");
    assert_eq!(errno(fs::metadata(mount.path("none"))), libc::ENOENT);
    assert!(Path::new(mount.point.path()).is_dir());
}

/// The daemon listens all the time for mounts that go, also while it takes some down.
#[test]
fn everybody_who_waits_hears_that_a_mount_has_gone() {
    let (mount, _, _) = faulty();
    let mut gone = mount.mounts.watch_gone();
    let other = mount.runtime.spawn(async move { gone.changed().await });
    let path = mount.point.path().canonicalize().unwrap();
    let (paths, patience) = ([path], Duration::from_secs(60));
    let unmounted = mount.mounts.unmount(&paths, "the test says so", patience * 60);
    mount.runtime.block_on(async {
        tokio::time::timeout(patience, unmounted)
            .await
            .expect("unmounting heard of it");
        tokio::time::timeout(patience, other)
            .await
            .expect("and so did the other")
            .unwrap()
            .unwrap();
    });
}
