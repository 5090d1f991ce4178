//! Files in HDFS, through `hdfs-native`. This file and those below it are the only ones that know that crate.
//!
//! The crate is never called bare: NameNode calls go through `namenode`, reads through `file`, both with a
//! deadline and a panic boundary. What is asked is what the contract of [`Source`] needs and no more: a status is one
//! NameNode request, a listing one for each 1,000 entries, an open two, a read none but for a client's very first, which
//! asks how to talk to DataNodes.
//!
//! Limits: the identity of a file is path, length and modification time in milliseconds, since HDFS hands out nothing
//! finer here. A replacement within the same millisecond by the same number of bytes is not seen, nor is a file that
//! was moved away and back while another one stood in its place. Names that are not UTF-8 cannot be reached.
//! Where every replica fails its checksum the client only says that all DataNodes failed, so the kind is `Unavailable`.

mod acl;
mod config;
mod failure;
mod file;
mod namenode;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

use self::file::HdfsFile;
use self::namenode::{ClientPlan, Namenodes};
use super::deadline::Deadlines;
use super::{Entry, FileKind, FileStatus, Listing, OpenFile, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::version::{FileVersion, SourceId, SourcePath};

const DEFAULT_PORT: u16 = 8020;
/// How to reach an HDFS.
#[derive(Clone, Debug)]
pub struct HdfsOptions {
    /// Folder with `core-site.xml` and `hdfs-site.xml`; by default that of `HADOOP_CONF_DIR`, else of
    /// `HADOOP_HOME/etc/hadoop`.
    pub hadoop_conf: Option<PathBuf>,
    /// Who asks; by default that of `HADOOP_USER_NAME`, else the process's user.
    pub user: Option<String>,
    /// Properties that win over the files'.
    pub config: Vec<(String, String)>,
    /// For each status, listing and open.
    pub metadata_deadline: Duration,
    /// For each read.
    pub read_deadline: Duration,
    /// How long a DataNode may be silent before the next replica is tried, unless `dfs.client.socket-timeout` is
    /// configured.
    pub socket_timeout: Duration,
    /// Whether the NameNode is asked for each file's ACL, so that the mask of an ACL is not taken for the group's
    /// permissions: one more request for each status and each listed entry. Hadoop 2 needs no asking.
    pub ask_acls: bool,
    /// When an open file gets new block tokens and locations. Less than the cluster's block token lifetime, which is
    /// ten hours unless configured.
    pub reader_age_max: Duration,
}

impl Default for HdfsOptions {
    fn default() -> Self {
        let deadlines = Deadlines::default();
        HdfsOptions {
            hadoop_conf: None,
            user: None,
            config: Vec::new(),
            metadata_deadline: deadlines.metadata,
            read_deadline: deadlines.read,
            socket_timeout: Duration::from_secs(5),
            ask_acls: false,
            reader_age_max: Duration::from_secs(3600),
        }
    }
}

/// What a source and its open files have in common.
struct Shared {
    id: SourceId,
    namenodes: Namenodes,
    read_deadline: Duration,
    reader_age_max: Duration,
    /// Ends when the NameNode says that it has no ACLs.
    ask_acls: AtomicBool,
}

/// An HDFS.
pub struct HdfsSource {
    shared: Arc<Shared>,
}

impl fmt::Debug for HdfsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HdfsSource").field(&self.shared.id).finish()
    }
}

impl HdfsSource {
    /// A source for `authority`: a nameservice, `host` or `host:port`; empty for that of `fs.defaultFS`. Makes no
    /// connection yet. Reads configuration files, so it blocks; its calls run in the current tokio runtime.
    ///
    /// # Errors
    /// `Invalid` where the configuration is missing or wrong, or outside of a tokio runtime.
    pub fn new(authority: &str, options: &HdfsOptions) -> Result<HdfsSource> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::with_cause(ErrorKind::Invalid, "an HDFS source needs a tokio runtime", error)
        })?;
        let config_dir = options.hadoop_conf.clone().or_else(config_dir_of_environment);
        let mut config = config::load(config_dir.as_deref(), &options.config)?;
        config
            .entry("dfs.client.socket-timeout".to_owned())
            .or_insert_with(|| options.socket_timeout.as_millis().to_string());

        let authority = match authority {
            "" => default_authority(&config)?,
            given => given.to_owned(),
        };
        let nameservice = nameservice_of(&authority, &config);
        let namenodes_key = format!("dfs.ha.namenodes.{}", nameservice.as_deref().unwrap_or_default());
        let namenodes: Vec<String> = config
            .get(&namenodes_key)
            .map(|list| list.split(',').map(|id| id.trim().to_owned()).collect())
            .unwrap_or_default();
        let authority = match nameservice {
            None => with_port(&authority)?,
            Some(name) => {
                config.insert(namenodes_key.clone(), namenodes.join(","));
                // The list is turned when a NameNode is silent; a shuffled one would undo that.
                config.insert(
                    format!("dfs.client.failover.random.order.{name}"),
                    "false".to_owned(),
                );
                name
            }
        };
        let plan = ClientPlan {
            url: format!("hdfs://{authority}"),
            config,
            config_dir,
            user: options.user.clone(),
            runtime,
            namenodes_key,
            namenodes,
        };
        // What one user may read is not shown to another: the user is part of the source's name, and so of every key.
        let user = options
            .user
            .as_ref()
            .map(|user| format!("{user}@"))
            .unwrap_or_default();
        // A little earlier than whoever waits with the same deadline, so that a silent NameNode is noticed here.
        let deadline = options.metadata_deadline * 9 / 10;
        Ok(HdfsSource {
            shared: Arc::new(Shared {
                id: SourceId::new(format!("hdfs://{user}{}", authority.to_lowercase())),
                namenodes: Namenodes::new(plan, deadline)?,
                read_deadline: options.read_deadline,
                reader_age_max: options.reader_age_max,
                ask_acls: AtomicBool::new(options.ask_acls),
            }),
        })
    }
}

