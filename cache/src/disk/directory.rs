//! Our own sub-directory of `cache_dir`: who has it, which files are in it. The only code that creates and deletes.
//!
//! Owns the lock, which is on the directory itself, and every path. Refuses to touch what it does not know: `cache_dir` itself may hold other things, and
//! so may strangers. Called by `disk.rs` and `writer.rs`.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;

use super::format;
use super::kernel_pages::keep_no_access_time;
use crate::error::{Error, ErrorKind, Result};
use crate::version::VersionId;

/// The sub-directory; the number is that of the format on disk.
pub(super) const NAME: &str = "lookupfs-1";
/// Says whose the directory is, for the message of a second daemon alone: whoever deletes it lets nobody in.
const LOCK: &str = "lock";
/// How long a daemon that is ending may take to let go.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The sub-directory, for as long as this process has its lock.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    owner: String,
    lock: Mutex<Flock<File>>,
}

/// A version whose files an earlier daemon left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) id: VersionId,
    /// Bytes that the file system has given to both files.
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

/// What became of a directory that somebody deleted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Intact {
    /// Nothing: it is there.
    Yes,
    /// It had gone, and another one is in its place and locked: empty, or with what somebody put there.
    Remade,
}

impl Directory {
    /// Makes the directory below `cache_dir` unless it is there, and locks it for `owner`, the daemon's name.
    ///
    /// # Errors
    /// `Invalid` where another daemon has it, it is somebody else's, or it cannot be made; the text says what to do.
    pub(super) fn lock(cache_dir: &Path, owner: &str) -> Result<Directory> {
        let path = cache_dir.join(NAME);
        make(&path).map_err(|error| refusal(&path, "cannot be used", error))?;
        let owner = format!("daemon {owner}, pid {}", std::process::id());
        let lock = take_lock(&path, &owner, LOCK_WAIT)?;
        Ok(Directory {
            path,
            owner,
            lock: Mutex::new(lock),
        })
    }

