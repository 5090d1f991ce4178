//! An open file in HDFS: exact ranges of one version, whatever happens to the reader below.
//!
//! A reader of `hdfs-native` panics past its end, and never forgives a DataNode that failed once; its block tokens
//! expire. So ranges are clamped before they reach it, and a reader that failed or has grown old is replaced by a new
//! one, opened between two looks at the file's status as the first one was: the version stays the same or the read
//! fails with `Changed`.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use hdfs_native::file::FileReader;
use parking_lot::RwLock;

use super::{Shared, failure};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{ByteRange, PageSize};
use crate::source::OpenFile;
use crate::source::pages::{Cut, Take};
use crate::source::retry::Backoff;
use crate::version::FileVersion;

/// Readers that one read uses up at most.
const READERS_PER_READ: u32 = 4;
/// A reader is not replaced more often than this in the hope that an unfinished last block has become readable.
const VISIBLE_LENGTH_AGE_MIN: Duration = Duration::from_secs(1);

/// One reader of `hdfs-native`.
struct Opened {
    reader: FileReader,
    at: Instant,
}

impl Opened {
    /// Bytes that can be read; fewer than the version's length while the last block is being written.
    fn visible_len(&self) -> u64 {
        self.reader.file_length() as u64
    }
}

/// One version of a file in HDFS.
pub(super) struct HdfsFile {
    shared: Arc<Shared>,
    version: FileVersion,
    opened: RwLock<Arc<Opened>>,
    /// Held while a reader is replaced, so that many reads that fail together open one new reader.
    replacing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for HdfsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HdfsFile")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl HdfsFile {
    /// Opens `version`: two NameNode requests.
    pub(super) async fn open(shared: Arc<Shared>, version: &FileVersion) -> Result<HdfsFile> {
        let opened = open_reader(&shared, version).await?;
        Ok(HdfsFile {
            shared,
            version: version.clone(),
            opened: RwLock::new(Arc::new(opened)),
            replacing: tokio::sync::Mutex::new(()),
        })
    }

    /// A reader that is not `failed`.
    async fn replace(&self, failed: &Arc<Opened>) -> Result<Arc<Opened>> {
        let _guard = self.replacing.lock().await;
        let current = Arc::clone(&self.opened.read());
        if !Arc::ptr_eq(&current, failed) {
            return Ok(current);
        }
        let opened = open_reader(&self.shared, &self.version).await;
        let opened = Arc::new(opened.map_err(|error| match error.kind() {
            // Whoever has it open asked for a version, and that has gone.
            ErrorKind::NotFound | ErrorKind::IsDirectory => {
                let message = format!("{} has been deleted or moved", self.version);
                Error::with_cause(ErrorKind::Changed, message, error)
            }
            _ => error,
        })?);
        *self.opened.write() = Arc::clone(&opened);
        Ok(opened)
    }

    /// The reader to begin with: replaced before its block tokens expire.
    async fn reader(&self) -> Result<Arc<Opened>> {
        let current = Arc::clone(&self.opened.read());
        if current.at.elapsed() < self.shared.reader_age_max {
            return Ok(current);
        }
        match self.replace(&current).await {
            // The old one may still work.
            Err(error) if error.kind().is_transient() => Ok(current),
            other => other,
        }
    }

    async fn read_with_retries<T: Take>(&self, range: ByteRange, empty: impl Fn() -> T) -> Result<T> {
        let mut opened = self.reader().await?;
        if range.end() > opened.visible_len() && opened.at.elapsed() >= VISIBLE_LENGTH_AGE_MIN {
            opened = self.replace(&opened).await?;
        }
        let mut backoff = Backoff::new();
        let mut readers = 1;
        loop {
            let error = match self.read_once(&opened, range, empty()).await {
                Ok(taken) => return Ok(taken),
                Err(error) => error,
            };
            let unfinished = range.end() > opened.visible_len();
            if !error.kind().is_transient() || unfinished || readers == READERS_PER_READ {
                return Err(error);
            }
            tracing::debug!(%error, readers, "opening a new reader");
            if readers > 1 {
                backoff.pause().await;
            }
            opened = match self.replace(&opened).await {
                Ok(opened) => opened,
                Err(again) if again.kind().is_transient() => return Err(error),
                Err(fatal) => return Err(fatal),
            };
            readers += 1;
        }
    }

    async fn read_once<T: Take>(&self, opened: &Opened, range: ByteRange, mut taken: T) -> Result<T> {
        let what = || {
            format!(
                "cannot read bytes {}..{} of {}",
                range.start(),
                range.end(),
                self.version
            )
        };
        if range.end() > opened.visible_len() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{}: the last HDFS block is still being written and cannot be read yet",
                    what()
                ),
            ));
        }
        // Both fit: they do not exceed the reader's length, which is a usize.
        let (start, len) = (range.start() as usize, range.len() as usize);
        // Packet by packet: `read_range` would copy them into one buffer first.
        let reading = AssertUnwindSafe(async {
            let mut packets = pin!(opened.reader.read_range_stream(start, len));
            let mut came = 0;
            while let Some(packet) = packets.next().await.transpose()? {
                came += packet.len();
                taken.take(&packet);
            }
            Ok(came)
        });
        let came = match reading.catch_unwind().await {
            Ok(Ok(came)) => came,
            Ok(Err(error)) => return Err(failure::describe(&what(), &error)),
            Err(_panic) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("{}: the DataNode's answer cannot be decoded", what()),
                ));
            }
        };
        if came != len {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{}: only {came} bytes came", what()),
            ));
        }
        Ok(taken)
    }

    /// What `empty` gives, once all of `range` has been put into it.
    async fn read_within_deadline<T: Take>(&self, range: ByteRange, empty: impl Fn() -> T) -> Result<T> {
        crate::source::check_range(&self.version, range)?;
        if range.is_empty() {
            return Ok(empty());
        }
        let deadline = self.shared.read_deadline;
        tokio::time::timeout(deadline, self.read_with_retries(range, empty))
            .await
            .unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "bytes {}..{} of {} did not come within {deadline:?}",
                        range.start(),
                        range.end(),
                        self.version
                    ),
                ))
            })
    }
}

#[async_trait]
impl OpenFile for HdfsFile {
    fn version(&self) -> &FileVersion {
        &self.version
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let empty = || Vec::with_capacity(range.len() as usize);
        Ok(self.read_within_deadline(range, empty).await?.into())
    }

    async fn read_pages(&self, range: ByteRange, page_size: PageSize) -> Result<Vec<Box<[u8]>>> {
        let empty = || Cut::new(range, page_size);
        Ok(self.read_within_deadline(range, empty).await?.into_pages())
    }
}

/// Opens a reader between two looks at the status: the caller has taken the first one, the second is taken here.
///
/// Block locations carry neither modification time nor file id, so this is the only way to know what was opened.
async fn open_reader(shared: &Shared, version: &FileVersion) -> Result<Opened> {
    let path = version.path().as_utf8()?;
    let what = format!("cannot open {}", version.path());
    let at = Instant::now();
    let reader = shared
        .namenodes
        .call(&what, |client| async move { client.read(path).await })
        .await?;
    let status = shared.status(version.path()).await?;
    if status.version(&shared.id, version.path()) != *version {
        return Err(Error::new(
            ErrorKind::Changed,
            format!("{version} has been replaced: look it up again"),
        ));
    }
    if reader.file_length() as u64 > version.len() {
        return Err(Error::new(
            ErrorKind::Changed,
            format!("{version} is being appended to: look it up again"),
        ));
    }
    Ok(Opened { reader, at })
}
