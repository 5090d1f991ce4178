//! The command's side: finds the daemon behind the first path, sends it paths, and shows what it answers.
//!
//! Owns no work: it reads no file below a mount, but for the metadata of a snapshot. Refuses paths of more than one daemon in one command. Ctrl-C ends the
//! process, so the connection, so the work. Called by the binary.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::inputs::{Paths, Target, resolve, shown_path};
use super::report::{self, Report};
use super::snapshot::{self, Snapshot};
use super::{Action, Event, Input, PARALLEL_MAX, Totals, WarmRequest, What};
use crate::cli::WarmArgs;
use crate::commands::CommandError;
use crate::control::{self, Answer, Conversation, Request, daemons};
use crate::message::one_line;
use crate::mount_point::{self, MountedAt};
use crate::size::parse_bytes;

/// How long the daemon may take for a line; it tells its progress several times a second.
const LINE_WAIT: Duration = Duration::from_secs(60);

/// A slower limit is a slip of who left the unit out.
const LIMIT_MIN: u64 = 1 << 10;

/// `lookupfs warm`.
///
/// # Errors
/// `Usage` for flags that make no sense; `Failed` where no daemon serves a path, or where any file failed, once all were
/// tried.
pub fn warm(args: &WarmArgs) -> Result<(), CommandError> {
    let request = request(args).map_err(CommandError::Usage)?;
    let table = mount_point::mounted().map_err(|error| failed(&error))?;
    let snapshot = snapshot_of(args, &table)?;
    let list = args.files_from.as_deref();
    let arguments = snapshot.as_ref().map_or(&args.paths, |snapshot| &snapshot.paths);
    let paths = Paths::new(arguments.clone(), list, args.null).map_err(|error| {
        let list = list.unwrap_or(Path::new("-"));
        CommandError::Failed(format!("{}: {error}", shown_path(list)))
    })?;
    let mut sender = Sender {
        paths,
        table,
        report: Report::new(&request),
        failed: Arc::default(),
    };
    for missing in snapshot.iter().flat_map(|snapshot| &snapshot.missing) {
        sender.fail(
            missing,
            "the snapshot refers to it, and it is not below the table",
        );
    }
    let (report, not_sent) = (sender.report.clone(), sender.failed.clone());
    let mut totals = match sender.next_target() {
        Some(first) => converse(&request, first, sender, &report)?,
        None => Totals::default(),
    };
    totals.failed += not_sent.load(Ordering::SeqCst);
    let took = report.finish();
    report.tell_trouble(&totals);
    let text = if args.json {
        report::json(&request, &totals, took).map_err(|error| failed(&error))?
    } else {
        report::summary(&request, &totals, took)
    };
    // A reader that has seen enough closes the pipe: that is no failure.
    let _ = writeln!(std::io::stdout(), "{text}");
    if request.action == Action::Fill
        && let Some(warning) = report::warning(&request, &totals)
    {
        eprintln!("lookupfs: {warning}");
        // Whoever asked for whole files on disk does not have them there.
        if report::misses_disk(&request, &totals) && totals.failed == 0 {
            return Err(CommandError::Failed(
                "not all of it is on disk; the same command goes on where it stopped".to_owned(),
            ));
        }
    }
    match totals.failed {
        0 => Ok(()),
        failed => Err(CommandError::Failed(format!(
            "{failed} of these could not be done; each is named above"
        ))),
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> CommandError {
    CommandError::Failed(one_line(error))
}

/// The files of the snapshot, if one is wanted.
fn snapshot_of(args: &WarmArgs, table: &[MountedAt]) -> Result<Option<Snapshot>, CommandError> {
    let Some(text) = &args.snapshot else {
        return Ok(None);
    };
    let id = text
        .parse()
        .map_err(|error| CommandError::Usage(format!("--snapshot: {error}")))?;
    let [path] = args.paths.as_slice() else {
        return Err(CommandError::Usage(
            "--snapshot: name one table directory".to_owned(),
        ));
    };
    if path == Path::new("-") {
        let reason = "--snapshot: name one table directory; its paths do not come from stdin";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    // Before anything is read: a table elsewhere would be read in vain.
    resolve(path, table).map_err(|reason| CommandError::Failed(format!("{}: {reason}", shown_path(path))))?;
    snapshot::find(path, id).map(Some).map_err(|error| failed(&error))
}

/// What the flags say.
fn request(args: &WarmArgs) -> Result<WarmRequest, String> {
    let what = if args.all {
        What::All
    } else if args.columns.is_empty() {
        What::Metadata
    } else if args.columns.iter().any(String::is_empty) {
        return Err("--columns: a name is empty".to_owned());
    } else {
        What::Columns(args.columns.clone())
    };
    let action = match (args.check, args.evict) {
        (true, _) => Action::Check,
        (_, true) => Action::Evict,
        _ => Action::Fill,
    };
    if !(1..=PARALLEL_MAX).contains(&args.parallel) {
        return Err(format!("--parallel: give 1 to {PARALLEL_MAX}"));
    }
    let limit = args.limit.as_deref().map(|text| {
        let text = text.strip_suffix("/s").unwrap_or(text);
        parse_bytes(text).map_err(|error| format!("--limit: {error}"))
    });
    let limit = limit.transpose()?;
    if limit == Some(0) {
        return Err("--limit: nothing can be fetched at 0 bytes a second".to_owned());
    }
    if let Some(limit) = limit.filter(|limit| *limit < LIMIT_MIN) {
        return Err(format!(
            "--limit: {limit} bytes a second is less than a page in 16 s; write {limit}k or {limit}m if that was meant"
        ));
    }
    if args.paths.is_empty() && args.files_from.is_none() {
        return Err("name a path below a mount, or - to read paths from stdin".to_owned());
    }
    Ok(WarmRequest {
        what,
        action,
        parallel: args.parallel,
        limit,
    })
}

/// Goes through the paths and sends them.
struct Sender {
    paths: Paths,
    table: Vec<MountedAt>,
    report: Report,
    /// Paths that never reached a daemon.
    failed: Arc<AtomicU64>,
}

impl Sender {
    /// The next path that is below a mount; those that are not are reported.
    fn next_target(&mut self) -> Option<Target> {
        loop {
            let (shown, reason) = match self.paths.next()? {
                Ok(path) => match resolve(&path, &self.table) {
                    Ok(target) => return Some(target),
                    Err(reason) => (shown_path(&path), reason),
                },
                Err(error) => ("the list of paths".to_owned(), error.to_string()),
            };
            self.fail(&shown, &reason);
        }
    }

    fn fail(&self, shown: &str, reason: &str) {
        self.failed.fetch_add(1, Ordering::SeqCst);
        self.report.failed(shown, reason);
    }

    /// Sends all paths; `mount_points` are those of the daemon at the other end.
    fn send_all(
        mut self,
        first: Target,
        mount_points: &[PathBuf],
        stream: &UnixStream,
    ) -> std::io::Result<()> {
        let mut next = Some(first);
        while let Some(target) = next {
            if mount_points.contains(&target.mount_point) {
                let input = Input::Path {
                    mount_point: target.mount_point.as_os_str().into(),
                    below: target.below.as_os_str().into(),
                };
                control::send(stream, &input)?;
            } else {
                let path = target.mount_point.join(&target.below);
                let reason =
                    "another daemon, or none of this user, serves its mount; warm it with another command";
                self.fail(&shown_path(&path), reason);
            }
            next = self.next_target();
        }
        control::send(stream, &Input::End)
    }
}

/// Has the daemon behind `first` work on all paths.
fn converse(
    request: &WarmRequest,
    first: Target,
    sender: Sender,
    report: &Report,
) -> Result<Totals, CommandError> {
    let (socket, mount_points) = daemons::daemon_of(&first.mount_point).map_err(CommandError::Failed)?;
    let gone = |error: std::io::Error| {
        report.finish();
        let socket = socket.display();
        CommandError::Failed(format!(
            "the daemon at {socket} ended or fell silent ({error}); the same command goes on where it stopped"
        ))
    };
    let mut conversation = Conversation::open(&socket, LINE_WAIT).map_err(gone)?;
    let stream = conversation.sender().map_err(gone)?;
    control::send(&stream, &Request::Warm(request.clone())).map_err(gone)?;
    match conversation.receive().map_err(gone)? {
        Answer::Warming => {}
        Answer::Failed(reason) => return Err(CommandError::Failed(reason)),
        _ => {
            let reason = "the daemon answered something else; is it another version?";
            return Err(CommandError::Failed(reason.to_owned()));
        }
    }
    thread::Builder::new()
        .name("paths".into())
        // An error is met, and told, by whoever receives.
        .spawn(move || drop(sender.send_all(first, &mount_points, &stream)))
        .map_err(|error| failed(&error))?;
    loop {
        match conversation.receive().map_err(gone)? {
            Event::Progress(totals) => report.progress(&totals),
            Event::Failed { path, reason } => report.failed(&path, &reason),
            Event::Done(totals) => return Ok(totals),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<WarmRequest, String> {
        let words = ["lookupfs", "warm"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Warm(args) = cli.command else {
            return Err("another command".into());
        };
        request(&args)
    }

    #[test]
    fn flags_say_what_is_done() {
        let plain = parse("/m").unwrap();
        assert_eq!((plain.what, plain.action), (What::Metadata, Action::Fill));
        assert_eq!(
            (plain.parallel, plain.limit),
            (super::super::PARALLEL_DEFAULT, None)
        );
        let columns = parse("--columns a,b.c --check /m").unwrap();
        assert_eq!(columns.what, What::Columns(vec!["a".into(), "b.c".into()]));
        assert_eq!(columns.action, Action::Check);
        assert_eq!(parse("--all --limit 10m/s -").unwrap().limit, Some(10 << 20));
        assert_eq!(parse("--evict --files-from x -0").unwrap().action, Action::Evict);
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for line in [
            "",
            "--all --metadata /m",
            "--all --columns a /m",
            "--check --evict /m",
            "--evict --all /m",
            "--columns a,,b /m",
            "--parallel 0 /m",
            "--parallel 1000 /m",
            "--parallel x /m",
            "--limit 0 /m",
            "--limit 50 /m",
            "--limit fast /m",
            "--check --limit 1m /m",
            "--sideways /m",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
