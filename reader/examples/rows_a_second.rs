//! Rows a second on one thread: warm lookups of sample files, this library beside the `parquet` crate with its metadata kept.
//!
//! `cargo run --release -p lookupfs-reader --example rows_a_second [SECONDS [WORD [ROWS [BUDGET_MIB]]]]`; WORD chooses the ways to
//! measure by their names, as `wide` or `kept`, ROWS is how many each file has (100,000), and BUDGET_MIB what may be known between
//! lookups (the default). Owns no judgement: it prints medians of alternating rounds, what was made anew in them, and what is
//! held beside the memory that the process took for it. Rows are compared with what the sample says before the first round, not in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, RowId, StructureCache, Table};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::PageIndexPolicy;

/// Rounds of each way; their order alternates.
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error>;

/// Looks rows up; gives how many.
type Way<'a> = dyn FnMut(&mut Rows) -> Result<usize, Failure> + 'a;

fn main() -> Result<(), Failure> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let word = std::env::args().nth(2).unwrap_or_default();
    let rows: u64 = std::env::args().nth(3).map_or(Ok(100_000), |text| text.parse())?;
    let structures = match std::env::args().nth(4) {
        Some(text) => StructureCache::new(text.parse::<u64>()? << 20),
        None => StructureCache::default(),
    };
    let dir = std::env::temp_dir().join(format!("rows-a-second.{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let round = Duration::from_secs_f64(seconds);
    let measured = [Shape::Narrow, Shape::Wide]
        .into_iter()
        .filter(|shape| WAYS.iter().any(|name| is_chosen(*shape, name, &word)))
        .try_for_each(|shape| measure(&dir, shape, rows, round, &word, &structures));
    std::fs::remove_dir_all(&dir)?;
    measured
}

/// Row ids in an order that every run has.
struct Rows(u64, u64);

impl Rows {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % self.1
    }
}

const WAYS: [&str; 4] = [
    "one row, table kept",
    "one row, file opened for it",
    "1,024 rows, table kept",
    "one row, parquet crate with metadata kept",
];

fn is_chosen(shape: Shape, name: &str, word: &str) -> bool {
    format!("{shape:?}: {name}").to_lowercase().contains(word)
}

fn measure(
    dir: &Path,
    shape: Shape,
    rows: u64,
    round: Duration,
    word: &str,
    structures: &StructureCache,
) -> Result<(), Failure> {
    let path = write_sample(dir, shape, rows)?;
    let options = OpenOptions {
        structures: structures.clone(),
        ..OpenOptions::default()
    };
    let all = Projection::all();
    let mut ids = Rows(1, rows);
    let (held, resident) = (structures.bytes(), resident_bytes()?);
    let table = Table::open(&path, options.clone())?;
    for _ in 0..2000 {
        let row = ids.next();
        let got = table.get(&[RowId(row)], &all)?;
        sample::check_rows(&table, &got, shape, 0, row..row + 1)?;
    }
    for row in (0..rows).step_by(500) {
        table.get(&[RowId(row)], &all)?;
    }
    let held = structures.bytes().saturating_sub(held);
    let resident = resident_bytes()?.saturating_sub(resident);
    println!(
        "{shape:?}: {} MiB held of {} MiB, resident memory grew by {} MiB",
        held >> 20,
        structures.budget_bytes() >> 20,
        resident >> 20
    );
    let plain = ArrowReaderMetadata::load(
        &std::fs::File::open(&path)?,
        ArrowReaderOptions::new()
            .with_offset_index_policy(PageIndexPolicy::Required)
            .with_column_index_policy(PageIndexPolicy::Skip),
    )?;
    let mut one =
        |ids: &mut Rows| -> Result<usize, Failure> { Ok(table.get(&[RowId(ids.next())], &all)?.num_rows()) };
    let mut open = |ids: &mut Rows| -> Result<usize, Failure> {
        let table = Table::open(&path, options.clone())?;
        Ok(table.get(&[RowId(ids.next())], &all)?.num_rows())
    };
    let mut many = |ids: &mut Rows| -> Result<usize, Failure> {
        let ids: Vec<RowId> = (0..1024).map(|_| RowId(ids.next())).collect();
        Ok(table.get(&ids, &all)?.num_rows())
    };
    let mut library = |ids: &mut Rows| plain_row(&path, &plain, ids.next(), rows);
    let ways: [&mut Way<'_>; 4] = [&mut one, &mut open, &mut many, &mut library];
    let mut rates = vec![Vec::new(); ways.len()];
    for number in 0..ROUNDS {
        for place in 0..ways.len() {
            let way = (place + number) % ways.len();
            if is_chosen(shape, WAYS[way], word) {
                rates[way].push(rate(&mut ids, round, ways[way])?);
            }
        }
    }
    for (name, rates) in WAYS.iter().zip(&mut rates).filter(|(_, rates)| !rates.is_empty()) {
        rates.sort_by(f64::total_cmp);
        let (low, middle, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!("{shape:?}: {name}: {middle:.0} rows/s ({low:.0} to {high:.0})");
    }
    println!("{shape:?}: {:?}", table.counters());
    Ok(())
}

/// A sample that is old enough to be known again when it is opened again.
fn write_sample(dir: &Path, shape: Shape, rows: u64) -> Result<PathBuf, Failure> {
    let path = dir.join(format!("{shape:?}"));
    let write = SampleOptions {
        shape,
        rows,
        ..SampleOptions::default()
    };
    sample::write(&path, write)?;
    let written = Instant::now();
    while let Some(left) = Duration::from_millis(2100).checked_sub(written.elapsed()) {
        std::thread::park_timeout(left);
    }
    Ok(path)
}

/// Memory of this process that is resident and not of a file.
fn resident_bytes() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"));
    Ok(kib
        .ok_or("no RssAnon in /proc/self/status")?
        .trim()
        .parse::<u64>()?
        << 10)
}

fn rate(ids: &mut Rows, round: Duration, way: &mut Way<'_>) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut rows = 0;
    while started.elapsed() < round {
        rows += way(ids)?;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// A row by the crate's own reader.
fn plain_row(path: &Path, metadata: &ArrowReaderMetadata, row: u64, rows: u64) -> Result<usize, Failure> {
    let row = row as usize;
    let selection = RowSelection::from_consecutive_ranges(std::iter::once(row..row + 1), rows as usize);
    let file = std::fs::File::open(path)?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
        .with_row_selection(selection)
        .with_batch_size(1)
        .build()?;
    let mut found = 0;
    for batch in reader {
        found += batch?.num_rows();
    }
    Ok(found)
}
