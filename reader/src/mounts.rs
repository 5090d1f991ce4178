//! [`Target`], [`Spread`] and `MountedFile`: one file, shown by one or many mounts.
//!
//! Owns which mount a read goes through, and that all mounts show the same version. Refuses to mix
//! versions. Called by [`crate::table`] to open and by [`crate::fetch`] to read.

mod open_files;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{ReadError, Result};
use crate::read_at::{
    self, CountingReadAt, FileIdentity, KnownFile, PreadFile, ReadAt, ReadCounts, VersionKey,
};

pub(crate) use open_files::OpenFiles;

/// Bytes of a file that reads of one mount stay within, so that the kernel holds each of its pages once and not once a mount.
const STRIPE_BYTES: u64 = 64 << 10;

/// How requests are spread over mounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spread {
    /// By version and position, so that the kernel holds each page once and not once a mount.
    #[default]
    Hash,
    /// Each calling thread stays on one mount.
    Thread,
    /// One mount after the other.
    RoundRobin,
}

impl FromStr for Spread {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Spread> {
        match text {
            "hash" => Ok(Spread::Hash),
            "thread" => Ok(Spread::Thread),
            "round-robin" => Ok(Spread::RoundRobin),
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write hash, thread or round-robin"
            ))),
        }
    }
}

/// What to read: a path, or one path relative to several mount roots that show the same source.
///
/// Cheap to clone: a tool that opens a file for each lookup makes it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    roots: Arc<[PathBuf]>,
    path: Arc<Path>,
}

impl Target {
    /// `path` on every one of `mounts`. A leading `/` of `path` means the root of the mounts.
    pub fn on_mounts(mounts: impl IntoIterator<Item = PathBuf>, path: impl AsRef<Path>) -> Target {
        let path = path.as_ref();
        let roots: Arc<[PathBuf]> = mounts.into_iter().collect();
        let relative = if roots.is_empty() {
            path
        } else {
            path.strip_prefix("/").unwrap_or(path)
        };
        Target {
            roots,
            path: relative.into(),
        }
    }

    /// The path on each mount.
    pub fn paths(&self) -> Vec<PathBuf> {
        (0..self.mounts()).map(|mount| self.path_on(mount)).collect()
    }

    /// The path on the first mount: what errors name.
    pub fn first_path(&self) -> PathBuf {
        self.path_on(0)
    }

    /// How many mounts show it.
    fn mounts(&self) -> usize {
        self.roots.len().max(1)
    }

    /// The path on one of them.
    fn path_on(&self, mount: usize) -> PathBuf {
        match self.roots.get(mount) {
            None => self.path.to_path_buf(),
            Some(root) => root.join(&self.path),
        }
    }

    /// The target below this one.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> Target {
        Target {
            roots: self.roots.clone(),
            path: self.path.join(name).into(),
        }
    }
}

impl<P: AsRef<Path>> From<P> for Target {
    fn from(path: P) -> Target {
        Target {
            roots: Arc::default(),
            path: path.as_ref().into(),
        }
    }
}

type Open = dyn Fn(&Path) -> io::Result<Box<dyn ReadAt>> + Send + Sync;

/// Opens a path on one mount. [`Opener::pread`] in production; tests open memory.
#[derive(Clone)]
pub struct Opener {
    open: Arc<Open>,
    /// Whether a path may be known without being opened.
    knows: bool,
}

impl Opener {
    /// Opens by `open`.
    pub fn new(open: impl Fn(&Path) -> io::Result<Box<dyn ReadAt>> + Send + Sync + 'static) -> Opener {
        Opener {
            open: Arc::new(open),
            knows: false,
        }
    }

    /// Opens files for `pread`, and counts in `counts`.
    pub fn pread(counts: ReadCounts) -> Opener {
        let opener = Opener::new(move |path| {
            counts.count_open();
            Ok(Box::new(CountingReadAt::new(
                PreadFile::open(path)?,
                counts.clone(),
            )))
        });
        Opener {
            knows: true,
            ..opener
        }
    }

