//! What the tier's threads do with files, below the cache: failed writes, and files that are let go.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;

use super::version_file::VersionFiles;
use super::{Disk, DiskConfig, DiskLimits, NewPage, runs, version_file};
use crate::memory::Kind;
use crate::page::PageSize;
use crate::version::{FileVersion, SourceId, SourcePath};

const PAGE: u64 = 16 << 10;

fn open(cache_dir: &std::path::Path) -> Disk {
    let config = DiskConfig {
        cache_dir: cache_dir.to_owned(),
        cache_bytes: Some(16 << 20),
        owner: "test".to_owned(),
    };
    let limits = DiskLimits {
        page_size: PageSize::new(PAGE).unwrap(),
        queue_bytes: 4 << 20,
        index_bytes: 1 << 20,
        read_bytes: 1 << 20,
    };
    Disk::open(&config, limits).unwrap()
}

fn version(pages: u64) -> FileVersion {
    let path = SourcePath::root().join(b"a").unwrap();
    FileVersion::new(SourceId::new("memory://f"), path, pages * PAGE, 0, 0)
}

async fn write(disk: &Disk, version: &FileVersion, page: u64) {
    let page = NewPage {
        page,
        bytes: Bytes::from(vec![7; PAGE as usize]),
        kind: Kind::Data,
    };
    disk.admit(version, vec![page]);
    disk.settled().await;
}

#[tokio::test]
async fn a_version_goes_when_a_failed_write_cannot_be_taken_back() {
    let cache_dir = tempfile::tempdir().unwrap();
    let disk = open(cache_dir.path());
    let version = version(4);
    write(&disk, &version, 0).await;
    assert_eq!(disk.stats().pages, 1);
    let (data, map) = disk.core.directory.open(version.id()).unwrap();
    // Neither a write nor a hole gets through here.
    let data = File::open(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&data)
    ))
    .unwrap();
    let files = VersionFiles::open(data, map, version.id(), disk.core.page_size);
    let files = Arc::new(files.unwrap().unwrap());
    disk.core.index.lock().keep_open(version.id(), files);
    write(&disk, &version, 1).await;
    let stats = disk.stats();
    assert_eq!(
        (stats.failed_writes, stats.versions, stats.used_bytes),
        (1, 0, 0),
        "{stats:?}"
    );
    assert!(disk.core.directory.scan().unwrap().is_empty());
    write(&disk, &version, 1).await;
    assert_eq!(disk.stats().pages, 1, "made anew");
}

#[tokio::test]
async fn a_verified_file_is_let_go_when_its_version_goes() {
    let cache_dir = tempfile::tempdir().unwrap();
    let disk = open(cache_dir.path());
    let version = version(1);
    write(&disk, &version, 0).await;
    let complete = loop {
        match disk.complete_file(&version) {
            Ok(complete) => break complete,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(disk.core.verified.count(), 1);
    drop(complete);
    disk.evict(version.id());
    assert_eq!(disk.core.verified.count(), 0);
}

#[test]
fn a_run_has_a_bound_in_bytes() {
    let pages: Vec<u64> = (0..1000).collect();
    for (page_bytes, expected) in [(4 << 10, 256), (16 << 10, 256), (1 << 20, 4), (4 << 20, 1)] {
        let max = version_file::run_pages_max(PageSize::new(page_bytes).unwrap());
        assert_eq!(max, expected);
        assert!(runs(&pages, max).iter().all(|run| run.end - run.start <= max));
    }
}

/// P6.
#[tokio::test]
async fn what_cannot_be_deleted_stays_on_the_account() {
    let cache_dir = tempfile::tempdir().unwrap();
    let disk = open(cache_dir.path());
    let version = version(4);
    write(&disk, &version, 0).await;
    let used = disk.stats().used_bytes;
    let path = std::fs::read_dir(cache_dir.path().join("lookupfs-1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap()
        .join(format!("{}.data", version.id()));
    // Whoever may do everything cannot delete a directory as a file either.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    disk.evict(version.id());
    let stats = disk.stats();
    let stuck = disk.core.directory.allocated_bytes(version.id());
    assert_eq!((stats.versions, stats.failed_deletions), (0, 1), "{stats:?}");
    assert_eq!(stats.used_bytes, stuck, "{used} before");
    write(&disk, &version, 0).await;
    assert_eq!(disk.stats().pages, 0, "it is in the way");
    std::fs::remove_dir(&path).unwrap();
    write(&disk, &version, 0).await;
    assert_eq!(
        (disk.stats().pages, disk.stats().used_bytes),
        (1, used),
        "{:?}",
        disk.stats()
    );
}

#[tokio::test]
async fn a_folder_that_is_a_link_is_not_followed() {
    let (cache_dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = open(cache_dir.path());
    let version = version(2);
    let folder = cache_dir
        .path()
        .join("lookupfs-1")
        .join(&version.id().to_string()[..2]);
    std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
    write(&disk, &version, 0).await;
    assert_eq!(disk.stats().pages, 0);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    std::fs::remove_file(&folder).unwrap();
    write(&disk, &version, 0).await;
    assert_eq!(disk.stats().pages, 1);
}
