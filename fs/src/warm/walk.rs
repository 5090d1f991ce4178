//! From paths to files: each path is looked up at its source, directories are walked, one listing at a time.
//!
//! Owns the way through a tree. Refuses to follow symbolic links, so that it ends, and to hold more than the listings
//! from the path down to where it is. Called by `job.rs`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::source::{FileKind, Listing};
use lookupfs_cache::version::{FileVersion, SourcePath};
use tokio::sync::mpsc;

use super::job::Job;
use super::{RawName, shown};
use crate::mounts::Mounted;

/// A file to work on.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The mount it was named by.
    pub(super) mounted: Arc<Mounted>,
    pub(super) path: SourcePath,
    pub(super) version: Arc<FileVersion>,
}

/// A path below a mount, for people.
pub(super) fn shown_path(mounted: &Mounted, path: &SourcePath) -> String {
    let root = mounted.filesystem.root().as_bytes();
    let below = path.as_bytes().strip_prefix(root).unwrap_or(path.as_bytes());
    let below = below.strip_prefix(b"/").unwrap_or(below);
    let mut full = mounted.path.as_os_str().as_bytes().to_vec();
    if !below.is_empty() {
        full.push(b'/');
        full.extend_from_slice(below);
    }
    shown(&OsString::from_vec(full))
}

/// Sends every file at or below a path. What cannot be listed is reported, and the rest goes on.
pub(super) async fn walk(job: &Job, mount_point: &RawName, below: &RawName, files: &mpsc::Sender<Found>) {
    let (mount_point, below) = (mount_point.to_os_string(), below.to_os_string());
    let Some(mounted) = job.mounted(&mount_point) else {
        let reason = "no mount of this daemon is there any more";
        return job.fail(shown(&mount_point), reason.to_owned()).await;
    };
    let mut path = mounted.filesystem.root().clone();
    for name in below.as_bytes().split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        path = match path.join(name) {
            Ok(joined) => joined,
            Err(error) => return job.fail_with(shown(&below), &error).await,
        };
    }
    let namespace = mounted.filesystem.namespace();
    let max_age = mounted.filesystem.lifetimes().of(&path);
    let version = match namespace.status(&path, max_age).await {
        Ok(known) => match known.value.kind {
            FileKind::File => known.value.version(namespace.source().id(), &path),
            FileKind::Directory => return walk_directory(job, &mounted, path, files).await,
            FileKind::Symlink => {
                let reason = "it is a symbolic link; name what it leads to";
                return job.fail(shown_path(&mounted, &path), reason.to_owned()).await;
            }
        },
        Err(error) => return job.fail_with(shown_path(&mounted, &path), &error).await,
    };
    let version = Arc::new(version);
    send(
        job,
        files,
        Found {
            mounted,
            path,
            version,
        },
    )
    .await;
}

async fn walk_directory(job: &Job, mounted: &Arc<Mounted>, path: SourcePath, files: &mpsc::Sender<Found>) {
    let source = mounted.filesystem.namespace().source().id().clone();
    let mut open: Vec<(SourcePath, Arc<Listing>, usize)> = Vec::new();
    match list(mounted, &path).await {
        Ok(listing) => open.push((path, listing, 0)),
        Err(error) => return job.fail_with(shown_path(mounted, &path), &error).await,
    }
    while let Some((directory, listing, next)) = open.last_mut() {
        let Some(entry) = listing.entries.get(*next) else {
            open.pop();
            continue;
        };
        *next += 1;
        let path = match directory.join(&entry.name) {
            Ok(path) => path,
            Err(error) => {
                let directory = shown_path(mounted, directory);
                job.fail_with(directory, &error).await;
                continue;
            }
        };
        match entry.status.kind {
            FileKind::File => {
                let version = Arc::new(entry.status.version(&source, &path));
                let mounted = mounted.clone();
                send(
                    job,
                    files,
                    Found {
                        mounted,
                        path,
                        version,
                    },
                )
                .await;
            }
            FileKind::Directory => match list(mounted, &path).await {
                Ok(listing) => open.push((path, listing, 0)),
                Err(error) => job.fail_with(shown_path(mounted, &path), &error).await,
            },
            // Whatever it leads to is found by its own name, if it is below the path.
            FileKind::Symlink => {}
        }
    }
}

async fn list(mounted: &Mounted, path: &SourcePath) -> Result<Arc<Listing>> {
    let filesystem = &mounted.filesystem;
    let max_age = filesystem.lifetimes().of_listing(path);
    let listed = filesystem.namespace().list(path, max_age);
    listed.await.map(|known| known.value)
}

async fn send(job: &Job, files: &mpsc::Sender<Found>, found: Found) {
    job.count(|totals| {
        totals.files += 1;
        totals.bytes_found = totals.bytes_found.saturating_add(found.version.len());
    });
    // The receiver lives as long as the job.
    let _ = files.send(found).await;
}

/// What is at the path now, as a version that has not been tried yet.
pub(super) async fn look_again(found: &Found) -> Result<Arc<FileVersion>> {
    let filesystem = &found.mounted.filesystem;
    let namespace = filesystem.namespace();
    namespace.forget(&found.path);
    let max_age = filesystem.lifetimes().of(&found.path);
    let known = namespace.status(&found.path, max_age).await?;
    if known.value.kind != FileKind::File {
        let message = format!("{}: it is no regular file any more", found.path);
        return Err(Error::new(ErrorKind::Changed, message));
    }
    Ok(Arc::new(
        known.value.version(namespace.source().id(), &found.path),
    ))
}
