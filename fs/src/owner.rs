//! Owner, group and mode as this host shows them: names of the source are mapped to ids of this host.

use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::source::{FileKind, FileStatus};
use moka::sync::Cache;
use nix::unistd::{Group, User};

/// How long a name's id is kept, so that a user added to the host shows up without a new mount.
const ID_AGE: Duration = Duration::from_secs(300);
/// Names remembered; more than that are looked up again.
const NAMES_MAX: u64 = 10_000;

/// What an unknown name maps to where the operator says nothing: the kernel's "nobody". Never root.
pub const NOBODY: u32 = 65_534;

/// The operator's choices about owners and modes; see fs/CONFIG.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnerConfig {
    /// Owner of everything; `None`: the source's owner, by name.
    pub uid: Option<u32>,
    /// Group of everything; `None`: the source's group, by name.
    pub gid: Option<u32>,
    /// Permission bits taken away.
    pub umask: u16,
    /// Mode of each file; `None`: the source's.
    pub file_mode: Option<u16>,
    /// Mode of each directory; `None`: the source's.
    pub dir_mode: Option<u16>,
}

/// Names of users and groups to ids, remembered for a while; shared by all mounts.
#[derive(Debug)]
pub struct Ids {
    users: Cache<Arc<str>, u32>,
    groups: Cache<Arc<str>, u32>,
}

impl Default for Ids {
    fn default() -> Self {
        let cache = || {
            Cache::builder()
                .max_capacity(NAMES_MAX)
                .time_to_live(ID_AGE)
                .build()
        };
        Ids {
            users: cache(),
            groups: cache(),
        }
    }
}

/// Who owns a file on this host, and what they may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits, at most 01777.
    pub mode: u16,
}

impl Ownership {
    /// Whether a caller may do all of `wanted` (4 read, 1 execute or search), by mode and primary group. Root may read
    /// everything, and execute what anybody may.
    pub fn allows(&self, uid: u32, gid: u32, wanted: u16) -> bool {
        if uid == 0 {
            return wanted & 1 == 0 || self.mode & 0o111 != 0;
        }
        let class = match (uid == self.uid, gid == self.gid) {
            (true, _) => self.mode >> 6,
            (false, true) => self.mode >> 3,
            (false, false) => self.mode,
        };
        class & wanted == wanted
    }
}

impl Ids {
    /// Maps the owner, group and mode of `status`.
    pub fn ownership(&self, status: &FileStatus, config: &OwnerConfig) -> Ownership {
        let fixed_mode = match status.kind {
            FileKind::Directory => config.dir_mode,
            FileKind::File | FileKind::Symlink => config.file_mode,
        };
        // The kernel never looks at a symbolic link's own mode.
        let mode = if status.kind == FileKind::Symlink {
            0o777
        } else {
            fixed_mode.unwrap_or(status.mode)
        };
        Ownership {
            uid: config.uid.unwrap_or_else(|| self.user(&status.owner)),
            gid: config.gid.unwrap_or_else(|| self.group(&status.group)),
            mode: mode & 0o1777 & !config.umask,
        }
    }

    fn user(&self, name: &Arc<str>) -> u32 {
        self.users.get_with_by_ref(name, || match User::from_name(name) {
            Ok(Some(user)) => user.uid.as_raw(),
            Ok(None) | Err(_) => NOBODY,
        })
    }

    fn group(&self, name: &Arc<str>) -> u32 {
        self.groups
            .get_with_by_ref(name, || match Group::from_name(name) {
                Ok(Some(group)) => group.gid.as_raw(),
                Ok(None) | Err(_) => NOBODY,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kind: FileKind, owner: &str, mode: u16) -> FileStatus {
        FileStatus {
            kind,
            len: 0,
            mtime_ms: 0,
            tag: 0,
            owner: owner.into(),
            group: owner.into(),
            mode,
        }
    }

    #[test]
    fn known_names_map_to_their_ids_and_unknown_ones_to_nobody() {
        let ids = Ids::default();
        let config = OwnerConfig::default();
        let root = ids.ownership(&status(FileKind::File, "root", 0o640), &config);
        assert_eq!(
            root,
            Ownership {
                uid: 0,
                gid: 0,
                mode: 0o640
            }
        );
        for name in ["", "no such user here", "a\0b"] {
            let unknown = ids.ownership(&status(FileKind::File, name, 0o640), &config);
            assert_eq!((unknown.uid, unknown.gid), (NOBODY, NOBODY), "{name:?}");
        }
    }

    #[test]
    fn the_operators_choices_win() {
        let ids = Ids::default();
        let config = OwnerConfig {
            uid: Some(7),
            gid: Some(8),
            umask: 0o027,
            file_mode: Some(0o666),
            dir_mode: None,
        };
        let file = ids.ownership(&status(FileKind::File, "root", 0o100), &config);
        assert_eq!(
            file,
            Ownership {
                uid: 7,
                gid: 8,
                mode: 0o640
            }
        );
        let directory = ids.ownership(&status(FileKind::Directory, "root", 0o1777), &config);
        assert_eq!(directory.mode, 0o1750);
    }

    #[test]
    fn set_user_id_bits_never_show() {
        let shown =
            Ids::default().ownership(&status(FileKind::File, "root", 0o7755), &OwnerConfig::default());
        assert_eq!(shown.mode, 0o1755);
    }
}