    /// Whether the directory is still the one that was locked; makes and locks a new one where it has gone.
    ///
    /// # Errors
    /// If it cannot be made, or another daemon was faster.
    pub(super) fn look_after(&self) -> Result<Intact> {
        let mut lock = self.lock.lock();
        let held = lock.metadata().map(|held| (held.dev(), held.ino()));
        let there = fs::symlink_metadata(&self.path).map(|there| (there.dev(), there.ino()));
        match (held, there) {
            (Ok(held), Ok(there)) if held == there => return Ok(Intact::Yes),
            // What cannot be seen is not known to have gone.
            (_, Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refusal(&self.path, "cannot be looked at", error));
            }
            _ => {}
        }
        make(&self.path).map_err(|error| refusal(&self.path, "has gone and cannot be made anew", error))?;
        *lock = take_lock(&self.path, &self.owner, Duration::ZERO)?;
        Ok(Intact::Remade)
    }

    /// Makes both files of a version, empty. What was there of them goes.
    pub(super) fn create(&self, id: VersionId) -> io::Result<(File, File)> {
        self.remove(id)?;
        let [data, map] = self.paths(id);
        if let Some(folder) = data.parent() {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => is_folder(folder)?,
            }
        }
        let make = |path: &Path| options().write(true).create_new(true).mode(0o600).open(path);
        // The map first: one without data is known for what it is.
        let map = make(&map)?;
        match make(&data) {
            Ok(data) => {
                keep_no_access_time(&data);
                Ok((data, map))
            }
            Err(error) => {
                self.remove(id)?;
                Err(error)
            }
        }
    }

    /// Opens both files of a version.
    ///
    /// # Errors
    /// `InvalidData` where somebody has put something else in the place of a file; others as the disk says.
    pub(super) fn open(&self, id: VersionId) -> io::Result<(File, File)> {
        let open = |path: &Path| {
            let file = options().write(true).open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            Ok::<File, io::Error>(file)
        };
        let [data, map] = self.paths(id);
        data.parent().map_or(Ok(()), is_folder)?;
        Ok((open(&data)?, open(&map)?))
    }

    /// Bytes that the file system has given to what is in the places of a version's files.
    pub(super) fn allocated_bytes(&self, id: VersionId) -> u64 {
        let there = self
            .paths(id)
            .into_iter()
            .filter_map(|path| fs::symlink_metadata(path).ok());
        there.map(|metadata| metadata.blocks() * 512).sum()
    }

    /// The page size that the map of a version was written with.
    pub(super) fn page_bytes_of(&self, id: VersionId) -> Option<u64> {
        let [_, map] = self.paths(id);
        let mut header = [0; 16];
        options().open(map).ok()?.read_exact(&mut header).ok()?;
        format::page_bytes_of(&header)
    }

    /// Deletes both files of a version; that they are not there is fine.
    pub(super) fn remove(&self, id: VersionId) -> io::Result<()> {
        for path in self.paths(id) {
            match path.parent().map_or(Ok(()), is_folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// All versions of which both files are here, the oldest first. A file without its other half is deleted; what is
    /// not named like a file of ours is left alone.
    pub(super) fn scan(&self) -> io::Result<Vec<Left>> {
        let mut found = Vec::new();
        for folder in fs::read_dir(&self.path)? {
            let folder = folder?;
            let name = folder.file_name();
            let is_ours = name.to_str().is_some_and(|name| is_hex(name, 2));
            if is_ours && folder.file_type()?.is_dir() {
                // What is there takes room, and nobody can say how much: better than no cache, or no daemon.
                if let Err(error) = self.scan_folder(&folder.path(), &mut found) {
                    let path = folder.path();
                    tracing::warn!(path = %path.display(), %error, "a folder of the disk tier cannot be read; mend or delete it");
                }
            }
        }
        found.sort_by_key(|left| left.modified);
        Ok(found)
    }

    /// Half of what the file system has left for the tier: what is free, and what `left` has already.
    pub(super) fn half_of_room(&self, left: &[Left]) -> io::Result<u64> {
        let free = nix::sys::statvfs::statvfs(&self.path).map_err(io::Error::from)?;
        let free = (free.blocks_available() as u64).saturating_mul(free.fragment_size() as u64);
        let ours: u64 = left.iter().map(|version| version.bytes).sum();
        Ok(free.saturating_add(ours) / 2)
    }

    fn scan_folder(&self, folder: &Path, found: &mut Vec<Left>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(id) = path.file_stem().and_then(|stem| parse_id(stem.to_str()?)) else {
                continue;
            };
            let [data_path, map_path] = self.paths(id);
            let (is_data, is_map) = (path == data_path, path == map_path);
            if !is_data && !is_map {
                continue;
            }
            let (data, map) = (fs::symlink_metadata(&data_path), fs::symlink_metadata(&map_path));
            match (data, map) {
                (Ok(data), Ok(map)) if data.is_file() && map.is_file() => {
                    if is_map {
                        found.push(Left {
                            id,
                            bytes: (data.blocks() + map.blocks()) * 512,
                            modified: map.modified()?.max(data.modified()?),
                        });
                    }
                }
                _ => {
                    if let Err(error) = self.remove(id) {
                        let path = path.display();
                        tracing::warn!(%path, %error, "what is no file of the disk tier cannot be deleted; do it by hand");
                    }
                }
            }
        }
        Ok(())
    }

    /// `<2 hex>/<32 hex>.data` and `.map`.
    fn paths(&self, id: VersionId) -> [PathBuf; 2] {
        let name = id.to_string();
        let folder = self.path.join(&name[..2]);
        [
            folder.join(format!("{name}.data")),
            folder.join(format!("{name}.map")),
        ]
    }
}

/// A link in the place of a folder of ours would lead out of the directory.
fn is_folder(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Ok(());
    }
    let message = format!("{} is no folder: delete it", path.display());
    Err(io::Error::new(io::ErrorKind::NotADirectory, message))
}

fn options() -> OpenOptions {
    let mut options = File::options();
    // A link would lead out of the directory; a pipe would wait for its other end.
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Makes the directory with mode 0700; one that is there must be this user's own, and gets that mode.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() || metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is a link or belongs to another user",
        ));
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

fn take_lock(path: &Path, owner: &str, patience: Duration) -> Result<Flock<File>> {
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(path);
    let mut directory = directory.map_err(|error| refusal(path, "cannot be opened", error))?;
    let start = Instant::now();
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                if let Err(error) = write_owner(path, owner) {
                    tracing::debug!(%error, path = %path.display(), "the lock does not say whose it is");
                }
                return Ok(lock);
            }
            Err((other, errno)) => {
                let error = io::Error::from(errno);
                let is_taken = matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                );
                if !is_taken {
                    return Err(refusal(path, "cannot be locked", error));
                }
                if start.elapsed() >= patience {
                    return Err(taken(path));
                }
                directory = other;
            }
        }
        pause();
    }
}

fn write_owner(path: &Path, owner: &str) -> io::Result<()> {
    let mut file = options()
        .write(true)
        .create(true)
        .mode(0o600)
        .open(path.join(LOCK))?;
    file.set_len(0)?;
    writeln!(file, "{owner}")
}

