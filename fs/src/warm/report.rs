//! What `lookupfs warm` shows: a bar while it works, each failure, and one line or one JSON object at the end.
//!
//! Owns stderr while the command runs, so that the bar and the failures do not write over each other. Called by
//! `client.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Action, DiskTrouble, Totals, WarmRequest, What};

/// The bar and the clock.
#[derive(Clone, Debug)]
pub(super) struct Report {
    bar: ProgressBar,
    is_in_bytes: bool,
    started: Instant,
    has_told_trouble: Arc<AtomicBool>,
}

impl Report {
    /// Draws on stderr, if it is a terminal. Whole files are measured in bytes, and anything else in files.
    pub(super) fn new(request: &WarmRequest) -> Report {
        Report::on(ProgressDrawTarget::stderr(), request)
    }

    fn on(target: ProgressDrawTarget, request: &WarmRequest) -> Report {
        let is_in_bytes = request.what == What::All && request.action == Action::Fill;
        let template = if is_in_bytes {
            "{bar:10} {binary_bytes}/{binary_total_bytes}{prefix} {elapsed} {wide_msg}"
        } else {
            "{bar:10} {pos}/{len}{prefix} files {elapsed} {wide_msg}"
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Report {
            bar,
            is_in_bytes,
            started: Instant::now(),
            has_told_trouble: Arc::default(),
        }
    }

    /// Moves the bar.
    pub(super) fn progress(&self, totals: &Totals) {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let rate = (totals.fetched_bytes as f64 / seconds) as u64;
        let (done, of) = if self.is_in_bytes {
            (totals.bytes_done, totals.bytes_found)
        } else {
            (totals.files_done, totals.files)
        };
        self.bar.set_length(of);
        self.bar.set_position(done);
        // More than that, as long as the walk goes on.
        self.bar.set_prefix(if totals.is_all_found { "" } else { "+" });
        // What matters most comes first, and all of it fits 80 columns: a terminal cuts the rest off without a word.
        let failed = match totals.failed {
            0 => String::new(),
            failed => format!("{failed} failed, "),
        };
        let fetched = match self.is_in_bytes {
            true => String::new(),
            false => format!("{}, ", HumanBytes(totals.fetched_bytes)),
        };
        self.bar
            .set_message(format!("{failed}{fetched}{}/s", HumanBytes(rate)));
        self.tell_trouble(totals);
    }

    /// Says once what is wrong with the local disk, when that is seen: the work goes on.
    pub(super) fn tell_trouble(&self, totals: &Totals) {
        if let Some(trouble) = totals.disk_trouble
            && !self.has_told_trouble.swap(true, Ordering::Relaxed)
        {
            self.bar
                .suspend(|| eprintln!("lookupfs: cache_dir: {}", described(trouble)));
        }
    }

    /// Names what failed.
    pub(super) fn failed(&self, path: &str, reason: &str) {
        self.bar
            .suspend(|| eprintln!("lookupfs: {path}: {}", reason.replace('\n', " ")));
    }

    /// Takes the bar away; how long it all took.
    pub(super) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}

/// The last line for people.
pub(super) fn summary(request: &WarmRequest, totals: &Totals, took: Duration) -> String {
    let failed = match totals.failed {
        0 => String::new(),
        failed => format!(", and {} failed", HumanCount(failed)),
    };
    let files = match totals.files_done {
        1 => format!("1 file{failed}"),
        done => format!("{} files{failed}", HumanCount(done)),
    };
    let plain = match totals.files_plain {
        0 => String::new(),
        plain => format!(" ({} with nothing to warm)", HumanCount(plain)),
    };
    let seconds = took.as_secs_f64();
    match request.action {
        Action::Fill => {
            let places = match totals.has_disk {
                false => String::new(),
                true => format!(
                    " ({} in memory, {} on disk)",
                    share(totals.pages_in_memory, totals.pages),
                    share(totals.pages_on_disk, totals.pages)
                ),
            };
            let unwritten = match not_on_disk(totals) {
                0 => String::new(),
                pages => format!("; {} pages not written to disk", HumanCount(pages)),
            };
            let verified = match totals.files_verified + totals.files_unverified {
                0 => String::new(),
                of => format!(
                    "; {} of {} files verified for passthrough",
                    HumanCount(totals.files_verified),
                    HumanCount(of)
                ),
            };
            format!(
                "{files}{plain}: {} wanted, {} fetched in {seconds:.1} s, {} kept{places}{unwritten}{verified}",
                HumanBytes(totals.bytes),
                HumanBytes(totals.fetched_bytes),
                share(totals.pages_kept, totals.pages),
            )
        }
        Action::Check => {
            let unknown = match totals.files_unknown {
                0 => String::new(),
                unknown => format!("; the footers of {} files are not", HumanCount(unknown)),
            };
            format!(
                "{files}{plain}: {} of {} pages ({}) are kept, {} in memory, {} on disk{unknown}",
                HumanCount(totals.pages_kept),
                HumanCount(totals.pages),
                share(totals.pages_kept, totals.pages),
                HumanCount(totals.pages_in_memory),
                HumanCount(totals.pages_on_disk),
            )
        }
        Action::Evict => format!(
            "{files}: {} pages dropped, the kernel's too",
            HumanCount(totals.pages_dropped)
        ),
    }
}

/// What was asked for and is not kept, if anything is not.
pub(super) fn warning(request: &WarmRequest, totals: &Totals) -> Option<String> {
    if misses_disk(request, totals) {
        let why = match totals.disk_trouble {
            Some(DiskTrouble::Full) => "it is full; free some of it, or give a smaller cache_size",
            Some(DiskTrouble::Silent) => "it does not answer; mend it, or mount with another cache_dir",
            Some(DiskTrouble::Failed) => "it fails writes; the daemon's log says why",
            None => {
                "cache_size is too small for all of it, or the disk too slow; `lookupfs stats` says which"
            }
        };
        return Some(format!(
            "{} pages are not on disk: {why}",
            HumanCount(not_on_disk(totals))
        ));
    }
    let gone = totals.pages.saturating_sub(totals.pages_kept);
    (gone > 0).then(|| {
        format!(
            "{} of the pages had to make room for others: memory is too small for all of this; the same command with --check \
             says what is kept",
            HumanCount(gone)
        )
    })
}

/// Whether whole files were to be kept, there is a disk for that, and it has not all of them.
pub(super) fn misses_disk(request: &WarmRequest, totals: &Totals) -> bool {
    request.what == What::All && not_on_disk(totals) > 0
}

/// Pages asked for that the disk has not, if there is one.
fn not_on_disk(totals: &Totals) -> u64 {
    match totals.has_disk {
        true => totals.pages.saturating_sub(totals.pages_on_disk),
        false => 0,
    }
}

fn described(trouble: DiskTrouble) -> &'static str {
    match trouble {
        DiskTrouble::Full => {
            "the disk is full; what does not fit is kept in memory alone, as far as that holds it"
        }
        DiskTrouble::Silent => {
            "the disk does not answer; it is left alone for a while, and what is on it does not count as kept"
        }
        DiskTrouble::Failed => "the disk fails writes; such pages are kept in memory alone",
    }
}

