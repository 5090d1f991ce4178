//! fuser to [`crate::filesystem`] and back: decode, call, log once, reply. The only file that knows fuser.
//!
//! It is a seam: another transport (FUSE over io_uring) replaces this file and nothing else. A handler that panics
//! answers EIO and is counted; the event-loop thread goes on.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, Config, FileHandle, Filesystem as FuserFilesystem, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
    Session, SessionACL,
};
use futures::FutureExt;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use crate::answer::Answer;
use crate::attributes::{LookedUp, Shown};
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::kernel_cache::KernelCache;

mod agreed;
mod attr;
mod listing;
mod open;
mod read_only;

use agreed::agreed;
use attr::{file_attr, no_attr};
use open::Passthrough;

/// `_IOR('L', 1, [u8; 16])`: the 128 bits that name the version of an open regular file.
pub const VERSION_IOCTL: u32 = (2 << 30) | (16 << 16) | ((b'L' as u32) << 8) | 1;

/// `_IOW('L', 2, [u64; 2])`: offset and length, in the host's byte order, of what is about to be read whole.
pub const WILL_NEED_IOCTL: u32 = (1 << 30) | (16 << 16) | ((b'L' as u32) << 8) | 2;

/// Largest READ, and so the largest reply: the kernel's own limit of 256 kernel pages.
const READ_BYTES_MAX: u32 = 1 << 20;
/// Background requests (read-ahead and asynchronous reads) that the kernel sends at once; its default of 12 would cap
/// a host of many readers.
const BACKGROUND_MAX: u16 = 64;
/// Event loops of one mount. More only wake each other: each mount has its own, next to its readers.
const EVENT_LOOPS: usize = 2;

/// Name of the one operation that has a deadline of its own.
const READ: &str = "read";

/// What `statfs` says: a documented constant, since neither HDFS nor hdfs-native answers the question per path. 1 PiB in
/// blocks of 4 KiB, nothing free.
const STATFS_BLOCK_BYTES: u32 = 4096;
const STATFS_BLOCKS: u64 = (1 << 50) / STATFS_BLOCK_BYTES as u64;
const NAME_BYTES_MAX: u32 = 255;

/// The handlers of one mount.
struct Handlers {
    filesystem: Arc<Filesystem>,
    runtime: Handle,
    /// Every READ is answered within this, whatever the layers below do.
    deadline: Duration,
    /// The same for every other request.
    metadata_deadline: Duration,
    /// The open files, where the mount hears of them.
    passthrough: Option<Passthrough>,
}

/// Serves a mounted `/dev/fuse` descriptor until it is unmounted. Blocks; `ready` is called when the kernel has agreed
/// on the protocol.
///
/// # Errors
/// If the handshake fails, no thread can be had, or the connection ends other than by unmounting.
pub fn serve(
    filesystem: Arc<Filesystem>,
    device: OwnedFd,
    allow_other: bool,
    runtime: Handle,
    (deadline, metadata_deadline): (Duration, Duration),
    ready: impl FnOnce(),
) -> io::Result<()> {
    let mut config = Config::default();
    config.acl = if allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(EVENT_LOOPS);
    let acl = config.acl;
    let handlers = Handlers {
        passthrough: None,
        filesystem: filesystem.clone(),
        runtime,
        deadline,
        metadata_deadline,
    };
    let session = Session::from_fd(handlers, device, acl, config)?;
    filesystem
        .invalidator
        .start(Arc::new(FuseKernelCache(session.notifier())))?;
    ready();
    let ended = session.run();
    filesystem.invalidator.stop();
    ended
}

struct FuseKernelCache(Notifier);

impl KernelCache for FuseKernelCache {
    fn drop_entry(&self, parent: u64, name: &[u8]) {
        // An error means that the kernel does not have it.
        if let Err(error) = self.0.inval_entry(INodeNo(parent), OsStr::from_bytes(name)) {
            tracing::trace!(%error, parent, "entry not invalidated");
        }
    }

    fn drop_inode(&self, number: u64) {
        // Attributes only (negative offset): kernel pages of a version stay right for ever.
        if let Err(error) = self.0.inval_inode(INodeNo(number), -1, 0) {
            tracing::trace!(%error, number, "inode not invalidated");
        }
    }

