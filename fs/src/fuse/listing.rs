//! Listings: one pinned directory, given to the kernel piece by piece.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileHandle, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use lookupfs_cache::error::Result;

use super::Handlers;
use super::attr::{dot, file_attr, file_type};
use crate::attributes::Shown;
use crate::directory::Place;

impl Handlers {
    /// Names and kinds from `offset` on, as many as fit.
    pub(super) fn fill(
        &self,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<()> {
        let directory = self.filesystem.directory(handle.0)?;
        let mut at = offset;
        while let Some(place) = directory.at(at) {
            // The offset given with an entry is where the next call starts.
            at += 1;
            let full = match place {
                Place::Dot => reply.add(number, at, FileType::Directory, "."),
                Place::DotDot => {
                    let parent = self.filesystem.parent_number(&directory);
                    reply.add(INodeNo(parent), at, FileType::Directory, "..")
                }
                Place::Entry(entry) => {
                    let number = self.filesystem.entry_number(&directory, entry)?;
                    let name = OsStr::from_bytes(&entry.name);
                    reply.add(INodeNo(number), at, file_type(entry.status.kind), name)
                }
            };
            if full {
                break;
            }
        }
        Ok(())
    }

    /// The same with attributes: the kernel then holds each inode, as after a lookup.
    pub(super) fn fill_plus(
        &self,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        let directory = self.filesystem.directory(handle.0)?;
        let mut at = offset;
        while let Some(place) = directory.at(at) {
            at += 1;
            let full = match place {
                // The kernel takes the kind of these two and nothing else; it counts no lookup for them.
                Place::Dot => reply.add(number, at, ".", &Duration::ZERO, &dot(number.0), Generation(0)),
                Place::DotDot => {
                    let parent = self.filesystem.parent_number(&directory);
                    reply.add(
                        INodeNo(parent),
                        at,
                        "..",
                        &Duration::ZERO,
                        &dot(parent),
                        Generation(0),
                    )
                }
                Place::Entry(entry) => {
                    let Shown { attributes, ttl } = match self.filesystem.enter_listed(&directory, entry) {
                        Ok(shown) => shown,
                        Err(error) => {
                            // Its inode number is in use by another name. The rest of the directory can be shown.
                            let mount = self.filesystem.open_report.mount_point().display();
                            tracing::warn!(%mount, ?error, "left an entry out of a listing");
                            continue;
                        }
                    };
                    let (number, name) = (INodeNo(attributes.number), OsStr::from_bytes(&entry.name));
                    let full = reply.add(number, at, name, &ttl, &file_attr(&attributes), Generation(0));
                    if full {
                        // It did not fit, so the kernel does not hold it.
                        self.filesystem.forget(number.0, 1);
                    }
                    full
                }
            };
            if full {
                break;
            }
        }
        Ok(())
    }
}
