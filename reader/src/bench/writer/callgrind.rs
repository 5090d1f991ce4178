//! [`Share`]: which part of a program's instructions belongs to size statistics, by callgrind.
//!
//! Owns the reading of callgrind's output and the rule of what belongs: the format library has no function of its own for it, but
//! lines within others, so that instructions are counted by source line, and a line belongs where its text says so. Refuses to
//! give a share where no such line ran, or where the sources cannot be read: 0 would be a lie. Called by `writer.rs`.

use std::collections::HashMap;
use std::path::Path;

use super::super::error::{BenchError, Result};

/// What the text of a line says that belongs to size statistics.
const WORDS: [&str; 3] = [
    "histogram",
    "variable_length_bytes",
    "unencoded_byte_array_data_bytes",
];

/// The type all of whose lines belong.
const HISTOGRAM: &str = "impl LevelHistogram {";

/// The format library, by a part of its sources' path.
const LIBRARY: &str = "/parquet-";

/// Instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Of size statistics.
    pub(super) part: u64,
    /// Of all that was counted.
    pub(super) total: u64,
}

impl Share {
    pub(super) fn percent(self) -> f64 {
        self.part as f64 * 100.0 / self.total.max(1) as f64
    }
}

/// Instructions by source file and line.
type Lines<'a> = HashMap<(&'a str, u32), u64>;

/// Reads what callgrind wrote with `--compress-strings=no --compress-pos=no`; `source` gives the text of a source file.
pub(super) fn share(output: &str, source: &dyn Fn(&Path) -> Option<String>) -> Result<Share> {
    let lines = self_costs(output)?;
    let total: u64 = lines.values().sum();
    let mut part = 0;
    let mut marked: HashMap<&str, Vec<bool>> = HashMap::new();
    for ((file, line), cost) in lines.iter().filter(|((file, _), _)| file.contains(LIBRARY)) {
        if !marked.contains_key(file) {
            let text = source(Path::new(file)).ok_or_else(|| no_source(file))?;
            marked.insert(file, marks(&text));
        }
        let belongs = marked
            .get(file)
            .and_then(|marks| marks.get(*line as usize))
            .copied();
        part += if belongs == Some(true) { *cost } else { 0 };
    }
    match part {
        0 => Err(BenchError::Invalid(
            "callgrind names no line of size statistics; the program needs line tables of the parquet crate (a release build \
             of this workspace has them)"
                .into(),
        )),
        part => Ok(Share { part, total }),
    }
}

fn no_source(file: &str) -> BenchError {
    BenchError::Invalid(format!(
        "cannot read {file}, by whose text its lines are told apart; run on the machine that built the program"
    ))
}

/// Which lines belong, by number; the first is 1.
fn marks(text: &str) -> Vec<bool> {
    let mut marks = vec![false];
    let mut inside = false;
    for line in text.lines() {
        inside |= line == HISTOGRAM;
        marks.push(inside || WORDS.iter().any(|word| line.contains(word)));
        // The formatter puts nothing but the end of an item at the begin of a line.
        inside &= line != "}";
    }
    marks
}

/// The cost of each line itself, without what it calls.
fn self_costs(output: &str) -> Result<Lines<'_>> {
    let odd = |line: &str| BenchError::Invalid(format!("callgrind wrote what is not understood: '{line}'"));
    let mut lines: Lines<'_> = HashMap::new();
    let mut file = "";
    let mut of_call = false;
    for line in output.lines() {
        if let Some((key, value)) = line.split_once('=') {
            match key {
                // Where a function is, and where what was inlined into it is.
                "fl" | "fi" | "fe" => file = value,
                // The next line is what the call cost, which is counted where it was spent.
                "calls" => of_call = true,
                _ => {}
            }
            continue;
        }
        if !line.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        if std::mem::take(&mut of_call) {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let place = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| odd(line))?;
        // A line of no event is counted 0.
        let cost = words
            .next()
            .map_or(Ok(0), |word| word.parse::<u64>().map_err(|_| odd(line)))?;
        *lines.entry((file, place)).or_default() += cost;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
# callgrind format
version: 1
cmd: lookup
positions: line
events: Ir

fl=/src/parquet-60/writer.rs
fn=write
1 100
3 7
fi=/src/core/index.rs
9 50
fe=/src/parquet-60/writer.rs
cfi=/src/parquet-60/histogram.rs
cfn=add
calls=2 2
1 1000
2 20

fl=/src/parquet-60/histogram.rs
fn=add
2 30
5 300
totals: 507
";

    fn source(path: &Path) -> Option<String> {
        match path.file_name()?.to_str()? {
            "writer.rs" => {
                Some("fn write() {\n  histogram.add(1);\n  self.variable_length_bytes += 1;\n}\n".into())
            }
            "histogram.rs" => Some("impl LevelHistogram {\n  self.inner += 1;\n}\n\nfn other() {}\n".into()),
            _ => None,
        }
    }

    #[test]
    fn lines_are_counted_by_what_they_say_and_calls_where_they_are_spent() {
        let share = share(OUTPUT, &source).unwrap();
        // 7 and 20 in the writer, 30 within the type; not the 1,000 of the call, nor the line after the type.
        assert_eq!((share.part, share.total), (57, 507));
        assert!((share.percent() - 11.24).abs() < 0.01);
    }

    #[test]
    fn a_share_that_cannot_be_known_is_no_0() {
        let said = |output: &str, source: &dyn Fn(&Path) -> Option<String>| {
            share(output, source).unwrap_err().to_string()
        };
        assert!(said(OUTPUT, &|_| None).contains("cannot read /src/parquet-60/"));
        assert!(said("fl=/src/other.rs\n1 100\n", &source).contains("line tables"));
        assert!(said("fl=/src/parquet-60/writer.rs\n1 100\n", &source).contains("line tables"));
        assert!(said("fl=a\n1 x\n", &source).contains("not understood"));
    }
}
