//! OPEN and RELEASE: no message at all, or passthrough.
//!
//! A mount does one or the other. Without passthrough the first OPEN is answered "no such operation", and the kernel
//! never asks again. With it every open is asked: a version that lies complete on the local disk is handed to the kernel,
//! anything else goes through the kernel page cache as on the other mounts.

use fuser::{BackingId, FileHandle, FopenFlags, InitFlags, KernelConfig, ReplyOpen};
use lookupfs_cache::disk::CompleteFile;

use super::{Handlers, raw};
use crate::errno::Errno;
use crate::open_files::{OpenFiles, OpenReport, Opened};

/// The open files of a mount with passthrough.
pub(super) type Passthrough = OpenFiles<CompleteFile, BackingId>;

/// Filesystems that may be stacked under the mount: the one with the cache directory, which is none of the stacked kind.
/// A depth of 2 would forbid others to stack one on top of the mount.
const STACK_DEPTH: u32 = 1;

/// What the handshake asks of the kernel for opens: passthrough where that is wanted and can be had, else that opens cost
/// no message.
pub(super) fn agree(config: &mut KernelConfig, report: &OpenReport) -> Option<Passthrough> {
    if report.is_asked() {
        let passthrough = InitFlags::FUSE_PASSTHROUGH;
        if config.capabilities().contains(passthrough)
            && config.add_capabilities(passthrough).is_ok()
            && config.set_max_stack_depth(STACK_DEPTH).is_ok()
        {
            return Some(Passthrough::default());
        }
        report.refuse("the kernel has no FUSE passthrough; Linux has it from 6.9 on");
    }
    // The call fails as a whole if the kernel lacks what is asked for.
    let _ = config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT & config.capabilities());
    None
}

impl Handlers {
    pub(super) fn open_file(&self, number: u64, reply: ReplyOpen) {
        self.filesystem.counters().opens.add_one();
        let Some(open_files) = &self.passthrough else {
            // The inode is the version: there is nothing to open. The kernel does not ask again on this mount, and keeps
            // its pages over opens.
            return reply.error(raw(Errno::NO_SUCH_OPERATION));
        };
        let filesystem = &self.filesystem;
        let opened = open_files.open(
            number,
            || filesystem.complete_file(number),
            |complete| reply.open_backing(complete.file()),
            &filesystem.open_report,
        );
        // No flush: there is nothing to write, and close(2) need not wait for an answer. The inode is the handle.
        match opened {
            Opened::Passthrough(registration) => {
                reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, &registration);
            }
            Opened::Kept => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            ),
        }
    }

    pub(super) fn close_file(&self, number: u64) {
        if let Some(open_files) = &self.passthrough {
            open_files.close(number);
        }
    }
}
