//! [`ReadAt`]: bytes of one version of one file, by position.
//!
//! Owns the only system calls on data files: open, one `fstat`, the two ioctls of a lookupfs mount, cachestat, `pread`. Refuses
//! short reads: a read gives all it was asked for or an error. [`crate::mounts`] opens; tests put
//! bytes in memory in its place, or count.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use quick_cache::sync::Cache;

/// The ioctl that gives the full identity of an open file's version on a lookupfs mount:
/// `_IOR('L', 1, [u8; 16])`, that is direction "read" (2) in bits 30-31, size 16 in bits 16-29, type
/// `'L'` in bits 8-15, number 1.
pub const LOOKUPFS_IOC_VERSION: u32 = (2 << 30) | (16 << 16) | ((b'L' as u32) << 8) | 1;

/// The ioctl that tells a lookupfs mount of bytes that are about to be read whole: `_IOW('L', 2, [u64; 2])` with offset and
/// length. Without it the kernel asks in pieces, and each may become a request at the source.
pub const LOOKUPFS_IOC_WILL_NEED: u32 = (1 << 30) | (16 << 16) | ((b'L' as u32) << 8) | 2;

/// Reads of more than this are announced: the kernel asks for so much at once.
const ANNOUNCED_MIN: usize = 128 << 10;

/// When are two open files the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileIdentity {
    /// What a lookupfs mount says; the same on every mount and after a restart.
    Version([u8; 16]),
    /// On any other filesystem. Changes in place show in the length or the mtime.
    Attributes {
        /// Device.
        dev: u64,
        /// Inode number.
        ino: u64,
        /// Length in bytes.
        len: u64,
        /// Modification time in ns since 1970.
        mtime_ns: i128,
    },
}

impl FileIdentity {
    /// Whether two mounts show the same version. Device and inode numbers differ between mounts of
    /// other filesystems, so that length and mtime have to do there.
    pub fn same_version(&self, other: &FileIdentity) -> bool {
        match (self, other) {
            (
                FileIdentity::Attributes {
                    len: a, mtime_ns: b, ..
                },
                FileIdentity::Attributes {
                    len: c, mtime_ns: d, ..
                },
            ) => a == c && b == d,
            _ => self == other,
        }
    }
}

/// Under what the structure of a version is kept, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionKey {
    /// What a lookupfs mount says.
    Version([u8; 16]),
    /// On any other filesystem: more than [`FileIdentity::Attributes`], since this outlives the open file. The change
    /// time catches a replacement whose length and mtime were made to look the same.
    Attributes {
        /// Device.
        dev: u64,
        /// Inode number.
        ino: u64,
        /// Length in bytes.
        len: u64,
        /// Modification time in ns since 1970.
        mtime_ns: i128,
        /// Time of the last change of bytes or attributes in ns since 1970.
        ctime_ns: i128,
    },
}

/// Positioned reads of one open version.
///
/// What an implementation owes: `read_at` gives exactly `len` bytes or an error, can be called from
/// many threads at once, and never moves a shared position. `len` and `identity` are those of the
/// moment of opening.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Length when it was opened.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The identity when it was opened.
    fn identity(&self) -> FileIdentity;

    /// Under what others may find what is learned of this version; `None` if that would not be safe.
    fn version_key(&self) -> Option<VersionKey> {
        match self.identity() {
            FileIdentity::Version(version) => Some(VersionKey::Version(version)),
            FileIdentity::Attributes { .. } => None,
        }
    }

    /// The `len` bytes at `offset`.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Whether [`ReadAt::read_at`] would find all of it in memory at the moment, so that it waits for nobody. Cheaper than
    /// such a read; `false` where nobody knows.
    fn is_in_memory(&self, offset: u64, len: usize) -> bool {
        let _ = (offset, len);
        false
    }

    /// The identity now; differs from [`ReadAt::identity`] once the file was changed in place.
    fn identity_now(&self) -> io::Result<FileIdentity>;
}

/// A file, read by `pread`.
#[derive(Debug)]
pub struct PreadFile {
    file: File,
    len: u64,
    identity: FileIdentity,
    version_key: Option<VersionKey>,
}

