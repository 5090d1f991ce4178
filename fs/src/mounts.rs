//! The mounts of one daemon: made together, watched, taken down together.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::counters::CounterValues;
use crate::filesystem::Filesystem;
use crate::mount_point::{self, MountPointError};

/// How long the kernel may take for the handshake. It is one message on a local device.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Why a mount did not come up.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mount point.
    #[error(transparent)]
    MountPoint(#[from] MountPointError),
    /// The session.
    #[error("{path}: the kernel did not start the filesystem ({reason})")]
    Session {
        /// The mount point.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// One mount that is up.
#[derive(Debug)]
pub struct Mounted {
    /// Where.
    pub path: PathBuf,
    /// The source URL, for people.
    pub source: String,
    /// What it shows.
    pub filesystem: Arc<Filesystem>,
    /// The kernel's device number for it, where it could be learned.
    pub device: Option<String>,
    /// Why this daemon takes it down, where it does.
    going: OnceLock<&'static str>,
}

impl Mounted {
    /// umount(8), `lookupfs umount` and an abort look the same from here.
    fn note_end(&self, ended: &std::io::Result<()>) {
        let path = self.path.display();
        let reason = self.going.get().unwrap_or(&"by a command, or by the kernel");
        match ended {
            Ok(()) => tracing::info!(%path, reason, "unmounted"),
            Err(error) => tracing::warn!(%path, reason, %error, "the mount has ended"),
        }
    }
}

/// How one mount is to be made.
#[derive(Clone, Debug)]
pub struct MountPlan {
    /// Where; prepared.
    pub path: PathBuf,
    /// The source URL, for people and for `/proc/mounts`.
    pub source: String,
    /// Whether others may enter.
    pub allow_other: bool,
    /// Whether the kernel checks permissions.
    pub default_permissions: bool,
    /// Every READ is answered within this.
    pub deadline: Duration,
    /// Every other request is answered within this.
    pub metadata_deadline: Duration,
}

#[derive(Debug, Default)]
struct Up {
    mounts: Vec<Arc<Mounted>>,
    /// What the kernel asked of mounts that have gone.
    gone: CounterValues,
    /// Mounts that have come up since the start.
    made: u64,
}

/// The mounts that are up.
#[derive(Debug, Default)]
pub struct Mounts {
    up: Mutex<Up>,
    /// Told each time a mount has gone. Everybody who waits hears of it: the daemon, and whoever takes mounts down.
    gone: watch::Sender<()>,
}

impl Mounts {
    /// The mounts that are up.
    pub fn list(&self) -> Vec<Arc<Mounted>> {
        self.up.lock().mounts.clone()
    }

    /// Whether any has come up since the start.
    pub fn has_had_one(&self) -> bool {
        self.up.lock().made > 0
    }

    /// What the kernel asked of all mounts since the start, those that have gone included.
    pub fn asked(&self) -> CounterValues {
        let up = self.up.lock();
        let values = up
            .mounts
            .iter()
            .map(|mounted| mounted.filesystem.counters().values());
        values.fold(up.gone, |sum, values| sum.plus(&values))
    }

    /// Hears of each mount that goes from now on.
    pub fn watch_gone(&self) -> watch::Receiver<()> {
        self.gone.subscribe()
    }

    /// Wakes those who [`Mounts::watch_gone`], though nothing may have gone.
    pub fn look_again(&self) {
        self.gone.send_replace(());
    }

    /// Mounts and serves; returns once the kernel has agreed.
    ///
    /// # Errors
    /// See [`MountError`]; nothing is left mounted then.
    pub fn mount(
        self: &Arc<Self>,
        plan: &MountPlan,
        filesystem: Arc<Filesystem>,
        runtime: &Handle,
    ) -> Result<(), MountError> {
        let MountPlan {
            path,
            source,
            allow_other,
            default_permissions,
            ..
        } = plan.clone();
        let deadlines = (plan.deadline, plan.metadata_deadline);
        let device = mount_point::mount_fuse(&source, &path, allow_other, default_permissions)?;
        let mounted = Arc::new(Mounted {
            path: path.clone(),
            source,
            filesystem: filesystem.clone(),
            device: mount_point::device_of(&path),
            going: OnceLock::new(),
        });
        let (ready, is_ready) = mpsc::sync_channel::<Result<(), String>>(2);
        let (this, runtime) = (self.clone(), runtime.clone());
        let serve = move || {
            let (up, registered) = (this.clone(), mounted.clone());
            let tell = ready.clone();
            let on_ready = move || {
                let mut up = up.up.lock();
                up.mounts.push(registered);
                up.made += 1;
                drop(up);
                let _ = tell.send(Ok(()));
            };
            let ended = crate::fuse::serve(filesystem, device, allow_other, runtime, deadlines, on_ready);
            mounted.note_end(&ended);
            this.remove(&mounted);
            // Only heard where the session ended before it was ready.
            let _ = ready.send(Err(ended
                .err()
                .map_or("it ended at once".to_owned(), |e| e.to_string())));
        };
        let failed = |reason: String| {
            if let Err(error) = mount_point::detach(&path) {
                tracing::warn!(path = %path.display(), ?error, "a mount that did not come up stays behind");
            }
            MountError::Session {
                path: path.clone(),
                reason,
            }
        };
        thread::Builder::new()
            .name("mount".into())
            .spawn(serve)
            .map_err(|error| failed(format!("no thread: {error}")))?;
        match is_ready.recv_timeout(HANDSHAKE_WAIT) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(_) => Err(failed(format!(
                "no handshake within {} s",
                HANDSHAKE_WAIT.as_secs()
            ))),
        }
    }

    /// Takes mounts down for a `reason`: plainly where nothing is open, else detached from the tree. Waits at most `grace` for the
    /// sessions to end.
    pub async fn unmount(&self, paths: &[PathBuf], reason: &'static str, grace: Duration) {
        let mut gone = self.watch_gone();
        for mounted in self.list().iter().filter(|mounted| paths.contains(&mounted.path)) {
            let _ = mounted.going.set(reason);
        }
        for path in paths {
            if let Err(error) = unmount_or_detach(path) {
                tracing::warn!(path = %path.display(), ?error, "not unmounted");
            }
        }
        let all_gone = async {
            while self.list().iter().any(|mounted| paths.contains(&mounted.path)) {
                // The sender lives as long as `self`.
                let _ = gone.changed().await;
            }
        };
        if tokio::time::timeout(grace, all_gone).await.is_err() {
            let still = self.list();
            let still = still.iter().filter(|mounted| paths.contains(&mounted.path));
            for mounted in still {
                let path = mounted.path.display();
                tracing::warn!(%path, "files are still open in this detached mount; their readers get ENOTCONN");
            }
        }
    }

    fn remove(&self, mounted: &Arc<Mounted>) {
        let mut up = self.up.lock();
        let before = up.mounts.len();
        up.mounts.retain(|other| !Arc::ptr_eq(other, mounted));
        if up.mounts.len() < before {
            up.gone = up.gone.plus(&mounted.filesystem.counters().values());
        }
        drop(up);
        self.look_again();
    }
}

fn unmount_or_detach(path: &Path) -> Result<(), MountPointError> {
    match mount_point::unmount(path, false) {
        Err(MountPointError::InUse(_)) => mount_point::detach(path),
        other => other,
    }
}
