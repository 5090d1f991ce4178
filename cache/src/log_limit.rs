//! A bound on lines about failing requests: a reader that tries again and again must not fill the disk of the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines let through in a window.
const LINES_MAX: u32 = 20;
/// The window.
const WINDOW: Duration = Duration::from_secs(10);

/// Lets the first lines of each window through and counts the rest.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    begun: Instant,
    lines: u32,
    held_back: u64,
}

impl LogLimit {
    /// Whether a line may be written `now`; then with the number of lines held back in the window that has ended.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut slot = self.0.lock();
        let window = slot.get_or_insert(Window {
            begun: now,
            lines: 0,
            held_back: 0,
        });
        let mut held_back_before = 0;
        if now.saturating_duration_since(window.begun) >= WINDOW {
            held_back_before = window.held_back;
            *window = Window {
                begun: now,
                lines: 0,
                held_back: 0,
            };
        }
        if window.lines < LINES_MAX {
            window.lines += 1;
            Some(held_back_before)
        } else {
            window.held_back += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let limit = LogLimit::default();
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| limit.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(limit.admit(start + WINDOW), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(limit.admit(start + WINDOW * 2), Some(0));
    }
}
