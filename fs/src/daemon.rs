//! The daemon: one page cache, any number of sources and mounts, one control socket.
//!
//! Started by `lookupfs mount`, or in the foreground by it. Ends when its last mount has gone, or on SIGTERM. Owns the
//! daemon's life and its mounts; what it answers is in `answering`.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lookupfs_cache::clock::Clock;
use lookupfs_cache::config::CacheConfig;
use lookupfs_cache::disk::DiskConfig;
use lookupfs_cache::error::{Error, ErrorKind};
use lookupfs_cache::namespace::{Known, MaxAge, NamespaceMemory};
use lookupfs_cache::page::PageSize;
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::source::{FileKind, FileStatus};
use lookupfs_cache::version::SourcePath;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::accept::accept_all;
use crate::control::{MountRequest, mount_namespace};
use crate::filesystem::{Filesystem, Shared};
use crate::message::one_line;
use crate::metrics::crowd::Crowd;
use crate::metrics::http;
use crate::mount_point;
use crate::mounts::{MountPlan, Mounts};
use crate::open_files::OpenReport;
use crate::options::{DEADLINE_MAX, DaemonOptions, MountOptions};
use crate::owner::Ids;
use crate::places;
use crate::sources::{OpenSource, SourceKey, SourceName};
use crate::stats::Stats;

mod answering;
mod name;

pub use name::{DaemonLock, take_name};

/// How long a daemon without any mount waits for the first one.
const FIRST_MOUNT_WAIT: Duration = Duration::from_secs(30);
/// How long ending waits for readers of a detached mount.
const END_GRACE: Duration = Duration::from_secs(5);
/// Control connections served at once; more wait. Each mount that waits for its source is one, and whoever asks behind
/// them takes the daemon for silent.
const CONNECTIONS_MAX: usize = 128;
/// Of those, `lookupfs warm`s: they stay for long, and must not keep others from mounting.
const WARMS_MAX: usize = 8;
/// Share of the memory for pages that statuses and listings may have beside it.
const NAMESPACE_SHARE: u64 = 16;
/// The least of that share.
const NAMESPACE_BYTES_MIN: u64 = 8 << 20;

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    options: DaemonOptions,
    runtime: Handle,
    started: Instant,
    shared: Shared,
    /// Statuses and listings of all sources.
    answers: Arc<NamespaceMemory>,
    sources: Mutex<HashMap<SourceName, Arc<OpenSource>>>,
    mounts: Arc<Mounts>,
    /// How often the kernel's names were to be dropped since the last walk through them ended.
    walks: Arc<AtomicUsize>,
    /// One request to mount at a time: two for the same place would race.
    mounting: Mutex<()>,
    is_ending: AtomicBool,
    /// What was counted at the last reset.
    at_reset: Mutex<Option<Box<Stats>>>,
    warms: Arc<Semaphore>,
}

/// What each mount point of the request becomes; all are looked at before the first is mounted.
fn plans(request: &MountRequest) -> Result<Vec<MountPlan>, String> {
    let mut plans = Vec::new();
    for path in &request.mount_points {
        let path = mount_point::prepare(path).map_err(|error| one_line(&error))?;
        if plans.iter().any(|plan: &MountPlan| plan.path == path) {
            return Err(format!("{}: it is named twice", path.display()));
        }
        plans.push(MountPlan {
            path,
            source: request.source.clone(),
            allow_other: request.options.allow_other,
            default_permissions: request.options.default_permissions,
            deadline: request.options.deadline,
            metadata_deadline: request.options.metadata_deadline,
        });
    }
    Ok(plans)
}

