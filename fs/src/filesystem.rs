//! One mount, with no word of FUSE: lookup, attributes, directories, reads.
//!
//! Called by [`crate::fuse`], which decodes and replies. Everything here either answers from memory or hands back a
//! future; nothing waits. A regular file's inode stands for one version, so a read needs no handle and no state.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use lookupfs_cache::account::Account;
use lookupfs_cache::clock::Jitter;
use lookupfs_cache::disk::{CompleteFile, Unready};
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::namespace::{Known, Namespace};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::{MAX_READ_BYTES, PageCache};
use lookupfs_cache::source::{Entry, FileKind, FileStatus};
use lookupfs_cache::version::{FileVersion, SourcePath, VersionId, is_file_name};

use crate::answer::Answer;
use crate::attributes::{Attributes, Lifetimes, LookedUp, Shown, Ttl};
use crate::counters::Counters;
use crate::directory::{OpenDirectories, OpenDirectory};
use crate::file_usage::{FileStats, ForgottenFiles, Since};
use crate::inode::{Inode, Inodes};
use crate::kernel_cache::{Invalidator, OldEntry};
use crate::kernel_settings::KernelSettings;
use crate::open_files::OpenReport;
use crate::operations::Operations;
use crate::owner::{Ids, OwnerConfig};
use lookupfs_cache::log_limit::LogLimit;

/// The longest target of a symbolic link: `PATH_MAX` without its NUL.
const LINK_BYTES_MAX: usize = 4095;

/// What a mount shares with the other mounts of its daemon.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Pages of all sources.
    pub pages: Arc<PageCache>,
    /// Names to ids.
    pub ids: Arc<Ids>,
}

/// One mount.
#[derive(Debug)]
pub struct Filesystem {
    namespace: Arc<Namespace>,
    shared: Shared,
    inodes: Inodes,
    directories: OpenDirectories,
    /// Bounds the lines about failing requests of this mount.
    pub log_limit: LogLimit,
    /// Where to send word of names that have become old.
    pub invalidator: Invalidator,
    /// How files are opened.
    pub open_report: OpenReport,
    /// What the kernel has agreed on; filled at the handshake.
    pub agreed: OnceLock<KernelSettings>,
    /// What waits for an answer.
    pub operations: Operations,
    /// Who pays for what is fetched for this mount.
    pub account: Arc<Account>,
    counters: Counters,
    forgotten: ForgottenFiles,
    lifetimes: Lifetimes,
    owner: OwnerConfig,
    block_bytes: u32,
}

impl Filesystem {
    /// A mount that shows the directory `root` of `namespace`, whose status the caller has just asked for.
    pub fn new(
        namespace: Arc<Namespace>,
        shared: Shared,
        root: SourcePath,
        status: Known<FileStatus>,
        (ttl, owner): (Ttl, OwnerConfig),
        open_report: OpenReport,
    ) -> Arc<Filesystem> {
        let inodes = Inodes::new(namespace.source().id().clone(), root, status);
        let block_bytes = shared.pages.page_size().bytes().min(u64::from(u32::MAX)) as u32;
        Arc::new(Filesystem {
            namespace,
            shared,
            inodes,
            directories: OpenDirectories::default(),
            log_limit: LogLimit::default(),
            invalidator: Invalidator::default(),
            open_report,
            agreed: OnceLock::new(),
            operations: Operations::default(),
            account: Arc::default(),
            counters: Counters::default(),
            forgotten: ForgottenFiles::default(),
            lifetimes: Lifetimes::new(ttl, Jitter::random()),
            owner,
            block_bytes,
        })
    }

    /// What the kernel asked of this mount.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The `count` files of which most bytes were read or fetched on this mount.
    pub fn top_files(&self, count: usize, since: Since) -> Vec<FileStats> {
        self.forgotten.top(self.inodes.held(), count, since)
    }

    /// From now on, counts of files since a reset begin here.
    pub fn reset_files(&self) {
        self.forgotten.reset(self.inodes.held());
    }

    /// Whether this mount shows the source of `namespace`.
    pub fn shows(&self, namespace: &Arc<Namespace>) -> bool {
        Arc::ptr_eq(&self.namespace, namespace)
    }