impl Shared {
    /// One request; with the mode as the NameNode shows it.
    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let text = path.as_utf8()?;
        let status = self
            .namenodes
            .call(&format!("no status of {path}"), |client| async move {
                client.get_file_info(text).await
            })
            .await?;
        Ok(translate(&status))
    }

    /// One request for each 1,000 entries begun; `None` after those for `max_entries`, where there are more.
    async fn list(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        let text = path.as_utf8()?;
        let found = self
            .namenodes
            .call(&format!("cannot list {path}"), |client| async move {
                let mut found = Vec::new();
                let entries = client.list_status_iter(text, false);
                while let Some(status) = entries.next().await {
                    if found.len() >= max_entries {
                        return Ok(None);
                    }
                    found.push(status?);
                }
                Ok(Some(found))
            })
            .await?;
        let Some(found) = found else {
            return Ok(None);
        };
        let folder = text.trim_end_matches('/');
        let mut entries = Vec::with_capacity(found.len());
        for status in &found {
            // The listing of a file is that file.
            if status.path == text {
                return Err(Error::new(
                    ErrorKind::NotDirectory,
                    format!("{path} is a file, not a directory"),
                ));
            }
            let name = status
                .path
                .strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'));
            let Some(name) = name else {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("the NameNode's listing of {path} holds another path"),
                ));
            };
            entries.push(Entry {
                name: Arc::from(name.as_bytes()),
                status: translate(status),
            });
        }
        self.narrow_all(path, &mut entries).await?;
        Ok(Some(Listing::new(entries)))
    }
}

#[async_trait]
impl Source for HdfsSource {
    fn id(&self) -> &SourceId {
        &self.shared.id
    }

    async fn status(&self, path: &SourcePath) -> Result<FileStatus> {
        let mut status = self.shared.status(path).await?;
        status.mode = self.shared.narrow(path, status.mode).await?;
        Ok(status)
    }

    async fn list(&self, path: &SourcePath) -> Result<Listing> {
        let found = self.shared.list(path, usize::MAX).await?;
        Ok(found.unwrap_or_default())
    }

    async fn list_at_most(&self, path: &SourcePath, max_entries: usize) -> Result<Option<Listing>> {
        if self.shared.ask_acls.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.shared.list(path, max_entries).await
    }

    async fn open(&self, version: &FileVersion) -> Result<Arc<dyn OpenFile>> {
        super::check_source(&self.shared.id, version)?;
        let file = HdfsFile::open(Arc::clone(&self.shared), version).await?;
        Ok(Arc::new(file))
    }

    async fn read_link(&self, path: &SourcePath) -> Result<Vec<u8>> {
        // One request, so that a missing path is told apart.
        self.shared.status(path).await?;
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{path} is not a symbolic link"),
        ))
    }
}

fn translate(status: &hdfs_native::client::FileStatus) -> FileStatus {
    let (kind, len) = if status.isdir {
        (FileKind::Directory, 0)
    } else {
        (FileKind::File, status.length as u64)
    };
    FileStatus {
        kind,
        len,
        mtime_ms: status.modification_time,
        tag: 0,
        owner: Arc::from(status.owner.as_str()),
        group: Arc::from(status.group.as_str()),
        mode: acl::without_mask(status.permission),
    }
}

/// The nameservice `authority` as the configuration spells it; URLs do not tell upper from lower case.
fn nameservice_of(authority: &str, config: &HashMap<String, String>) -> Option<String> {
    let names = config
        .keys()
        .filter_map(|key| key.strip_prefix("dfs.ha.namenodes."));
    let found = names.filter(|name| name.eq_ignore_ascii_case(authority));
    found.min_by_key(|name| *name != authority).map(str::to_owned)
}

fn config_dir_of_environment() -> Option<PathBuf> {
    std::env::var_os("HADOOP_CONF_DIR")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HADOOP_HOME").map(|home| PathBuf::from(home).join("etc/hadoop")))
}

fn default_authority(config: &HashMap<String, String>) -> Result<String> {
    let authority = config
        .get("fs.defaultFS")
        .and_then(|url| url.strip_prefix("hdfs://"))
        .map(|rest| rest.split('/').next().unwrap_or_default())
        .filter(|authority| !authority.is_empty());
    authority.map(str::to_owned).ok_or_else(|| {
        Error::new(
            ErrorKind::Invalid,
            "the URL names no NameNode and fs.defaultFS is not an hdfs:// URL: write hdfs://HOST:PORT/PATH, or set \
             HADOOP_CONF_DIR",
        )
    })
}

/// `authority` with a port: without a configured nameservice it is one NameNode.
fn with_port(authority: &str) -> Result<String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse::<u16>().ok()),
        _ => (authority, Some(DEFAULT_PORT)),
    };
    match port {
        Some(port) if !host.is_empty() => Ok(format!("{host}:{port}")),
        _ => Err(Error::new(
            ErrorKind::Invalid,
            format!("{authority:?} is neither a configured nameservice nor HOST:PORT"),
        )),
    }
}
