//! Asking all daemons of this user at once: who runs, who serves a mount point, who does not answer.
//!
//! Owns the wait: one that is stopped or hangs costs the others nothing, and the caller [`PATIENCE`] once. Refuses to hide
//! it: whoever looks for a daemon in vain hears of those that did not answer. Called by the commands.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Answer, Request, StatsRequest, ask, nobody_listens, sockets};
use crate::stats::Stats;

/// How long daemons may take to say their counters, which they have at hand.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// What the daemons of this user said.
#[derive(Debug, Default)]
pub struct Daemons {
    /// Socket and counters of those that answered, in the order of their sockets.
    pub answered: Vec<(PathBuf, Stats)>,
    /// Those that listen and did not answer, and why.
    pub silent: Vec<(PathBuf, String)>,
}

impl Daemons {
    /// One line that names those that did not answer; `None` if all did.
    pub fn complaint(&self) -> Option<String> {
        let (socket, reason) = self.silent.first()?;
        let more = match self.silent.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(format!(
            "the daemon at {}{more} does not answer: {reason}; if it is stopped, `fuser {}` names its process",
            socket.display(),
            socket.display()
        ))
    }

    /// Why no daemon was found for a mount point.
    pub fn not_served(&self, mount_point: &Path) -> String {
        let mount_point = mount_point.display();
        match self.complaint() {
            Some(complaint) => {
                format!("{mount_point}: none of the daemons that answer serves it; {complaint}")
            }
            None => format!(
                "{mount_point}: no daemon of this user serves it; `lookupfs stats --all` shows those that run"
            ),
        }
    }
}

/// Asks all daemons of this user for their counters, at once.
///
/// # Errors
/// If the run directory cannot be read.
pub fn ask_all(request: &StatsRequest) -> Result<Daemons, String> {
    let sockets = sockets()?;
    let (send, receive) = mpsc::sync_channel(sockets.len());
    for (number, socket) in sockets.iter().enumerate() {
        let (send, socket, request) = (send.clone(), socket.clone(), request.clone());
        // Left behind where even the connection is not taken: the process is about to end.
        let asking = thread::Builder::new().spawn(move || {
            let _ = send.send((number, ask_one(&socket, request)));
        });
        asking.map_err(|error| format!("no thread to ask a daemon: {error}"))?;
    }
    drop(send);
    let mut answers: Vec<Option<io::Result<Stats>>> = sockets.iter().map(|_| None).collect();
    let end = Instant::now() + PATIENCE;
    while let Ok((number, answer)) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        answers[number] = Some(answer);
    }
    let mut daemons = Daemons::default();
    for (socket, answer) in sockets.into_iter().zip(answers) {
        match answer {
            Some(Ok(stats)) => daemons.answered.push((socket, stats)),
            Some(Err(error)) if nobody_listens(&error) => {}
            Some(Err(error)) if is_silence(&error) => daemons.silent.push((socket, silence())),
            Some(Err(error)) => daemons.silent.push((socket, error.to_string())),
            None => daemons.silent.push((socket, silence())),
        }
    }
    Ok(daemons)
}

/// The socket of the daemon that serves a mount point, and all mount points of that daemon.
///
/// # Errors
/// One sentence for people, where no daemon of this user is known to.
pub fn daemon_of(mount_point: &Path) -> Result<(PathBuf, Vec<PathBuf>), String> {
    let mut daemons = ask_all(&StatsRequest::default())?;
    let serves = |stats: &Stats| stats.mounts.iter().any(|mount| mount.mount_point == mount_point);
    match daemons.answered.iter().position(|(_, stats)| serves(stats)) {
        Some(at) => {
            let (socket, stats) = daemons.answered.swap_remove(at);
            Ok((
                socket,
                stats.mounts.into_iter().map(|mount| mount.mount_point).collect(),
            ))
        }
        None => Err(daemons.not_served(mount_point)),
    }
}

/// The counters of one daemon.
///
/// # Errors
/// As [`ask`], and where it answers with something else.
pub fn ask_one(socket: &Path, request: StatsRequest) -> io::Result<Stats> {
    match ask(socket, &Request::Stats(request), PATIENCE)? {
        Answer::Stats(stats) => Ok(*stats),
        Answer::Failed(reason) => Err(io::Error::other(reason)),
        _ => Err(io::Error::other(
            "it answers something else; is it another version?",
        )),
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn silence() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}
