//! From the URL on the command line to an open source, shared by all mounts that show it.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::clock::Clock;
use lookupfs_cache::namespace::{Namespace, NamespaceMemory};
use lookupfs_cache::rate::Rate;
use lookupfs_cache::source::counting::RequestCounters;
use lookupfs_cache::source::deadline::Deadlines;
use lookupfs_cache::source::hdfs::HdfsOptions;
use lookupfs_cache::source::open::{SourceOptions, SourceUrl};
use lookupfs_cache::version::SourcePath;

use crate::message::one_line;
use crate::options::MountOptions;

/// How long a NameNode may take to accept the connection that is made to find out why it does not answer.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// Before each try to find a mount hopeless; a NameNode that is started again comes back while others are made.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Tries after which it is.
const PROBES: u64 = 3;

/// Statuses and listings asked of an HDFS in a second, unless `namenode_rate` says otherwise: a small part of what a
/// NameNode serves, since it serves others too. A local directory has no such bound.
const HDFS_RATE: u32 = 1000;

/// What makes two mounts show the same source, and which directory of it one shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey {
    source: SourceName,
    /// The directory that the mount shows.
    pub root: SourcePath,
}

/// Why a source cannot be mounted; the text says what would do.
#[derive(Debug, thiserror::Error)]
pub enum SourceKeyError {
    /// The text is no URL of a source: wrong usage.
    #[error("{0}")]
    Url(String),
    /// The directory is not there, or none.
    #[error("{0}")]
    Directory(String),
}

/// A source apart from any directory of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceName {
    /// A local directory, without symbolic links on the way to it.
    Local(PathBuf),
    /// An HDFS as one user sees it.
    Hdfs {
        /// A nameservice, or host and port; empty: that of `fs.defaultFS`.
        authority: String,
        /// Who asks; `None`: whoever the daemon runs as.
        user: Option<String>,
        /// Where its configuration is.
        hadoop_conf: Option<PathBuf>,
        /// Whether other users may enter: then a mask must not pass for the group's permissions.
        ask_acls: bool,
    },
}

impl SourceKey {
    /// Makes a relative local path absolute, and leaves everything else as it is.
    ///
    /// # Errors
    /// If there is no working directory.
    pub fn absolute(url: &str) -> Result<String, String> {
        // `hdfs:/x` is a slip of the pen and no directory; one of that name is written ./hdfs:/x.
        let is_meant_as_url = ["hdfs:", "file:"].iter().any(|scheme| url.starts_with(scheme));
        if url.contains("://") || is_meant_as_url {
            return Ok(url.to_owned());
        }
        let path = std::path::absolute(url).map_err(|error| format!("source {url:?}: {error}"))?;
        Ok(format!("file://{}", path.display()))
    }

    /// Parses a source URL.
    ///
    /// # Errors
    /// See [`SourceKeyError`].
    pub fn parse(url: &str, options: &MountOptions) -> Result<SourceKey, SourceKeyError> {
        let parsed = SourceUrl::parse(url)
            .map_err(|error| SourceKeyError::Url(format!("source {}", one_line(&error))))?;
        Ok(match parsed {
            SourceUrl::Local(path) => SourceKey {
                source: SourceName::Local(canonical(&path).map_err(SourceKeyError::Directory)?),
                root: SourcePath::root(),
            },
            SourceUrl::Hdfs { authority, path } => SourceKey {
                source: SourceName::Hdfs {
                    authority,
                    user: options.user.clone(),
                    hadoop_conf: options.hadoop_conf.clone(),
                    ask_acls: options.allow_other,
                },
                root: path,
            },
        })
    }

    /// The source alone.
    pub fn source(&self) -> &SourceName {
        &self.source
    }
}

/// What connecting to a NameNode has shown.
#[derive(Debug, PartialEq, Eq)]
enum Probe {
    /// There is no such host, or nobody listens at any of its addresses.
    Hopeless(String),
    /// Anything else: it accepts, or is not reached.
    Unclear(String),
}

