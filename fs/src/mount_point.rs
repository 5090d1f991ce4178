//! Mount points: what is mounted where, mounting a `/dev/fuse` descriptor, unmounting. Nothing here waits for a
//! filesystem: a mount point is looked up in the kernel's table, never with `stat`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use thiserror::Error;

/// The filesystem type in `/proc/mounts`.
pub const FILESYSTEM_TYPE: &str = "fuse.lookupfs";

/// How long a live daemon may take to answer a `statfs`, for which it asks nobody.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Why a mount point cannot be used. Each says what to do.
#[derive(Debug, Error)]
pub enum MountPointError {
    /// Not there.
    #[error("{0}: there is no such directory; make it with `mkdir -p {0}`")]
    Missing(PathBuf),
    /// A file, or something else.
    #[error("{0}: it is not a directory; a filesystem is mounted on a directory")]
    NotDirectory(PathBuf),
    /// In use.
    #[error(
        "{path}: a filesystem of type {fstype} is mounted there; unmount it first or take another directory"
    )]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// The type of what is mounted.
        fstype: String,
    },
    /// No `/dev/fuse`.
    #[error(
        "/dev/fuse cannot be opened ({0}); load the kernel module with `modprobe fuse`, or pass the device in"
    )]
    NoDevice(io::Error),
    /// No right to mount.
    #[error("{0}: mounting and unmounting need root (CAP_SYS_ADMIN); run the command with sudo")]
    NoPermission(PathBuf),
    /// Nothing of ours is mounted.
    #[error("{0}: no lookupfs is mounted there; `findmnt -t {FILESYSTEM_TYPE}` lists what is")]
    NotMounted(PathBuf),
    /// Files are open.
    #[error(
        "{0}: files or directories in it are in use (`fuser -vm {0}` says by whom); close them, or unmount with --lazy"
    )]
    InUse(PathBuf),
    /// Anything else the kernel says.
    #[error("{path}: {what} failed")]
    Kernel {
        /// The mount point.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    /// Where.
    pub path: PathBuf,
    /// Type, such as `ext4` or `fuse.lookupfs`.
    pub fstype: String,
    /// Device number, as in `0:57`; names the mount's folders below `/sys`.
    pub device: String,
}

/// Everything that is mounted in this mount namespace, the upper one of two last.
///
/// # Errors
/// If `/proc` is not there.
pub fn mounted() -> io::Result<Vec<MountedAt>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

/// The mount of lookupfs that `path`, which is absolute, is or lies below.
pub fn lookupfs_above(path: &Path) -> Option<PathBuf> {
    let mounted = mounted().ok()?.into_iter();
    let above =
        mounted.filter(|mounted| mounted.fstype == FILESYSTEM_TYPE && path.starts_with(&mounted.path));
    above
        .max_by_key(|mounted| mounted.path.components().count())
        .map(|mounted| mounted.path)
}

/// The device number of what is mounted on `path`, which is absolute.
pub fn device_of(path: &Path) -> Option<String> {
    let mounted = mounted().ok()?;
    let upper = mounted.into_iter().rfind(|mounted| mounted.path == path)?;
    Some(upper.device)
}