    /// The version at a path, where it is known without opening it.
    fn known(&self, path: &Path) -> Option<KnownFile> {
        if self.knows { read_at::known(path) } else { None }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        match (self.open)(path) {
            Ok(file) => Ok(file.into()),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Err(ReadError::NotAFile {
                path: path.to_owned(),
            }),
            Err(e) if e.raw_os_error() == Some(libc::ESTALE) => Err(ReadError::Changed {
                path: path.to_owned(),
            }),
            Err(source) => Err(ReadError::Open {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

/// An open file.
#[derive(Debug, Clone)]
struct Handle {
    file: Arc<dyn ReadAt>,
    /// Whether somebody else opened it, a while ago.
    is_reused: bool,
}

/// One version of one file, open on the mounts that have been used so far.
#[derive(Debug)]
pub(crate) struct MountedFile {
    target: Target,
    /// On the first mount: what errors name.
    path: PathBuf,
    handles: Mutex<Vec<Option<Handle>>>,
    open_files: OpenFiles,
    identity: FileIdentity,
    version_key: Option<VersionKey>,
    len: u64,
    opener: Opener,
    spread: Spread,
    next: AtomicUsize,
}

impl MountedFile {
    /// Finds out which version the target is on one mount, by opening it there unless that is known; the others are opened when
    /// a read goes through them.
    pub(crate) fn open(
        target: &Target,
        spread: Spread,
        opener: Opener,
        open_files: OpenFiles,
    ) -> Result<MountedFile> {
        let mounts = target.mounts();
        let first = match spread {
            Spread::Hash => hash_of(&target.path) as usize,
            Spread::Thread => thread_number(),
            Spread::RoundRobin => 0,
        } % mounts;
        let mut handles = vec![None; mounts];
        let path = target.path_on(first);
        let known = match opener.known(&path) {
            Some(known) => known,
            None => {
                let handle = opener.open(&path)?;
                let known = KnownFile {
                    identity: handle.identity(),
                    version_key: handle.version_key(),
                    len: handle.len(),
                };
                handles[first] = Some(Handle {
                    file: handle,
                    is_reused: false,
                });
                known
            }
        };
        Ok(MountedFile {
            handles: Mutex::new(handles),
            open_files,
            next: AtomicUsize::new(first + 1),
            path: if first == 0 { path } else { target.first_path() },
            target: target.clone(),
            identity: known.identity,
            version_key: known.version_key,
            len: known.len,
            opener,
            spread,
        })
    }

    /// Whether both are the same version of the same path.
    pub(crate) fn is_version_of(&self, other: &MountedFile) -> bool {
        // Where the version has no key, its attributes are all that is known of it.
        let same = match (self.version_key, other.version_key) {
            (Some(key), Some(other)) => key == other,
            _ => self.identity == other.identity,
        };
        same && self.target == other.target && self.len == other.len
    }

    /// Length of the version.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Under what the structure of the version is kept.
    pub(crate) fn version_key(&self) -> Option<VersionKey> {
        self.version_key
    }

    /// What errors name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The mount that a read at `offset` should go through. Asked on the caller's thread.
    pub(crate) fn mount_for(&self, offset: u64) -> usize {
        let mounts = self.target.mounts();
        if mounts == 1 {
            return 0;
        }
        let number = match self.spread {
            Spread::Hash => hash_of(&(self.version_hash(), offset / STRIPE_BYTES)) as usize,
            Spread::Thread => thread_number(),
            Spread::RoundRobin => self.next.fetch_add(1, Relaxed),
        };
        number % mounts
    }

    /// The same on all mounts and in all processes, unlike device and inode numbers.
    fn version_hash(&self) -> u64 {
        match self.identity {
            FileIdentity::Version(version) => hash_of(&version),
            FileIdentity::Attributes { len, mtime_ns, .. } => hash_of(&(len, mtime_ns)),
        }
    }

    /// Reads through one mount.
    pub(crate) fn read(&self, mount: usize, range: Range<u64>) -> Result<Bytes> {
        let path = || self.target.path_on(mount);
        let len = usize::try_from(range.end - range.start)
            .map_err(|_| ReadError::corrupt(&path(), "a range is longer than memory"))?;
        let handle = self.handle(mount)?;
        let mut read = handle.file.read_at(range.start, len);
        if read.is_err() && handle.is_reused {
            // What was open may lie on a mount that has gone since.
            self.forget(mount);
            read = self.handle(mount)?.file.read_at(range.start, len);
        }
        match read {
            Ok(bytes) => Ok(bytes),
            // The length was known when it was opened: an early end is a file that was cut.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(ReadError::Changed { path: path() }),
            Err(e) => Err(ReadError::read(&path(), range, e)),
        }
    }

    /// Whether a read through one mount would find all of it in memory, and the file open.
    pub(crate) fn is_in_memory(&self, mount: usize, range: &Range<u64>) -> bool {
        let handle = self.handles.lock()[mount].clone().or_else(|| self.reused(mount));
        let len = usize::try_from(range.end - range.start);
        handle
            .zip(len.ok())
            .is_some_and(|(handle, len)| handle.file.is_in_memory(range.start, len))
    }

    /// One that an earlier table has opened.
    fn reused(&self, mount: usize) -> Option<Handle> {
        let version = self.shared_version()?;
        let file = self.open_files.get(version, &self.target.path_on(mount))?;
        let handle = Handle {
            file,
            is_reused: true,
        };
        Some(self.handles.lock()[mount].get_or_insert(handle).clone())
    }

    /// The version under which open files are shared: of files that this crate opens itself.
    fn shared_version(&self) -> Option<[u8; 16]> {
        match self.identity {
            FileIdentity::Version(version) if self.opener.knows => Some(version),
            _ => None,
        }
    }

    /// A handle cannot be read any more.
    fn forget(&self, mount: usize) {
        self.handles.lock()[mount] = None;
        if let Some(version) = self.shared_version() {
            self.open_files.remove(version, &self.target.path_on(mount));
        }
    }

    fn handle(&self, mount: usize) -> Result<Handle> {
        if let Some(handle) = &self.handles.lock()[mount] {
            return Ok(handle.clone());
        }
        if let Some(handle) = self.reused(mount) {
            return Ok(handle);
        }
        // Opened outside of the lock: a mount that hangs must not stop reads through the others.
        let path = self.target.path_on(mount);
        let handle = self.opener.open(&path)?;
        if !handle.identity().same_version(&self.identity) || handle.len() != self.len {
            return Err(match self.target.mounts() {
                // Replaced between two looks at the same path.
                1 => ReadError::Changed { path },
                _ => ReadError::OtherVersion { path },
            });
        }
        if let Some(version) = self.shared_version() {
            self.open_files.put(version, &path, handle.clone());
        }
        let handle = Handle {
            file: handle,
            is_reused: false,
        };
        Ok(self.handles.lock()[mount].get_or_insert(handle).clone())
    }

    /// Fails if any handle shows that the file was changed in place since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        // A version of a lookupfs mount never changes.
        if matches!(self.identity, FileIdentity::Version(_)) {
            return Ok(());
        }
        let handles = self.handles.lock().clone();
        for (mount, handle) in handles.iter().enumerate() {
            let Some(Handle { file: handle, .. }) = handle else {
                continue;
            };
            let path = || self.target.path_on(mount);
            let now = handle
                .identity_now()
                .map_err(|e| ReadError::read(&path(), 0..0, e))?;
            if now != handle.identity() {
                return Err(ReadError::Changed { path: path() });
            }
        }
        Ok(())
    }

    /// Closes all handles. The next read opens again, and checks that it is the same version.
    pub(crate) fn close(&self) {
        self.handles.lock().fill(None);
    }
}

/// A hash that is the same in every process and every build, so that all of them choose the same
/// mount: the standard library promises that of none of its own.
fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = Fnv1a(0xcbf2_9ce4_8422_2325);
    value.hash(&mut hasher);
    // The low bits choose the mount, and FNV-1a mixes the high ones better.
    hasher.finish() ^ (hasher.finish() >> 32)
}

struct Fnv1a(u64);

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Numbers the threads of this process from 0, in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_at::MemoryFile;

    fn on(mounts: usize, spread: Spread) -> MountedFile {
        let roots = (0..mounts).map(|m| PathBuf::from(format!("/m{m}")));
        let opener = Opener::new(|_| Ok(Box::new(MemoryFile(Bytes::from_static(&[7; 100]))) as Box<_>));
        MountedFile::open(
            &Target::on_mounts(roots, "a/b.parquet"),
            spread,
            opener,
            OpenFiles::default(),
        )
        .unwrap()
    }

    #[test]
    fn a_target_is_relative_to_every_mount() {
        let target = Target::on_mounts(["/m0".into(), "/m1".into()], "/a/b");
        assert_eq!(target.paths(), [PathBuf::from("/m0/a/b"), "/m1/a/b".into()]);
        assert_eq!(Target::from("/a/b").paths(), [PathBuf::from("/a/b")]);
        assert_eq!(Target::on_mounts([], "/a/b").first_path(), PathBuf::from("/a/b"));
    }

    #[test]
    fn hash_keeps_a_position_on_one_mount_and_round_robin_uses_all() {
        let file = on(4, Spread::Hash);
        let mut used = [false; 4];
        for stripe in 0..200 {
            let offset = stripe * STRIPE_BYTES;
            assert_eq!(file.mount_for(offset), file.mount_for(offset + STRIPE_BYTES - 1));
            assert_eq!(file.mount_for(offset), on(4, Spread::Hash).mount_for(offset));
            used[file.mount_for(offset)] = true;
        }
        assert_eq!(used, [true; 4]);
        let file = on(3, Spread::RoundRobin);
        let mut mounts: Vec<_> = (0..3).map(|_| file.mount_for(0)).collect();
        mounts.sort_unstable();
        assert_eq!(mounts, [0, 1, 2]);
        let file = on(3, Spread::Thread);
        assert_eq!(file.mount_for(1), file.mount_for(2));
    }

    #[test]
    fn a_mount_that_shows_another_version_is_refused() {
        let opener = Opener::new(|path| {
            let len = if path.starts_with("/m0") { 100 } else { 101 };
            Ok(Box::new(MemoryFile(vec![7; len].into())) as Box<_>)
        });
        let target = Target::on_mounts(["/m0".into(), "/m1".into()], "f");
        let file = MountedFile::open(&target, Spread::RoundRobin, opener, OpenFiles::default()).unwrap();
        assert!(file.read(0, 0..10).is_ok());
        assert!(matches!(file.read(1, 0..10), Err(ReadError::OtherVersion { .. })));
    }

    #[test]
    fn a_closed_file_opens_again() {
        let file = on(2, Spread::Hash);
        file.close();
        assert_eq!(file.read(1, 3..5).unwrap(), [7, 7][..]);
        assert!(matches!(file.read(1, 99..101), Err(ReadError::Changed { .. })));
        file.check_unchanged().unwrap();
    }

    /// A version on a mount that goes away when it is told to.
    #[derive(Debug)]
    struct Mortal(Arc<AtomicUsize>, usize);

    impl ReadAt for Mortal {
        fn len(&self) -> u64 {
            100
        }
        fn identity(&self) -> FileIdentity {
            FileIdentity::Version([5; 16])
        }
        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            match self.0.load(Relaxed) == self.1 {
                true => MemoryFile(Bytes::from_static(&[7; 100])).read_at(offset, len),
                false => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
            }
        }
        fn identity_now(&self) -> io::Result<FileIdentity> {
            Ok(self.identity())
        }
    }

    #[test]
    fn a_version_stays_open_for_the_next_table_until_it_cannot_be_read() {
        let (mount, opens) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (shown, count) = (mount.clone(), opens.clone());
        let opener = Opener {
            knows: true,
            ..Opener::new(move |_| {
                count.fetch_add(1, Relaxed);
                Ok(Box::new(Mortal(shown.clone(), shown.load(Relaxed))) as Box<_>)
            })
        };
        let open_files = OpenFiles::default();
        let target = Target::on_mounts(["/m0".into(), "/m1".into()], "f");
        // Through the mount that it is not opened on in the first place.
        let other = 1 - hash_of(&target.path) as usize % 2;
        let read = |open_files: &OpenFiles| {
            let file = MountedFile::open(&target, Spread::Hash, opener.clone(), open_files.clone()).unwrap();
            opens.store(0, Relaxed);
            let read = file.read(other, 3..5);
            assert_eq!(read.unwrap(), [7, 7][..]);
            opens.load(Relaxed)
        };
        assert_eq!((read(&open_files), read(&open_files)), (1, 0));
        assert_eq!(read(&OpenFiles::default()), 1, "other options");
        // Another daemon has taken the mount point.
        mount.store(1, Relaxed);
        assert_eq!((read(&open_files), read(&open_files)), (1, 0));
        // One that is of no use for anybody is an error, and tried again once.
        let file = MountedFile::open(&target, Spread::Hash, opener.clone(), open_files.clone()).unwrap();
        file.read(other, 3..5).unwrap();
        mount.store(2, Relaxed);
        let dead = Opener {
            knows: true,
            ..Opener::new(|_| Ok(Box::new(Mortal(Arc::default(), 9)) as Box<_>))
        };
        let file = MountedFile::open(&target, Spread::Hash, dead, open_files).unwrap();
        assert!(matches!(file.read(other, 3..5), Err(ReadError::Read { .. })));
    }
}
