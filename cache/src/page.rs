//! Pages and byte ranges: pure arithmetic, no I/O.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::version::VersionId;

/// A range of bytes of one version, `start..end`, never reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// `start..end`.
    ///
    /// # Errors
    /// `Invalid` if `end < start`.
    pub fn new(start: u64, end: u64) -> Result<ByteRange> {
        if end < start {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("bytes {start}..{end} are reversed"),
            ));
        }
        Ok(ByteRange { start, end })
    }

    /// What of `len` bytes from `offset` lies inside a file of `file_len` bytes; empty at or past its end.
    pub fn clamped(offset: u64, len: u64, file_len: u64) -> ByteRange {
        let start = offset.min(file_len);
        ByteRange {
            start,
            end: start.saturating_add(len).min(file_len),
        }
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether there is no byte in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `other` lies inside.
    pub fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// Number of a page within its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageIndex(pub u64);

/// Size of a page: a power of two from 4 KiB (the kernel's page) to 16 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

impl PageSize {
    /// 16 KiB.
    pub const DEFAULT: PageSize = PageSize(16 << 10);

    /// `bytes` must be a power of two between 4 KiB and 16 MiB.
    ///
    /// # Errors
    /// `Invalid` otherwise.
    pub fn new(bytes: u64) -> Result<PageSize> {
        if !bytes.is_power_of_two() || !(4096..=16 << 20).contains(&bytes) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("page size {bytes} is not a power of two between 4 KiB and 16 MiB"),
            ));
        }
        Ok(PageSize(bytes as u32))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// The pages that `range` touches; none for an empty range.
    pub fn pages_of(self, range: ByteRange) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / self.bytes()..range.end.div_ceil(self.bytes())
    }

    /// The bytes of page `index` in a file of `file_len` bytes; the last page is shorter, one past it is empty.
    pub fn range_of(self, index: PageIndex, file_len: u64) -> ByteRange {
        ByteRange::clamped(index.0.saturating_mul(self.bytes()), self.bytes(), file_len)
    }
}

/// Names one page of one version in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// The version.
    pub version: VersionId,
    /// The page within it.
    pub index: PageIndex,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pages_cover_a_range_and_no_more(
            exponent in 12u32..24, file_len in 0u64..1 << 30, offset in 0u64..1 << 31, len in 0u64..1 << 26,
        ) {
            let size = PageSize::new(1 << exponent).unwrap();
            let range = ByteRange::clamped(offset, len, file_len);
            prop_assert!(range.end() <= file_len);
            let mut at = range.start();
            for index in size.pages_of(range) {
                let page = size.range_of(PageIndex(index), file_len);
                prop_assert!(page.start() <= at && at < page.end(), "gap before page {index}");
                prop_assert!(page.start() < range.end(), "page {index} is not needed");
                at = page.end();
            }
            prop_assert!(at >= range.end());
        }
    }

    #[test]
    fn odd_page_sizes_are_refused() {
        for bad in [0, 1, 2048, 4097, 32 << 20, u64::MAX] {
            assert!(PageSize::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn clamping_survives_the_largest_numbers() {
        assert!(ByteRange::clamped(u64::MAX, u64::MAX, 5).is_empty());
        assert_eq!(ByteRange::clamped(2, u64::MAX, 5).len(), 3);
    }
}
