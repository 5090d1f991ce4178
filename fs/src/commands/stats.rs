//! `lookupfs stats`: asks the daemons of this user, and prints what they say.

use std::io::{self, Write};

use super::{CommandError, failed};
use crate::cli::StatsArgs;
use crate::control::{FilesRequest, StatsRequest, daemons};
use crate::stats::Stats;
use crate::{metrics, mount_point};

/// `lookupfs stats`.
///
/// # Errors
/// If no daemon answers.
pub fn stats(args: &StatsArgs) -> Result<(), CommandError> {
    let wanted = match &args.mount_point {
        Some(path) => {
            let path = mount_point::absolute(path).map_err(failed)?;
            // Any path of a mount names it.
            Some(mount_point::lookupfs_above(&path).unwrap_or(path))
        }
        None => None,
    };
    // Asked without a reset first: only the daemon of the mount point is reset.
    let request = StatsRequest {
        reset: false,
        files: args.files.map(|count| FilesRequest {
            mount_point: wanted.clone(),
            count: count as usize,
            // As the rest of what is shown to people; JSON goes on counting.
            since_reset: !args.json,
        }),
    };
    let shows = |stats: &Stats| wanted.as_ref().is_some_and(|wanted| stats.serves(wanted));
    let mut daemons = daemons::ask_until(&request, shows).map_err(CommandError::Failed)?;
    if wanted.is_some() {
        daemons.answered.retain(|(_, stats)| shows(stats));
    }
    match (&args.mount_point, daemons.answered.is_empty()) {
        (Some(path), true) => return Err(CommandError::Failed(daemons.not_served(path))),
        (None, true) => {
            let nobody = || "no daemon of this user is running".to_owned();
            return Err(CommandError::Failed(daemons.complaint().unwrap_or_else(nobody)));
        }
        // Of no interest where the one that was asked for has answered.
        (Some(_), false) => {}
        (None, false) => {
            if let Some(complaint) = daemons.complaint() {
                eprintln!("lookupfs: {complaint}");
            }
        }
    }
    let found = daemons.answered;
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
            daemons::ask_one(socket, reset).map_err(failed)?;
        }
    }
    Ok(())
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