/// Format: proc(5), `/proc/pid/mountinfo`: the fifth field is the mount point, the type follows a lone `-`.
fn parse_line(line: &[u8]) -> Option<MountedAt> {
    let mut fields = line.split(|b| *b == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let path = unescape(fields.nth(1)?);
    let fstype = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountedAt {
        path: PathBuf::from(std::ffi::OsString::from_vec(path)),
        fstype: String::from_utf8_lossy(fstype).into_owned(),
        device,
    })
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match octal {
            Some(digits) if byte == b'\\' => {
                out.push(
                    digits
                        .iter()
                        .fold(0u8, |value, digit| value.wrapping_mul(8) + (digit - b'0')),
                );
                rest = &tail[3..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// The absolute form of a mount point without symbolic links, as the kernel's table has it. The last component may be a
/// dead or hanging mount, so that it is never asked for more than whether it is a link, which needs no answer of a mount.
///
/// # Errors
/// `Missing` if the parent is not there.
pub fn absolute(path: &Path) -> Result<PathBuf, MountPointError> {
    let missing = |_| MountPointError::Missing(path.to_owned());
    let full = std::path::absolute(path).map_err(missing)?;
    let plain: PathBuf = full
        .components()
        .filter(|c| !matches!(c, Component::CurDir))
        .collect();
    if plain.components().any(|c| matches!(c, Component::ParentDir)) {
        // `a/..` is only plain without links: let the kernel say where it leads.
        return plain.canonicalize().map_err(missing);
    }
    if std::fs::read_link(&plain).is_ok() {
        return plain.canonicalize().map_err(missing);
    }
    match (plain.parent(), plain.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(missing)?.join(name)),
        _ => Ok(plain),
    }
}

/// Whether the daemon behind a mount has died: only then the answer is ENOTCONN, and it comes at once.
///
/// Asked by `statfs`, which the kernel always hands on; a `stat` it answers itself for as long as `ttl` lets it, also for
/// the dead. A daemon that hangs is not dead, and is not waited for.
fn is_dead(path: &Path) -> bool {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let path = path.to_owned();
    let ask = move || {
        let _ = tell.send(matches!(nix::sys::statfs::statfs(&path), Err(Errno::ENOTCONN)));
    };
    match std::thread::Builder::new().name("statfs".into()).spawn(ask) {
        Ok(_) => told.recv_timeout(ANSWER_WAIT).unwrap_or(false),
        Err(_) => false,
    }
}

/// Makes sure that `path` is a directory on which nothing is mounted. What a killed daemon left there is taken away.
///
/// # Errors
/// See [`MountPointError`].
pub fn prepare(path: &Path) -> Result<PathBuf, MountPointError> {
    let path = absolute(path)?;
    let kernel = |what| {
        move |source| MountPointError::Kernel {
            path: PathBuf::new(),
            what,
            source,
        }
    };
    let on_it = mounted().map_err(kernel("reading the table of mounts"))?;
    if let Some(there) = on_it.iter().rfind(|mounted| mounted.path == path) {
        let is_ours = there.fstype == FILESYSTEM_TYPE;
        if is_ours && is_dead(&path) {
            tracing::warn!(path = %path.display(), "taking away the mount that a dead daemon left");
            detach(&path)?;
            return prepare(&path);
        }
        return Err(MountPointError::Busy {
            path,
            fstype: there.fstype.clone(),
        });
    }
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(MountPointError::NotDirectory(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountPointError::Missing(path)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(MountPointError::NotDirectory(path))
        }
        Err(source) => Err(MountPointError::Kernel {
            path,
            what: "stat",
            source,
        }),
    }
}

/// Mounts a new `/dev/fuse` descriptor at `path`. The kernel waits for the handshake of whoever serves it.
///
/// # Errors
/// See [`MountPointError`].
pub fn mount_fuse(
    source: &str,
    path: &Path,
    allow_other: bool,
    default_permissions: bool,
) -> Result<OwnedFd, MountPointError> {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => MountPointError::NoPermission(path.to_owned()),
            _ => MountPointError::NoDevice(error),
        })?;
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    // fuse(4): the file descriptor, the type of the root, and who may enter.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid}",
        device.as_raw_fd()
    );
    if allow_other {
        data.push_str(",allow_other");
    }
    if default_permissions {
        data.push_str(",default_permissions");
    }
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
    match mount(
        Some(source),
        path,
        Some(FILESYSTEM_TYPE),
        flags,
        Some(data.as_str()),
    ) {
        Ok(()) => Ok(device.into()),
        Err(Errno::EPERM | Errno::EACCES) => Err(MountPointError::NoPermission(path.to_owned())),
        Err(errno) => Err(MountPointError::Kernel {
            path: path.to_owned(),
            what: "mount(2)",
            source: errno.into(),
        }),
    }
}

