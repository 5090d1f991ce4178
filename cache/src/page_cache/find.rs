//! Where the bytes are that tell where data is, and where the column chunks are: the ranges that are warmed.
//!
//! Owns the look into the end of a file. What must be read for it is kept; it counts as no read. Refuses metadata ranges
//! beyond [`METADATA_BYTES_MAX`], which only a damaged or hostile file has, and never holds more of a footer than the byte
//! budget allows. Called by the daemon for `lookupfs warm`, and by `warm.rs`.

use std::sync::Arc;

use bytes::Bytes;

use super::{MAX_READ_BYTES, PageCache, key};
use crate::error::{Error, ErrorKind, Result};
use crate::fetch::Opening;
use crate::footer::columns::{ColumnChunks, column_chunks};
use crate::footer::{Skim, skim};
use crate::page::ByteRange;
use crate::recognise::{Format, Role, recognise};
use crate::source::Source;
use crate::version::FileVersion;

/// The largest metadata range that is warmed as such.
pub const METADATA_BYTES_MAX: u64 = MAX_READ_BYTES;
/// The end of a file that says where its footer begins, in every format that is known.
const LAST_BYTES: u64 = 512;
/// What many readers ask for first, whatever the footer's length: warming less would leave them a request for each file.
const FIRST_READ_BYTES: u64 = 64 << 10;
/// How often the end of a file may say that its metadata begins earlier still. Parquet: footer, page index.
const SKIMS_MAX: usize = 4;

/// What was found, and what finding it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// It.
    pub value: T,
    /// Bytes that were fetched from the source for it.
    pub fetched: u64,
}

/// The ranges of a file that hold certain columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnRanges {
    /// The metadata range, then the column chunks: in ascending order, none touching the next.
    pub ranges: Vec<ByteRange>,
    /// Names that no column of the file has.
    pub missing: Vec<String>,
}

impl PageCache {
    /// The metadata range of a version, with the last 64 KiB that many readers ask for first; empty where it has none that
    /// is known. What must be read to find it is kept.
    ///
    /// # Errors
    /// `Unsupported` for a range beyond [`METADATA_BYTES_MAX`], otherwise as [`PageCache::read`].
    pub async fn find_metadata(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
    ) -> Result<Found<ByteRange>> {
        let len = version.len();
        let format = match recognise(version.path()) {
            Role::Plain => return Ok(nothing(version)),
            _ if len == 0 => return Ok(nothing(version)),
            Role::Whole => {
                let value = self.check_metadata(version, 0)?;
                return Ok(Found { value, fetched: 0 });
            }
            Role::Footer(format) => format,
        };
        let opening = Opening::at(source.clone(), version.clone());
        let mut fetched = 0;
        let mut tail = last_bytes(version);
        if self.peek(version, tail).is_none() {
            let last_page = (len - 1) / self.page_size.bytes();
            let wanted = self.tails.wanted(version, &[last_page]);
            let pages = wanted.unwrap_or_else(|| self.page_size.pages_of(tail));
            fetched += self.fill_pages(&opening, pages, self.tail_pages).await?;
        }
        for _ in 0..SKIMS_MAX {
            let look = |bytes: &[u8]| self.skimmed(format, version, bytes);
            let (seen, cost) = self.look_at(source, version, tail, look).await?;
            fetched += cost;
            let Some(value) = seen? else {
                return Ok(Found {
                    value: nothing(version).value,
                    fetched,
                });
            };
            if value.start() >= tail.start() {
                tail = value;
                break;
            }
            tail = value;
        }
        let value = with_first_read(version, tail);
        Ok(Found { value, fetched })
    }

    /// The metadata range of a version, as far as it can be known without fetching anything: `None` where the end of the
    /// file is not kept.
    pub async fn known_metadata(&self, version: &FileVersion) -> Option<ByteRange> {
        let len = version.len();
        let format = match recognise(version.path()) {
            Role::Plain => return Some(nothing(version).value),
            _ if len == 0 => return Some(nothing(version).value),
            Role::Whole => return Some(ByteRange::clamped(0, len.min(METADATA_BYTES_MAX), len)),
            Role::Footer(format) => format,
        };
        if let Some(from) = self.tails.metadata_from(version) {
            let known = ByteRange::clamped(from, u64::MAX, len);
            return Some(if known.is_empty() {
                known
            } else {
                with_first_read(version, known)
            });
        }
        let mut tail = last_bytes(version);
        for _ in 0..SKIMS_MAX {
            let look = |bytes: &[u8]| self.skimmed(format, version, bytes);
            let Some(value) = self.look_at_kept(version, tail, look).await.ok()??.ok()? else {
                return Some(nothing(version).value);
            };
            let is_all = value.start() >= tail.start();
            tail = value;
            if is_all {
                break;
            }
        }
        Some(with_first_read(version, tail))
    }

    /// The metadata range of a Parquet file and the chunks of its columns that `names` match: each a column's whole path
    /// such as `a.b`, or the beginning of one such as `a`. Of another recognised file the metadata range alone; of a plain
    /// one nothing. What must be read to find them is kept.
    ///
    /// # Errors
    /// `Corrupt` for a file that is named like Parquet and has no readable footer; otherwise as
    /// [`PageCache::find_metadata`].
    pub async fn find_columns(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        names: &[String],
    ) -> Result<Found<ColumnRanges>> {
        let Found { value, mut fetched } = self.find_metadata(source, version).await?;
        if recognise(version.path()) != Role::Footer(Format::Parquet) {
            let ranges = Some(value).filter(|range| !range.is_empty());
            let value = ColumnRanges {
                ranges: ranges.into_iter().collect(),
                missing: Vec::new(),
            };
            return Ok(Found { value, fetched });
        }
        let look = |bytes: &[u8]| column_ranges(version, value, bytes, names);
        let (seen, cost) = self.look_at(source, version, value, look).await?;
        fetched += cost;
        Ok(Found {
            value: seen?,
            fetched,
        })
    }

