//! The bytes of one range cut into pages as they come in, each in memory of its own: every byte is copied once, while it
//! is still in the processor's cache.
//!
//! Owns nothing but the cut. Refuses nothing: what is more than the range is left out, what is less is seen by the
//! lengths. Called by the sources.

use crate::page::{ByteRange, PageSize};

/// Takes consecutive bytes of one range.
pub(crate) trait Take {
    /// What comes next.
    fn take(&mut self, bytes: &[u8]);
}

impl Take for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Pages of one range, filled from its first byte on.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The last of them is being filled.
    pages: Vec<Vec<u8>>,
    /// Where the file goes on after what was taken.
    at: u64,
    end: u64,
    page: u64,
}

impl Cut {
    /// Nothing of `range` yet.
    pub(crate) fn new(range: ByteRange, page_size: PageSize) -> Cut {
        Cut {
            pages: Vec::with_capacity((range.len() / page_size.bytes() + 2) as usize),
            at: range.start(),
            end: range.end(),
            page: page_size.bytes(),
        }
    }

    /// The pages; all of them if all bytes were taken.
    pub(crate) fn into_pages(self) -> Vec<Box<[u8]>> {
        self.pages.into_iter().map(Vec::into_boxed_slice).collect()
    }

    fn page_end(&self) -> u64 {
        (self.at / self.page + 1).saturating_mul(self.page).min(self.end)
    }
}

impl Take for Cut {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.at < self.end {
            let room = (self.page_end() - self.at) as usize;
            if self.at.is_multiple_of(self.page) || self.pages.is_empty() {
                self.pages.push(Vec::with_capacity(room));
            }
            let (now, later) = bytes.split_at(bytes.len().min(room));
            if let Some(page) = self.pages.last_mut() {
                page.extend_from_slice(now);
            }
            self.at += now.len() as u64;
            bytes = later;
        }
    }
}

/// `bytes`, those of `range`, in pages.
pub(crate) fn cut(range: ByteRange, page_size: PageSize, bytes: &[u8]) -> Vec<Box<[u8]>> {
    let mut cut = Cut::new(range, page_size);
    cut.take(bytes);
    cut.into_pages()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn however_the_bytes_come_the_pages_are_those_of_the_range(
            start in 0_u64..20_000, len in 0_u64..40_000, missing in 0_usize..3,
            parts in prop::collection::vec(1_usize..9_000, 1..12),
        ) {
            let page_size = PageSize::new(4096).unwrap();
            let range = ByteRange::clamped(start, len, 50_000);
            let file: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
            let bytes = &file[range.start() as usize..range.end() as usize];
            let bytes = &bytes[..bytes.len().saturating_sub(missing)];
            let mut rest = bytes;
            let mut cut = Cut::new(range, page_size);
            for part in parts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at(rest.len().min(*part));
                cut.take(now);
                rest = later;
            }
            let pages = cut.into_pages();
            prop_assert_eq!(pages.concat(), bytes);
            let mut at = range.start();
            for page in &pages {
                prop_assert_eq!(page_size.pages_of(ByteRange::clamped(at, page.len() as u64, 50_000)).count(), 1);
                at += page.len() as u64;
                prop_assert!(at.is_multiple_of(4096) || at == range.start() + bytes.len() as u64);
            }
        }
    }
}
