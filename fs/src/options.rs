//! Mount options: one table of names for the command line, fstab and configuration files, parsed into typed values.
//!
//! Decides nothing else: what the values mean is up to [`crate::daemon`]. fs/CONFIG.md documents every name.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attributes::{Immutable, Ttl};
use crate::owner::OwnerConfig;
use crate::size::{parse_bytes, parse_duration};

/// The longest deadline that a mount may have.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// The least that a disk tier takes.
const CACHE_SIZE_MIN: u64 = 64 << 20;

/// Options of one mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountOptions {
    /// How long answers may be used.
    pub ttl: Ttl,
    /// Owners and modes.
    pub owner: OwnerConfig,
    /// Whether users other than the mounting one may enter.
    pub allow_other: bool,
    /// Whether the kernel checks permissions.
    pub default_permissions: bool,
    /// Every read ends within this.
    pub deadline: Duration,
    /// Every metadata operation ends within this.
    pub metadata_deadline: Duration,
    /// Statuses and listings asked of the source in a second, 0 for any number; `None`: what its kind can bear.
    pub namenode_rate: Option<u32>,
    /// The user that HDFS sees; `None`: the daemon's.
    pub user: Option<String>,
    /// Where `core-site.xml` and `hdfs-site.xml` are; `None`: `HADOOP_CONF_DIR`.
    pub hadoop_conf: Option<PathBuf>,
    /// Whether complete files on the local disk are opened with passthrough; otherwise opening costs no message.
    pub passthrough: bool,
}

/// Options of a whole daemon; all its mounts share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonOptions {
    /// Bytes of memory for pages.
    pub memory: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes being fetched at once.
    pub max_inflight: u64,
    /// What is logged, as `tracing-subscriber` filters are written.
    pub log: String,
    /// Where pages are kept over restarts; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Bytes there; `None`: half of what its file system has left for it.
    pub cache_size: Option<u64>,
    /// Where metrics are served; `None`: nowhere.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
}

impl DaemonOptions {
    /// The value of an option as it would be given; `None` where it has none.
    pub fn shown(&self, name: &str) -> Option<String> {
        let path = |path: &PathBuf| path.display().to_string();
        match name {
            "memory" => Some(self.memory.to_string()),
            "page_size" => Some(self.page_size.to_string()),
            "max_inflight" => Some(self.max_inflight.to_string()),
            "log" => Some(self.log.clone()),
            "cache_dir" => self.cache_dir.as_ref().map(path),
            "cache_size" => self.cache_size.map(|bytes| bytes.to_string()),
            "metrics" => self.metrics.map(|address| address.to_string()),
            _ => None,
        }
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            ttl: Ttl {
                positive: Duration::from_secs(5),
                negative: Duration::from_secs(1),
                immutable: Immutable::Nothing,
            },
            owner: OwnerConfig::default(),
            allow_other: false,
            default_permissions: false,
            deadline: Duration::from_secs(60),
            metadata_deadline: Duration::from_secs(10),
            namenode_rate: None,
            user: None,
            hadoop_conf: None,
            passthrough: false,
        }
    }
}

impl Default for DaemonOptions {
    fn default() -> Self {
        DaemonOptions {
            memory: default_memory(),
            page_size: 16 << 10,
            max_inflight: 64 << 20,
            log: "info".to_owned(),
            cache_dir: None,
            cache_size: None,
            metrics: None,
        }
    }
}

/// What `-o` said, taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// For the mount.
    pub mount: MountOptions,
    /// For the daemon, with the defaults for what was not given.
    pub daemon: DaemonOptions,
    /// The daemon's options that were given, so that joining a daemon with others is an error, not a surprise.
    pub given: Vec<&'static str>,
    /// The source's options that were given: mounts that show the same source share them.
    pub given_for_source: Vec<&'static str>,
}

/// Options that mount(8) and systemd leave in the list, and that mean nothing to a filesystem.
fn is_for_others(name: &str) -> bool {
    let known = [
        "auto",
        "defaults",
        "exec",
        "noauto",
        "nofail",
        "nouser",
        "nousers",
        "ro",
        "user_xattr",
        "users",
    ];
    known.contains(&name) || name.starts_with("x-") || name.starts_with("comment") || name.starts_with('_')
}

