//! The control socket: how `mount` joins a running daemon and `stats` asks it.
//!
//! One request a connection, and one answer or several, each one line of JSON; after the answer to `Warm` a conversation
//! follows. The socket is in a directory that only its owner may enter, and is itself mode 0600. Owns the protocol and the
//! asking side; [`connection`] is the daemon's.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::options::{DaemonOptions, MountOptions};
use crate::path_text;
use crate::stats::Stats;
use crate::warm::WarmRequest;

pub mod connection;
pub mod daemons;
pub mod listener;

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// How long a daemon waits for a request: who connects has it ready.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// How long a peer may take to take a line.
const LINE_WAIT: Duration = Duration::from_secs(10);

/// What is asked of a daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Mount a source.
    Mount(Box<MountRequest>),
    /// Show the counters.
    Stats(StatsRequest),
    /// Warm, check or evict files; a conversation follows, see [`crate::warm`].
    Warm(WarmRequest),
}

/// One `lookupfs stats`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatsRequest {
    /// From now on differences from these counters are shown to people.
    pub reset: bool,
    /// Files to show.
    #[serde(default)]
    pub files: Option<FilesRequest>,
}

/// Which files to show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilesRequest {
    /// Of this mount; `None`: of each.
    #[serde(with = "path_text::option")]
    pub mount_point: Option<PathBuf>,
    /// So many of a mount, those with the most bytes.
    pub count: usize,
    /// What is shown, and compared, is counted since the last reset.
    pub since_reset: bool,
}

/// One `lookupfs mount`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountRequest {
    /// A source URL with its path.
    pub source: String,
    /// Absolute mount points.
    #[serde(with = "path_text::all")]
    pub mount_points: Vec<PathBuf>,
    /// For these mounts.
    pub options: MountOptions,
    /// What a daemon started for this request would have.
    pub daemon: DaemonOptions,
    /// The names of the daemon's options that were given; a running daemon must agree with those.
    pub given: Vec<String>,
    /// The names of the source's options that were given; a source that is open must agree with those.
    pub given_for_source: Vec<String>,
    /// Where whoever asks sees mounts; a daemon mounts where it sees them itself.
    pub mount_namespace: Option<String>,
}

/// The mount namespace of this process, as the kernel names it (namespaces(7)); `None` where that cannot be seen.
pub fn mount_namespace() -> Option<String> {
    let name = std::fs::read_link("/proc/self/ns/mnt").ok()?;
    name.into_os_string().into_string().ok()
}

/// What a daemon answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The request to mount has been read, and is being worked at; another answer follows.
    Mounting,
    /// Done: every mount point answers.
    Mounted,
    /// The counters.
    Stats(Box<Stats>),
    /// Send paths.
    Warming,
    /// It failed; one sentence for people.
    Failed(String),
    /// The daemon is ending; start another.
    Ending,
}

/// The variable that names the run directory.
pub const RUN_DIRECTORY: &str = "LOOKUPFS_RUN_DIR";
/// The longest path of a socket: unix(7), `sun_path` without its NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A variable of the environment; one that is set to nothing is as good as unset.
pub fn set_variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Refuses a daemon's name that is no plain word.
///
/// # Errors
/// One sentence that says what is right.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "daemon name {name:?}: use up to 64 letters, digits, - and _"
        ));
    }
    Ok(())
}

/// Where daemons have their sockets, locks and logs: `$LOOKUPFS_RUN_DIR`, or `/run/lookupfs` for root, or a directory
/// below `$XDG_RUNTIME_DIR`.
///
/// # Errors
/// A sentence that says which variable to set.
pub fn run_directory() -> Result<PathBuf, String> {
    let directory = match (set_variable(RUN_DIRECTORY), set_variable("XDG_RUNTIME_DIR")) {
        (Some(set), _) => PathBuf::from(set),
        (None, _) if nix::unistd::geteuid().is_root() => PathBuf::from("/run/lookupfs"),
        (None, Some(user)) => PathBuf::from(user).join("lookupfs"),
        (None, None) => {
            return Err("set LOOKUPFS_RUN_DIR to a directory of your own for the socket".to_owned());
        }
    };
    let directory = std::path::absolute(&directory).map_err(|error| format!("{RUN_DIRECTORY}: {error}"))?;
    let shown = directory.display();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|error| format!("{shown}: cannot be made ({error}); set LOOKUPFS_RUN_DIR"))?;
    let metadata = fs::metadata(&directory).map_err(|error| format!("{shown}: {error}"))?;
    // Whoever may write here could put a socket of their own in the daemon's place.
    if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(format!(
            "{shown}: it belongs to another user, or others may write there; set {RUN_DIRECTORY} to a directory of your own"
        ));
    }
    Ok(directory)
}