/// The same as one JSON object.
pub(super) fn json(request: &WarmRequest, totals: &Totals, took: Duration) -> serde_json::Result<String> {
    let mut object = serde_json::to_value(totals)?;
    if let Some(members) = object.as_object_mut() {
        members.insert("action".into(), serde_json::to_value(request.action)?);
        members.insert("what".into(), serde_json::to_value(&request.what)?);
        members.insert("seconds".into(), took.as_secs_f64().into());
    }
    serde_json::to_string(&object)
}

/// Rounded down, so that 100 % is all.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "nothing".to_owned(),
        whole => format!("{} %", u128::from(part) * 100 / u128::from(whole)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use indicatif::TermLike;
    use parking_lot::Mutex;

    use super::*;

    /// A terminal of 80 columns that remembers its last line.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn request(what: What) -> WarmRequest {
        WarmRequest {
            what,
            action: Action::Fill,
            parallel: 8,
            limit: None,
        }
    }

    #[test]
    fn the_bar_of_much_work_fits_80_columns_and_nothing_is_cut_off() {
        let totals = Totals {
            files: 12_345_678,
            files_done: 11_345_678,
            failed: 1234,
            bytes_found: (1 << 50) - 1,
            bytes_done: (1 << 50) - (1 << 40),
            fetched_bytes: 1023 << 40,
            ..Totals::default()
        };
        for (what, of) in [
            (What::All, "TiB+ "),
            (What::Metadata, "11345678/12345678+ files "),
        ] {
            let screen = Screen::default();
            let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
            let mut report = Report::on(target, &request(what));
            report.started -= Duration::from_secs(1_000_000);
            report.progress(&totals);
            report.bar.force_draw();
            let line = screen.0.lock().clone();
            assert!(line.trim_end().chars().count() <= 80, "{line:?}");
            assert!(line.contains(of), "{line:?}");
            assert!(line.contains("1234 failed, "), "{line:?}");
            assert!(line.trim_end().ends_with(" GiB/s"), "{line:?}");
        }
    }

    #[test]
    fn what_is_not_on_disk_is_said_with_its_reason_and_never_as_0() {
        let all = request(What::All);
        let mut totals = Totals {
            pages: 1000,
            pages_kept: 1000,
            pages_in_memory: 1000,
            pages_on_disk: 990,
            has_disk: true,
            files_verified: 2,
            files_unverified: 1,
            ..Totals::default()
        };
        for (trouble, why) in [
            (None, "cache_size"),
            (Some(DiskTrouble::Full), "it is full"),
            (Some(DiskTrouble::Silent), "does not answer"),
            (Some(DiskTrouble::Failed), "fails writes"),
        ] {
            totals.disk_trouble = trouble;
            let text = warning(&all, &totals).unwrap();
            assert!(text.starts_with("10 pages are not on disk: "), "{text}");
            assert!(text.contains(why), "{text}");
        }
        let text = summary(&all, &totals, Duration::ZERO);
        for words in [
            "(100 % in memory, 99 % on disk)",
            "; 10 pages not written to disk",
            "; 2 of 3 files verified for passthrough",
        ] {
            assert!(text.contains(words), "{text}");
        }
        // Footers were asked for, and they are kept.
        assert!(!misses_disk(&request(What::Metadata), &totals));
        assert_eq!(warning(&request(What::Metadata), &totals), None);
        totals.pages_on_disk = 1000;
        totals.files_unverified = 0;
        totals.files_verified = 0;
        assert_eq!(warning(&all, &totals), None);
        let text = summary(&all, &totals, Duration::ZERO);
        assert!(
            !text.contains("not written") && !text.contains("verified"),
            "{text}"
        );
    }
}
