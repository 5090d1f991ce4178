//! The name of a daemon: one process has it, for as long as it runs.
//!
//! Owns the lock. Refuses to wait for a daemon that listens. Called by the commands before a daemon is made.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::control::{self, DaemonFiles, listener};
use crate::launch;

/// The lock that makes a daemon the only one of its name, for as long as the value lives.
#[derive(Debug)]
pub struct DaemonLock(#[expect(dead_code, reason = "held for its Drop")] Flock<File>);

/// How long a daemon that is ending may take to give its name away: it listens no more, and what it does last is short.
const NAME_WAIT: Duration = Duration::from_secs(5);

/// Also one that is stopped, and whose backlog is full.
fn listens(files: &DaemonFiles) -> bool {
    !matches!(listener::connect(&files.socket), Err(error) if control::nobody_listens(&error))
}

/// Takes the name of a daemon; waits for one that is ending, and for none that listens.
///
/// # Errors
/// A sentence, if another process has it.
pub fn take_name(name: &str, files: &DaemonFiles) -> Result<DaemonLock, String> {
    let file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&files.lock);
    let mut file = file.map_err(|error| format!("{}: {error}", files.lock.display()))?;
    let start = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(DaemonLock(lock)),
            Err((_, errno)) if start.elapsed() > NAME_WAIT || listens(files) => {
                return Err(format!(
                    "a daemon named {name} is running already ({errno}); give another with --daemon NAME"
                ));
            }
            Err((unlocked, _)) => file = unlocked,
        }
        launch::pause();
    }
}