/// A file that changed less than this ago can change again without a new time: clocks of filesystems tick slowly.
const SETTLED: Duration = Duration::from_secs(2);

/// Answers of the version ioctl that are remembered.
const VERSIONS_MAX: usize = 1 << 16;

/// Device, inode, length and mtime: on a lookupfs mount these are a version's, since its inode number is.
type InodeKey = (u64, u64, u64, i128);

/// The ioctl is a request to the daemon, so that it is sent once for each file and not once an open.
static VERSIONS: LazyLock<Cache<InodeKey, Option<[u8; 16]>>> = LazyLock::new(|| Cache::new(VERSIONS_MAX));

/// What is known of a file without opening it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownFile {
    pub(crate) identity: FileIdentity,
    pub(crate) version_key: Option<VersionKey>,
    pub(crate) len: u64,
}

/// The version at `path` on a lookupfs mount, if its ioctl was asked before: one `stat`.
pub(crate) fn known(path: &Path) -> Option<KnownFile> {
    let attributes = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mtime_ns = mtime_ns(&attributes);
    let key = (attributes.dev(), attributes.ino(), attributes.len(), mtime_ns);
    let version = VERSIONS.get(&key)??;
    Some(KnownFile {
        identity: FileIdentity::Version(version),
        version_key: Some(VersionKey::Version(version)),
        len: attributes.len(),
    })
}

impl PreadFile {
    /// Opens a regular file. Anything else is [`io::ErrorKind::InvalidInput`]; `O_NONBLOCK` keeps
    /// the open of a pipe from waiting for its writer.
    pub fn open(path: &Path) -> io::Result<PreadFile> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)?;
        let attributes = file.metadata()?;
        if !attributes.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mtime_ns = mtime_ns(&attributes);
        let key = (attributes.dev(), attributes.ino(), attributes.len(), mtime_ns);
        let version = match VERSIONS.get(&key) {
            Some(version) => version,
            None => {
                let version = version_of(&file)?;
                VERSIONS.insert(key, version);
                version
            }
        };
        let identity = match version {
            Some(version) => FileIdentity::Version(version),
            None => from_attributes(&attributes),
        };
        Ok(PreadFile {
            file,
            len: attributes.len(),
            identity,
            version_key: match version {
                Some(version) => Some(VersionKey::Version(version)),
                None => settled_key(&attributes),
            },
        })
    }
}

fn mtime_ns(attributes: &std::fs::Metadata) -> i128 {
    i128::from(attributes.mtime()) * 1_000_000_000 + i128::from(attributes.mtime_nsec())
}

/// A file that was written a moment ago, or whose clock runs ahead of ours, has no key.
fn settled_key(attributes: &std::fs::Metadata) -> Option<VersionKey> {
    let mtime_ns = mtime_ns(attributes);
    let ctime_ns = i128::from(attributes.ctime()) * 1_000_000_000 + i128::from(attributes.ctime_nsec());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let settled = now.checked_sub(SETTLED)?.as_nanos() as i128;
    (mtime_ns.max(ctime_ns) < settled).then_some(VersionKey::Attributes {
        dev: attributes.dev(),
        ino: attributes.ino(),
        len: attributes.len(),
        mtime_ns,
        ctime_ns,
    })
}

fn from_attributes(attributes: &std::fs::Metadata) -> FileIdentity {
    FileIdentity::Attributes {
        dev: attributes.dev(),
        ino: attributes.ino(),
        len: attributes.len(),
        mtime_ns: mtime_ns(attributes),
    }
}

/// What the version ioctl answers; `None` on a filesystem that does not know it.
fn version_of(file: &File) -> io::Result<Option<[u8; 16]>> {
    let mut version = [0u8; 16];
    // SAFETY: the descriptor is open for the length of the call, and a kernel that knows the number
    // writes the 16 bytes that the number says, into a buffer of 16 bytes.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), LOOKUPFS_IOC_VERSION as _, version.as_mut_ptr()) };
    if answer >= 0 {
        return Ok(Some(version));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // ENOSYS and EOPNOTSUPP are how some FUSE filesystems refuse, EINVAL how some others do.
        Some(libc::ENOTTY | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM) => Ok(None),
        _ => Err(error),
    }
}

