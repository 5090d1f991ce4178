//! Asking all daemons of this user at once: who runs, who serves a mount point, who does not answer.
//!
//! Owns the wait: one that is stopped or hangs costs the others nothing; whoever wants one daemon does not wait for it
//! either, and whoever wants all waits [`PATIENCE`] once. Refuses to hide it: whoever looks for a daemon in vain hears of
//! those that did not answer. Called by the commands.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Answer, Request, StatsRequest, ask, is_silence, listener, nobody_listens, sockets};
use crate::mount_point;
use crate::stats::Stats;

/// How long daemons may take to say their counters, which they have at hand.
pub const PATIENCE: Duration = Duration::from_secs(2);

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
        Some(format!("{}{more}: {reason}", listener::shown(socket)))
    }

    /// Why no daemon was found for a mount point, whether the kernel has a mount there or not.
    pub fn not_served(&self, mount_point: &Path) -> String {
        let absolute = mount_point::absolute(mount_point).ok();
        let is_mounted = absolute.is_some_and(|path| mount_point::lookupfs_above(&path).is_some());
        let mount_point = mount_point.display();
        match self.complaint() {
            None if is_mounted => format!(
                "{mount_point}: no daemon of this user serves it: its daemon has died, and mounting it again takes the dead mount \
                 away, or it is another user's"
            ),
            Some(complaint) => {
                format!("{mount_point}: none of the daemons that answer serves it; {complaint}")
            }
            None => format!(
                "{mount_point}: no daemon of this user serves it; `lookupfs stats --all` shows those that run"
            ),
        }
    }
}

/// Asks all daemons of this user for their counters, at once, and waits for each of them, [`PATIENCE`] at most.
///
/// # Errors
/// If the run directory cannot be read.
pub fn ask_all(request: &StatsRequest) -> Result<Daemons, String> {
    ask_until(request, |_| false)
}

/// As [`ask_all`], but waits for nobody any more once one has answered that `is_wanted`.
///
/// # Errors
/// If the run directory cannot be read.
pub fn ask_until(request: &StatsRequest, is_wanted: impl Fn(&Stats) -> bool) -> Result<Daemons, String> {
    ask_each_of(sockets()?, request, is_wanted)
}

fn ask_each_of(
    sockets: Vec<PathBuf>,
    request: &StatsRequest,
    is_wanted: impl Fn(&Stats) -> bool,
) -> Result<Daemons, String> {
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
    let (end, mut is_found) = (Instant::now() + PATIENCE, false);
    while let Ok((number, answer)) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        is_found = answer.as_ref().is_ok_and(&is_wanted);
        answers[number] = Some(answer);
        if is_found {
            break;
        }
    }
    let mut daemons = Daemons::default();
    for (socket, answer) in sockets.into_iter().zip(answers) {
        match answer {
            Some(Ok(stats)) => daemons.answered.push((socket, stats)),
            Some(Err(error)) if nobody_listens(&error) => {}
            Some(Err(error)) if is_silence(&error) => daemons.silent.push((socket, silence())),
            Some(Err(error)) => daemons.silent.push((socket, error.to_string())),
            // It may yet answer.
            None if is_found => {}
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
    let serves = |stats: &Stats| stats.serves(mount_point);
    let mut daemons = ask_until(&StatsRequest::default(), serves)?;
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

fn silence() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::options::DaemonOptions;

    fn stats(name: &str) -> Stats {
        Stats {
            daemon: name.to_owned(),
            pid: 1,
            version: String::new(),
            uptime_s: 0.0,
            options: DaemonOptions::default(),
            mount_namespace: None,
            mounts: Vec::new(),
            kernel: Default::default(),
            cache: Default::default(),
            sources: Vec::new(),
            at_reset: None,
        }
    }

    #[test]
    fn whoever_wants_one_daemon_does_not_wait_for_a_silent_one_and_whoever_wants_all_hears_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let [silent, answers] = ["a.sock", "b.sock"].map(|name| directory.path().join(name));
        // Takes connections, as the kernel does for a process that is stopped, and says nothing.
        let _silent = UnixListener::bind(&silent).unwrap();
        let listener = UnixListener::bind(&answers).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let answer = serde_json::to_string(&Answer::Stats(Box::new(stats("b")))).unwrap();
                stream.write_all((answer + "\n").as_bytes()).unwrap();
            }
        });
        let sockets = || vec![silent.clone(), answers.clone()];
        let ask = |wanted: &'static str| {
            ask_each_of(sockets(), &StatsRequest::default(), |stats| {
                stats.daemon == wanted
            })
            .unwrap()
        };
        // Only somebody who has waited for all of [`PATIENCE`] calls a daemon silent.
        let found = ask("b");
        assert_eq!((found.answered.len(), found.silent.len()), (1, 0));
        let all = ask("nobody");
        assert_eq!(all.answered.len(), 1);
        let (socket, reason) = &all.silent[0];
        assert_eq!((socket, reason.as_str()), (&silent, "no answer within 2 s"));
        let complaint = all.complaint().unwrap();
        for word in [silent.to_str().unwrap(), &format!("(pid {})", std::process::id())] {
            assert!(complaint.contains(word), "{complaint}");
        }
    }
}