/// Unmounts a lookupfs at `path`; with `lazy` also while files in it are open.
///
/// # Errors
/// `NotMounted` where no lookupfs is mounted, `InUse`, `NoPermission`, or what the kernel says.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), MountPointError> {
    let path = absolute(path)?;
    let table = mounted().map_err(|source| MountPointError::Kernel {
        path: path.clone(),
        what: "reading the table of mounts",
        source,
    })?;
    let is_ours = table
        .iter()
        .rfind(|m| m.path == path)
        .is_some_and(|m| m.fstype == FILESYSTEM_TYPE);
    if !is_ours {
        return Err(MountPointError::NotMounted(path));
    }
    let flags = if lazy {
        MntFlags::MNT_DETACH
    } else {
        MntFlags::empty()
    };
    umount_with(&path, flags)
}

/// Takes a mount away from the tree at once; what is open stays so until it is closed.
///
/// # Errors
/// What the kernel says.
pub fn detach(path: &Path) -> Result<(), MountPointError> {
    umount_with(path, MntFlags::MNT_DETACH)
}

fn umount_with(path: &Path, flags: MntFlags) -> Result<(), MountPointError> {
    // UMOUNT_NOFOLLOW: `path` is a place in the table, and never a link.
    match umount2(path, flags | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::EBUSY) => Err(MountPointError::InUse(path.to_owned())),
        Err(Errno::EPERM) => Err(MountPointError::NoPermission(path.to_owned())),
        Err(Errno::EINVAL) => Err(MountPointError::NotMounted(path.to_owned())),
        Err(errno) => Err(MountPointError::Kernel {
            path: path.to_owned(),
            what: "umount(2)",
            source: errno.into(),
        }),
    }
}

/// Whether `path` is fit for a line of a protocol: absolute, and text.
pub fn as_text(path: &Path) -> Option<&str> {
    std::str::from_utf8(path.as_os_str().as_bytes())
        .ok()
        .filter(|_| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_read_with_its_escapes() {
        let line = br"36 35 98:0 / /mnt/a\040b\134c rw,noatime master:1 shared:7 - fuse.lookupfs hdfs://x ro";
        let path = PathBuf::from(r"/mnt/a b\c");
        assert_eq!(
            parse_line(line),
            Some(MountedAt {
                path,
                fstype: "fuse.lookupfs".into(),
                device: "98:0".into(),
            })
        );
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"36 35 98:0 / /mnt rw -"), None);
        assert!(mounted().unwrap().iter().any(|m| m.path == Path::new("/")));
    }

    #[test]
    fn a_link_to_a_mount_point_is_where_it_leads() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        assert_eq!(absolute(&link).unwrap(), real);
        assert_eq!(prepare(&link).unwrap(), real);
        let nowhere = directory.path().join("nowhere");
        std::os::unix::fs::symlink("gone", &nowhere).unwrap();
        assert!(matches!(prepare(&nowhere), Err(MountPointError::Missing(_))));
    }

    #[test]
    fn mount_points_that_will_not_do_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(prepare(&file), Err(MountPointError::NotDirectory(_))));
        assert!(matches!(
            prepare(&file.join("x")),
            Err(MountPointError::NotDirectory(_) | MountPointError::Missing(_))
        ));
        assert!(matches!(
            prepare(&directory.path().join("no")),
            Err(MountPointError::Missing(_))
        ));
        assert!(matches!(
            prepare(Path::new("/proc")),
            Err(MountPointError::Busy { .. })
        ));
        assert!(matches!(
            unmount(Path::new("/proc"), false),
            Err(MountPointError::NotMounted(_))
        ));
        assert_eq!(
            prepare(&directory.path().join("./.")).unwrap(),
            directory.path().canonicalize().unwrap()
        );
    }
}
