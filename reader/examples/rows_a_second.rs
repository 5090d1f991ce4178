//! Rows a second on one thread: warm lookups of sample files, this library beside the `parquet` crate with its metadata kept.
//!
//! `cargo run --release -p lookupfs-reader --example rows_a_second [SECONDS [WORD]]`; WORD chooses the ways to measure by their
//! names, as `wide` or `kept`. Owns no judgement: it prints medians of alternating rounds. Rows are compared with what the
//! sample says before the first round, not in it.

use std::path::Path;
use std::time::{Duration, Instant};

use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, RowId, Table};
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
    let dir = std::env::temp_dir().join(format!("rows-a-second.{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let measured = [(Shape::Narrow, 100_000), (Shape::Wide, 100_000)]
        .into_iter()
        .try_for_each(|(shape, rows)| measure(&dir, shape, rows, Duration::from_secs_f64(seconds), &word));
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

fn measure(dir: &Path, shape: Shape, rows: u64, round: Duration, word: &str) -> Result<(), Failure> {
    let path = dir.join(format!("{shape:?}"));
    let write = SampleOptions {
        shape,
        rows,
        ..SampleOptions::default()
    };
    sample::write(&path, write)?;
    // What was written a moment ago shares nothing between opens.
    let written = Instant::now();
    let options = OpenOptions::default();
    let all = Projection::all();
    let table = Table::open(&path, options.clone())?;
    let mut ids = Rows(1, rows);
    for _ in 0..2000 {
        let row = ids.next();
        let got = table.get(&[RowId(row)], &all)?;
        sample::check_rows(&table, &got, shape, 0, row..row + 1)?;
    }
    while let Some(left) = Duration::from_millis(2100).checked_sub(written.elapsed()) {
        std::thread::park_timeout(left);
    }
    let reopened = Table::open(&path, options.clone())?;
    for row in (0..rows).step_by(500) {
        reopened.get(&[RowId(row)], &all)?;
    }
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
    let ways: [(&str, &mut Way<'_>); 4] = [
        ("one row, table kept", &mut one),
        ("one row, file opened for it", &mut open),
        ("1,024 rows, table kept", &mut many),
        ("one row, parquet crate with metadata kept", &mut library),
    ];
    let chosen = |name: &str| format!("{shape:?}: {name}").to_lowercase().contains(word);
    let mut rates = vec![Vec::new(); ways.len()];
    for number in 0..ROUNDS {
        for place in 0..ways.len() {
            let way = (place + number) % ways.len();
            if !chosen(ways[way].0) {
                continue;
            }
            rates[way].push(rate(&mut ids, round, &mut *ways[way].1)?);
        }
    }
    for ((name, _), rates) in ways.iter().zip(&mut rates).filter(|((name, _), _)| chosen(name)) {
        rates.sort_by(f64::total_cmp);
        let (low, middle, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!("{shape:?}: {name}: {middle:.0} rows/s ({low:.0} to {high:.0})");
    }
    println!("{shape:?}: {:?}", table.counters());
    Ok(())
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