fn probe(address: &str) -> Option<Probe> {
    let addresses = match address.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => {
            let reason = format!("{address} is no nameservice of the configuration, and no host: {error}");
            return Some(Probe::Hopeless(reason));
        }
    };
    let (mut last, mut all_refuse) = (None, true);
    for address in addresses {
        match TcpStream::connect_timeout(&address, PROBE_WAIT) {
            Ok(_) => {
                let reason = format!("{address} accepts connections and stays silent");
                return Some(Probe::Unclear(reason));
            }
            Err(error) => {
                all_refuse &= error.kind() == std::io::ErrorKind::ConnectionRefused;
                last = Some(format!("{address}: {error}"));
            }
        }
    }
    let found = if all_refuse {
        Probe::Hopeless
    } else {
        Probe::Unclear
    };
    last.map(found)
}

fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

fn canonical(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let canonical = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("source {shown}: there is no such directory"),
        _ => format!("source {shown}: {error}"),
    })?;
    if !canonical.is_dir() {
        return Err(format!(
            "source {shown}: it is not a directory; mount the directory that holds it"
        ));
    }
    Ok(canonical)
}

/// A source with its counters.
#[derive(Debug)]
pub struct OpenSource {
    /// What is where in it.
    pub namespace: Arc<Namespace>,
    counters: Arc<RequestCounters>,
    /// What it was opened with.
    deadline: Duration,
    metadata_deadline: Duration,
    rate: u32,
}

impl OpenSource {
    /// Opens a source; makes no request yet. Its statuses and listings lie in `memory`. The first mount's deadlines and
    /// `namenode_rate` are the source's. Must be called in the runtime that is to serve it.
    ///
    /// # Errors
    /// One sentence for people.
    pub fn new(
        name: &SourceName,
        options: &MountOptions,
        memory: Arc<NamespaceMemory>,
        clock: Clock,
    ) -> Result<OpenSource, String> {
        // A little earlier than the mount, so that what did not answer is known, and not only that nothing came.
        let deadlines = Deadlines {
            metadata: options.metadata_deadline * 19 / 20,
            read: options.deadline * 19 / 20,
        };
        let mut layers = SourceOptions {
            deadlines,
            ..SourceOptions::default()
        };
        let url = match name {
            SourceName::Local(directory) => SourceUrl::Local(directory.clone()),
            SourceName::Hdfs {
                authority,
                user,
                hadoop_conf,
                ask_acls,
            } => {
                let (user, hadoop_conf) = (user.clone(), hadoop_conf.clone());
                layers.hdfs = HdfsOptions {
                    user,
                    hadoop_conf,
                    ask_acls: *ask_acls,
                    ..layers.hdfs
                };
                SourceUrl::Hdfs {
                    authority: authority.clone(),
                    path: SourcePath::root(),
                }
            }
        };
        let open = url.open(&layers).map_err(|error| one_line(&error))?;
        let usual_rate = match name {
            SourceName::Local(_) => 0,
            SourceName::Hdfs { .. } => HDFS_RATE,
        };
        // Half of the time is the source's.
        let wait_max = deadlines.metadata / 2;
        let rate = options.namenode_rate.unwrap_or(usual_rate);
        let bound = Rate::new(rate, wait_max);
        let namespace = Arc::new(Namespace::sharing(open.source, memory, bound, clock));
        Ok(OpenSource {
            namespace,
            counters: open.counters,
            deadline: options.deadline,
            metadata_deadline: options.metadata_deadline,
            rate,
        })
    }

    /// Whether one more mount may show this source: of the options that were `given` for it, those that it has are the
    /// first mount's. A shorter deadline is the mount's own affair.
    ///
    /// # Errors
    /// One sentence that names the option and its present value.
    pub fn agree(&self, options: &MountOptions, given: &[String]) -> Result<(), String> {
        for name in given {
            let (is_in_the_way, have) = match name.as_str() {
                "deadline" => (options.deadline > self.deadline, seconds(self.deadline)),
                "metadata_deadline" => (
                    options.metadata_deadline > self.metadata_deadline,
                    seconds(self.metadata_deadline),
                ),
                "namenode_rate" => (
                    options.namenode_rate.is_some_and(|rate| rate != self.rate),
                    self.rate.to_string(),
                ),
                _ => continue,
            };
            if is_in_the_way {
                return Err(format!(
                    "option {name}: other mounts show {} already, with {name}={have}, and share it; \
                     leave it out, unmount those first, or start another daemon with --daemon NAME",
                    self.namespace.source().id()
                ));
            }
        }
        Ok(())
    }