    fn drop_pages(&self, number: u64) {
        // From the first byte to the last: no length means all.
        if let Err(error) = self.0.inval_inode(INodeNo(number), 0, 0) {
            tracing::trace!(%error, number, "no kernel pages to drop");
        }
    }
}

impl Handlers {
    /// Calls a handler and delivers its answer, at once or from a task.
    fn answer<T: Send + 'static>(
        &self,
        operation: &'static str,
        handler: impl FnOnce() -> Answer<T>,
        deliver: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let filesystem = self.filesystem.clone();
        match catch_unwind(AssertUnwindSafe(handler)) {
            Ok(Answer::Now(result)) => deliver(finish(&filesystem, operation, result)),
            Ok(Answer::Later(future)) => {
                let deadline = if operation == READ {
                    self.deadline
                } else {
                    self.metadata_deadline
                };
                self.runtime.spawn(async move {
                    let bounded = tokio::time::timeout(deadline, future);
                    match AssertUnwindSafe(bounded).catch_unwind().await {
                        Ok(Ok(result)) => deliver(finish(&filesystem, operation, result)),
                        Ok(Err(_elapsed)) => {
                            let message = format!("no answer within {} s", deadline.as_secs_f64());
                            deliver(finish(
                                &filesystem,
                                operation,
                                Err(Error::new(ErrorKind::TimedOut, message)),
                            ));
                        }
                        Err(_panic) => deliver(Err(panicked(&filesystem, operation))),
                    }
                });
            }
            Err(_panic) => deliver(Err(panicked(&filesystem, operation))),
        }
    }

    fn refuse_write(&self) -> fuser::Errno {
        self.filesystem.counters().refused_writes.add_one();
        raw(Errno::READ_ONLY)
    }
}

/// Logs an error, once, and turns it into an errno.
fn finish<T>(filesystem: &Filesystem, operation: &str, result: Result<T>) -> Result<T, Errno> {
    result.map_err(|error| {
        let errno = Errno::from(&error);
        if error.kind() == ErrorKind::NotFound {
            tracing::trace!(operation, ?error, "nothing there");
        } else {
            filesystem.counters().errors.add_one();
            if let Some(held_back) = filesystem.log_limit.admit(Instant::now()) {
                tracing::warn!(
                    mount = %filesystem.open_report.mount_point().display(),
                    operation,
                    errno = errno.raw(),
                    held_back,
                    ?error,
                    "answered an error"
                );
            }
        }
        errno
    })
}

fn panicked(filesystem: &Filesystem, operation: &str) -> Errno {
    filesystem.counters().panics.add_one();
    tracing::error!(
        mount = %filesystem.open_report.mount_point().display(),
        operation,
        "a handler panicked; please report this with the lines above"
    );
    Errno::INTERNAL
}

fn raw(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw())
}

