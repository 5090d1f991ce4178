//! One row by its key, a second: [`Table::get_keys`] beside the `parquet` crate's reader with its metadata kept, pruned by page
//! bounds, with a filter on the key.
//!
//! `cargo run --release -p lookupfs-reader --example keys_a_second [ROWS [THREADS [SECONDS [PAGE_ROWS]]]]`. Owns no judgement: it
//! prints medians of alternating rounds. Every row of either way is compared with its key in the round, since that costs both
//! the same.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{Key, KeyColumn, OpenOptions, Projection, RowRange, Table};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter,
    RowSelection,
};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

/// Rounds of each way; their order alternates.
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Looks one key up.
type Way<'a> = &'a (dyn Fn(i64) -> Result<(), Failure> + Sync);

fn main() -> Result<(), Failure> {
    let argument = |number: usize, default: u64| {
        std::env::args()
            .nth(number)
            .map_or(Ok(default), |text| text.parse())
    };
    let (rows, threads) = (argument(1, 1_000_000)?, argument(2, 16)?);
    let (seconds, page_rows) = (argument(3, 3)?, argument(4, 4096)?);
    let dir = std::env::temp_dir().join(format!("keys-a-second.{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let path = dir.join("key");
    let write = SampleOptions {
        shape: Shape::Key,
        rows,
        page_rows: Some(page_rows as usize),
        ..SampleOptions::default()
    };
    let measured = sample::write(&path, write)
        .map_err(Failure::from)
        .and_then(|()| measure(&path, threads, Duration::from_secs(seconds), page_rows as usize));
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(path: &Path, threads: u64, round: Duration, page_rows: usize) -> Result<(), Failure> {
    let table = Table::open(path, OpenOptions::default())?;
    let mut keys: Vec<i64> = Vec::new();
    for batch in table.scan(RowRange::ALL, &Projection::columns(["key"]), 65_536)? {
        keys.extend(batch?.column(0).as_primitive::<Int64Type>().values());
    }
    let column = table.key_column("key")?;
    // Every data page once.
    for key in keys.iter().step_by(page_rows) {
        get(&table, &column, *key)?;
    }
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let kept = ArrowReaderMetadata::load(&File::open(path)?, options)?;
    let ways: [(&str, Way<'_>); 2] = [
        ("get", &|key| get(&table, &column, key)),
        ("scan", &|key| scan(path, &kept, key)),
    ];
    let (mut rates, mut costs): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    for number in 0..ROUNDS {
        for way in [number % 2, 1 - number % 2] {
            let (rate, cost) = rate(ways[way].1, &keys, threads, round)?;
            rates[way].push(rate);
            costs[way].push(cost);
        }
    }
    let [rates, costs] = [rates, costs].map(|both| {
        both.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[ROUNDS / 2]
        })
    });
    for (way, (name, _)) in ways.iter().enumerate() {
        println!(
            "{name:5} {:>10.0} rows/s on {threads} threads, {:>8.1} us of CPU a row",
            rates[way], costs[way]
        );
    }
    println!(
        "ratio {:>10.1} by time, {:.1} by CPU",
        rates[0] / rates[1],
        costs[1] / costs[0]
    );
    Ok(())
}

/// Rows a second, and microseconds of CPU a row.
fn rate(way: Way<'_>, keys: &[i64], threads: u64, round: Duration) -> Result<(f64, f64), Failure> {
    let done = AtomicU64::new(0);
    let cpu_before = cpu_seconds()?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread: u64| {
            let done = &done;
            scope.spawn(move || {
                let mut state = thread;
                while started.elapsed() < round {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    way(keys[(state >> 33) as usize % keys.len()])?;
                    done.fetch_add(1, Relaxed);
                }
                Ok::<(), Failure>(())
            })
        };
        let all: Vec<_> = (0..threads).map(run).collect();
        all.into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let done = done.into_inner().max(1) as f64;
    let cpu = cpu_seconds()? - cpu_before;
    Ok((done / started.elapsed().as_secs_f64(), cpu * 1e6 / done))
}

/// What this process used so far: on a busy machine a better measure than time.
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

fn check(key: i64, rows: usize, found: i64) -> Result<(), Failure> {
    match rows == 1 && found == key {
        true => Ok(()),
        false => Err(format!("key {key}: {rows} rows, the first has {found}").into()),
    }
}

fn get(table: &Table, column: &KeyColumn, key: i64) -> Result<(), Failure> {
    let batch = table.get_keys(column, &[Key::from(key)], &Projection::all())?;
    check(
        key,
        batch.num_rows(),
        batch.column(0).as_primitive::<Int64Type>().value(0),
    )
}

/// The rows of the data pages whose bounds hold the key, filtered by it.
fn scan(path: &Path, kept: &ArrowReaderMetadata, key: i64) -> Result<(), Failure> {
    let metadata = kept.metadata();
    let index = metadata.page_index().ok_or("no page index")?;
    let (mut groups, mut ranges, mut start) = (Vec::new(), Vec::new(), 0usize);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let (Some(ColumnIndexMetaData::INT64(bounds)), Some(offsets)) =
            (index.column_index(number, 0), index.offset_index(number, 0))
        else {
            return Err("no bounds".into());
        };
        let rows = group.num_rows() as usize;
        let starts = offsets.page_locations();
        let mut found = false;
        let may_hold = |page: &usize| {
            bounds.min_value(*page).is_some_and(|min| *min <= key)
                && bounds.max_value(*page).is_some_and(|max| *max >= key)
        };
        for page in (0..starts.len()).filter(may_hold) {
            let first = starts[page].first_row_index as usize;
            let end = starts
                .get(page + 1)
                .map_or(rows, |next| next.first_row_index as usize);
            ranges.push(start + first..start + end);
            found = true;
        }
        if found {
            groups.push(number);
            start += rows;
        }
    }
    let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), start);
    let mask = ProjectionMask::leaves(kept.parquet_schema(), [0]);
    let is_key = ArrowPredicateFn::new(mask, move |batch| {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        Ok(keys
            .values()
            .iter()
            .map(|found| Some(*found == key))
            .collect::<BooleanArray>())
    });
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(File::open(path)?, kept.clone())
        .with_row_groups(groups)
        .with_row_selection(selection)
        .with_row_filter(RowFilter::new(vec![Box::new(is_key)]))
        .with_limit(1)
        .build()?;
    let (mut rows, mut found) = (0, 0);
    for batch in reader {
        let batch = batch?;
        if batch.num_rows() > 0 {
            rows += batch.num_rows();
            found = batch.column(0).as_primitive::<Int64Type>().value(0);
        }
    }
    check(key, rows, found)
}
