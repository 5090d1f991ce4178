//! `lookupfs mount` without `--foreground`: finds the daemon, or starts one, and hands the request over.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::control::{
    self, Answer, Conversation, DaemonFiles, MountRequest, Request, StatsRequest, daemons, listener,
};
use crate::stats::Stats;

/// How long a new daemon may take until it listens.
const START_WAIT: Duration = Duration::from_secs(15);
/// How long a daemon may take to say that it has the request: its event loop does so, whatever the sources do.
const HEARD_WAIT: Duration = Duration::from_secs(3);
/// Between two looks at a starting daemon.
const START_POLL: Duration = Duration::from_millis(5);
/// How long a daemon that says that it is ending may take: it waits for readers of its mounts, and for a mount under way.
const ENDING_WAIT: Duration = Duration::from_secs(15);
/// Daemons that broke off without an answer, before giving up.
const BROKEN_OFF_MAX: usize = 5;

/// The daemon that a mount without `--daemon` joins or starts.
pub const DEFAULT_DAEMON: &str = "default";

/// The name of the daemon for a mount that names none: the running one that has the cache directory of the request,
/// whatever its name, else the default one.
///
/// # Errors
/// If the run directory cannot be read.
pub fn daemon_for(request: &MountRequest) -> Result<String, String> {
    if request.daemon.cache_dir.is_some() {
        // One that does not answer has nothing to share; whoever needs its directory hears of its lock.
        let has_it = |stats: &Stats| stats.options.cache_dir == request.daemon.cache_dir;
        let daemons = daemons::ask_until(&StatsRequest::default(), has_it)?;
        if let Some((_, stats)) = daemons.answered.iter().find(|(_, stats)| has_it(stats)) {
            return Ok(stats.daemon.clone());
        }
    }
    Ok(DEFAULT_DAEMON.to_owned())
}

/// Has `request` mounted by the daemon `name`, started if there is none.
///
/// # Errors
/// One sentence for people.
pub fn mount(name: &str, request: &MountRequest) -> Result<(), String> {
    let files = DaemonFiles::new(name)?;
    // The metadata deadline bounds each step of a mount; the rest is room for the daemon itself.
    let patience = request.options.metadata_deadline * 2 + Duration::from_secs(30);
    let (begun, mut broken_off) = (Instant::now(), 0);
    loop {
        make_sure_of_a_daemon(name, &files, request)?;
        match ask(files.socket.as_path(), request, patience) {
            Ok(Answer::Mounted) => return Ok(()),
            Ok(Answer::Failed(reason)) => return Err(reason),
            Ok(Answer::Ending) if begun.elapsed() < ENDING_WAIT => pause(),
            Err(error) if has_ended(&error) && broken_off < BROKEN_OFF_MAX => {
                broken_off += 1;
                pause();
            }
            Ok(Answer::Ending) => {
                return Err(format!(
                    "the daemon {name} keeps ending; try again, or give another with --daemon NAME (its log: {})",
                    files.log.display()
                ));
            }
            Ok(Answer::Stats(_) | Answer::Warming | Answer::Mounting) => {
                return Err("the daemon answered something else; is it another version?".into());
            }
            Err(error) if control::is_silence(&error) => {
                return Err(format!(
                    "{}: {error}; it is stopped, hangs, or has too much to do (its log: {}); \
                     let it go on or kill it, or start another with --daemon NAME",
                    listener::shown(&files.socket),
                    files.log.display()
                ));
            }
            Err(error) => {
                let log = files.log.display();
                return Err(format!(
                    "the daemon {name} did not answer ({error}); see its log {log}"
                ));
            }
        }
    }
}

/// Sends the request and waits for what came of it: a daemon that runs says at once that it is at work, and from then on
/// it has `patience`.
fn ask(socket: &Path, request: &MountRequest, patience: Duration) -> io::Result<Answer> {
    let asked = Request::Mount(Box::new(request.clone()));
    let mut conversation = Conversation::open(socket, HEARD_WAIT)?;
    conversation
        .say(&asked)
        .map_err(|error| unheard(error, HEARD_WAIT))?;
    match conversation
        .receive()
        .map_err(|error| unheard(error, HEARD_WAIT))?
    {
        Answer::Mounting => {}
        other => return Ok(other),
    }
    conversation.wait_for_each(patience)?;
    conversation.receive().map_err(|error| unheard(error, patience))
}

/// "Resource temporarily unavailable" is all that a socket says of a time that has run out.
fn unheard(error: io::Error, waited: Duration) -> io::Error {
    if control::is_silence(&error) {
        let text = format!("no word within {} s", waited.as_secs());
        return io::Error::new(io::ErrorKind::TimedOut, text);
    }
    error
}

/// Whether an error says that the daemon ended while it was asked.
fn has_ended(error: &io::Error) -> bool {
    control::broke_off(error) || control::nobody_listens(error)
}

/// Starts the daemon unless it listens. The lock is held for that alone: a source that does not answer must not hold up
/// those who mount another.
fn make_sure_of_a_daemon(name: &str, files: &DaemonFiles, request: &MountRequest) -> Result<(), String> {
    let _lock = lock(files)?;
    match listener::connect(&files.socket) {
        Err(error) if control::nobody_listens(&error) => {
            let mut daemon = start(name, files, request)?;
            wait_until_it_listens(files, &mut daemon)
        }
        // Any other error is met, and told, by whoever asks.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Another process sends no event that could be waited for here.
#[expect(
    clippy::disallowed_methods,
    reason = "a short pause of a program that serves nothing yet, bounded by its callers"
)]
pub(crate) fn pause() {
    std::thread::sleep(START_POLL);
}

fn lock(files: &DaemonFiles) -> Result<Flock<File>, String> {
    let path = &files.start_lock;
    let file = File::options().create(true).append(true).mode(0o600).open(path);
    let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    // Only other `lookupfs mount`s hold it, and each for a bounded time.
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| format!("{}: {errno}", path.display()))
}

fn start(name: &str, files: &DaemonFiles, request: &MountRequest) -> Result<Child, String> {
    let log = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&files.log);
    let log = log.map_err(|error| format!("{}: {error}", files.log.display()))?;
    let options = serde_json::to_string(&request.daemon).map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| format!("the program's own file: {error}"))?;
    Command::new(program)
        .args(["daemon", "--name", name, "--options", &options])
        // Absolute: the daemon's working directory is another.
        .env(control::RUN_DIRECTORY, &files.directory)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("the daemon cannot be started: {error}"))
}

fn wait_until_it_listens(files: &DaemonFiles, daemon: &mut Child) -> Result<(), String> {
    let start = Instant::now();
    while listener::connect(&files.socket).is_err() {
        let ended = daemon.try_wait().map_err(|error| error.to_string())?;
        if ended.is_some() || start.elapsed() > START_WAIT {
            let log = fs::read_to_string(&files.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it left no word").to_owned();
            return Err(format!(
                "the daemon did not start: {last} (log: {})",
                files.log.display()
            ));
        }
        pause();
    }
    Ok(())
}
