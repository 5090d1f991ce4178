//! The read-only FUSE filesystem of lookupfs.
//!
//! **A read**, from the kernel to the bytes:
//!
//! 1. The kernel has the kernel page, or reads a complete local file by itself ([`open_files`]): nothing reaches this
//!    process.
//! 2. Otherwise an event-loop thread of [`fuse`] gets READ(inode, offset, size) and calls [`filesystem`].
//! 3. The inode *is* one version of a file ([`inode`]), so there is no handle to find and no lock to take. The range is
//!    clamped to the version's length.
//! 4. If all pages are in memory, or on disk and in the kernel page cache, the same thread replies at once.
//! 5. Otherwise the reply moves to a task, which asks the page cache: one fetch a page for all readers, missing pages
//!    joined into extents, within a byte budget and a deadline.
//! 6. What the source says of a version that has gone is ESTALE ([`errno`]); the name is forgotten here and in the
//!    kernel ([`kernel_cache`]), so that the next open sees the new version.
//!
//! **A lookup** of a name is answered from the namespace while its age is below `ttl`; the kernel gets what is left of
//! `ttl`, so that the two do not add up.
//!
//! One [`daemon`] serves any number of mounts over one cache. `lookupfs mount` finds it through its [`control`] socket,
//! or starts it ([`launch`]).

pub mod accept;
pub mod answer;
pub mod attributes;
pub mod cli;
pub mod commands;
pub mod control;
pub mod counters;
pub mod daemon;
pub mod directory;
pub mod errno;
pub mod file_usage;
pub mod filesystem;
pub mod fuse;
pub mod inode;
pub mod kernel_cache;
pub mod kernel_settings;
pub mod launch;
pub mod message;
pub mod metrics;
pub mod mount_point;
pub mod mounts;
pub mod open_files;
pub mod operations;
pub mod options;
pub mod owner;
pub mod path_text;
mod places;
pub mod size;
pub mod sources;
pub mod stats;
pub mod warm;
