//! Where things may lie: a cache directory neither under what it caches nor under a mount that needs it.
//!
//! Owns that rule; touches nothing. Called by `daemon.rs` before it mounts.

use std::path::{Path, PathBuf};

use lookupfs_cache::source::open::SourceUrl;

/// Fails with one sentence if the daemon's `cache_dir`, the directory that a local source shows and the mount points are
/// in each other's way. All exist; they are compared as they really are, without links.
pub(crate) fn check(cache_dir: Option<&Path>, source: &str, mount_points: &[PathBuf]) -> Result<(), String> {
    let Some(cache_dir) = cache_dir else {
        return Ok(());
    };
    let cache = real(cache_dir);
    for mount_point in mount_points {
        let real_point = without_asking(mount_point);
        if cache.starts_with(&real_point) {
            return Err(format!(
                "{}: cache_dir={} lies below it and would be hidden by the mount; give a cache_dir elsewhere",
                mount_point.display(),
                cache_dir.display()
            ));
        }
        if real_point.starts_with(&cache) {
            return Err(format!(
                "{}: it lies below cache_dir={}, whose files the daemon deletes; mount elsewhere",
                mount_point.display(),
                cache_dir.display()
            ));
        }
    }
    if let Ok(SourceUrl::Local(root)) = SourceUrl::parse(source)
        && cache.starts_with(real(&root))
    {
        return Err(format!(
            "{source}: cache_dir={} lies below it, so that the mount would show the cache of itself; give a cache_dir elsewhere",
            cache_dir.display()
        ));
    }
    Ok(())
}

/// What is mounted on the mount point already may not answer, so that only its parent is asked.
fn without_asking(mount_point: &Path) -> PathBuf {
    match (mount_point.parent(), mount_point.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => mount_point.to_owned(),
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_directory_in_the_way_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (cache, data, mount) = (at("cache"), at("data"), at("mnt"));
        let local = |path: &Path| format!("file://{}", path.display());
        let check = |cache: &Path, source: &str, mount: &Path| {
            check(Some(cache), source, std::slice::from_ref(&mount.to_owned()))
        };
        check(&cache, &local(&data), &mount).unwrap();
        check(&cache, "hdfs:///", &mount).unwrap();
        // Names that only begin alike are not below each other.
        check(&at("mnt-cache"), &local(&at("dat")), &mount).unwrap();
        for (cache, source, mount, word) in [
            (&mount, local(&data), &mount, "hidden"),
            (&at("mnt/c"), "hdfs:///".to_owned(), &mount, "hidden"),
            (&cache, "hdfs:///".to_owned(), &at("cache/m"), "deletes"),
            (&at("data/c"), local(&data), &mount, "of itself"),
            (&data, local(&data), &mount, "of itself"),
        ] {
            let refused = check(cache, &source, mount).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(at("data/c"), &link).unwrap();
        assert!(check(&link, &local(&data), &mount).is_err());
    }
}
