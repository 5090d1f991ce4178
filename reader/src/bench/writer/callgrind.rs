//! [`Share`]: which part of a program's instructions belongs to size statistics, by callgrind.
//!
//! Owns the reading of callgrind's and addr2line's output, and the rule of what belongs. The format library has no function of its
//! own for size statistics, but lines within others: an instruction belongs if it comes from such a line, or from what was inlined
//! there, and a line is such a one by its text. Refuses to give a share where no such line ran, or where the sources cannot be
//! read: 0 would be a lie. Called by `writer.rs`.

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

/// How often each instruction of a program ran.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// By address in the program.
    own: HashMap<u64, u64>,
    /// All, also of libraries beside it.
    total: u64,
}

/// Reads what callgrind wrote with `--dump-instr=yes --compress-strings=no --compress-pos=no`.
pub(super) fn counted(output: &str, program: &Path) -> Result<Counted> {
    let odd = |line: &str| BenchError::Invalid(format!("callgrind wrote what is not understood: '{line}'"));
    let mut counted = Counted {
        own: HashMap::new(),
        total: 0,
    };
    let (mut is_own, mut of_call) = (false, false);
    for line in output.lines() {
        match line.split_once('=') {
            Some(("ob", object)) => is_own = Path::new(object) == program,
            // The next line is what the call cost, which is counted where it was spent.
            Some(("calls", _)) => of_call = true,
            _ => {}
        }
        let Some(rest) = line.strip_prefix("0x") else {
            continue;
        };
        if std::mem::take(&mut of_call) {
            continue;
        }
        // Address, source line, and nothing more where there was no event.
        let mut words = rest.split_ascii_whitespace();
        let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let address = address.ok_or_else(|| odd(line))?;
        let cost = words
            .nth(1)
            .map_or(Ok(0), |word| word.parse::<u64>().map_err(|_| odd(line)))?;
        counted.total += cost;
        if is_own {
            *counted.own.entry(address).or_default() += cost;
        }
    }
    Ok(counted)
}

impl Counted {
    /// The addresses, as addr2line reads them.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.own.keys().map(|address| format!("{address:#x}")).collect()
    }

    /// The share by what `addr2line -a -i` said of the addresses; `source` gives the text of a source file.
    pub(super) fn share(&self, frames: &str, source: &dyn Fn(&Path) -> Option<String>) -> Result<Share> {
        let mut sources: HashMap<&str, Vec<Mark>> = HashMap::new();
        let mut part = 0;
        // What is left of the cost of the address, and whether the next frame is where it lies itself.
        let (mut cost, mut innermost) = (0, true);
        for line in frames.lines() {
            if let Some(address) = line.strip_prefix("0x") {
                let address = u64::from_str_radix(address, 16).ok();
                cost = address
                    .and_then(|address| self.own.get(&address))
                    .copied()
                    .unwrap_or(0);
                innermost = true;
                continue;
            }
            let place = line.split(" (").next().and_then(|place| place.rsplit_once(':'));
            if let Some((file, number)) = place.filter(|(file, _)| file.contains(LIBRARY)) {
                if !sources.contains_key(file) {
                    let text = source(Path::new(file)).ok_or_else(|| no_source(file))?;
                    sources.insert(file, marks(&text));
                }
                let number = number.parse::<usize>().ok();
                let mark = number.and_then(|number| sources.get(file)?.get(number)).copied();
                if mark == Some(Mark::Whole) || (mark == Some(Mark::Itself) && innermost) {
                    part += std::mem::take(&mut cost);
                }
            }
            innermost = false;
        }
        match part {
            0 => Err(BenchError::Invalid(
                "no line of size statistics was counted; the program needs line tables of the parquet crate (a release build of \
                 this workspace has them)"
                    .into(),
            )),
            part => Ok(Share {
                part,
                total: self.total,
            }),
        }
    }
}

fn no_source(file: &str) -> BenchError {
    BenchError::Invalid(format!(
        "cannot read {file}, by whose text its lines are told apart; run on the machine that built the program"
    ))
}

/// What of a line belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Nothing,
    /// The line, but not what was inlined there: it opens a block, such as a closure that is handed to an encoder.
    Itself,
    /// The line, and what was inlined there.
    Whole,
}

