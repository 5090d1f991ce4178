//! Memory that the next rows need is asked for all at once.
//!
//! Owns the order of it: what many rows need of a lookup lies at as many places, and a processor that comes upon them one by one
//! waits for each. A pass that reads a number at each place, and depends on none of them, waits for all together. Says nothing,
//! and refuses nothing: [`super::rows`] finds everything again, near by.

use std::hint::black_box;

use super::{Gather, Piece};

/// Rows that are touched at a time: some lines of memory for each, which the nearest cache has to hold.
pub(super) const ROWS_AT_ONCE: usize = 128;

impl Gather<'_> {
    /// Where the pieces from `from` on end that are touched at once.
    pub(super) fn window_end(pieces: &[Piece], from: usize) -> usize {
        let mut rows = 0;
        let fits = |piece: &&Piece| {
            rows += piece.wanted.len();
            rows <= ROWS_AT_ONCE
        };
        (from + pieces[from..].iter().take_while(fits).count()).max(from + 1)
    }

    /// Touches what is known of these pieces.
    pub(super) fn touch(&self, pieces: &[Piece]) {
        let mut sum = 0u64;
        for piece in pieces {
            let Some(page) = &piece.mapped else { continue };
            for row in self.rows_of(piece) {
                sum = sum.wrapping_add(page.touch_levels(row));
            }
        }
        for piece in pieces {
            let Some(page) = &piece.mapped else { continue };
            for row in self.rows_of(piece) {
                sum = sum.wrapping_add(page.touch_places(row));
            }
        }
        for piece in pieces {
            let Some(page) = &piece.mapped else { continue };
            let slot = piece.dictionary.and_then(|slot| self.dictionaries.get(slot));
            let dictionary = slot.and_then(|slot| slot.held.as_deref());
            for row in self.rows_of(piece) {
                sum = sum.wrapping_add(page.touch_value(row, dictionary));
            }
        }
        // Else none of it would be read.
        black_box(sum);
    }

    /// Numbers of the wanted rows within the page.
    fn rows_of(&self, piece: &Piece) -> impl Iterator<Item = usize> {
        let rows = self.files[piece.file].rows.get(piece.wanted.clone());
        let first_row = piece.first_row;
        rows.unwrap_or_default()
            .iter()
            .map(move |row| (row - first_row) as usize)
    }
}