/// Flags that this filesystem always has: saying so is fine.
fn is_always_so(name: &str) -> bool {
    ["nodev", "nosuid", "noatime", "nodiratime", "async"].contains(&name)
}

/// Names that design and peers know and that are not built yet.
const NOT_YET: &[&str] = &["hedge", "stale_if_error"];
const NOT_SUPPORTED_YET: &str = "not supported yet by this version; leave it out";

/// Whether `option` goes on with the filter that an earlier `log=` began: commas part both options and filters, and no
/// option is named like a module.
fn is_more_of_log(option: &str, given: &[&str]) -> bool {
    given.contains(&"log") && (option.starts_with("lookupfs") || option.contains("::"))
}

/// Parses the text of one or several `-o`, separated by commas.
///
/// # Errors
/// One sentence that names the option and says what is right.
pub fn parse(text: &str) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        if is_more_of_log(option, &parsed.given) {
            parsed.daemon.log = format!("{},{option}", parsed.daemon.log);
            continue;
        }
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if is_for_others(name) || is_always_so(name) {
            continue;
        }
        set(&mut parsed, name, value).map_err(|reason| format!("option {name}: {reason}"))?;
    }
    check(&parsed)?;
    Ok(parsed)
}

/// The options of a whole daemon.
const OF_DAEMON: [&str; 7] = [
    "memory",
    "page_size",
    "max_inflight",
    "cache_dir",
    "cache_size",
    "log",
    "metrics",
];

/// The options of a mount that are its source's as well.
const OF_SOURCE: [&str; 3] = ["namenode_rate", "deadline", "metadata_deadline"];

fn set(parsed: &mut Parsed, name: &str, value: Option<&str>) -> Result<(), String> {
    let needed = || {
        value
            .filter(|value| !value.is_empty())
            .ok_or(format!("a value is needed: {name}=VALUE"))
    };
    if let Some(known) = OF_DAEMON.iter().find(|known| **known == name) {
        parsed.given.push(known);
        return set_daemon(&mut parsed.daemon, known, needed()?);
    }
    if let Some(known) = OF_SOURCE.iter().find(|known| **known == name) {
        parsed.given_for_source.push(known);
    }
    let flag = || match value {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(format!("{other:?} is neither true nor false")),
    };
    let mount = &mut parsed.mount;
    match name {
        "ttl" => mount.ttl.positive = parse_duration(needed()?)?,
        "negative_ttl" => mount.ttl.negative = parse_duration(needed()?)?,
        "immutable" => {
            mount.ttl.immutable = match value {
                Some("uuid") => Immutable::Unique,
                _ if flag().map_err(|reason| format!("{reason} nor uuid"))? => Immutable::AllButMutable,
                _ => Immutable::Nothing,
            }
        }
        "namenode_rate" => mount.namenode_rate = Some(rate(needed()?)?),
        "deadline" => mount.deadline = parse_duration(needed()?)?,
        "metadata_deadline" => mount.metadata_deadline = parse_duration(needed()?)?,
        "uid" => mount.owner.uid = Some(id(needed()?)?),
        "gid" => mount.owner.gid = Some(id(needed()?)?),
        "umask" => mount.owner.umask = mode(needed()?)?,
        "file_mode" => mount.owner.file_mode = Some(mode(needed()?)?),
        "dir_mode" => mount.owner.dir_mode = Some(mode(needed()?)?),
        "allow_other" => mount.allow_other = flag()?,
        "default_permissions" => mount.default_permissions = flag()?,
        "user" => mount.user = Some(needed()?.to_owned()),
        "passthrough" => mount.passthrough = flag()?,
        "hadoop_conf" => mount.hadoop_conf = Some(PathBuf::from(needed()?)),
        "rw" => return Err("lookupfs mounts are read-only; leave it out".to_owned()),
        name if NOT_YET.contains(&name) => return Err(NOT_SUPPORTED_YET.to_owned()),
        _ => return Err("there is no such option; `lookupfs mount --help` lists them".to_owned()),
    }
    Ok(())
}

