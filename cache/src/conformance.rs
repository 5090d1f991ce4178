//! The contract of [`Source`] as a test: one suite for sources in memory, on disk and in HDFS, and for every layer
//! around them. A [`Tree`] makes the changes on the source's side.
//!
//! Checks panic with what was expected, as assertions do. Random choices come from a seed that is printed.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::error::{ErrorKind, Result};
use crate::page::{ByteRange, PageSize};
use crate::source::{FileKind, FileStatus, OpenFile, Source};
use crate::version::{FileVersion, SourceId, SourcePath};

/// The side of a source where things change. Each method panics where the change cannot be made.
///
/// A change of a file's bytes moves its modification time, if necessary by waiting.
#[async_trait]
pub trait Tree: Send {
    /// An empty directory that belongs to this test.
    fn root(&self) -> SourcePath;

    /// Bytes of a piece in which the source keeps files, such as an HDFS block: ranges are read across its border.
    fn block_bytes(&self) -> usize;

    /// Makes a directory.
    async fn mkdir(&mut self, path: &SourcePath);

    /// Makes or replaces a file.
    async fn write(&mut self, path: &SourcePath, bytes: &[u8]);

    /// Appends to a file.
    async fn append(&mut self, path: &SourcePath, bytes: &[u8]);

    /// Moves a file to a path where nothing is.
    async fn rename(&mut self, from: &SourcePath, to: &SourcePath);

    /// Deletes a file.
    async fn delete(&mut self, path: &SourcePath);

    /// Sets permission bits.
    async fn chmod(&mut self, path: &SourcePath, mode: u16);

    /// Whether a mode without any bit keeps the source from reading; not so for the superuser.
    fn obeys_modes(&self) -> bool;
}

/// Runs every check against `source`, below the tree's root.
///
/// # Panics
/// Where the source breaks the contract.
pub async fn check(source: &dyn Source, tree: &mut dyn Tree) {
    let seed = std::env::var("LOOKUPFS_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| StdRng::from_os_rng().random());
    eprintln!("conformance of {}: LOOKUPFS_TEST_SEED={seed}", source.id());
    let mut suite = Suite {
        source,
        tree,
        random: StdRng::seed_from_u64(seed),
        versions: HashSet::new(),
    };
    suite.statuses().await;
    suite.listings().await;
    suite.long_listing().await;
    suite.ranges().await;
    suite.empty_file().await;
    suite.names().await;
    suite.wrong_opens().await;
    suite.replacement().await;
    suite.append().await;
    suite.rename().await;
    suite.deletion().await;
    suite.many_readers().await;
    suite.dropped_calls().await;
    suite.permissions().await;
}

struct Suite<'a> {
    source: &'a dyn Source,
    tree: &'a mut dyn Tree,
    random: StdRng,
    versions: HashSet<FileVersion>,
}