    /// The deadlines that a mount with `options` has from this source, for reads and for metadata.
    pub fn deadlines(&self, options: &MountOptions) -> (Duration, Duration) {
        (
            options.deadline.min(self.deadline),
            options.metadata_deadline.min(self.metadata_deadline),
        )
    }

    /// Statuses and listings asked of it in a second, 0 for any number.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Why the NameNode may not answer, as far as one connection can tell. For people. A name is resolved,
    /// then each address has a second.
    pub fn diagnose(&self) -> Option<String> {
        let (Probe::Hopeless(reason) | Probe::Unclear(reason)) = probe(self.address()?)?;
        Some(reason)
    }

    /// Ends once a NameNode has been found, several times in a row, to be at no host that is known, or at none of whose
    /// addresses anybody listens: requests would be tried again for as long as their deadline allows, and nothing of that
    /// would change. Of a nameservice, whose NameNodes the configuration names, nothing is found.
    pub async fn find_hopeless(&self) -> String {
        let Some(address) = self.address().map(str::to_owned) else {
            return std::future::pending().await;
        };
        let mut found = 0;
        loop {
            tokio::time::sleep(PROBE_PAUSE).await;
            let address = address.clone();
            let probed = tokio::task::spawn_blocking(move || probe(&address)).await;
            let Ok(Some(Probe::Hopeless(reason))) = probed else {
                return std::future::pending().await;
            };
            found += 1;
            if found == PROBES {
                return format!(
                    "{reason}; tried {PROBES} times within {} s",
                    PROBES * PROBE_PAUSE.as_secs()
                );
            }
        }
    }

    /// Host and port of a NameNode, where the URL gives them.
    fn address(&self) -> Option<&str> {
        let authority = self.namespace.source().id().as_str().strip_prefix("hdfs://")?;
        let address = authority.rsplit('@').next()?;
        address.contains(':').then_some(address)
    }

    /// The counters, as JSON.
    pub fn requests(&self) -> serde_json::Value {
        serde_json::to_value(self.counters.counts()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<SourceKey, SourceKeyError> {
        SourceKey::parse(url, &MountOptions::default())
    }

    #[test]
    fn urls_name_a_source_and_a_directory_of_it() {
        let a = parse("hdfs://ns1/a/b/").unwrap();
        assert_eq!(a.root, SourcePath::parse(b"/a/b").unwrap());
        assert_eq!(a.source(), parse("hdfs://ns1").unwrap().source());
        assert_eq!(parse("file:///").unwrap().root, SourcePath::root());
        let alice = MountOptions {
            user: Some("alice".into()),
            ..MountOptions::default()
        };
        let alice = SourceKey::parse("hdfs://ns1/a/b", &alice).unwrap();
        assert_ne!(
            a.source(),
            alice.source(),
            "what alice may read is a source of its own"
        );
    }

    #[test]
    fn only_an_address_where_nobody_listens_and_an_unknown_host_are_hopeless() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(matches!(probe(&address), Some(Probe::Unclear(reason)) if reason.contains("silent")));
        drop(listener);
        assert!(matches!(probe(&address), Some(Probe::Hopeless(reason)) if reason.contains("refused")));
        // A port that is none is refused without asking anybody for the name.
        assert!(matches!(probe("host:port"), Some(Probe::Hopeless(reason)) if reason.contains("no host")));
    }

    #[test]
    fn urls_that_will_not_do_say_what_would() {
        for (url, word) in [
            ("s3://b/x", "hdfs://"),
            ("file://host/x", "file:///"),
            ("viewfs://c/x", "hdfs://"),
            ("nothing", "hdfs://"),
            ("hdfs://ns/a/../b", "not a file name"),
            ("file:///no/such/directory", "no such directory"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