/// Sets one of [`OF_DAEMON`].
fn set_daemon(daemon: &mut DaemonOptions, name: &str, value: &str) -> Result<(), String> {
    match name {
        "memory" => daemon.memory = parse_bytes(value)?,
        "page_size" => daemon.page_size = parse_bytes(value)?,
        "max_inflight" => daemon.max_inflight = parse_bytes(value)?,
        "cache_dir" => daemon.cache_dir = Some(absolute(value)?),
        "cache_size" => daemon.cache_size = Some(parse_bytes(value)?),
        "log" => value.clone_into(&mut daemon.log),
        "metrics" => daemon.metrics = Some(metrics_address(value)?),
        _ => return Err("it is no option of a daemon".to_owned()),
    }
    Ok(())
}

fn check(parsed: &Parsed) -> Result<(), String> {
    let (mount, daemon) = (&parsed.mount, &parsed.daemon);
    if mount.allow_other && !mount.default_permissions {
        return Err("option allow_other: needs default_permissions beside it, \
                    or every user of this host could read what the daemon may read"
            .to_owned());
    }
    for (name, duration) in [
        ("deadline", mount.deadline),
        ("metadata_deadline", mount.metadata_deadline),
    ] {
        if !(Duration::from_millis(10)..=DEADLINE_MAX).contains(&duration) {
            return Err(format!("option {name}: must be between 10ms and 1h"));
        }
    }
    if mount.ttl.negative > Duration::from_secs(60) {
        return Err(
            "option negative_ttl: must be at most 60 s, since table readers probe for new names".to_owned(),
        );
    }
    if !daemon.page_size.is_power_of_two() || !(4096..=4 << 20).contains(&daemon.page_size) {
        return Err("option page_size: must be a power of two between 4k and 4m".to_owned());
    }
    if daemon.memory < 16 << 20 {
        return Err("option memory: must be at least 16m".to_owned());
    }
    if daemon.max_inflight < 8 << 20 {
        return Err("option max_inflight: must be at least 8m".to_owned());
    }
    match (daemon.cache_size, &daemon.cache_dir) {
        (Some(_), None) => return Err("option cache_size: needs cache_dir=DIR beside it".to_owned()),
        (Some(size), _) if size < CACHE_SIZE_MIN => {
            return Err("option cache_size: must be at least 64m".to_owned());
        }
        _ => {}
    }
    check_log(&daemon.log)
}

/// A path that means the same to a daemon, which has another working directory. Two ways to write one are made alike.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} is not an absolute path without .."));
    }
    Ok(path.components().collect())
}

/// A filter of `tracing-subscriber`. It would take any word alone for a module, and a mistyped level would be silence.
fn check_log(filter: &str) -> Result<(), String> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_wrong = |part: &&str| !part.contains('=') && !levels.contains(part);
    if let Some(wrong) = filter.split(',').find(is_wrong) {
        let known = levels.join(", ");
        return Err(format!("option log: {wrong:?} is no level; write one of {known}"));
    }
    match tracing_subscriber::EnvFilter::try_new(filter) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "option log: {error}; write it as info,lookupfs_cache=debug"
        )),
    }
}

/// `ADDRESS:PORT`, or a port alone, which is then only reached from this host.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port_alone = text
        .parse::<u16>()
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    match port_alone.or_else(|_| text.parse()) {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => Err(format!(
            "{text:?} is neither a port nor ADDRESS:PORT; write 9105, 0.0.0.0:9105 or [::1]:9105"
        )),
    }
}

fn id(text: &str) -> Result<u32, String> {
    match text.parse() {
        // The last one means "no change" to chown(2) and is nobody's.
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(format!("{text:?} is not a numeric id")),
    }
}

fn rate(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no number of requests a second"))
}

fn mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o1777 => Ok(mode),
        _ => Err(format!("{text:?} is not an octal mode up to 1777")),
    }
}