/// Bytes that tell where they are and in which version of a file.
fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn good<T>(what: &str, answer: Result<T>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

fn fails<T>(what: &str, answer: Result<T>, kinds: &[ErrorKind]) {
    match answer {
        Ok(_) => panic!("{what}: an error of {kinds:?} was expected, not an answer"),
        Err(error) => assert!(
            kinds.contains(&error.kind()),
            "{what}: one of {kinds:?} was expected, not {error:?}"
        ),
    }
}

impl Suite<'_> {
    fn path(&self, name: &str) -> SourcePath {
        let root = self.tree.root();
        name.split('/')
            .fold(root, |path, name| good("path", path.join(name.as_bytes())))
    }

    async fn status(&self, path: &SourcePath) -> FileStatus {
        good("status", self.source.status(path).await)
    }

    /// The present version, which must be a new one.
    async fn new_version(&mut self, path: &SourcePath) -> FileVersion {
        let version = self.version(path).await;
        assert!(
            self.versions.insert(version.clone()),
            "{version} has been seen before, with other bytes"
        );
        version
    }

    async fn version(&self, path: &SourcePath) -> FileVersion {
        let status = self.status(path).await;
        assert_eq!(status.kind, FileKind::File, "{path}");
        status.version(self.source.id(), path)
    }

    async fn open(&self, version: &FileVersion) -> Arc<dyn OpenFile> {
        let file = good("open", self.source.open(version).await);
        assert_eq!(file.version(), version);
        file
    }

    async fn write(&mut self, name: &str, bytes: &[u8]) -> (SourcePath, FileVersion) {
        let path = self.path(name);
        self.tree.write(&path, bytes).await;
        let version = self.new_version(&path).await;
        assert_eq!(version.len(), bytes.len() as u64, "{path}");
        (path, version)
    }

    async fn statuses(&mut self) {
        let (path, _) = self.write("statuses", b"12345").await;
        let status = self.status(&path).await;
        assert_eq!((status.kind, status.len), (FileKind::File, 5));
        assert_eq!(status, self.status(&path).await, "nothing has changed");
        assert_eq!(status.mode & !0o1777, 0, "mode {:o}", status.mode);
        for path in [SourcePath::root(), self.tree.root()] {
            let status = self.status(&path).await;
            assert_eq!((status.kind, status.len), (FileKind::Directory, 0), "{path}");
        }
        for name in ["no-such", "no-such/file"] {
            let answer = self.source.status(&self.path(name)).await;
            fails("status of a missing path", answer, &[ErrorKind::NotFound]);
        }
        // Some sources do not look why there is nothing at such a path.
        let answer = self.source.status(&self.path("statuses/below")).await;
        let kinds = [ErrorKind::NotDirectory, ErrorKind::NotFound];
        fails("status below a file", answer, &kinds);
        fails(
            "link of a file",
            self.source.read_link(&path).await,
            &[ErrorKind::Invalid],
        );
        self.tree.chmod(&path, 0o640).await;
        let changed = self.status(&path).await;
        assert_eq!(changed.mode, 0o640);
        let version = status.version(self.source.id(), &path);
        assert_eq!(
            changed.version(self.source.id(), &path),
            version,
            "a mode is not bytes"
        );
    }

    async fn listings(&mut self) {
        let folder = self.path("listing");
        self.tree.mkdir(&folder).await;
        let empty = good("empty listing", self.source.list(&folder).await);
        assert!(empty.entries.is_empty() && empty.skipped == 0, "{empty:?}");
        for name in ["listing/b", "listing/a", "listing/c"] {
            self.write(name, name.as_bytes()).await;
        }
        self.tree.mkdir(&self.path("listing/B")).await;
        let listing = good("listing", self.source.list(&folder).await);
        let names: Vec<&[u8]> = listing.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [b"B", b"a", b"b", b"c"], "sorted by byte");
        for entry in &listing.entries {
            let path = good("path", folder.join(&entry.name));
            assert_eq!(entry.status, self.status(&path).await, "{path}");
        }
        let answer = self.source.list_at_most(&folder, 4).await;
        assert_eq!(good("short listing", answer), Some(listing));
        assert_eq!(
            good("cut listing", self.source.list_at_most(&folder, 3).await),
            None
        );
        let root = good("listing of /", self.source.list(&SourcePath::root()).await);
        assert!(!root.entries.is_empty());
        let answer = self.source.list(&self.path("listing/a")).await;
        fails("listing of a file", answer, &[ErrorKind::NotDirectory]);
        let answer = self.source.list(&self.path("listing/none")).await;
        fails("listing of a missing path", answer, &[ErrorKind::NotFound]);
    }

    /// More entries than any source answers at once.
    async fn long_listing(&mut self) {
        const ENTRIES: usize = 2500;
        let folder = self.path("long");
        self.tree.mkdir(&folder).await;
        for index in 0..ENTRIES {
            let name = format!("long/{index:05}");
            self.tree.mkdir(&self.path(&name)).await;
        }
        let listing = good("long listing", self.source.list(&folder).await);
        assert_eq!(listing.entries.len(), ENTRIES);
        for (index, entry) in listing.entries.iter().enumerate() {
            assert_eq!(*entry.name, *format!("{index:05}").as_bytes());
            assert_eq!(entry.status.kind, FileKind::Directory);
        }
    }

    async fn ranges(&mut self) {
        let block = self.tree.block_bytes();
        let bytes = pattern(2 * block + 777, 1);
        let (_, version) = self.write("ranges", &bytes).await;
        let file = self.open(&version).await;
        let len = bytes.len();
        let mut ranges = vec![
            (0, 1),
            (len - 1, len),
            (0, len),
            (block - 1, block + 1),
            (block, block + 1),
            (block - 5, 2 * block + 5),
            (0, 0),
            (len, len),
        ];
        for _ in 0..30 {
            let start = self.random.random_range(0..len);
            ranges.push((start, self.random.random_range(start..=len)));
        }
        for (start, end) in ranges {
            let answer = good("read", file.read(range(start, end)).await);
            assert!(
                answer[..] == bytes[start..end],
                "bytes {start}..{end} are not those of the file"
            );
            self.pages(&*file, &bytes, (start, end)).await;
        }
        for (start, end) in [(0, len + 1), (len, len + 1), (len + 5, len + 9)] {
            let answer = file.read(range(start, end)).await;
            fails("read past the end", answer, &[ErrorKind::Invalid]);
        }
        let far = good("range", ByteRange::new(u64::MAX - 1, u64::MAX));
        fails(
            "read far past the end",
            file.read(far).await,
            &[ErrorKind::Invalid],
        );
    }

    /// The same bytes, cut where pages of the file end.
    async fn pages(&mut self, file: &dyn OpenFile, bytes: &[u8], (start, end): (usize, usize)) {
        let page = good("page size", PageSize::new(4096 << self.random.random_range(0..3)));
        let pages = good("read in pages", file.read_pages(range(start, end), page).await);
        assert!(
            pages.concat() == bytes[start..end],
            "pages of bytes {start}..{end}"
        );
        let mut at = start as u64;
        for bytes in &pages[..pages.len().saturating_sub(1)] {
            at += bytes.len() as u64;
            assert!(
                at.is_multiple_of(page.bytes()) && !bytes.is_empty(),
                "a page ends at {at}"
            );
        }
    }

    async fn empty_file(&mut self) {
        let (_, version) = self.write("empty", b"").await;
        let file = self.open(&version).await;
        assert!(good("empty read", file.read(range(0, 0)).await).is_empty());
        let answer = file.read(range(0, 1)).await;
        fails("read past the end", answer, &[ErrorKind::Invalid]);
    }

    async fn names(&mut self) {
        let folder = self.path("names");
        self.tree.mkdir(&folder).await;
        let longest = "n".repeat(255);
        let names = [
            " two  spaces ",
            "new\nline",
            "\u{e9}\u{4e2d}\u{1f600}",
            "a*b?[c]%20{d}#\\",
            "...",
            &longest,
        ];
        for name in names {
            let path = good("path", folder.join(name.as_bytes()));
            self.tree.write(&path, name.as_bytes()).await;
            let version = self.new_version(&path).await;
            let file = self.open(&version).await;
            let all = range(0, name.len());
            assert_eq!(good("read", file.read(all).await), name.as_bytes());
        }
        let listing = good("listing", self.source.list(&folder).await);
        assert_eq!(listing.entries.len(), names.len());
        for name in names {
            assert!(listing.find(name.as_bytes()).is_some(), "{name:?}");
        }
    }

    async fn wrong_opens(&mut self) {
        let folder = self.path("wrong");
        self.tree.mkdir(&folder).await;
        let status = self.status(&folder).await;
        let answer = self.source.open(&status.version(self.source.id(), &folder)).await;
        fails("open of a directory", answer, &[ErrorKind::IsDirectory]);
        let missing = FileVersion::new(self.source.id().clone(), self.path("none"), 1, 1, 0);
        let answer = self.source.open(&missing).await;
        fails("open of a missing file", answer, &[ErrorKind::NotFound]);
        let (path, _) = self.write("wrong/file", b"1").await;
        let status = self.status(&path).await;
        let foreign = status.version(&SourceId::new("other://"), &path);
        let answer = self.source.open(&foreign).await;
        fails("open of another source's version", answer, &[ErrorKind::Invalid]);
    }

    async fn replacement(&mut self) {
        let old = pattern(5000, 2);
        let (path, version) = self.write("replaced", &old).await;
        let held = self.open(&version).await;
        assert!(good("read", held.read(range(0, 5000)).await)[..] == old);
        for (salt, len) in [(3, 5000), (4, 6000), (5, 5000)] {
            self.tree.write(&path, &pattern(len, salt)).await;
            let answer = self.source.open(&version).await;
            fails("open of a replaced version", answer, &[ErrorKind::Changed]);
            self.old_bytes_or_error(&held, &old).await;
            let version = self.new_version(&path).await;
            let file = self.open(&version).await;
            let bytes = good("read", file.read(range(0, len)).await);
            assert!(bytes[..] == pattern(len, salt));
        }
    }

    /// A file that was opened before a change answers with its own bytes or not at all.
    async fn old_bytes_or_error(&self, held: &Arc<dyn OpenFile>, old: &[u8]) {
        let middle = old.len() / 2;
        for (start, end) in [(0, old.len()), (middle, middle + 1), (0, 1)] {
            match held.read(range(start, end)).await {
                Ok(bytes) => assert!(
                    bytes[..] == old[start..end],
                    "other bytes under an old version at {start}..{end}"
                ),
                Err(error) => assert!(
                    error.kind() == ErrorKind::Changed || error.kind().is_transient(),
                    "an old version's read: {error:?}"
                ),
            }
        }
    }

    async fn append(&mut self) {
        let mut bytes = pattern(3000, 6);
        let (path, version) = self.write("appended", &bytes).await;
        let held = self.open(&version).await;
        self.tree.append(&path, &pattern(100, 7)).await;
        self.old_bytes_or_error(&held, &bytes).await;
        let answer = self.source.open(&version).await;
        fails("open of a version that has grown", answer, &[ErrorKind::Changed]);
        bytes.extend_from_slice(&pattern(100, 7));
        let version = self.new_version(&path).await;
        let file = self.open(&version).await;
        let answer = good("read", file.read(range(0, 3100)).await);
        assert!(answer[..] == bytes, "an append keeps what was there");
    }

    async fn rename(&mut self) {
        let bytes = pattern(1000, 8);
        let (from, version) = self.write("from", &bytes).await;
        let to = self.path("to");
        self.tree.rename(&from, &to).await;
        let answer = self.source.status(&from).await;
        fails("status of a moved file", answer, &[ErrorKind::NotFound]);
        let kinds = [ErrorKind::NotFound, ErrorKind::Changed];
        fails("open of a moved file", self.source.open(&version).await, &kinds);
        let moved = self.new_version(&to).await;
        let file = self.open(&moved).await;
        assert!(good("read", file.read(range(0, 1000)).await)[..] == bytes);
    }

    async fn deletion(&mut self) {
        let bytes = pattern(1000, 9);
        let (path, version) = self.write("deleted", &bytes).await;
        let held = self.open(&version).await;
        self.tree.delete(&path).await;
        let answer = self.source.status(&path).await;
        fails("status of a deleted file", answer, &[ErrorKind::NotFound]);
        let answer = self.source.open(&version).await;
        fails("open of a deleted file", answer, &[ErrorKind::NotFound]);
        self.old_bytes_or_error(&held, &bytes).await;
        // The name with other bytes of the same length is another version, also for whoever has the old one open.
        self.tree.write(&path, &pattern(1000, 10)).await;
        self.new_version(&path).await;
        self.old_bytes_or_error(&held, &bytes).await;
    }

    async fn many_readers(&mut self) {
        let bytes = Bytes::from(pattern(self.tree.block_bytes() + 5000, 11));
        let (_, version) = self.write("shared", &bytes).await;
        let file = self.open(&version).await;
        let mut readers = Vec::new();
        for _ in 0..32 {
            let start = self.random.random_range(0..bytes.len());
            let end = self.random.random_range(start..=bytes.len());
            let (file, bytes) = (Arc::clone(&file), bytes.clone());
            readers.push(tokio::spawn(async move {
                let answer = good("read", file.read(range(start, end)).await);
                assert!(answer == bytes.slice(start..end), "bytes {start}..{end}");
            }));
        }
        for reader in readers {
            if let Err(error) = reader.await {
                panic!("a reader among many: {error}");
            }
        }
    }

    async fn dropped_calls(&mut self) {
        let bytes = pattern(100_000, 12);
        let (path, version) = self.write("dropped", &bytes).await;
        let file = self.open(&version).await;
        let root = self.tree.root();
        for _ in 0..20 {
            drop_after_one_poll(file.read(range(0, 100_000)).boxed()).await;
            drop_after_one_poll(self.source.status(&path).boxed()).await;
            drop_after_one_poll(self.source.list(&root).boxed()).await;
            drop_after_one_poll(self.source.open(&version).boxed()).await;
        }
        let answer = good("read", file.read(range(0, 100_000)).await);
        assert!(answer[..] == bytes);
        self.open(&version).await;
    }

    async fn permissions(&mut self) {
        let (path, version) = self.write("denied", b"secret").await;
        if !self.tree.obeys_modes() {
            eprintln!("the superuser reads everything: what a mode forbids is not checked here");
            return;
        }
        self.tree.chmod(&path, 0).await;
        let answer = self.source.open(&version).await;
        fails("open without permission", answer, &[ErrorKind::Denied]);
        let folder = self.path("closed");
        self.tree.mkdir(&folder).await;
        self.tree.chmod(&folder, 0).await;
        let answer = self.source.list(&folder).await;
        fails("listing without permission", answer, &[ErrorKind::Denied]);
        self.tree.chmod(&folder, 0o755).await;
    }
}

fn range(start: usize, end: usize) -> ByteRange {
    good("range", ByteRange::new(start as u64, end as u64))
}

async fn drop_after_one_poll<T>(mut call: BoxFuture<'_, T>) {
    poll_fn(|context| {
        let _ready = call.as_mut().poll(context).is_ready();
        Poll::Ready(())
    })
    .await;
}
