//! `lookupfs stats`: asks the daemons of this user, and prints what they say.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::{CommandError, failed};
use crate::cli::StatsArgs;
use crate::control::{self, Answer, FilesRequest, Request, StatsRequest};
use crate::stats::Stats;
use crate::{metrics, mount_point};

/// How long a daemon may take to say its counters.
const STATS_WAIT: Duration = Duration::from_secs(10);

/// `lookupfs stats`.
///
/// # Errors
/// If no daemon answers.
pub fn stats(args: &StatsArgs) -> Result<(), CommandError> {
    let wanted = match &args.mount_point {
        Some(path) => Some(mount_point::absolute(path).map_err(failed)?),
        None => None,
    };
    let mut found = Vec::new();
    for socket in control::sockets().map_err(CommandError::Failed)? {
        // Asked without a reset first: only the daemon of the mount point is reset.
        let request = StatsRequest {
            reset: false,
            files: args.files.map(|count| FilesRequest {
                mount_point: wanted.clone(),
                count: count as usize,
            }),
        };
        let stats = match ask(&socket, request) {
            Ok(stats) => stats,
            Err(error) if control::nobody_listens(&error) => continue,
            Err(error) => {
                eprintln!(
                    "lookupfs: {}: the daemon does not answer ({error})",
                    socket.display()
                );
                continue;
            }
        };
        let shows = |path: &std::path::PathBuf| stats.mounts.iter().any(|mount| mount.mount_point == *path);
        if wanted.as_ref().is_none_or(shows) {
            found.push((socket, stats));
        }
    }
    match (&args.mount_point, found.is_empty()) {
        (Some(path), true) => {
            let path = path.display();
            return Err(CommandError::Failed(format!(
                "{path}: no daemon of this user serves it; `lookupfs stats --all` shows those that run"
            )));
        }
        (None, true) => {
            let message = "no daemon of this user is running";
            return Err(CommandError::Failed(message.to_owned()));
        }
        _ => {}
    }
    let text = text(args, found.iter().map(|(_, stats)| stats))?;
    // A reader that has seen enough closes the pipe: that is no failure.
    if writeln!(io::stdout(), "{}", text.trim_end()).is_err() {
        return Ok(());
    }
    if args.reset {
        for (socket, _) in &found {
            let reset = StatsRequest {
                reset: true,
                files: None,
            };
            ask(socket, reset).map_err(failed)?;
        }
    }
    Ok(())
}

fn ask(socket: &Path, request: StatsRequest) -> io::Result<Stats> {
    match control::ask(socket, &Request::Stats(request), STATS_WAIT)? {
        Answer::Stats(stats) => Ok(*stats),
        Answer::Failed(reason) => Err(io::Error::other(reason)),
        _ => Err(io::Error::other(
            "it answers something else; is it another version?",
        )),
    }
}

fn text<'a>(args: &StatsArgs, found: impl Iterator<Item = &'a Stats>) -> Result<String, CommandError> {
    if args.prometheus {
        return metrics::text(found).map_err(CommandError::Failed);
    }
    let one = |stats: &Stats| {
        if !args.json {
            return Ok(stats.to_string());
        }
        // Counts since the start: whoever takes differences keeps what to take them from.
        let raw = Stats {
            at_reset: None,
            ..stats.clone()
        };
        serde_json::to_string(&raw)
            .map(|line| line + "\n")
            .map_err(failed)
    };
    found.map(one).collect()
}