/// A quarter of what this process may use: the limit of its cgroup, or else the memory of the host.
fn default_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let host = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_ascii_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    });
    // A limit holds for all groups below it.
    let cgroup = read("/proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
        let limit = |group: &Path| {
            let path = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
            read(path.to_str()?)?.trim().parse::<u64>().ok()
        };
        let inside = Path::new(path.trim_start_matches('/'));
        inside.ancestors().filter_map(limit).min()
    });
    let limit = [host, cgroup].into_iter().flatten().min().unwrap_or(1 << 30);
    (limit / 4).max(16 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstab_lines_are_understood() {
        let parsed = parse(
            "ro,_netdev,nofail,x-systemd.automount,ttl=2.5,memory=256m,allow_other,default_permissions",
        )
        .unwrap();
        assert_eq!(parsed.mount.ttl.positive, Duration::from_millis(2500));
        assert_eq!((parsed.daemon.memory, parsed.given), (256 << 20, vec!["memory"]));
    }

    #[test]
    fn wrong_options_are_named_with_what_is_right() {
        for (text, word) in [
            ("ttl=x", "ttl"),
            ("ttl", "ttl=VALUE"),
            ("nonsense", "--help"),
            ("rw", "read-only"),
            ("allow_other", "default_permissions"),
            ("page_size=5000", "power of two"),
            ("hedge=5", "not supported yet"),
            ("cache_dir=x", "absolute"),
            ("cache_dir=/x/../y", "absolute"),
            ("cache_size=1g", "cache_dir=DIR"),
            ("cache_dir=/x,cache_size=1m", "64m"),
            ("umask=9", "octal"),
            ("immutable=maybe", "uuid"),
            ("namenode_rate=many", "requests a second"),
            ("namenode_rate=-1", "requests a second"),
            ("negative_ttl=1h", "60 s"),
            ("deadline=0", "10ms"),
            ("memory=1k", "16m"),
            ("uid=4294967295", "numeric id"),
            ("log=loud", "no level"),
            ("metrics=host:1", "ADDRESS:PORT"),
            ("metrics=0", "ADDRESS:PORT"),
            ("metrics=70000", "ADDRESS:PORT"),
            ("metrics", "metrics=VALUE"),
            ("log=info,lookupfs_cache=loud", "option log"),
            ("lookupfs_cache=debug", "--help"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn one_cache_directory_is_written_in_many_ways() {
        for text in ["cache_dir=/x/y", "cache_dir=/x/y/", "cache_dir=//x/./y"] {
            let daemon = parse(text).unwrap().daemon;
            assert_eq!(daemon.cache_dir.unwrap().as_os_str(), "/x/y", "{text}");
        }
        assert_eq!(
            parse("cache_size=1g,cache_dir=/x").unwrap().daemon.cache_size,
            Some(1 << 30)
        );
    }

    #[test]
    fn a_port_alone_is_reached_from_this_host_only() {
        for (text, address) in [
            ("metrics=9105", "127.0.0.1:9105"),
            ("metrics=0.0.0.0:1", "0.0.0.0:1"),
            ("metrics=[::1]:9", "[::1]:9"),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed.daemon.metrics.unwrap().to_string(), address);
            assert_eq!(parsed.given, ["metrics"]);
        }
    }

    #[test]
    fn a_log_filter_may_have_commas() {
        let parsed = parse("ttl=1,log=info,lookupfs_cache=debug,lookupfs_fs::fuse=trace,memory=32m").unwrap();
        assert_eq!(
            parsed.daemon.log,
            "info,lookupfs_cache=debug,lookupfs_fs::fuse=trace"
        );
        assert_eq!(
            (parsed.daemon.memory, parsed.given),
            (32 << 20, vec!["log", "memory"])
        );
    }

    #[test]
    fn immutable_has_three_values_and_leaves_ttl_to_what_is_mutable() {
        for (text, immutable) in [
            ("immutable,ttl=1", Immutable::AllButMutable),
            ("ttl=1,immutable=true", Immutable::AllButMutable),
            ("immutable=uuid,ttl=1", Immutable::Unique),
            ("immutable,immutable=false,ttl=1", Immutable::Nothing),
        ] {
            let ttl = parse(text).unwrap().mount.ttl;
            assert_eq!(
                (ttl.immutable, ttl.positive),
                (immutable, Duration::from_secs(1)),
                "{text}"
            );
        }
        assert_eq!(parse("namenode_rate=0").unwrap().mount.namenode_rate, Some(0));
    }
}