    /// What is where in the source of this mount.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The directory of the source that this mount shows.
    pub fn root(&self) -> &SourcePath {
        self.inodes.root_path()
    }

    /// How old answers of the namespace may be on this mount.
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// Has the kernel drop its pages of a version; returns once it has. May wait for a READ of this mount: not to be
    /// called by a thread that answers those.
    pub fn drop_kernel_pages(&self, version: &FileVersion) {
        self.invalidator.drop_pages(self.inodes.version_number(version));
    }

    /// Has the kernel ask here for each name that it knows, whatever it was told of how long that holds. What it knows to be
    /// absent it is not asked for, since nothing is kept of that. May wait for a request of this mount, as above.
    pub fn drop_kernel_entries(&self) {
        for inode in self.inodes.held() {
            self.invalidator.drop_entry(&OldEntry {
                parent: self.parent_of(&inode),
                name: inode.path.name().to_vec(),
                number: inode.number,
            });
        }
    }

    /// Inodes that the kernel holds beside the root.
    pub fn inodes_held(&self) -> usize {
        self.inodes.len()
    }

    /// The entry `name` of the directory `parent`.
    pub fn lookup(self: &Arc<Self>, parent: u64, name: &[u8]) -> Answer<LookedUp> {
        let path = match self.inode(parent).and_then(|parent| child(&parent.path, name)) {
            Ok(path) => path,
            Err(error) => return Answer::Now(Err(error)),
        };
        let max_age = self.lifetimes.of(&path);
        if let Some(known) = self.namespace.known_status(&path, max_age) {
            return Answer::Now(self.looked_up(&path, known));
        }
        let (this, operation) = (self.clone(), self.operations.begin("lookup", &path));
        Answer::later(async move {
            let _operation = operation;
            let known = this.namespace.find(&path, max_age).await?;
            this.looked_up(&path, known)
        })
    }

    /// The kernel gives back `lookups` answers that carried the inode `number`.
    pub fn forget(&self, number: u64, lookups: u64) {
        if let Some(inode) = self.inodes.forget(number, lookups) {
            self.forgotten.remember(&inode);
        }
    }