/// The kernel reads no more than it is asked for: what is read ahead of a plan is nobody's.
fn read_exactly(file: &File) {
    // SAFETY: the descriptor is open for the length of the call, which touches no memory of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Bytes of a kernel page that [`kernel_pages`] counts in; where they are more, it counts too few.
const KERNEL_PAGE: u64 = 4096;

/// How many kernel pages of the range are in the page cache; none on kernels before 6.5, which cannot say.
fn kernel_pages(file: &File, offset: u64, len: u64) -> u64 {
    /// The same number on every architecture but alpha; libc does not have it.
    const CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    // Kernel pages: cached, dirty, under write-back, evicted, evicted a moment ago.
    let mut counts = [0u64; 5];
    // SAFETY: cachestat(2) reads the two numbers of `range` and writes the five of `counts`; both outlive the call.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    if answer == 0 { counts[0] } else { 0 }
}

/// Bytes of the range that are in the page cache, in whole kernel pages; 0 on kernels before 6.5, which cannot say.
pub(crate) fn kernel_bytes(file: &File, offset: u64, len: u64) -> u64 {
    kernel_pages(file, offset, len).saturating_mul(KERNEL_PAGE)
}

/// Whether the kernel has most of the range in its page cache.
fn is_in_kernel(file: &File, offset: u64, len: usize) -> bool {
    kernel_bytes(file, offset, len as u64) >= len as u64 / 2
}

/// A hint: that the mount does not know it, or cannot follow it, is no failure.
fn announce(file: &File, offset: u64, len: usize) {
    let range = [offset, len as u64];
    // SAFETY: the kernel reads the 16 bytes that the number says, out of an array of 16 bytes that outlives the call.
    unsafe { libc::ioctl(file.as_raw_fd(), LOOKUPFS_IOC_WILL_NEED as _, range.as_ptr()) };
}

impl ReadAt for PreadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn version_key(&self) -> Option<VersionKey> {
        self.version_key
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let is_on_a_mount = matches!(self.identity, FileIdentity::Version(_));
        if is_on_a_mount && len > ANNOUNCED_MIN && !is_in_kernel(&self.file, offset, len) {
            read_exactly(&self.file);
            announce(&self.file, offset, len);
        }
        let mut buffer = vec![0u8; len];
        self.file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.into())
    }

    fn is_in_memory(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        let pages = end.div_ceil(KERNEL_PAGE) - offset / KERNEL_PAGE;
        len <= ANNOUNCED_MIN && kernel_pages(&self.file, offset, len as u64) >= pages
    }

    fn identity_now(&self) -> io::Result<FileIdentity> {
        match self.identity {
            // An inode of lookupfs is one version for good: what has gone answers ESTALE, never
            // other bytes, so there is nothing to ask.
            FileIdentity::Version(_) => Ok(self.identity),
            FileIdentity::Attributes { .. } => Ok(from_attributes(&self.file.metadata()?)),
        }
    }
}

/// Bytes in memory, for tests and for readers that have a file already.
#[derive(Debug, Clone)]
pub struct MemoryFile(pub Bytes);

impl ReadAt for MemoryFile {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity::Attributes {
            dev: 0,
            ino: 0,
            len: self.len(),
            mtime_ns: 0,
        }
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).ok().filter(|s| *s <= self.0.len());
        let end = start
            .and_then(|s| s.checked_add(len))
            .filter(|e| *e <= self.0.len());
        match (start, end) {
            (Some(start), Some(end)) => Ok(self.0.slice(start..end)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn identity_now(&self) -> io::Result<FileIdentity> {
        Ok(self.identity())
    }
}

/// How much was asked of files. Cheap to clone; clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct ReadCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    opens: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCounts {
    /// Files opened.
    pub fn opens(&self) -> u64 {
        self.0.opens.load(Relaxed)
    }

    /// Positioned reads.
    pub fn reads(&self) -> u64 {
        self.0.reads.load(Relaxed)
    }

    /// Bytes of these reads.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    pub(crate) fn count_open(&self) {
        self.0.opens.fetch_add(1, Relaxed);
    }
}

