//! The command line of `lookupfs`, typed. Decides nothing.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Mounts HDFS paths read-only, with one cache for all mounts of a host.
#[derive(Debug, Parser)]
#[command(name = "lookupfs", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a source; returns once every mount point answers.
    Mount(MountArgs),
    /// Unmount; never waits for the network.
    Umount(UmountArgs),
    /// Show counters, requests and bytes at the source.
    Stats(StatsArgs),
    /// Fetch files into the cache ahead of their readers, check what is kept, or drop it.
    Warm(WarmArgs),
    /// The process behind the mounts; `mount` starts it.
    #[command(hide = true)]
    Daemon(DaemonArgs),
}

/// `lookupfs mount`.
#[derive(Debug, Args)]
#[command(after_help = OPTIONS_HELP)]
pub struct MountArgs {
    /// hdfs://NAMESERVICE/PATH, hdfs://HOST:PORT/PATH or file:///PATH.
    pub source: String,
    /// Directories to mount it on; each shows the same files.
    #[arg(required = true)]
    pub mount_points: Vec<PathBuf>,
    /// Mount options, separated by commas; repeatable. They are listed below.
    #[arg(short = 'o', value_name = "OPT,...")]
    pub options: Vec<String>,
    /// Stay in the foreground and log to stderr; the daemon is this process.
    #[arg(long)]
    pub foreground: bool,
    /// The daemon to join or to start; mounts of one daemon share one cache. By default the one that has the cache_dir
    /// given, else the one named default.
    #[arg(long, value_name = "NAME")]
    pub daemon: Option<String>,
}

/// `lookupfs umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Mount points.
    #[arg(required = true)]
    pub mount_points: Vec<PathBuf>,
    /// Unmount also while files are open; they stay readable until they are closed.
    #[arg(long)]
    pub lazy: bool,
}

/// `lookupfs stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// A mount point of the daemon to ask.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub mount_point: Option<PathBuf>,
    /// Ask every daemon.
    #[arg(long)]
    pub all: bool,
    /// One JSON object a daemon and line; bytes, counts and seconds since the start.
    #[arg(long)]
    pub json: bool,
    /// All metrics in Prometheus's text format, as the option metrics serves them.
    #[arg(long, conflicts_with_all = ["json", "files", "reset"])]
    pub prometheus: bool,
    /// Also the N files of the mount with the most bytes; at most 1000.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub files: Option<u32>,
    /// Afterwards show people what is counted from now on; JSON and Prometheus go on counting.
    #[arg(long)]
    pub reset: bool,
}

/// `lookupfs warm`.
#[derive(Debug, Args)]
#[command(after_help = WARM_HELP)]
pub struct WarmArgs {
    /// Files and directories below mounts of one daemon; - reads paths from stdin, one a line.
    pub paths: Vec<PathBuf>,
    /// Footers with their indexes, manifests, snapshots and schemas (the default).
    #[arg(long, group = "what")]
    pub metadata: bool,
    /// The same, and these columns of Parquet files: whole paths such as a.b, or their beginnings.
    #[arg(long, value_name = "A,B", value_delimiter = ',', group = "what")]
    pub columns: Vec<String>,
    /// Every byte.
    #[arg(long, group = "what")]
    pub all: bool,
    /// Count what is kept of it, and fetch nothing.
    #[arg(long, conflicts_with_all = ["evict", "limit"])]
    pub check: bool,
    /// Drop all pages of the files, the kernel's too.
    #[arg(long, conflicts_with_all = ["what", "limit"])]
    pub evict: bool,
    /// Files worked on at once, 1 to 128.
    #[arg(long, value_name = "N", default_value_t = crate::warm::PARALLEL_DEFAULT)]
    pub parallel: u32,
    /// Bytes a second from the source, such as 50m.
    #[arg(long, value_name = "BYTES/s")]
    pub limit: Option<String>,
    /// Read paths from this file as well; - is stdin.
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Paths that are read end with NUL, as `find -print0` writes them, not with a newline.
    #[arg(short = '0', long)]
    pub null: bool,
    /// PATH is a Paimon or Iceberg table: the files of this snapshot of it, by number, or latest.
    #[arg(
        long,
        value_name = "ID",
        conflicts_with = "files_from",
        allow_negative_numbers = true
    )]
    pub snapshot: Option<String>,
    /// One JSON object at the end; bytes, counts and seconds.
    #[arg(long)]
    pub json: bool,
}

/// `lookupfs daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Its name.
    #[arg(long)]
    pub name: String,
    /// Its options, as JSON.
    #[arg(long)]
    pub options: String,
}

/// What holds for every `lookupfs warm`.
const WARM_HELP: &str = "\
What is kept already is not fetched again: after Ctrl-C the same command goes on where it stopped.
Sizes take k, m, g (powers of 1024). Exit code: 0 all done, 1 some failed and are named, 2 wrong usage.";

/// The mount options, as `lookupfs mount --help` shows them; fs/CONFIG.md says more.
const OPTIONS_HELP: &str = "\
Mount options (-o):
  ttl=5                  how old what is known of a path may be
  negative_ttl=1         how old the answer may be that nothing is there; at most 60
  immutable              what is there never changes, but for LATEST, snapshot-N and their like
                         (immutable=uuid: only what is named by a UUID never changes)
  deadline=60            every read ends within this
  metadata_deadline=10   every other operation ends within this
  namenode_rate=1000     statuses and listings asked of an HDFS in a second; 0 for any number
  uid=N, gid=N           owner and group of everything; else HDFS's, mapped by name
  umask=0                octal bits taken from every mode
  file_mode=M, dir_mode=M   octal modes instead of HDFS's
  allow_other            let other users in; needs default_permissions
  default_permissions    the kernel checks owner, group and mode
  user=NAME              the user that HDFS sees
  passthrough            the kernel itself reads files that lie complete in cache_dir; opens then
                         cost a message each. Without it opens cost none
  hadoop_conf=DIR        where core-site.xml and hdfs-site.xml are; else HADOOP_CONF_DIR
Options of the whole daemon (the first mount decides):
  memory=SIZE            memory for pages; default a quarter of the cgroup's or host's
  page_size=16k          unit of the cache, 4k to 4m
  max_inflight=64m       bytes being fetched at once
  cache_dir=DIR          where pages are kept over restarts; default nowhere
  cache_size=SIZE        disk for them; default half of what is free there and theirs already
  log=info               what is logged: error, warn, info, debug, or a filter
  metrics=[ADDRESS:]PORT serve Prometheus metrics there; a port alone is for this host only
Times are seconds unless they say ms, m or h; sizes take k, m, g (powers of 1024).
Ignored: ro, auto, noauto, nofail, _netdev, x-*, and what mount(8) keeps for itself.";
