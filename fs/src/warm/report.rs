//! What `lookupfs warm` shows: a bar while it works, each failure, and one line or one JSON object at the end.
//!
//! Owns stderr while the command runs, so that the bar and the failures do not write over each other. Called by
//! `client.rs`.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Action, Totals, WarmRequest, What};

/// The bar and the clock.
#[derive(Clone, Debug)]
pub(super) struct Report {
    bar: ProgressBar,
    is_in_bytes: bool,
    started: Instant,
}

impl Report {
    /// Draws on stderr, if it is a terminal. Whole files are measured in bytes, and anything else in files.
    pub(super) fn new(request: &WarmRequest) -> Report {
        let is_in_bytes = request.what == What::All && request.action == Action::Fill;
        let template = if is_in_bytes {
            "{bar:20} {binary_bytes}/{binary_total_bytes} {elapsed} {wide_msg}"
        } else {
            "{bar:20} {pos}/{len} files {elapsed} {wide_msg}"
        };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Report {
            bar,
            is_in_bytes,
            started: Instant::now(),
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
        let more = if totals.is_all_found { "" } else { "(and more), " };
        let failed = match totals.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        self.bar.set_message(format!(
            "{more}{} fetched, {}/s{failed}",
            HumanBytes(totals.fetched_bytes),
            HumanBytes(rate)
        ));
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
    let files = HumanCount(totals.files_done);
    let plain = match totals.files_plain {
        0 => String::new(),
        plain => format!(" ({} of them have nothing to warm)", HumanCount(plain)),
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
            let verified = match totals.files_verified {
                0 => String::new(),
                verified => format!("; {} files verified for passthrough", HumanCount(verified)),
            };
            format!(
                "{files} files{plain}: {} wanted, {} fetched in {seconds:.1} s, {} kept{places}{verified}",
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
                "{files} files{plain}: {} of {} pages ({}) are kept, {} in memory, {} on disk{unknown}",
                HumanCount(totals.pages_kept),
                HumanCount(totals.pages),
                share(totals.pages_kept, totals.pages),
                HumanCount(totals.pages_in_memory),
                HumanCount(totals.pages_on_disk),
            )
        }
        Action::Evict => format!(
            "{files} files: {} pages dropped, the kernel's too",
            HumanCount(totals.pages_dropped)
        ),
    }
}

/// What was asked for and is not kept, if anything is not.
pub(super) fn warning(request: &WarmRequest, totals: &Totals) -> Option<String> {
    if misses_disk(request, totals) {
        return Some(format!(
            "{} pages are not on disk: it is full, slow or failed, or cache_size is too small; `lookupfs stats` says which",
            HumanCount(totals.pages.saturating_sub(totals.pages_on_disk))
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
    request.what == What::All && totals.has_disk && totals.pages_on_disk < totals.pages
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
