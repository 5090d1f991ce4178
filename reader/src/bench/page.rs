//! A report as one HTML file: verdicts, charts, and tables of every cell. It refers to nothing outside of itself, so that
//! it can be read without a network and mailed as it is.

use std::fmt::Write;

use super::cell::Cell;
use super::chart::{self, escape};
use super::findings::Verdict;
use super::report::{Report, number};

const STYLE: &str = "\
:root { color-scheme: light dark; --met: #1a7f37; --missed: #cf222e; --undecided: #9a6700; --ours: #0969da; --base: #6e7781; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: 2px 10px; text-align: left; border-bottom: 1px solid #8884; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } svg { max-width: 100%; height: auto; font-size: 12px; }
svg text { fill: currentColor; } .grid { stroke: #8884; } .target { stroke: currentColor; stroke-dasharray: 4 3; }
.interval { stroke-width: 6; stroke-opacity: .45; } .spread { stroke: currentColor; } rect.side0 { fill: var(--base); } rect.side1 { fill: var(--ours); }
line.met { stroke: var(--met); } line.missed { stroke: var(--missed); } line.undecided { stroke: var(--undecided); }
circle.met { fill: var(--met); } circle.missed { fill: var(--missed); } circle.undecided { fill: var(--undecided); }
td.met { color: var(--met); } td.missed { color: var(--missed); } td.undecided { color: var(--undecided); } small { opacity: .75; }";

impl Report {
    /// The whole page.
    pub fn to_html(&self) -> String {
        let mut page = String::new();
        // A String takes all that is written.
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lookup bench {0}</title>\n\
             <style>{STYLE}</style></head><body>\n<h1>lookup bench {0}</h1>\n<p>{1} pairs, seed {2}, {3}.</p>\n",
            self.workload,
            self.pairs,
            self.seed,
            if self.quick { "quick run" } else { "full run" }
        );
        self.facts(&mut page, "Machine", &self.machine);
        self.verdicts(&mut page);
        if !self.skipped.is_empty() {
            page.push_str("<h2>Not measured</h2>\n<table><tr><th>what</th><th>why</th></tr>\n");
            for skipped in &self.skipped {
                let _ = writeln!(
                    page,
                    "<tr><td>{}</td><td>{}</td></tr>",
                    escape(&skipped.name),
                    escape(&skipped.reason)
                );
            }
            page.push_str("</table>\n");
        }
        page.push_str("<h2>Rates</h2>\n<p>Median of the runs; the line is their spread. The grey side is what the others are held against.</p>\n");
        self.cells.iter().for_each(|cell| cell_section(&mut page, cell));
        self.facts(&mut page, "Conditions", &self.conditions);
        self.facts(&mut page, "Options of the daemon", &self.daemon);
        page.push_str("</body></html>\n");
        page
    }

    fn facts(&self, page: &mut String, title: &str, facts: &serde_json::Value) {
        let Some(facts) = facts.as_object() else { return };
        let _ = writeln!(page, "<h2>{title}</h2>\n<table>");
        for (name, value) in facts {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(
                page,
                "<tr><th>{}</th><td>{}</td></tr>",
                escape(name),
                escape(&text)
            );
        }
        page.push_str("</table>\n");
    }

    fn verdicts(&self, page: &mut String) {
        let ratios: Vec<&Verdict> = self
            .verdicts
            .iter()
            .filter(|verdict| verdict.pairs > 1 && verdict.limit > 0.0)
            .collect();
        page.push_str("<h2>Verdicts</h2>\n");
        if !ratios.is_empty() {
            page.push_str(
                "<p>Ratios on a logarithmic scale round their target (the broken line), from a tenth of it to ten times it; \
                 the bar is the 95 % interval.</p>\n",
            );
            page.push_str(&chart::ratios(&ratios));
        }
        page.push_str("<table><tr><th>verdict</th><th>what</th><th>figure</th><th>interval</th><th>target</th><th>of</th></tr>\n");
        for verdict in &self.verdicts {
            let word = verdict.verdict.word();
            let [low, high] = verdict.interval.map(number);
            let interval = if verdict.pairs > 1 {
                format!("{low} to {high}")
            } else {
                String::new()
            };
            let _ = writeln!(
                page,
                "<tr><td class=\"{word}\">{word}</td><td>{}<br><small>{}</small></td><td class=\"n\">{}</td><td class=\"n\">{interval}</td>\
                 <td>{}</td><td><small>{}</small></td></tr>",
                escape(&verdict.name),
                escape(&verdict.detail),
                number(verdict.figure),
                escape(&verdict.target),
                escape(verdict.source)
            );
        }
        page.push_str("</table>\n");
        for count in &self.counts {
            let _ = writeln!(
                page,
                "<p>{}: {} {}</p>",
                escape(&count.name),
                number(count.value),
                escape(count.unit)
            );
        }
    }
}

fn cell_section(page: &mut String, cell: &Cell) {
    let size = match cell.size_bytes {
        0 => String::new(),
        bytes => format!(", {} KiB a read", bytes >> 10),
    };
    let _ = writeln!(
        page,
        "<h3>{}{size}, {} at once</h3>",
        escape(&cell.condition),
        cell.threads
    );
    // Bytes tell more than operations where an operation is a whole file.
    let bytes = cell
        .rounds
        .first()
        .and_then(|runs| runs.first())
        .map_or(0, |run| run.bytes / run.operations.max(1));
    if cell.size_bytes == 0 && bytes > 0 {
        page.push_str(&chart::rates(cell, "MiB/s", |rate| {
            rate * bytes as f64 / f64::from(1 << 20)
        }));
    } else {
        page.push_str(&chart::rates(cell, "a second", |rate| rate));
    }
    page.push_str("<table><tr><th>side</th><th>CV</th><th>P50 us</th><th>P99 us</th><th>max us</th><th>errors</th><th>ratio</th></tr>\n");
    for side in &cell.sides {
        let ratio = side.ratio.map_or(String::new(), |ratio| {
            format!(
                "{} ({} to {})",
                number(ratio.figure),
                number(ratio.interval[0]),
                number(ratio.interval[1])
            )
        });
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{:.1} %</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{ratio}</td></tr>",
            escape(&side.name),
            side.cv * 100.0,
            number(side.p50_us),
            number(side.p99_us),
            number(side.max_us),
            side.errors
        );
    }
    page.push_str("</table>\n");
    for note in &cell.notes {
        let _ = writeln!(page, "<p><small>{}</small></p>", escape(note));
    }
}