/// Counts what goes through.
#[derive(Debug)]
pub struct CountingReadAt<R> {
    inner: R,
    counts: ReadCounts,
}

impl<R: ReadAt> CountingReadAt<R> {
    /// Counts the reads of `inner` in `counts`.
    pub fn new(inner: R, counts: ReadCounts) -> Self {
        CountingReadAt { inner, counts }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: ReadAt> ReadAt for CountingReadAt<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    fn identity(&self) -> FileIdentity {
        self.inner.identity()
    }

    fn version_key(&self) -> Option<VersionKey> {
        self.inner.version_key()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.counts.0.reads.fetch_add(1, Relaxed);
        self.counts.0.bytes.fetch_add(len as u64, Relaxed);
        self.inner.read_at(offset, len)
    }

    fn is_in_memory(&self, offset: u64, len: usize) -> bool {
        self.inner.is_in_memory(offset, len)
    }

    fn identity_now(&self) -> io::Result<FileIdentity> {
        self.inner.identity_now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_ioctl_numbers_are_those_the_filesystem_answers() {
        assert_eq!(LOOKUPFS_IOC_VERSION, 0x8010_4C01);
        assert_eq!(LOOKUPFS_IOC_WILL_NEED, 0x4010_4C02);
    }

    #[test]
    fn a_read_past_the_end_is_an_error_and_counts() {
        let counts = ReadCounts::default();
        let file = CountingReadAt::new(MemoryFile(Bytes::from_static(b"0123")), counts.clone());
        assert_eq!(file.read_at(1, 2).unwrap(), "12");
        assert!(file.read_at(3, 2).is_err());
        assert!(file.read_at(u64::MAX, 2).is_err());
        assert_eq!((counts.reads(), counts.bytes()), (3, 6));
    }

    #[test]
    fn what_the_kernel_has_of_a_file_is_in_memory_and_no_more() {
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let opened = PreadFile::open(file.path()).unwrap();
        let drop_all = || {
            // SAFETY: the descriptor is open for the length of the call, which touches no memory of ours.
            let answer =
                unsafe { libc::posix_fadvise(opened.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            assert_eq!(answer, 0);
        };
        let was_in_memory = opened.is_in_memory(0, 10);
        drop_all();
        if !was_in_memory || opened.is_in_memory(0, 10) {
            // In memory itself, or stacked on another: such a filesystem always answers the same.
            // SAFETY: all zeros are a value of this structure of numbers, and the call writes no more than it.
            let mut about: libc::statfs = unsafe { std::mem::zeroed() };
            // SAFETY: as above; the descriptor is open for the length of the call.
            assert_eq!(unsafe { libc::fstatfs(opened.file.as_raw_fd(), &mut about) }, 0);
            let on_disk = [
                libc::EXT4_SUPER_MAGIC,
                libc::XFS_SUPER_MAGIC,
                libc::BTRFS_SUPER_MAGIC,
            ];
            assert!(
                !on_disk.contains(&about.f_type),
                "cachestat(2) does not tell: a kernel from 6.5 on is needed"
            );
            return;
        }
        read_exactly(&opened.file);
        opened.read_at(5000, 10).unwrap();
        assert!(opened.is_in_memory(4096, 4096) && opened.is_in_memory(8191, 1));
        assert!(!opened.is_in_memory(4095, 2) && !opened.is_in_memory(8191, 2));
        opened.read_at(0, 1 << 20).unwrap();
        assert!(opened.is_in_memory(1, 128 << 10));
        assert!(
            !opened.is_in_memory(0, (128 << 10) + 1),
            "long reads have other threads"
        );
        assert!(!opened.is_in_memory(u64::MAX - 5, 100));
    }

    #[test]
    fn a_change_in_place_shows_in_the_identity() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one").unwrap();
        let open = PreadFile::open(file.path()).unwrap();
        assert_eq!(open.identity_now().unwrap(), open.identity());
        file.write_all(b"two").unwrap();
        assert_ne!(open.identity_now().unwrap(), open.identity());
        assert_eq!(open.len(), 3);
    }

    #[test]
    fn only_regular_files_open() {
        let error = PreadFile::open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(PreadFile::open(Path::new("/")).is_err());
    }
}
