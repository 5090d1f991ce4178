//! From what a user types to a source with its layers: `hdfs://NAMESERVICE/PATH`, `file:///DIR` or `/DIR`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::Source;
use super::counting::{CountingSource, RequestCounters};
use super::deadline::{DeadlineSource, Deadlines};
use super::hdfs::{HdfsOptions, HdfsSource};
use super::local::LocalSource;
use super::retry::{RetryLimits, RetrySource};
use crate::error::{Error, ErrorKind, Result};
use crate::version::SourcePath;

/// Where to mount from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceUrl {
    /// `hdfs://AUTHORITY/PATH`.
    Hdfs {
        /// A nameservice, `HOST` or `HOST:PORT`; empty for that of `fs.defaultFS`.
        authority: String,
        /// The directory or file to show.
        path: SourcePath,
    },
    /// A local directory.
    Local(PathBuf),
}

/// How sources are asked.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// For each call, all its tries together.
    pub deadlines: Deadlines,
    /// Tries of one call, the first one included.
    pub tries: u32,
    /// Of `hdfs://` sources; its deadlines are replaced by those above.
    pub hdfs: HdfsOptions,
}

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions {
            deadlines: Deadlines::default(),
            tries: 3,
            hdfs: HdfsOptions::default(),
        }
    }
}

/// A source that keeps the whole contract of [`Source`], and what belongs to it.
#[derive(Clone, Debug)]
pub struct LayeredSource {
    /// Ends within the deadlines, tries again what may pass, and counts.
    pub source: Arc<dyn Source>,
    /// What to show of it.
    pub root: SourcePath,
    /// Each try counts as a request.
    pub counters: Arc<RequestCounters>,
}

impl SourceUrl {
    /// Parses what a user typed. Nothing is decoded: a `%` is a `%`, as in Hadoop's own commands.
    ///
    /// # Errors
    /// `Unsupported` for another scheme, `Invalid` for what is no URL and no absolute path.
    pub fn parse(text: &str) -> Result<SourceUrl> {
        if text.starts_with('/') {
            return Ok(SourceUrl::Local(PathBuf::from(text)));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{text:?} is no source: write hdfs://NAMESERVICE/PATH, hdfs://HOST:PORT/PATH or /DIR"
                ),
            ));
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        match scheme.to_ascii_lowercase().as_str() {
            "hdfs" => Ok(SourceUrl::Hdfs {
                authority: check_authority(text, authority)?.to_owned(),
                path: SourcePath::parse(path.as_bytes())?,
            }),
            "file" if authority.is_empty() || authority == "localhost" => {
                Ok(SourceUrl::Local(PathBuf::from(path)))
            }
            "file" => Err(Error::new(
                ErrorKind::Invalid,
                format!("{text:?} names the host {authority:?}: write file:///DIR with three slashes"),
            )),
            "viewfs" => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{text:?}: viewfs is not supported: mount the hdfs:// URL that its link points to"),
            )),
            "webhdfs" | "swebhdfs" | "hftp" => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{text:?}: {scheme} is not supported: use hdfs://, which needs the NameNode's RPC port"
                ),
            )),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{text:?}: only hdfs:// and file:// are supported"),
            )),
        }
    }

    /// Makes the source with its layers. Reads configuration files, so it blocks; makes no connection yet. Must be
    /// called in the tokio runtime that is to serve it.
    ///
    /// # Errors
    /// Those of [`HdfsSource::new`] and [`LocalSource::new`].
    pub fn open(&self, options: &SourceOptions) -> Result<LayeredSource> {
        let (source, root): (Arc<dyn Source>, SourcePath) = match self {
            SourceUrl::Hdfs { authority, path } => {
                let hdfs = HdfsOptions {
                    metadata_deadline: options.deadlines.metadata,
                    read_deadline: options.deadlines.read,
                    ..options.hdfs.clone()
                };
                (Arc::new(HdfsSource::new(authority, &hdfs)?), path.clone())
            }
            SourceUrl::Local(dir) => (Arc::new(LocalSource::new(dir)?), SourcePath::root()),
        };
        let counters = Arc::new(RequestCounters::default());
        Ok(LayeredSource {
            source: Arc::new(layer(source, options, Arc::clone(&counters))),
            root,
            counters,
        })
    }
}

/// Puts the layers around `source`: deadline, retry, counters, from the outside in.
pub fn layer<S: Source>(
    source: S,
    options: &SourceOptions,
    counters: Arc<RequestCounters>,
) -> impl Source + use<S> {
    let limits = RetryLimits {
        tries: options.tries,
        deadlines: options.deadlines,
    };
    let retried = RetrySource::new(CountingSource::new(source, counters), limits);
    DeadlineSource::new(retried, options.deadlines)
}

impl FromStr for SourceUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<SourceUrl> {
        SourceUrl::parse(text)
    }
}

fn check_authority<'a>(text: &str, authority: &'a str) -> Result<&'a str> {
    if authority.contains('@') {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{text:?}: a user in the URL is not supported: use the option user"),
        ));
    }
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | ',');
    if authority.contains(odd) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{text:?}: {authority:?} is no nameservice or HOST:PORT"),
        ));
    }
    Ok(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_users_type_are_understood() {
        let hdfs = |authority: &str, path: &[u8]| SourceUrl::Hdfs {
            authority: authority.to_owned(),
            path: SourcePath::parse(path).unwrap(),
        };
        for (text, url) in [
            ("hdfs://ns1/a/b/", hdfs("ns1", b"/a/b")),
            ("HDFS://nn.example:8020", hdfs("nn.example:8020", b"/")),
            ("hdfs:///a%20b", hdfs("", b"/a%20b")),
            ("/data", SourceUrl::Local("/data".into())),
            ("file:///data", SourceUrl::Local("/data".into())),
        ] {
            assert_eq!(SourceUrl::parse(text).unwrap(), url, "{text}");
        }
    }

    #[test]
    fn what_is_refused_says_what_to_write() {
        for (text, kind, advice) in [
            ("data", ErrorKind::Invalid, "hdfs://"),
            ("file://data/x", ErrorKind::Invalid, "three slashes"),
            ("viewfs://c/x", ErrorKind::Unsupported, "link"),
            ("webhdfs://c/x", ErrorKind::Unsupported, "hdfs://"),
            ("s3://b/x", ErrorKind::Unsupported, "only"),
            ("hdfs://me@ns/x", ErrorKind::Invalid, "option user"),
            ("hdfs://ns/../x", ErrorKind::Invalid, "file name"),
        ] {
            let error = SourceUrl::parse(text).unwrap_err();
            assert_eq!(error.kind(), kind, "{text}");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }

    #[tokio::test]
    async fn a_missing_directory_is_an_error_before_it_is_mounted() {
        let url = SourceUrl::parse("/no/such/directory").unwrap();
        let error = url.open(&SourceOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
}