fn taken(path: &Path) -> Error {
    let mut owner = String::new();
    if let Ok(file) = options().open(path.join(LOCK)) {
        let _ = file.take(256).read_to_string(&mut owner);
    }
    let owner = match owner.trim() {
        "" => "another process",
        owner => owner,
    };
    let owner = owner.escape_debug();
    let path = path.display();
    Error::new(
        ErrorKind::Invalid,
        format!("{path}: {owner} has it; join that daemon with --daemon NAME, or give another cache_dir"),
    )
}

fn refusal(path: &Path, what: &str, error: io::Error) -> Error {
    let path = path.display();
    Error::with_cause(
        ErrorKind::Invalid,
        format!("{path}: it {what}; give a cache_dir of your own"),
        error,
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "a daemon that starts waits for one that ends, which sends no event; bounded by LOCK_WAIT"
)]
fn pause() {
    std::thread::sleep(LOCK_POLL);
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse_id(text: &str) -> Option<VersionId> {
    if !is_hex(text, 32) {
        return None;
    }
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(VersionId::from_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{FileVersion, SourceId, SourcePath};

    fn id(name: &str) -> VersionId {
        let path = SourcePath::root().join(name.as_bytes()).unwrap();
        FileVersion::new(SourceId::new("memory://d"), path, 1, 2, 3).id()
    }

    #[test]
    fn the_directory_is_for_its_owner_alone_and_a_second_daemon_hears_whose_it_is() {
        let cache_dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(cache_dir.path(), "one").unwrap();
        directory.create(id("a")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&cache_dir.path().join(NAME)), 0o700);
        let [data, map] = directory.paths(id("a"));
        assert_eq!((mode(&data), mode(&map)), (0o600, 0o600));
        assert_eq!(mode(data.parent().unwrap()), 0o700);
        let refused = Directory::lock(cache_dir.path(), "two").unwrap_err().to_string();
        let pid = std::process::id();
        assert!(refused.contains(&format!("daemon one, pid {pid}")), "{refused}");
        assert!(refused.contains("another cache_dir"), "{refused}");
        drop(directory);
        Directory::lock(cache_dir.path(), "two").unwrap();
    }

    #[test]
    fn a_scan_finds_pairs_deletes_halves_and_leaves_strangers_alone() {
        let cache_dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(cache_dir.path(), "one").unwrap();
        for name in ["a", "b", "c"] {
            directory.create(id(name)).unwrap();
        }
        let [data, map] = directory.paths(id("b"));
        fs::remove_file(map).unwrap();
        let [_, lone_map] = directory.paths(id("c"));
        fs::remove_file(&directory.paths(id("c"))[0]).unwrap();
        let strangers = [
            cache_dir.path().join("mine"),
            cache_dir.path().join(NAME).join("note"),
            data.with_file_name("note.map"),
        ];
        for path in &strangers {
            fs::write(path, b"x").unwrap();
        }
        let found: Vec<VersionId> = directory.scan().unwrap().iter().map(|left| left.id).collect();
        assert_eq!(found, [id("a")]);
        assert!(!data.exists() && !lone_map.exists());
        assert!(strangers.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_directory_that_has_gone_is_made_and_locked_anew() {
        let cache_dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(cache_dir.path(), "one").unwrap();
        assert_eq!(directory.look_after().unwrap(), Intact::Yes);
        fs::remove_dir_all(cache_dir.path().join(NAME)).unwrap();
        assert_eq!(directory.look_after().unwrap(), Intact::Remade);
        assert_eq!(directory.look_after().unwrap(), Intact::Yes);
        assert!(Directory::lock(cache_dir.path(), "two").is_err());
        fs::remove_dir_all(cache_dir.path().join(NAME)).unwrap();
        let faster = Directory::lock(cache_dir.path(), "two").unwrap();
        let error = directory.look_after().unwrap_err().to_string();
        assert!(error.contains("daemon two"), "{error}");
        drop(faster);
    }

    #[test]
    fn without_its_lock_file_the_directory_is_still_taken_and_intact() {
        let cache_dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(cache_dir.path(), "one").unwrap();
        fs::remove_file(cache_dir.path().join(NAME).join(LOCK)).unwrap();
        assert_eq!(directory.look_after().unwrap(), Intact::Yes);
        let refused = Directory::lock(cache_dir.path(), "two").unwrap_err().to_string();
        assert!(refused.contains("another process has it"), "{refused}");
    }

    #[test]
    fn links_are_not_followed() {
        let cache_dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), cache_dir.path().join(NAME)).unwrap();
        assert!(Directory::lock(cache_dir.path(), "one").is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
