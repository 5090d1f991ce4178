//! Which pages are metadata, and which to fetch together at the first touch of a file's end.
//!
//! Owns what was learned: for each table directory how much of a file's end is metadata, for each version where it
//! begins. Both are bounded, and guesses: a wrong one costs bytes. Refuses to fetch. Called by `page_cache.rs` before a
//! fetch and by `fetch.rs` after it.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use bytes::Bytes;
use moka::sync::Cache;

use crate::footer::{Skim, skim};
use crate::page::{ByteRange, PageSize};
use crate::recognise::{Format, Role, recognise, table_directory};
use crate::version::{FileVersion, VersionId};

/// The first guess in a directory that nothing is known of.
const FIRST_TAIL: u64 = 64 << 10;
/// A file of at most so many bytes is fetched whole with its tail: one request for all of it costs hardly more than one
/// for its end (224 against 137 µs at 64 and 4 KiB on loopback), and saves those for the data.
const SMALL_FILE: u64 = 128 << 10;
/// Directories and versions remembered.
const MAX_REMEMBERED: u64 = 16_384;

/// Where the metadata of a version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Here, to the end of the file; at the end if there is none.
    From(u64),
    /// The footer here; what belongs to it may begin before.
    FooterFrom(u64),
}

/// Which pages of a version are metadata: those from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    metadata_from: u64,
}

impl Layout {
    const ALL_DATA: Layout = Layout {
        metadata_from: u64::MAX,
    };

    /// The kind of the page that holds `range`.
    pub(crate) fn kind_of(self, range: ByteRange) -> crate::memory::Kind {
        if range.end() > self.metadata_from {
            crate::memory::Kind::Metadata
        } else {
            crate::memory::Kind::Data
        }
    }
}

/// What was learned of tails.
#[derive(Debug)]
pub(crate) struct Tails {
    /// Bytes of metadata at the end of files, by the hash of source and directory: a collision is a bad guess.
    learned: Cache<u64, u64>,
    known: Cache<VersionId, Known>,
    hasher: RandomState,
    max_tail: u64,
    page_size: PageSize,
}

impl Tails {
    /// Tails of at most `max_tail` bytes; 0 learns and asks for nothing.
    pub(crate) fn new(max_tail: u64, page_size: PageSize) -> Tails {
        Tails {
            learned: Cache::new(MAX_REMEMBERED),
            known: Cache::new(MAX_REMEMBERED),
            hasher: RandomState::new(),
            max_tail,
            page_size,
        }
    }

    /// The pages to fetch in one go, where `missing` are wanted: the metadata range at the first touch of a file's last
    /// page, a small metadata file whole.
    pub(crate) fn wanted(&self, version: &FileVersion, missing: &[u64]) -> Option<Range<u64>> {
        let pages = self
            .page_size
            .pages_of(ByteRange::clamped(0, u64::MAX, version.len()));
        let from = match recognise(version.path()) {
            Role::Plain => return None,
            Role::Whole => (version.len() <= self.max_tail).then_some(0)?,
            Role::Footer(_) => {
                if missing.last()? + 1 != pages.end || self.max_tail == 0 {
                    return None;
                }
                let from = match self.known.get(&version.id()) {
                    Some(Known::From(from) | Known::FooterFrom(from)) => from,
                    None if version.len() <= SMALL_FILE => 0,
                    None => version.len().saturating_sub(self.guess(version)),
                };
                from.max(version.len().saturating_sub(self.max_tail))
            }
        };
        let tail = from / self.page_size.bytes()..pages.end;
        (tail.end > tail.start).then_some(tail)
    }

    /// What is known of the version's layout.
    pub(crate) fn layout(&self, version: &FileVersion) -> Layout {
        match recognise(version.path()) {
            Role::Plain => Layout::ALL_DATA,
            Role::Whole => self.whole_layout(version),
            Role::Footer(_) => match self.known.get(&version.id()) {
                Some(known) => self.layout_of(version, known),
                None => Layout::ALL_DATA,
            },
        }
    }

    /// Learns what it can from `bytes`, those of `range` of the version, and says what is known now. They are asked for only
    /// where they may hold a footer that is not known yet.
    pub(crate) fn learn(
        &self,
        version: &FileVersion,
        range: ByteRange,
        bytes: impl FnOnce() -> Bytes,
    ) -> Layout {
        let Role::Footer(format) = recognise(version.path()) else {
            return self.layout(version);
        };
        let known = self.known.get(&version.id());
        if let Some(known @ Known::From(_)) = known {
            return self.layout_of(version, known);
        }
        if range.end() != version.len() || self.max_tail == 0 {
            return known.map_or(Layout::ALL_DATA, |known| self.layout_of(version, known));
        }
        let known = self.skim(format, version, &bytes());
        self.known.insert(version.id(), known);
        self.layout_of(version, known)
    }

    /// Where the footer begins whose page index has not been looked for yet, because the footer was larger than the
    /// tail: once all of it is in memory, [`Tails::learn`] wants to see it.
    pub(crate) fn unread_footer(&self, version: &FileVersion) -> Option<ByteRange> {
        if !matches!(recognise(version.path()), Role::Footer(_)) {
            return None;
        }
        match self.known.get(&version.id())? {
            Known::FooterFrom(from) if version.len() - from <= self.max_tail => {
                Some(ByteRange::clamped(from, u64::MAX, version.len()))
            }
            _ => None,
        }
    }

