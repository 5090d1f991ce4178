//! What the commands of `lookupfs` do.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::cli::{DaemonArgs, MountArgs, UmountArgs};
use crate::control::{self, DaemonFiles, MountRequest};
use crate::daemon::{self, Daemon};
use crate::message::one_line;
use crate::options::{self, DaemonOptions};
use crate::sources::{SourceKey, SourceKeyError};
use crate::{launch, mount_point};

mod stats;

pub use stats::stats;

/// Why a command failed; the text is one line that says what to do.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// It did not work.
    #[error("{0}")]
    Failed(String),
}

impl CommandError {
    /// 2 for wrong usage, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            CommandError::Failed(_) => 1,
        }
    }
}

type Done = Result<(), CommandError>;

fn failed(error: impl std::error::Error + 'static) -> CommandError {
    CommandError::Failed(one_line(&error))
}

/// `lookupfs mount`.
///
/// # Errors
/// See [`CommandError`].
pub fn mount(args: &MountArgs) -> Done {
    let parsed = options::parse(&args.options.join(",")).map_err(CommandError::Usage)?;
    if let Some(name) = &args.daemon {
        control::check_name(name).map_err(CommandError::Usage)?;
    }
    let mut options = parsed.mount;
    // The daemon may have been started from elsewhere: what the environment and the working directory say is
    // settled here.
    if options.hadoop_conf.is_none() {
        options.hadoop_conf = control::set_variable("HADOOP_CONF_DIR").map(PathBuf::from);
    }
    if let Some(conf) = &options.hadoop_conf {
        options.hadoop_conf = Some(std::path::absolute(conf).map_err(failed)?);
    }
    let source = SourceKey::absolute(&args.source).map_err(CommandError::Usage)?;
    SourceKey::parse(&source, &options).map_err(|error| match error {
        SourceKeyError::Url(reason) => CommandError::Usage(reason),
        SourceKeyError::Directory(reason) => CommandError::Failed(reason),
    })?;
    let mut mount_points = Vec::new();
    for path in &args.mount_points {
        mount_points.push(mount_point::prepare(path).map_err(failed)?);
    }
    let request = MountRequest {
        source,
        mount_points,
        options,
        daemon: parsed.daemon,
        mount_namespace: control::mount_namespace(),
        given: parsed.given.into_iter().map(str::to_owned).collect(),
        given_for_source: parsed.given_for_source.into_iter().map(str::to_owned).collect(),
    };
    if args.foreground {
        let name = args.daemon.as_deref().unwrap_or(launch::DEFAULT_DAEMON);
        return serve(name, &request.daemon.clone(), Some(&request));
    }
    let name = match &args.daemon {
        Some(name) => name.clone(),
        None => launch::daemon_for(&request).map_err(CommandError::Failed)?,
    };
    launch::mount(&name, &request).map_err(CommandError::Failed)?;
    for path in &request.mount_points {
        std::fs::metadata(path).map_err(|error| {
            CommandError::Failed(format!("{}: it does not answer: {error}", path.display()))
        })?;
    }
    Ok(())
}

/// `lookupfs umount`: all of them, also where one fails.
///
/// # Errors
/// The first error.
pub fn umount(args: &UmountArgs) -> Done {
    let mut done = Ok(());
    for path in &args.mount_points {
        if let Err(error) = mount_point::unmount(path, args.lazy)
            && done.is_ok()
        {
            done = Err(failed(error));
        }
    }
    done
}

/// `lookupfs daemon`: what `mount` starts in the background.
///
/// # Errors
/// If the name is taken, or the socket cannot be had.
pub fn daemon(args: &DaemonArgs) -> Done {
    let options: DaemonOptions =
        serde_json::from_str(&args.options).map_err(|error| CommandError::Usage(error.to_string()))?;
    close_inherited();
    // Out of the terminal's session, so that its hang-up and Ctrl-C are not ours.
    let _ = nix::unistd::setsid();
    serve(&args.name, &options, None)
}

/// Closes what whoever called `mount` had open beside its standard streams: a pipe or a lock that this daemon kept would
/// make others wait for as long as it runs. Called before anything is opened here.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inherited: Vec<i32> = names.filter(|descriptor| *descriptor > 2).collect();
    for descriptor in inherited {
        // The descriptor of the listing itself is closed by now, which is no failure.
        let _ = nix::unistd::close(descriptor);
    }
}

/// Runs a daemon in this process, with a first mount where there is one.
fn serve(name: &str, options: &DaemonOptions, first: Option<&MountRequest>) -> Done {
    let filter = tracing_subscriber::EnvFilter::try_new(&options.log)
        .map_err(|error| CommandError::Usage(format!("option log: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A log that cannot be written, as on a full disk, would be told to stderr, which is the log: a panic.
        .log_internal_errors(false)
        .init();
    let files = DaemonFiles::new(name).map_err(CommandError::Failed)?;
    let _name = daemon::take_name(name, &files).map_err(CommandError::Failed)?;
    raise_open_files();
    keep_large_buffers_apart();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .enable_all()
        .build()
        .map_err(failed)?;
    let daemon = Daemon::new(name, options.clone(), runtime.handle().clone()).map_err(failed)?;
    let metrics = options.metrics.map(listen_for_scrapes).transpose()?;
    let listener = control::listen(&files.socket).map_err(failed)?;
    let mounted = first.map_or(Ok(()), |request| daemon.mount(request, &|| true));
    let ended = match mounted {
        Ok(()) => runtime.block_on(daemon.run(listener, metrics)).map_err(failed),
        Err(reason) => Err(CommandError::Failed(reason)),
    };
    // The socket goes while the name is still ours: whoever comes now starts a new daemon.
    let _ = std::fs::remove_file(&files.socket);
    // Requests that still wait for a source are not waited for.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

/// Before anything is mounted: a daemon that cannot be watched as it was told to is not started.
fn listen_for_scrapes(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).map_err(|error| {
        CommandError::Failed(match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("option metrics: {address} is in use already; choose another port")
            }
            _ => format!("option metrics: cannot listen at {address}: {error}"),
        })
    })
}

/// Files open at `file://` sources, sockets to DataNodes and mounts all cost a descriptor: the soft limit of most hosts,
/// 1024, is meant for programs that use `select`.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Half of the processors, the other half is for those who read: event loops, readers, and at the source. Where each
/// processor has a worker, on two of them, the workers wake each other for nothing at every step of a fetch, which makes
/// it a fifth longer.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

/// fuser reads requests into a buffer of 16 MiB for each event loop, of which only the first kernel page is ever used
/// on a read-only mount. As long as each is a mapping of its own, the rest of it is never resident; but the allocator
/// raises its threshold for mappings with the first one that is freed, and then zeroes all 16 MiB of the next. Extents, of
/// up to 4 MiB, are no mappings: the kernel would clear each anew, a tenth of what a sequential read costs; so that
/// memory is kept for the next, some of it.
fn keep_large_buffers_apart() {
    const THRESHOLD_BYTES: libc::c_int = 8 << 20;
    const KEPT_BYTES: libc::c_int = 16 << 20;
    // SAFETY: each sets one number of the allocator; mallopt(3) allows it at any time.
    let set = unsafe {
        [
            libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD_BYTES),
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        ]
    };
    if set != [1, 1] {
        tracing::debug!("the allocator keeps its own threshold; each mount may cost 32 MiB");
    }
}