impl Daemon {
    /// A daemon without mounts; nothing runs yet.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub fn new(name: &str, options: DaemonOptions, runtime: Handle) -> Result<Arc<Daemon>, Error> {
        let config = CacheConfig {
            memory_bytes: options.memory,
            page_size: PageSize::new(options.page_size)?,
            max_inflight_bytes: options.max_inflight,
            // Each source ends its calls within its own deadline, and each READ within its mount's; this is the longest
            // that either may be.
            deadline: DEADLINE_MAX,
            ..CacheConfig::default()
        };
        let pages = match &options.cache_dir {
            None => PageCache::new(config, runtime.clone())?,
            Some(cache_dir) => {
                let disk = DiskConfig {
                    cache_dir: cache_dir.clone(),
                    cache_bytes: options.cache_size,
                    owner: name.to_owned(),
                };
                PageCache::with_disk(config, &disk, runtime.clone())?
            }
        };
        let shared = Shared {
            pages,
            ids: Arc::new(Ids::default()),
        };
        let answers = (options.memory / NAMESPACE_SHARE).max(NAMESPACE_BYTES_MIN);
        Ok(Arc::new(Daemon {
            answers: NamespaceMemory::new(answers),
            name: name.to_owned(),
            options,
            runtime,
            started: Instant::now(),
            shared,
            sources: Mutex::default(),
            mounts: Arc::default(),
            walks: Arc::default(),
            mounting: Mutex::default(),
            is_ending: AtomicBool::new(false),
            at_reset: Mutex::default(),
            warms: Arc::new(Semaphore::new(WARMS_MAX)),
        }))
    }

    /// Mounts one source on all mount points of the request, or on none. `is_wanted` is asked before and after the steps that
    /// may wait: where whoever asked has gone, nothing stays mounted.
    ///
    /// # Errors
    /// One sentence for people.
    pub fn mount(
        self: &Arc<Self>,
        request: &MountRequest,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), String> {
        let gone = || Err("whoever asked for the mount has gone".to_owned());
        self.agree(request)?;
        if request.options.passthrough && self.options.cache_dir.is_none() {
            return Err(format!(
                "option passthrough: needs a daemon with cache_dir=DIR, and the daemon {} has none; \
                 leave it out, or start another daemon with --daemon NAME",
                self.name
            ));
        }
        places::check(
            self.options.cache_dir.as_deref(),
            &request.source,
            &request.mount_points,
        )?;
        let key = SourceKey::parse(&request.source, &request.options).map_err(|error| one_line(&error))?;
        let source = self.source(key.source(), request)?;
        // Before the lock: a source that does not answer holds up nobody who mounts another.
        let root = self.root(&source, &key.root)?;
        let _one_at_a_time = self.mounting.lock();
        if !is_wanted() {
            return gone();
        }
        // Asked under the lock: `run` decides to end under the same one, and takes down what is mounted by then.
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(format!("the daemon {} is ending", self.name));
        }
        self.close_unused_sources();
        // Whoever closed unused sources meanwhile did not know of this one.
        let source = self
            .sources
            .lock()
            .entry(key.source().clone())
            .or_insert(source)
            .clone();
        source.agree(&request.options, &request.given_for_source)?;
        let plans = plans(request)?;
        let mut done: Vec<PathBuf> = Vec::new();
        for plan in &plans {
            let filesystem = Filesystem::new(
                source.namespace.clone(),
                self.shared.clone(),
                key.root.clone(),
                root.clone(),
                (request.options.ttl, request.options.owner),
                OpenReport::new(request.options.passthrough, &plan.path),
            );
            if let Err(error) = self.mounts.mount(plan, filesystem, &self.runtime) {
                // All or none: a host with half of its mounts looks healthy and is not.
                self.unmount_again(&done, "another mount point of the same command failed");
                return Err(one_line(&error));
            }
            note_mounted(plan, &source, &request.options);
            done.push(plan.path.clone());
        }
        if !is_wanted() {
            tracing::info!(paths = ?done, "whoever asked has gone: unmounting again");
            self.unmount_again(&done, "whoever asked for it has gone");
            return gone();
        }
        Ok(())
    }

    fn unmount_again(&self, paths: &[PathBuf], reason: &'static str) {
        self.runtime
            .block_on(self.mounts.unmount(paths, reason, END_GRACE));
    }

    /// Serves the control socket, and metrics where there is a listener for them, until the last mount has gone or a
    /// signal says so; then takes all mounts down.
    ///
    /// # Errors
    /// If signals or a socket cannot be had.
    pub async fn run(
        self: Arc<Self>,
        listener: UnixListener,
        metrics: Option<TcpListener>,
    ) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let this = self.clone();
        let serve = move |stream| this.clone().serve(stream);
        tokio::spawn(accept_all(listener, "control socket", CONNECTIONS_MAX, serve));
        if let Some(metrics) = metrics {
            metrics.set_nonblocking(true)?;
            let metrics = tokio::net::TcpListener::from_std(metrics)?;
            let this = self.clone();
            let crowd = Crowd::new(http::SILENT_MAX);
            let serve = move |stream| http::serve(stream, crowd.clone(), this.clone().metrics());
            tokio::spawn(accept_all(metrics, "metrics", http::CONNECTIONS_MAX, serve));
        }
        tracing::info!(
            daemon = %self.name,
            pid = std::process::id(),
            version = env!("CARGO_PKG_VERSION"),
            memory = self.options.memory,
            page_size = self.options.page_size,
            cache_dir = ?self.options.cache_dir,
            "started"
        );
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut gone = self.mounts.watch_gone();
        let first_mount = tokio::time::sleep(FIRST_MOUNT_WAIT);
        tokio::pin!(first_mount);
        let signal = loop {
            tokio::select! {
                _ = terminate.recv() => break "SIGTERM",
                _ = interrupt.recv() => break "SIGINT",
                _ = hangup.recv() => self.forget_metadata(),
                _ = gone.changed() => if self.end_if_idle() {
                    self.write_what_waits().await;
                    let never = "ended: its first mount was not made";
                    let last = "ended: the last mount has gone";
                    tracing::info!("{}", if self.mounts.has_had_one() { last } else { never });
                    return Ok(());
                },
                () = &mut first_mount, if !first_mount.is_elapsed() => if self.end_if_idle() {
                    tracing::info!("ended: no mount came within {} s", FIRST_MOUNT_WAIT.as_secs());
                    return Ok(());
                },
            }
        };
        tracing::info!("{signal}: taking all mounts down");
        self.is_ending.store(true, Ordering::SeqCst);
        // A mount that is being made is waited for, so that it is taken down with the others.
        drop(tokio::task::block_in_place(|| {
            self.mounting.try_lock_for(END_GRACE)
        }));
        let paths: Vec<PathBuf> = self
            .mounts
            .list()
            .iter()
            .map(|mounted| mounted.path.clone())
            .collect();
        self.mounts.unmount(&paths, signal, END_GRACE).await;
        self.write_what_waits().await;
        tracing::info!("ended");
        Ok(())
    }

    /// What was fetched and is not on disk yet would be fetched again by the next daemon.
    async fn write_what_waits(&self) {
        if tokio::time::timeout(END_GRACE, self.shared.pages.settle_disk())
            .await
            .is_err()
        {
            tracing::warn!("the disk is slow: some pages are not kept");
        }
    }

    /// SIGHUP: the next lookups go to the sources.
    fn forget_metadata(&self) {
        tracing::info!("forgetting statuses and listings");
        for source in self.sources.lock().values() {
            source.namespace.clear();
        }
        // One walk at a time; what is asked for meanwhile begins it anew.
        if self.walks.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let (mounts, walks) = (self.mounts.clone(), self.walks.clone());
        // A notification may wait for a request that is under way: not on a thread that answers those.
        self.runtime.spawn_blocking(move || {
            loop {
                let asked = walks.load(Ordering::SeqCst);
                for mounted in mounts.list().iter() {
                    mounted.filesystem.drop_kernel_entries();
                }
                if walks.fetch_sub(asked, Ordering::SeqCst) == asked {
                    return;
                }
            }
        });
    }

    /// Ends, unless something is mounted or being mounted.
    fn end_if_idle(&self) -> bool {
        let Some(_nobody_mounts) = self.mounting.try_lock() else {
            return false;
        };
        if !self.mounts.list().is_empty() {
            self.close_unused_sources();
            return false;
        }
        // A request that comes now is answered `Ending`, and its sender starts another daemon.
        self.is_ending.store(true, Ordering::SeqCst);
        true
    }

    /// The options that the request gives for the daemon must be those that it has.
    fn agree(&self, request: &MountRequest) -> Result<(), String> {
        // It would say that it has mounted, and whoever asked would see an empty directory.
        if let (Some(own), Some(theirs)) = (mount_namespace(), &request.mount_namespace)
            && own != *theirs
        {
            return Err(format!(
                "the daemon {} (pid {}) is in another mount namespace, and what it mounts would not be seen here; start another \
                 daemon with --daemon NAME, or mount where that one was started",
                self.name,
                std::process::id()
            ));
        }
        for name in &request.given {
            let (have, want) = (self.options.shown(name), request.daemon.shown(name));
            if have != want {
                let have = have.unwrap_or_else(|| "its default".to_owned());
                return Err(format!(
                    "option {name}: the daemon {} runs with another {name}, {have}; \
                     leave it out, or start another daemon with --daemon NAME",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// Closes the sources that no mount shows any more: each keeps a namespace, and a local one its directory open.
    /// Called while nothing is being mounted.
    fn close_unused_sources(&self) {
        let mounts = self.mounts.list();
        let is_shown = |source: &OpenSource| {
            mounts
                .iter()
                .any(|mounted| mounted.filesystem.shows(&source.namespace))
        };
        self.sources.lock().retain(|_, source| is_shown(source));
    }

    /// The source, shared with the mounts that already show it.
    fn source(&self, name: &SourceName, request: &MountRequest) -> Result<Arc<OpenSource>, String> {
        let mut sources = self.sources.lock();
        if let Some(open) = sources.get(name) {
            let mounts = self.mounts.list();
            let is_shown = mounts
                .iter()
                .any(|mounted| mounted.filesystem.shows(&open.namespace));
            // One that nobody shows and nobody mounts either, as after a mount that failed, is opened anew.
            if is_shown || Arc::strong_count(open) > 1 {
                open.agree(&request.options, &request.given_for_source)?;
                return Ok(open.clone());
            }
        }
        let _inside = self.runtime.enter();
        let open = OpenSource::new(name, &request.options, self.answers.clone(), Clock::system())?;
        let open = Arc::new(open);
        sources.insert(name.clone(), open.clone());
        Ok(open)
    }

    fn root(&self, source: &OpenSource, path: &SourcePath) -> Result<Known<FileStatus>, String> {
        let now = MaxAge {
            positive: Duration::ZERO,
            negative: Duration::ZERO,
        };
        let id = source.namespace.source().id();
        let answer = self.runtime.block_on(async {
            tokio::select! {
                answer = source.namespace.status(path, now) => Ok(answer),
                reason = source.find_hopeless() => Err(reason),
            }
        });
        let unreachable = remedy(ErrorKind::Unavailable);
        match answer.map_err(|reason| format!("{id}: {reason}{unreachable}"))? {
            Ok(known) if known.value.kind == FileKind::Directory => Ok(known),
            Ok(_) => Err(format!(
                "{id}{path}: it is not a directory; mount the directory that holds it"
            )),
            Err(error) => {
                let found = if error.kind().is_transient() {
                    source.diagnose()
                } else {
                    None
                };
                let found = found.map(|found| format!(" ({found})")).unwrap_or_default();
                Err(format!(
                    "{id}: {}{found}{}",
                    one_line(&error),
                    remedy(error.kind())
                ))
            }
        }
    }
}

/// The line of the log about a new mount: what it has, be it given, a default, or its source's.
fn note_mounted(plan: &MountPlan, source: &OpenSource, options: &MountOptions) {
    let (deadline, metadata_deadline) = source.deadlines(options);
    tracing::info!(
        source = %plan.source,
        path = %plan.path.display(),
        ttl = ?options.ttl.positive,
        negative_ttl = ?options.ttl.negative,
        immutable = ?options.ttl.immutable,
        ?deadline,
        ?metadata_deadline,
        namenode_rate = source.rate(),
        allow_other = options.allow_other,
        default_permissions = options.default_permissions,
        passthrough = options.passthrough,
        user = options.user.as_deref(),
        hadoop_conf = ?options.hadoop_conf,
        "mounted"
    );
}

/// What to do about a source that cannot be mounted, where its own message does not say it.
fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable | ErrorKind::TimedOut => {
            "; is it running, and are address and hadoop_conf (HADOOP_CONF_DIR) right? \
             A slow one may need a longer metadata_deadline"
        }
        ErrorKind::NotFound => "; mount a directory that is there",
        ErrorKind::Denied => "; choose another user with -o user=NAME, or mend its permissions",
        _ => "",
    }
}