    /// Where the metadata of a version begins, if all of it was found.
    pub(crate) fn metadata_from(&self, version: &FileVersion) -> Option<u64> {
        match self.known.get(&version.id())? {
            Known::From(from) => Some(from),
            Known::FooterFrom(_) => None,
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.learned.invalidate_all();
        self.known.invalidate_all();
    }

    fn skim(&self, format: Format, version: &FileVersion, tail: &[u8]) -> Known {
        let (known, from) = match skim(format, tail, version.len()) {
            Skim::From(from) => (Known::From(from), from),
            Skim::FooterFrom(from) => (Known::FooterFrom(from), from),
            // Not asked again, and not taken for a lesson.
            Skim::Unknown => return Known::From(version.len()),
        };
        let needed = (version.len() - from).min(self.max_tail);
        let directory = self.directory(version);
        // Files of one table have metadata of nearly equal size; what was needed more of late is forgotten slowly.
        let before = self.learned.get(&directory).unwrap_or(0);
        let needed = needed.max((before * 7 + needed) / 8);
        self.learned.insert(directory, needed);
        known
    }

    /// What was learned in the directory, and an eighth more.
    fn guess(&self, version: &FileVersion) -> u64 {
        match self.learned.get(&self.directory(version)) {
            Some(learned) => learned + learned / 8,
            None => FIRST_TAIL,
        }
        .min(self.max_tail)
    }

    fn directory(&self, version: &FileVersion) -> u64 {
        self.hasher
            .hash_one((version.source(), table_directory(version.path())))
    }

    fn whole_layout(&self, version: &FileVersion) -> Layout {
        if version.len() <= self.max_tail {
            Layout { metadata_from: 0 }
        } else {
            Layout::ALL_DATA
        }
    }

    /// A file that claims to be metadata from its first byte does not get the protected share for all of them.
    fn layout_of(&self, version: &FileVersion, known: Known) -> Layout {
        let (Known::From(from) | Known::FooterFrom(from)) = known;
        Layout {
            metadata_from: from.max(version.len().saturating_sub(self.max_tail)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Kind;
    use crate::page::PageIndex;
    use crate::version::{SourceId, SourcePath};
    use proptest::prelude::*;

    /// The end of a Puffin file: nothing but its footer is metadata, and its length is written once.
    fn puffin(file_len: u64, payload: u64) -> (Vec<u8>, u64) {
        let mut file = vec![0; (file_len - 12) as usize];
        file.extend((payload as u32).to_le_bytes());
        file.extend(*b"\0\0\0\0PFA1");
        (file, file_len - 16 - payload)
    }

    fn version(name: &str, len: u64) -> FileVersion {
        let path = SourcePath::parse(format!("/t/{name}.puffin").as_bytes()).unwrap();
        FileVersion::new(SourceId::new("memory://m"), path, len, 0, 0)
    }

    proptest! {
        /// The naive model: a page is metadata if any of its bytes is, and bytes are from where the footer begins, but never
        /// more than `max_tail`. What is fetched together is the pages that hold what is known or guessed to be metadata.
        #[test]
        fn pages_are_of_the_kind_that_a_look_at_every_byte_gives(
            file_len in 64u64..300_000, payload in 0u64..300_000, exponent in 12u32..17,
            max_tail in 1u64..200_000, cut in 0u64..300_000, again in 0u64..300_000,
        ) {
            let payload = payload.min(file_len - 16);
            let page_size = PageSize::new(1 << exponent).unwrap();
            let tails = Tails::new(max_tail, page_size);
            let (bytes, metadata_from) = puffin(file_len, payload);
            let (first, second) = (version("first", file_len), version("second", file_len));
            let pages = page_size.pages_of(ByteRange::clamped(0, u64::MAX, file_len));
            let kinds = |version| -> Vec<Kind> {
                let layout = tails.layout(version);
                pages.clone().map(|page| layout.kind_of(page_size.range_of(PageIndex(page), file_len))).collect()
            };
            prop_assert!(kinds(&first).iter().all(|kind| *kind == Kind::Data), "nothing is known yet");
            // Whatever part of the end comes first, and whatever comes after it.
            for from in [cut.min(file_len - 12), again.min(file_len - 12)] {
                let range = ByteRange::clamped(from, u64::MAX, file_len);
                tails.learn(&first, range, || Bytes::copy_from_slice(&bytes[from as usize..]));
            }
            let is_metadata = |byte: u64| byte >= metadata_from && byte >= file_len.saturating_sub(max_tail);
            let naive: Vec<Kind> = pages.clone().map(|page| {
                let range = page_size.range_of(PageIndex(page), file_len);
                let any = (range.start()..range.end()).any(is_metadata);
                if any { Kind::Metadata } else { Kind::Data }
            }).collect();
            prop_assert_eq!(kinds(&first), naive.clone());

            let last = pages.end - 1;
            let expected: Vec<u64> = pages.clone().filter(|page| naive[*page as usize] == Kind::Metadata).collect();
            let wanted: Vec<u64> = tails.wanted(&first, &[last]).unwrap().collect();
            prop_assert_eq!(&wanted, &expected, "of a file that is known");
            let guessed: Vec<u64> = tails.wanted(&second, &[last]).unwrap().collect();
            prop_assert!(expected.iter().all(|page| guessed.contains(page)), "of its sibling: {:?} {:?}", guessed, expected);
            let most = max_tail.div_ceil(page_size.bytes()) + 1;
            prop_assert!(guessed.len() as u64 <= most, "{} pages", guessed.len());
            if last > 0 {
                prop_assert!(tails.wanted(&first, &[last - 1]).is_none(), "the end is not touched");
            }
        }
    }
}
