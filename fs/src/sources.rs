//! From the URL on the command line to an open source with its decorators.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lookupfs_cache::clock::Clock;
use lookupfs_cache::namespace::Namespace;
use lookupfs_cache::source::Source;
use lookupfs_cache::source::counting::{CountingSource, RequestCounters};
use lookupfs_cache::source::deadline::{DeadlineSource, Deadlines};
use lookupfs_cache::source::hdfs::{HdfsOptions, HdfsSource};
use lookupfs_cache::source::local::LocalSource;
use lookupfs_cache::version::SourcePath;

use crate::daemon::one_line;
use crate::options::MountOptions;

/// What makes two mounts show the same source, and which directory of it one shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey {
    scheme: Scheme,
    /// The directory that the mount shows.
    pub root: SourcePath,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    /// The local file system.
    File,
    Hdfs {
        /// A nameservice, or host and port; empty: that of `fs.defaultFS`.
        authority: String,
        user: Option<String>,
        hadoop_conf: Option<PathBuf>,
    },
}

impl SourceKey {
    /// Makes a relative local path a `file://` URL, and leaves everything else as it is.
    ///
    /// # Errors
    /// If there is no working directory.
    pub fn absolute(url: &str) -> Result<String, String> {
        if url.contains("://") {
            return Ok(url.to_owned());
        }
        let path = std::path::absolute(url).map_err(|error| format!("source {url:?}: {error}"))?;
        Ok(format!("file://{}", path.display()))
    }

    /// Parses a source URL.
    ///
    /// # Errors
    /// One sentence that says which URLs there are.
    pub fn parse(url: &str, options: &MountOptions) -> Result<SourceKey, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(format!(
                "source {url:?}: it begins with neither hdfs:// nor file://"
            ));
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let scheme = match scheme {
            "file" if authority.is_empty() || authority == "localhost" => Scheme::File,
            "file" => {
                return Err(format!(
                    "source {url:?}: a local path has three slashes: file:///{rest}"
                ));
            }
            "hdfs" => Scheme::Hdfs {
                authority: authority.to_ascii_lowercase(),
                user: options.user.clone(),
                hadoop_conf: options.hadoop_conf.clone(),
            },
            "viewfs" => {
                return Err(format!(
                    "source {url:?}: viewfs is not supported yet; mount the hdfs:// path that it links to"
                ));
            }
            other => {
                return Err(format!(
                    "source {url:?}: {other}:// is not supported; use hdfs:// or file://"
                ));
            }
        };
        let root = match scheme {
            // Symbolic links on the way are followed once, here: the source itself follows none.
            Scheme::File => canonical(Path::new(path))?,
            Scheme::Hdfs { .. } => path.to_owned(),
        };
        let root = SourcePath::parse(root.as_bytes()).map_err(|error| format!("source {url:?}: {error}"))?;
        Ok(SourceKey { scheme, root })
    }

    /// The key of the source alone.
    pub fn without_root(&self) -> SourceKey {
        SourceKey {
            scheme: self.scheme.clone(),
            root: SourcePath::root(),
        }
    }
}

fn canonical(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let canonical = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("source file://{shown}: there is no such directory"),
        _ => format!("source file://{shown}: {error}"),
    })?;
    canonical
        .into_os_string()
        .into_string()
        .map_err(|_| format!("source file://{shown}: its name is not UTF-8"))
}

/// A source with its counters, shared by all mounts that show it.
#[derive(Debug)]
pub struct OpenSource {
    /// What is where in it.
    pub namespace: Arc<Namespace>,
    counters: Arc<RequestCounters>,
}

impl OpenSource {
    /// Opens the source of `key`; makes no request yet. `memory_bytes` is for statuses and listings.
    ///
    /// # Errors
    /// One sentence for people.
    pub fn new(
        key: &SourceKey,
        options: &MountOptions,
        memory_bytes: u64,
        clock: Clock,
    ) -> Result<OpenSource, String> {
        let deadlines = Deadlines {
            metadata: options.metadata_deadline,
            read: options.deadline,
        };
        let counters = Arc::new(RequestCounters::default());
        // Counted inside of the deadline: a request that is given up is a request.
        let source: Arc<dyn Source> = match &key.scheme {
            Scheme::File => {
                let local = LocalSource::new(Path::new("/")).map_err(|error| one_line(&error))?;
                let counted = CountingSource::new(local, counters.clone());
                Arc::new(DeadlineSource::new(counted, deadlines))
            }
            Scheme::Hdfs {
                authority,
                user,
                hadoop_conf,
            } => {
                let hdfs = HdfsOptions {
                    hadoop_conf: hadoop_conf.clone(),
                    user: user.clone(),
                    metadata_deadline: options.metadata_deadline,
                    read_deadline: options.deadline,
                    ..HdfsOptions::default()
                };
                let hdfs = HdfsSource::new(authority, &hdfs).map_err(|error| one_line(&error))?;
                let counted = CountingSource::new(hdfs, counters.clone());
                Arc::new(DeadlineSource::new(counted, deadlines))
            }
        };
        Ok(OpenSource {
            namespace: Arc::new(Namespace::new(source, memory_bytes, clock)),
            counters,
        })
    }

    /// The counters, as JSON.
    pub fn requests(&self) -> serde_json::Value {
        serde_json::to_value(self.counters.counts()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<SourceKey, String> {
        SourceKey::parse(url, &MountOptions::default())
    }

    #[test]
    fn urls_name_a_source_and_a_directory_of_it() {
        let a = parse("hdfs://NS1/a/b/").unwrap();
        assert_eq!(a.root, SourcePath::parse(b"/a/b").unwrap());
        assert_eq!(a.without_root(), parse("hdfs://ns1").unwrap().without_root());
        assert_eq!(parse("file:///").unwrap().root, SourcePath::root());
        let user = MountOptions {
            user: Some("alice".into()),
            ..MountOptions::default()
        };
        assert_ne!(
            a,
            SourceKey::parse("hdfs://ns1/a/b", &user).unwrap(),
            "what alice may read is a source of its own"
        );
    }

    #[test]
    fn urls_that_will_not_do_say_what_would() {
        for (url, word) in [
            ("s3://b/x", "hdfs://"),
            ("file://host/x", "file:///host/x"),
            ("viewfs://c/x", "hdfs://"),
            ("nothing", "hdfs://"),
            ("hdfs://ns/a/../b", "not a file name"),
            ("file:///no/such/directory", "no such directory"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