    /// As [`PageCache::find_columns`], as far as it can be known without fetching anything.
    pub async fn known_columns(&self, version: &FileVersion, names: &[String]) -> Option<ColumnRanges> {
        let range = self.known_metadata(version).await?;
        if recognise(version.path()) != Role::Footer(Format::Parquet) {
            return Some(ColumnRanges {
                ranges: Some(range)
                    .filter(|range| !range.is_empty())
                    .into_iter()
                    .collect(),
                missing: Vec::new(),
            });
        }
        let look = |bytes: &[u8]| column_ranges(version, range, bytes, names);
        self.look_at_kept(version, range, look).await.ok()??.ok()
    }

    /// Fills a range and shows its bytes to `look`. They are gathered within the byte budget, and for no longer than that;
    /// it counts as no read. Answers what `look` does, and how many bytes were fetched.
    async fn look_at<T>(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        range: ByteRange,
        look: impl Fn(&[u8]) -> T,
    ) -> Result<(T, u64)> {
        let opening = Opening::at(source.clone(), version.clone());
        let pages = self.page_size.pages_of(range);
        let fetched = self.fill_pages(&opening, pages, self.tail_pages).await?;
        if let Some(seen) = self.look_at_kept(version, range, &look).await? {
            return Ok((seen, fetched));
        }
        // Not in memory (any more): a read brings it from wherever it is. One at a time, since its bytes are beside the
        // budget.
        let _one_at_a_time = self.looking.lock().await;
        let kept = self.kept(version, range);
        let bytes = self.read(source, version, range).await?;
        let missed = (kept.pages - kept.kept) * self.page_size.bytes();
        Ok((look(&bytes), fetched + missed))
    }

    /// As [`PageCache::look_at`], if all of the range is kept.
    async fn look_at_kept<T>(
        &self,
        version: &FileVersion,
        range: ByteRange,
        look: impl Fn(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let turn = tokio::time::timeout(self.deadline, self.budget.acquire(range.len())).await;
        let _permit = turn.unwrap_or_else(|_| {
            let message = format!("{version}: its metadata had no turn within {:?}", self.deadline);
            Err(Error::new(ErrorKind::TimedOut, message))
        })?;
        if let Some(bytes) = self.peek(version, range) {
            return Ok(Some(look(&bytes)));
        }
        let first = self.page_size.pages_of(range).start;
        let mut missing = Vec::new();
        let mut pages: Vec<Bytes> = Vec::new();
        for page in self.page_size.pages_of(range) {
            let found = self.memory.get(&key(version.id(), page));
            if found.is_none() {
                missing.push(page);
            }
            pages.push(found.map(|(bytes, _)| bytes).unwrap_or_default());
        }
        if !missing.iter().all(|page| self.is_on_disk(version, *page)) {
            return Ok(None);
        }
        self.fill_from_disk(version, first, &mut missing, &mut pages)
            .await;
        Ok(missing
            .is_empty()
            .then(|| look(&self.gather(range, first, &pages))))
    }

    fn check_metadata(&self, version: &FileVersion, from: u64) -> Result<ByteRange> {
        let range = ByteRange::clamped(from, u64::MAX, version.len());
        // Looked at as a whole, so within the budget.
        let most = METADATA_BYTES_MAX.min(self.budget.total());
        if range.len() > most {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{version}: it claims {} bytes of metadata, more than {most}; warm all of it instead",
                    range.len()
                ),
            ));
        }
        Ok(range)
    }

    /// Where the metadata range begins as the `tail` of the file says, which may be before the tail; `None` where the file
    /// is not what its name says.
    fn skimmed(&self, format: Format, version: &FileVersion, tail: &[u8]) -> Result<Option<ByteRange>> {
        match skim(format, tail, version.len()) {
            Skim::From(from) | Skim::FooterFrom(from) => self.check_metadata(version, from).map(Some),
            Skim::Unknown => Ok(None),
        }
    }
}

fn nothing(version: &FileVersion) -> Found<ByteRange> {
    let value = ByteRange::clamped(u64::MAX, 0, version.len());
    Found { value, fetched: 0 }
}

fn last_bytes(version: &FileVersion) -> ByteRange {
    ByteRange::clamped(version.len().saturating_sub(LAST_BYTES), u64::MAX, version.len())
}

/// The end of the file that holds the metadata range and what readers ask for first.
fn with_first_read(version: &FileVersion, metadata: ByteRange) -> ByteRange {
    let first_read = version.len().saturating_sub(FIRST_READ_BYTES);
    ByteRange::clamped(metadata.start().min(first_read), u64::MAX, version.len())
}

/// The metadata range and the chunks of the columns.
fn column_ranges(
    version: &FileVersion,
    metadata: ByteRange,
    bytes: &[u8],
    names: &[String],
) -> Result<ColumnRanges> {
    let Some(ColumnChunks { mut ranges, missing }) = column_chunks(bytes, version.len(), names) else {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("{version}: it is named like Parquet and has no footer that can be read"),
        ));
    };
    ranges.push(metadata);
    Ok(ColumnRanges {
        ranges: crate::footer::columns::merge(ranges),
        missing: missing.into_iter().map(|at| names[at].clone()).collect(),
    })
}