/// By number of the line; the first is 1.
fn marks(text: &str) -> Vec<Mark> {
    let mut marks = vec![Mark::Nothing];
    let mut inside = false;
    for line in text.lines() {
        inside |= line == HISTOGRAM;
        let says = WORDS.iter().any(|word| line.contains(word));
        marks.push(match inside || says {
            false => Mark::Nothing,
            true if !inside && line.trim_end().ends_with('{') => Mark::Itself,
            true => Mark::Whole,
        });
        // The formatter puts nothing but the end of an item at the begin of a line.
        inside &= line != "}";
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
# callgrind format
version: 1
positions: instr line
events: Ir

ob=/bin/lookup
fl=/src/parquet-60/writer.rs
fn=write
0x10 1 100
0x20 3 7
0x24 3
fi=/src/core/index.rs
0x30 9 50
cob=/lib/libc.so
cfn=add
calls=2 0x40 2
0x34 1 1000
0x38 2 20

ob=/lib/libc.so
fn=add
0x10 2 30
0x20 5 300
totals: 507
";

    const FRAMES: &str = "\
0x0000000000000010
/src/parquet-60/writer.rs:1
0x0000000000000020
/src/parquet-60/writer.rs:3 (discriminator 2)
0x0000000000000030
/src/core/index.rs:9
/src/parquet-60/histogram.rs:2
/src/parquet-60/writer.rs:4
0x0000000000000038
/src/core/rle.rs:1
/src/parquet-60/writer.rs:2
??:0
";

    fn source(path: &Path) -> Option<String> {
        match path.file_name()?.to_str()? {
            "writer.rs" => Some(
                "fn write() {\n  Some(histogram) => encoder.put(|level| {\n  self.variable_length_bytes += 1;\n  put(level);\n".into(),
            ),
            "histogram.rs" => Some("impl LevelHistogram {\n  self.inner += 1;\n}\n\nfn other() {}\n".into()),
            _ => None,
        }
    }

    #[test]
    fn what_is_inlined_at_a_line_belongs_to_it_and_calls_are_counted_where_they_are_spent() {
        let counted = counted(OUTPUT, Path::new("/bin/lookup")).unwrap();
        let mut addresses = counted.addresses();
        addresses.sort();
        assert_eq!(addresses, ["0x10", "0x20", "0x24", "0x30", "0x38"]);
        let share = counted.share(FRAMES, &source).unwrap();
        // 7 of a line, and 50 of what was inlined into the type. Not the 1,000 of the call, not the encoder's 20 that were
        // inlined where a closure is handed over, and not the same addresses of another object.
        assert_eq!((share.part, share.total), (57, 507));
        assert!((share.percent() - 11.24).abs() < 0.01);
    }

    #[test]
    fn the_opening_of_a_block_belongs_itself() {
        let counted = counted(
            "ob=/bin/lookup\n0x10 1 100\n0x20 1 10\n",
            Path::new("/bin/lookup"),
        )
        .unwrap();
        let frames = "0x10\n/src/parquet-60/writer.rs:2\n0x20\n/src/parquet-60/writer.rs:1\n";
        let share = counted.share(frames, &source).unwrap();
        assert_eq!((share.part, share.total), (100, 110));
    }

    #[test]
    fn a_share_that_cannot_be_known_is_no_0() {
        let own = counted(OUTPUT, Path::new("/bin/lookup")).unwrap();
        let said = |counted: &Counted, frames: &str, source: &dyn Fn(&Path) -> Option<String>| {
            counted.share(frames, source).unwrap_err().to_string()
        };
        assert!(said(&own, FRAMES, &|_| None).contains("cannot read /src/parquet-60/"));
        assert!(said(&own, "0x10\n??:0\n", &source).contains("line tables"));
        let other = counted(OUTPUT, Path::new("/bin/other")).unwrap();
        assert!(said(&other, FRAMES, &source).contains("line tables"));
        for odd in ["0xz 1 1", "0x1 1 x"] {
            assert!(counted(odd, Path::new("/bin/lookup")).is_err());
        }
    }
}