    /// Attributes of an inode.
    ///
    /// A file's length and times are its version's and never change, so the source is not asked: only an open file asks
    /// here, since a path is looked up first once `ttl` has run out, and that lookup brings owner and mode along. Reading
    /// what is cached so needs no source, also at the end of a file, where the kernel asks for the length.
    pub fn attributes(self: &Arc<Self>, number: u64) -> Answer<Shown> {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return Answer::Now(Err(error)),
        };
        let known = inode.known();
        if inode.version.is_some() {
            let asked = self.namespace.now();
            return Answer::Now(Ok(self.shown(&inode, &Known { asked, ..known })));
        }
        if !self.left(&inode.path, known.asked).is_zero() {
            return Answer::Now(Ok(self.shown(&inode, &known)));
        }
        let (this, operation) = (self.clone(), self.operations.begin("getattr", &inode.path));
        Answer::later(async move {
            let _operation = operation;
            let max_age = this.lifetimes.of(&inode.path);
            let now = this.namespace.status(&inode.path, max_age).await?;
            if this.inodes.number_of(&inode.path, &now.value) != number {
                return Err(Error::new(
                    ErrorKind::Changed,
                    format!("{}: it was replaced", inode.path),
                ));
            }
            inode.learn(now.value.clone(), now.asked);
            Ok(this.shown(&inode, &now))
        })
    }

    /// `size` bytes from `offset` of the version that the inode stands for; fewer only at its end.
    pub fn read(self: &Arc<Self>, number: u64, offset: u64, size: u32) -> Answer<Bytes> {
        let (inode, version) = match self.file(number) {
            Ok(found) => found,
            Err(error) => return Answer::Now(Err(error)),
        };
        let range = ByteRange::clamped(offset, u64::from(size), version.len());
        if range.is_empty() {
            return Answer::Now(Ok(Bytes::new()));
        }
        let usage = inode.usage_on(&self.account);
        let pages = &self.shared.pages;
        if let Some(bytes) = pages.read_cached_for(&version, range, Some(&usage.account)) {
            self.counters().reads_at_once.add_one();
            usage.serve(bytes.len());
            return Answer::Now(Ok(bytes));
        }
        let (this, operation) = (self.clone(), self.operations.begin("read", &inode.path));
        Answer::later(async move {
            let _operation = operation;
            let (pages, usage) = (&this.shared.pages, inode.usage_on(&this.account));
            let (source, account) = (this.namespace.source(), Some(&usage.account));
            match pages.read_for(source, &version, range, account).await {
                // A short answer would make the kernel shrink the file and show zeros (P1).
                Ok(bytes) if bytes.len() as u64 != range.len() => Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("{version}: {} of {} bytes at {offset}", bytes.len(), range.len()),
                )),
                Err(error) if has_gone(error.kind()) => {
                    this.counters().changed.add_one();
                    this.shared.pages.invalidate(version.id());
                    this.entry_is_old(&inode);
                    let message = format!("{version}: these bytes have gone; open the path again");
                    Err(Error::with_cause(ErrorKind::Changed, message, error))
                }
                Ok(bytes) => {
                    usage.serve(bytes.len());
                    Ok(bytes)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// A reader is about to read all of `range`: what is missing of it is begun, in requests that are as large as they may
    /// be. Answered as soon as it is begun; a failure shows in the read.
    pub fn will_need(self: &Arc<Self>, number: u64, offset: u64, len: u64) -> Answer<()> {
        let (inode, version) = match self.file(number) {
            Ok(found) => found,
            Err(error) => return Answer::Now(Err(error)),
        };
        let range = ByteRange::clamped(offset, len.min(MAX_READ_BYTES), version.len());
        let this = self.clone();
        Answer::later(async move {
            let usage = inode.usage_on(&this.account);
            let (source, account) = (this.namespace.source(), Some(&usage.account));
            let pages = &this.shared.pages;
            pages.will_need(source, &version, range, account).await;
            Ok(())
        })
    }

    /// The local file of a version that lies complete on the disk, its bytes checked. Never waits.
    pub fn complete_file(&self, number: u64) -> Result<CompleteFile, Unready> {
        let (_, version) = self.file(number).map_err(|_| Unready::Incomplete)?;
        self.shared.pages.complete_file(&version)
    }

    /// Opens the directory `number`: the answer is a handle that pins its listing.
    pub fn open_directory(self: &Arc<Self>, number: u64) -> Answer<u64> {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return Answer::Now(Err(error)),
        };
        let max_age = self.lifetimes.of_listing(&inode.path);
        if let Some(listing) = self.namespace.known_listing(&inode.path, max_age) {
            return Answer::Now(Ok(self.directories.open(OpenDirectory { inode, listing })));
        }
        let (this, operation) = (self.clone(), self.operations.begin("opendir", &inode.path));
        Answer::later(async move {
            let _operation = operation;
            let listing = this.namespace.list(&inode.path, max_age).await?;
            Ok(this.directories.open(OpenDirectory { inode, listing }))
        })
    }

    /// The directory of a handle.
    ///
    /// # Errors
    /// `Changed` for a handle that is not open.
    pub fn directory(&self, handle: u64) -> Result<Arc<OpenDirectory>> {
        let unknown = || {
            Error::new(
                ErrorKind::Changed,
                format!("directory handle {handle} is not open"),
            )
        };
        self.directories.get(handle).ok_or_else(unknown)
    }

    /// Closes a directory handle.
    pub fn close_directory(&self, handle: u64) {
        self.directories.close(handle);
    }

    /// The inode number of an entry, for a listing without attributes; the kernel does not hold it.
    pub fn entry_number(&self, directory: &OpenDirectory, entry: &Entry) -> Result<u64> {
        let path = directory.inode.path.join(&entry.name)?;
        Ok(self.inodes.number_of(&path, &entry.status))
    }

    /// An entry with its attributes, as a lookup would answer; the kernel then holds its inode, unless the caller
    /// [`Filesystem::forget`]s it.
    pub fn enter_listed(&self, directory: &OpenDirectory, entry: &Entry) -> Result<Shown> {
        let path = directory.inode.path.join(&entry.name)?;
        let known = Known {
            value: entry.status.clone(),
            asked: directory.listing.asked,
        };
        let inode = self.inodes.enter(&path, known.clone())?;
        Ok(self.shown(&inode, &known))
    }

    /// The number of the directory that holds `directory`; the root is its own parent, as for the kernel.
    pub fn parent_number(&self, directory: &OpenDirectory) -> u64 {
        self.parent_of(&directory.inode)
    }

    /// The target of a symbolic link.
    pub fn read_link(self: &Arc<Self>, number: u64) -> Answer<Vec<u8>> {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return Answer::Now(Err(error)),
        };
        let source = self.namespace.source().clone();
        let operation = self.operations.begin("readlink", &inode.path);
        Answer::later(async move {
            let _operation = operation;
            let target = source.read_link(&inode.path).await?;
            if target.len() > LINK_BYTES_MAX {
                let (path, len) = (&inode.path, target.len());
                let message = format!("{path}: its target has {len} bytes, Linux follows {LINK_BYTES_MAX}");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            Ok(target)
        })
    }

    /// The 128 bits that name the version of a regular file: the same on every mount and after a restart.
    ///
    /// # Errors
    /// `IsDirectory` for what is no regular file.
    pub fn version_id(&self, number: u64) -> Result<VersionId> {
        self.file(number).map(|(_, version)| version.id())
    }

    fn inode(&self, number: u64) -> Result<Arc<Inode>> {
        let unknown = || {
            Error::new(
                ErrorKind::Changed,
                format!("inode {number} is not known any more"),
            )
        };
        self.inodes.get(number).ok_or_else(unknown)
    }

    fn file(&self, number: u64) -> Result<(Arc<Inode>, Arc<FileVersion>)> {
        let inode = self.inode(number)?;
        match inode.version.clone() {
            Some(version) => Ok((inode, version)),
            None => {
                let message = format!("{}: it is not a regular file", inode.path);
                Err(Error::new(ErrorKind::IsDirectory, message))
            }
        }
    }

    fn looked_up(&self, path: &SourcePath, known: Known<Option<FileStatus>>) -> Result<LookedUp> {
        let Known { value, asked } = known;
        let Some(status) = value else {
            let left = self.lifetimes.negative_left(path, asked, self.namespace.now());
            return Ok(LookedUp::Nothing(left));
        };
        let known = Known { value: status, asked };
        let inode = self.inodes.enter(path, known.clone())?;
        Ok(LookedUp::Found(self.shown(&inode, &known)))
    }

    fn shown(&self, inode: &Inode, known: &Known<FileStatus>) -> Shown {
        let status = &known.value;
        let attributes = Attributes {
            number: inode.number,
            kind: status.kind,
            len: if status.kind == FileKind::Directory {
                0
            } else {
                status.len
            },
            mtime_ms: status.mtime_ms,
            ownership: self.shared.ids.ownership(status, &self.owner),
            block_bytes: self.block_bytes,
        };
        Shown {
            attributes,
            ttl: self.left(&inode.path, known.asked),
        }
    }

    fn left(&self, path: &SourcePath, asked: Instant) -> std::time::Duration {
        self.lifetimes.left(path, asked, self.namespace.now())
    }

    /// The path no longer holds what the inode stands for: ask the source at the next lookup, and tell the kernel.
    fn entry_is_old(&self, inode: &Inode) {
        self.namespace.forget(&inode.path);
        let entry = OldEntry {
            parent: self.parent_of(inode),
            name: inode.path.name().to_vec(),
            number: inode.number,
        };
        self.invalidator.send(entry);
    }

    fn parent_of(&self, inode: &Inode) -> u64 {
        if inode.number == crate::inode::ROOT {
            return crate::inode::ROOT;
        }
        self.inodes.directory_number(&inode.path.parent())
    }
}

/// Whether an error says that a path no longer holds the version that was looked up there. `NotDirectory`: a file has
/// taken the place of a directory on the way. `IsDirectory`: a directory has taken the file's own.
pub(crate) fn has_gone(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Changed | ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::IsDirectory
    )
}

/// The path of an entry; a name that no entry can have is simply not there.
fn child(parent: &SourcePath, name: &[u8]) -> Result<SourcePath> {
    if !is_file_name(name) {
        let shown = name.escape_ascii();
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{parent}: no entry can be named {shown}"),
        ));
    }
    parent.join(name)
}
