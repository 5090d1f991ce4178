//! The read-only FUSE filesystem of lookupfs.