/// The files of one daemon in the run directory.
#[derive(Clone, Debug)]
pub struct DaemonFiles {
    /// The run directory, absolute.
    pub directory: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// Held by the daemon as long as it runs.
    pub lock: PathBuf,
    /// Held by `lookupfs mount` while it looks for a daemon or starts one.
    pub start_lock: PathBuf,
    /// What the daemon logs.
    pub log: PathBuf,
}

impl DaemonFiles {
    /// The files of the daemon `name`.
    ///
    /// # Errors
    /// For a name that is no plain word, or without a run directory.
    pub fn new(name: &str) -> Result<DaemonFiles, String> {
        check_name(name)?;
        let directory = run_directory()?;
        let file = |extension: &str| directory.join(format!("{name}.{extension}"));
        if file("sock").as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(format!(
                "{}: a socket's path may have {SOCKET_PATH_BYTES_MAX} bytes; set {RUN_DIRECTORY} to a shorter one",
                file("sock").display()
            ));
        }
        Ok(DaemonFiles {
            directory: directory.clone(),
            socket: file("sock"),
            lock: file("lock"),
            start_lock: file("start"),
            log: file("log"),
        })
    }
}

/// The sockets of all daemons in the run directory, dead ones included.
///
/// # Errors
/// If the directory cannot be read.
pub fn sockets() -> Result<Vec<PathBuf>, String> {
    let directory = run_directory()?;
    let entries = fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .collect();
    found.sort();
    Ok(found)
}

/// Sends one request and waits for the first answer, at most `patience`.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` where no daemon listens; others as the socket says.
pub fn ask(socket: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    ask_each(socket, request, patience, ControlFlow::Break)
}

/// Sends one request and hands each answer to `on_answer`, until it breaks; waits for each at most `patience`. A daemon
/// that is at work for somebody who goes away stops.
///
/// # Errors
/// As [`ask`]; `UnexpectedEof` if the daemon has no answer left and `on_answer` wants one.
pub fn ask_each<T>(
    socket: &Path,
    request: &Request,
    patience: Duration,
    mut on_answer: impl FnMut(Answer) -> ControlFlow<T>,
) -> io::Result<T> {
    let stream = listener::connect(socket)?;
    stream.set_write_timeout(Some(LINE_WAIT))?;
    stream.set_read_timeout(Some(patience))?;
    send(&stream, request)?;
    let mut reader = BufReader::new(&stream);
    loop {
        if let ControlFlow::Break(done) = on_answer(receive(&mut reader)?) {
            return Ok(done);
        }
    }
}

/// A connection on which more than one line goes to and fro.
#[derive(Debug)]
pub struct Conversation {
    lines: BufReader<UnixStream>,
}

impl Conversation {
    /// Connects to a daemon; each line of it may take `patience`.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn open(socket: &Path, patience: Duration) -> io::Result<Conversation> {
        let stream = listener::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Conversation {
            lines: BufReader::new(stream),
        })
    }

    /// From now on each line of the daemon may take `patience`.
    ///
    /// # Errors
    /// As the socket says.
    pub fn wait_for_each(&self, patience: Duration) -> io::Result<()> {
        self.lines.get_ref().set_read_timeout(Some(patience))
    }

    /// Sends one line, which the daemon may take as long to take as it may to say one.
    ///
    /// # Errors
    /// As the socket says.
    pub fn say<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let stream = self.lines.get_ref();
        stream.set_write_timeout(stream.read_timeout()?)?;
        send(stream, message)
    }

    /// The side that sends, for another thread.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub fn sender(&self) -> io::Result<UnixStream> {
        self.lines.get_ref().try_clone()
    }

    /// The next line.
    ///
    /// # Errors
    /// `UnexpectedEof` where the daemon has closed; others as the socket says.
    pub fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
        receive(&mut self.lines)
    }
}

/// Whether an error of [`ask`] says that no daemon listens.
pub fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Whether an error of [`ask`] says that the daemon went away before it answered, as one that is ending does.
pub fn broke_off(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
    )
}

/// Whether an error of [`ask`] says that a daemon listens and stays silent.
pub fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Listens on `socket`, which the caller owns by the daemon's lock.
///
/// # Errors
/// As the socket says.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Sends one line.
///
/// # Errors
/// As the socket says.
pub fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive<T: for<'a> Deserialize<'a>>(lines: &mut impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the daemon closed without a whole line",
        ));
    }
    Ok(serde_json::from_slice(&line)?)
}