impl FuserFilesystem for Handlers {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_PARALLEL_DIROPS
            // An inode's bytes never change, so the kernel drops them only when told.
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO;
        // The call fails as a whole if the kernel lacks one of them.
        let _ = config.add_capabilities(wanted & config.capabilities());
        self.passthrough = open::agree(config, &self.filesystem.open_report);
        let _ = config.set_max_write(READ_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = self
            .filesystem
            .agreed
            .set(agreed(config, self.passthrough.is_some()));
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.filesystem.counters().lookups.add_one();
        let handler = || self.filesystem.lookup(parent.0, name.as_bytes());
        self.answer("lookup", handler, |answer| match answer {
            Ok(LookedUp::Found(Shown { attributes, ttl })) => {
                reply.entry(&ttl, &file_attr(&attributes), Generation(0));
            }
            Ok(LookedUp::Nothing(ttl)) if ttl.is_zero() => reply.error(raw(ErrorKind::NotFound.into())),
            // Inode number 0 tells the kernel that nothing is there, and for how long it may say so by itself.
            Ok(LookedUp::Nothing(ttl)) => reply.entry(&ttl, &no_attr(), Generation(0)),
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        self.filesystem.forget(number.0, lookups);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.filesystem.counters().getattrs.add_one();
        let handler = || self.filesystem.attributes(number.0);
        self.answer("getattr", handler, |answer| match answer {
            Ok(Shown { attributes, ttl }) => reply.attr(&ttl, &file_attr(&attributes)),
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        self.filesystem.counters().readlinks.add_one();
        let handler = || self.filesystem.read_link(number.0);
        self.answer("readlink", handler, |answer| match answer {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn open(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.open_file(number.0, reply);
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(number.0);
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.filesystem.counters().reads.add_one();
        let filesystem = self.filesystem.clone();
        let handler = || self.filesystem.read(number.0, offset, size);
        self.answer(READ, handler, move |answer| match answer {
            Ok(bytes) => {
                filesystem.counters().bytes_read.add(bytes.len() as u64);
                reply.data(&bytes);
            }
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.filesystem.counters().opendirs.add_one();
        let handler = || self.filesystem.open_directory(number.0);
        self.answer("opendir", handler, |answer| match answer {
            Ok(handle) => reply.opened(FileHandle(handle), fuser::FopenFlags::empty()),
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.filesystem.counters().readdirs.add_one();
        let fill = || self.fill(number, handle, offset, &mut reply);
        match guarded(&self.filesystem, "readdir", fill) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(raw(errno)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.filesystem.counters().readdirs.add_one();
        let fill = || self.fill_plus(number, handle, offset, &mut reply);
        match guarded(&self.filesystem, "readdirplus", fill) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(raw(errno)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.filesystem.close_directory(handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        reply.statfs(
            STATFS_BLOCKS,
            0,
            0,
            0,
            0,
            STATFS_BLOCK_BYTES,
            NAME_BYTES_MAX,
            STATFS_BLOCK_BYTES,
        );
    }

    fn getxattr(&self, _request: &Request, _number: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        // Once answered so, the kernel sends none any more; GNU `ls -l` would send two a file.
        reply.error(raw(Errno::NO_SUCH_OPERATION));
    }

    fn listxattr(&self, _request: &Request, _number: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(raw(Errno::NO_SUCH_OPERATION));
    }

    fn access(&self, request: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // Only sent without `default_permissions`; with it the kernel decides by itself.
        if mask.contains(AccessFlags::W_OK) {
            return reply.error(self.refuse_write());
        }
        let (uid, gid) = (request.uid(), request.gid());
        let handler = || self.filesystem.attributes(number.0);
        self.answer("access", handler, move |answer| match answer {
            Ok(shown) if shown.attributes.ownership.allows(uid, gid, mask.bits() as u16) => reply.ok(),
            Ok(_) => reply.error(raw(ErrorKind::Denied.into())),
            Err(errno) => reply.error(raw(errno)),
        });
    }

    fn ioctl(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        _output_size: u32,
        reply: ReplyIoctl,
    ) {
        self.filesystem.counters().ioctls.add_one();
        match (command, self.filesystem.version_id(number.0)) {
            (VERSION_IOCTL, Ok(id)) => reply.ioctl(0, &id.to_bytes()),
            (WILL_NEED_IOCTL, Ok(_)) => {
                let Some((offset, len)) = offset_and_len(input) else {
                    return reply.error(raw(Errno::NO_SUCH_IOCTL));
                };
                let handler = || self.filesystem.will_need(number.0, offset, len);
                self.answer("ioctl", handler, move |answer| match answer {
                    Ok(()) => reply.ioctl(0, &[]),
                    Err(errno) => reply.error(raw(errno)),
                });
            }
            _ => reply.error(raw(Errno::NO_SUCH_IOCTL)),
        }
    }

    read_only::refusals!();
}

/// The argument of [`WILL_NEED_IOCTL`].
fn offset_and_len(input: &[u8]) -> Option<(u64, u64)> {
    let (offset, len) = input.split_first_chunk()?;
    Some((
        u64::from_ne_bytes(*offset),
        u64::from_ne_bytes(len.try_into().ok()?),
    ))
}

/// Runs a handler that answers in place; a panic is EIO.
fn guarded(
    filesystem: &Filesystem,
    operation: &'static str,
    handler: impl FnOnce() -> Result<()>,
) -> Result<(), Errno> {
    match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(result) => finish(filesystem, operation, result),
        Err(_panic) => Err(panicked(filesystem, operation)),
    }
}
