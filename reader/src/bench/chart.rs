//! Charts of a report as SVG text: ratios with their intervals and targets, and rates of all sides.
//!
//! Owns scales and shapes. Knows colours by class names only; the page gives them. Refuses nothing: what is no number
//! is drawn at the left edge. Called by [`super::page`].

use std::fmt::Write;

use super::cell::Cell;
use super::findings::Verdict;
use super::report::number;

const ROW: f64 = 22.0;
const LABEL: f64 = 400.0;
const PLOT: f64 = 420.0;
const VALUE: f64 = 190.0;

/// Text that stands for itself in SVG and HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn frame(rows: usize, body: &str) -> String {
    let (width, height) = (LABEL + PLOT + VALUE, rows as f64 * ROW + 8.0);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n{body}</svg>\n"
    )
}

fn label(body: &mut String, x: f64, row: usize, anchor: &str, text: &str) {
    let y = row as f64 * ROW + 15.0;
    let _ = writeln!(
        body,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
        escape(text)
    );
}

/// A row for each ratio: its interval as a bar, its figure as a dot, its target as a line. All on one scale, logarithmic
/// from a tenth of the target to ten times it, with the targets below each other.
pub(super) fn ratios(verdicts: &[&Verdict]) -> String {
    let mut body = String::new();
    let middle = LABEL + PLOT / 2.0;
    let place = |value: f64, limit: f64| {
        let decades = (value / limit).max(1e-9).log10().clamp(-1.0, 1.0);
        middle + decades * PLOT / 2.0
    };
    for (row, verdict) in verdicts.iter().enumerate() {
        let y = row as f64 * ROW + 11.0;
        let [low, high] = verdict.interval.map(|end| place(end, verdict.limit));
        let at = place(verdict.figure, verdict.limit);
        let class = verdict.verdict.word();
        label(&mut body, LABEL - 8.0, row, "end", &verdict.name);
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{LABEL}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\
             <line class=\"interval {class}\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
             <circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{y}\" r=\"5\"/>",
            LABEL + PLOT
        );
        let value = format!("{} ({}), {class}", number(verdict.figure), verdict.target);
        label(&mut body, LABEL + PLOT + 8.0, row, "start", &value);
    }
    let bottom = verdicts.len() as f64 * ROW;
    let _ = writeln!(
        body,
        "<line class=\"target\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"{bottom}\"/>"
    );
    frame(verdicts.len(), &body)
}

/// A bar for each side of a cell, from 0 to the fastest, with the spread of its runs.
pub(super) fn rates(cell: &Cell, unit: &str, of: impl Fn(f64) -> f64) -> String {
    let mut body = String::new();
    let most = cell
        .sides
        .iter()
        .map(|side| side.spread_per_second[1])
        .fold(f64::MIN_POSITIVE, f64::max);
    let long = |rate: f64| rate / most * PLOT;
    for (row, side) in cell.sides.iter().enumerate() {
        let y = row as f64 * ROW + 4.0;
        let [low, high] = side.spread_per_second.map(long);
        label(&mut body, LABEL - 8.0, row, "end", &side.name);
        let _ = writeln!(
            body,
            "<rect class=\"side{}\" x=\"{LABEL}\" y=\"{y}\" width=\"{:.1}\" height=\"14\"/>\
             <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{}\" y2=\"{}\"/>",
            row.min(1),
            long(side.median_per_second),
            LABEL + low,
            LABEL + high,
            y + 7.0,
            y + 7.0
        );
        label(
            &mut body,
            LABEL + PLOT + 8.0,
            row,
            "start",
            &format!("{} {unit}", number(of(side.median_per_second))),
        );
    }
    frame(cell.sides.len(), &body)
}
