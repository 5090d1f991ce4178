//! What the kernel and the mount have agreed on, and what the kernel does with it now.
//!
//! Owns the reading of `/sys` for one mount. Refuses to change anything, and to ask the mount itself: `stat` on it could
//! wait. Filled by [`crate::fuse`] at the handshake, shown by `lookupfs stats`.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Settings of one mount. What cannot be read on this host is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSettings {
    /// Version of FUSE's protocol that the kernel speaks.
    pub abi: String,
    /// What opening a file costs: `no-open` (nothing: the kernel does not ask), or `each` (a message for each, as with
    /// passthrough).
    pub opens: String,
    /// Threads that receive requests.
    pub event_loops: u64,
    /// Requests that the kernel sends at once in the background, such as read-ahead.
    pub max_background: u64,
    /// Of them, how many make the kernel hold back its own read-ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_threshold: Option<u64>,
    /// The longest READ.
    pub max_read_bytes: u64,
    /// The most that the kernel has offered to read ahead.
    pub max_readahead_bytes: u64,
    /// What the kernel reads ahead of a sequential reader now; an operator may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead_bytes: Option<u64>,
}

impl KernelSettings {
    /// What is in force now on the mount with the device number `device`, as in `0:57`.
    #[must_use]
    pub fn in_force(&self, device: Option<&str>) -> KernelSettings {
        self.read_below(Path::new("/sys"), device)
    }

    fn read_below(&self, sys: &Path, device: Option<&str>) -> KernelSettings {
        let mut now = self.clone();
        let Some(device) = device else { return now };
        let number = |path: String| -> Option<u64> {
            let text = std::fs::read_to_string(sys.join(path)).ok()?;
            text.trim().parse().ok()
        };
        now.read_ahead_bytes = number(format!("class/bdi/{device}/read_ahead_kb")).map(|kib| kib * 1024);
        // Only there where somebody has mounted fusectl; else what was agreed on is what is in force.
        if let Some((_, minor)) = device.split_once(':') {
            let connection = |name: &str| number(format!("fs/fuse/connections/{minor}/{name}"));
            now.max_background = connection("max_background").unwrap_or(now.max_background);
            now.congestion_threshold = connection("congestion_threshold").or(now.congestion_threshold);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_has_changed_shows() {
        let sys = tempfile::tempdir().unwrap();
        let agreed = KernelSettings {
            abi: "7.40".into(),
            max_background: 64,
            ..KernelSettings::default()
        };
        assert_eq!(
            agreed.read_below(sys.path(), Some("0:57")),
            agreed,
            "nothing is there"
        );
        assert_eq!(agreed.read_below(sys.path(), None), agreed);
        for (path, text) in [
            ("class/bdi/0:57/read_ahead_kb", "512\n"),
            ("fs/fuse/connections/57/max_background", "12\n"),
            ("fs/fuse/connections/57/congestion_threshold", "no number"),
        ] {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let now = agreed.read_below(sys.path(), Some("0:57"));
        assert_eq!(now.read_ahead_bytes, Some(512 << 10));
        assert_eq!((now.max_background, now.congestion_threshold), (12, None));
    }
}
