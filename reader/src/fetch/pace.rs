//! [`Pace`]: whether reads are answered from memory, so that handing them to other threads costs more than it saves.
//!
//! Owns the judgement, out of how long small reads took lately. Pure but for its counter. Called by [`super::Fetcher`].

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Reads up to this length say something about the way to the bytes, and not about their number.
const SMALL_BYTES: u64 = 128 << 10;

/// What a read out of memory takes less than, and one from a disk or over a network hardly ever.
const FAST: Duration = Duration::from_micros(60);

/// So many fast reads in a row are no chance.
const IN_A_ROW: u32 = 32;

/// Fast reads in a row, up to [`IN_A_ROW`].
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicU32);

impl Pace {
    /// Whether reads of these lengths should be made by the thread that wants them.
    pub(super) fn is_fast(&self, lengths: impl IntoIterator<Item = u64>) -> bool {
        self.0.load(Relaxed) >= IN_A_ROW && lengths.into_iter().all(|length| length <= SMALL_BYTES)
    }

    /// A read of this length took so long; gives whether it was fast.
    pub(super) fn note(&self, length: u64, took: Duration) -> bool {
        if took >= FAST {
            // Many bytes take long from memory, too.
            if length <= SMALL_BYTES {
                self.0.store(0, Relaxed);
            }
            return false;
        }
        // Written only until it is full: threads would fight for it.
        let before = self.0.load(Relaxed);
        if before < IN_A_ROW {
            self.0.store(before + 1, Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_fast_reads_in_a_row_are_fast_and_one_slow_read_ends_that() {
        let pace = Pace::default();
        let (fast, slow) = (Duration::from_micros(5), Duration::from_millis(1));
        for _ in 0..IN_A_ROW {
            assert!(!pace.is_fast([100]));
            assert!(pace.note(4096, fast));
        }
        assert!(pace.is_fast([100, SMALL_BYTES]) && !pace.is_fast([100, SMALL_BYTES + 1]));
        assert!(!pace.note(1 << 20, slow));
        assert!(pace.is_fast([100]), "a long read takes long from memory");
        assert!(!pace.note(4096, slow));
        assert!(!pace.is_fast([100]));
    }
}
