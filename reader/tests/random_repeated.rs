//! Random lists, maps and structs of them, several levels deep, cold, warm and with too little memory: equal to `take` of a plain
//! read. And the same files damaged: an error or the right rows, never a panic, never a loop that does not end.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Int32Builder, Int64Builder, LargeListBuilder, ListBuilder, MapBuilder,
    StringBuilder, StructBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::plan::Coalesce;
use lookupfs_reader::read_at::{CountingReadAt, ReadCounts};
use lookupfs_reader::{OpenOptions, Projection, RowId, StructureCache, Table};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy, RowSelector,
};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use support::*;

/// Files that are looked up in; `LOOKUPFS_RANDOM_FILES` asks for more.
fn files() -> u64 {
    let asked = std::env::var("LOOKUPFS_RANDOM_FILES");
    asked.map_or(250, |files| files.parse().unwrap())
}

/// Damaged copies of each of 24 files; `LOOKUPFS_DAMAGED_COPIES` asks for more.
fn damaged_copies() -> u64 {
    let asked = std::env::var("LOOKUPFS_DAMAGED_COPIES");
    asked.map_or(60, |copies| copies.parse().unwrap())
}

/// How often something is null: never, sometimes, mostly.
fn is_null(nulls: u64, r: &mut Seeded) -> bool {
    match nulls {
        0 => false,
        1 => r.below(5) == 0,
        _ => r.below(20) != 0,
    }
}

/// How many elements: few, or now and then so many that a record is longer than a data page.
fn len(longest: u64, r: &mut Seeded) -> u64 {
    match r.below(12) {
        0 => r.below(longest),
        1..=3 => 0,
        _ => 1 + r.below(3),
    }
}

fn lists_of_lists(rows: usize, nulls: u64, r: &mut Seeded) -> ArrayRef {
    let mut b = ListBuilder::new(LargeListBuilder::new(StringBuilder::new()));
    for _ in 0..rows {
        for _ in 0..len(20, r) {
            for _ in 0..len(30, r) {
                let text = "y".repeat(r.below(9) as usize) + &r.below(40).to_string();
                b.values()
                    .values()
                    .append_option((!is_null(nulls, r)).then_some(text));
            }
            b.values().append(!is_null(nulls, r));
        }
        b.append(!is_null(nulls, r));
    }
    Arc::new(b.finish())
}

fn maps_of_lists(rows: usize, nulls: u64, r: &mut Seeded) -> ArrayRef {
    let mut b = MapBuilder::new(None, Int32Builder::new(), ListBuilder::new(BooleanBuilder::new()));
    for _ in 0..rows {
        for key in 0..len(40, r) {
            b.keys().append_value(key as i32 % 7);
            for _ in 0..len(20, r) {
                let value = r.below(2) == 0;
                b.values()
                    .values()
                    .append_option((!is_null(nulls, r)).then_some(value));
            }
            b.values().append(!is_null(nulls, r));
        }
        b.append(!is_null(nulls, r)).unwrap();
    }
    Arc::new(b.finish())
}

fn lists_of_structs(rows: usize, nulls: u64, r: &mut Seeded) -> ArrayRef {
    let fields = vec![
        Field::new("n", DataType::Int64, true),
        Field::new("b", DataType::Binary, true),
    ];
    let mut b = ListBuilder::new(StructBuilder::from_fields(fields, rows));
    for _ in 0..rows {
        for _ in 0..len(60, r) {
            let value = r.below(1000) as i64;
            let both = b.values();
            let numbers = both.field_builder::<Int64Builder>(0).unwrap();
            numbers.append_option((!is_null(nulls, r)).then_some(value));
            let binaries = both.field_builder::<BinaryBuilder>(1).unwrap();
            binaries.append_option((!is_null(nulls, r)).then_some(vec![value as u8; value as usize % 23]));
            both.append(!is_null(nulls, r));
        }
        b.append(!is_null(nulls, r));
    }
    Arc::new(b.finish())
}

fn lists(rows: usize, nulls: u64, r: &mut Seeded) -> ArrayRef {
    let mut b = ListBuilder::new(Int64Builder::new());
    for _ in 0..rows {
        for _ in 0..len(300, r) {
            let value = r.below(50) as i64;
            b.values().append_option((!is_null(nulls, r)).then_some(value));
        }
        b.append(!is_null(nulls, r));
    }
    Arc::new(b.finish())
}

/// A file of one to four such columns, and a number that is not repeated; with its data pages as small as `r` says.
fn write(r: &mut Seeded) -> Bytes {
    let rows = [1, 30, 250][r.below(3) as usize] + r.below(40) as usize;
    let nulls = r.below(3);
    let first = r.below(4) as usize;
    let count = 1 + r.below(4) as usize;
    let mut columns: Vec<(String, ArrayRef)> = (0..count)
        .map(|number| {
            let array = match (first + number) % 4 {
                0 => lists(rows, nulls, r),
                1 => lists_of_lists(rows, nulls, r),
                2 => maps_of_lists(rows, nulls, r),
                _ => lists_of_structs(rows, nulls, r),
            };
            (format!("c{number}"), array)
        })
        .collect();
    let numbers = arrow_array::Int64Array::from_iter_values(0..rows as i64);
    columns.insert(
        r.below(count as u64 + 1) as usize,
        ("id".into(), Arc::new(numbers) as _),
    );
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ];
    let properties = WriterProperties::builder()
        .set_compression(codecs[r.below(codecs.len() as u64) as usize])
        .set_dictionary_enabled(r.below(2) == 0)
        .set_dictionary_page_size_limit([64, 1 << 20][r.below(2) as usize])
        .set_data_page_row_count_limit([1, 7, 64, 1 << 20][r.below(4) as usize])
        .set_data_page_size_limit([50, 1000, 1 << 20][r.below(3) as usize])
        .set_write_batch_size([1, 16, 1024][r.below(3) as usize])
        .set_max_row_group_row_count(Some([13, 100, 1 << 20][r.below(3) as usize]))
        .set_offset_index_disabled(r.below(2) == 0)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_writer_version([WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][r.below(2) as usize])
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes.into()
}

/// A table of one version of a file, and its reads.
fn open_counted(bytes: &Bytes, structures: StructureCache) -> (lookupfs_reader::Result<Table>, ReadCounts) {
    let counts = ReadCounts::default();
    let (bytes, count) = (bytes.clone(), counts.clone());
    let options = OpenOptions {
        opener: Some(Opener::new(move |_| {
            let file = Versioned::new(&bytes, [5; 16]);
            Ok(Box::new(CountingReadAt::new(file, count.clone())) as Box<_>)
        })),
        coalesce: Coalesce {
            gap_bytes: 0,
            ..Coalesce::default()
        },
        structures,
        parallel_reads: 1,
        ..OpenOptions::default()
    };
    (Table::open("/f", options), counts)
}

fn ids(count: u64, r: &mut Seeded) -> Vec<RowId> {
    (0..1 + r.below(25)).map(|_| RowId(r.below(count))).collect()
}

#[test]
fn any_rows_of_lists_and_maps_cold_and_warm() {
    let mut warm = 0;
    for seed in 0..files() {
        let mut r = Seeded::new(seed);
        let bytes = write(&mut r);
        let all = plain_read(bytes.clone(), None, None).unwrap();
        let what = format!("seed {seed}");
        for structures in [
            StructureCache::new(64 << 20),
            StructureCache::new(20_000),
            StructureCache::new(0),
        ] {
            let (table, reads) = open_counted(&bytes, structures.clone());
            let table = table.unwrap();
            let everything_is_kept = structures.budget_bytes() > 1 << 20;
            for _ in 0..4 {
                let ids = ids(table.row_count(), &mut r);
                let got = table.get(&ids, &Projection::all()).unwrap();
                assert_same(&what, &got, &pick(&all, &ids));
                // At once again, in another order.
                let (read, made) = (reads.reads(), made_by(&table));
                let backwards: Vec<_> = ids.iter().rev().copied().collect();
                let got = table.get(&backwards, &Projection::all()).unwrap();
                assert_same(&what, &got, &pick(&all, &backwards));
                if everything_is_kept {
                    assert_eq!(reads.reads(), read, "{what}: a warm lookup reads");
                    assert_eq!(made_by(&table), made, "{what}: a warm lookup inflates");
                    warm += 1;
                }
                assert!(structures.bytes() <= structures.budget_bytes(), "{what}");
            }
            let ids = rows(0..table.row_count());
            assert_same(&what, &table.get(&ids, &Projection::all()).unwrap(), &all);
        }
    }
    println!("{warm} warm lookups");
    assert!(warm > 0);
}

/// Data pages and dictionaries that were inflated or mapped.
fn made_by(table: &Table) -> (u64, u64) {
    let counters = table.counters();
    (counters.pages_mapped, counters.dictionaries_mapped)
}

thread_local!(static ORACLE: Cell<bool> = const { Cell::new(false) });

/// Panics inside of the format library are what is being tested; their text is noise.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !lookupfs_reader::decode::panic_is_expected() && !ORACLE.get() {
                before(info);
            }
        }));
    });
}

/// Ends the process if nothing is heard for two minutes: a loop that never ends must fail the test and not hang it.
fn watchdog() -> mpsc::SyncSender<String> {
    let (send, receive) = mpsc::sync_channel::<String>(0);
    std::thread::spawn(move || {
        let mut what = String::new();
        loop {
            match receive.recv_timeout(Duration::from_secs(120)) {
                Ok(next) => what = next,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("no end after 120 s: {what}");
                    std::process::abort();
                }
            }
        }
    });
    send
}

/// The library's own read of the same rows, which are skipped to as lookups do: where levels are wrong within a page, it gives
/// other rows if it reads what lies between them and filters it.
fn skipping_read(bytes: Bytes, selection: RowSelection) -> Result<RecordBatch, String> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Skip);
    let builder =
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options).map_err(|e| e.to_string())?;
    let reader = builder
        .with_row_selection(selection)
        .with_row_selection_policy(RowSelectionPolicy::Selectors)
        .build()
        .map_err(|e| e.to_string())?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    concat_batches(&schema, &batches).map_err(|e| e.to_string())
}

/// These rows by [`skipping_read`]; `None` if it refuses, panics or never ends.
fn oracle(bytes: Bytes, ids: &[RowId], count: u64) -> Option<RecordBatch> {
    let mut selectors = Vec::new();
    let mut at = 0;
    for id in ids {
        selectors.push(RowSelector::skip((id.0 - at) as usize));
        selectors.push(RowSelector::select(1));
        at = id.0 + 1;
    }
    selectors.push(RowSelector::skip((count - at) as usize));
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        ORACLE.set(true);
        let read = || skipping_read(bytes, RowSelection::from(selectors));
        let read = catch_unwind(AssertUnwindSafe(read));
        let _ = send.send(read.ok().and_then(Result::ok));
    });
    let read = receive.recv_timeout(Duration::from_secs(20)).ok()??;
    (read.num_rows() == ids.len()).then_some(read)
}

#[test]
fn damaged_lists_and_maps_give_an_error_or_right_rows() {
    silence();
    let dog = watchdog();
    let (mut errors, mut whole, mut same, mut unchecked) = (0, 0, 0, 0);
    for seed in 0..24 {
        let mut r = Seeded::new(1_000 + seed);
        let undamaged = write(&mut r);
        let all = plain_read(undamaged.clone(), None, None).unwrap();
        let tail = u64::from(u32::from_le_bytes(
            undamaged[undamaged.len() - 8..][..4].try_into().unwrap(),
        ));
        // Pages only: what is wrong in footers is the same for all columns.
        let pages = (undamaged.len() as u64).saturating_sub(tail + 8).max(5);
        for copy in 0..damaged_copies() {
            let mut bytes = undamaged.to_vec();
            let at = 4 + r.below(pages - 4) as usize;
            match r.below(4) {
                0 => bytes[at..]
                    .iter_mut()
                    .take(8)
                    .for_each(|byte| *byte = r.next() as u8),
                1 => bytes[at] = 0xff,
                _ => bytes[at] ^= 1 << r.below(8),
            }
            let bytes = Bytes::from(bytes);
            let what = format!("seed {seed}, copy {copy}, at {at} of {}", bytes.len());
            dog.send(what.clone()).unwrap();
            let (Ok(table), _) = open_counted(&bytes, StructureCache::new(1 << 20)) else {
                errors += 1;
                continue;
            };
            // Cold, and then with what is known of the first.
            for _ in 0..2 {
                let mut ids = ids(table.row_count(), &mut r);
                ids.sort_unstable();
                ids.dedup();
                let Ok(got) = table.get(&ids, &Projection::all()) else {
                    errors += 1;
                    continue;
                };
                if got.columns() == pick(&all, &ids).columns() {
                    whole += 1;
                    continue;
                }
                match oracle(bytes.clone(), &ids, table.row_count()) {
                    Some(want) => {
                        assert!(got.columns() == want.columns(), "{what}");
                        same += 1;
                    }
                    None => unchecked += 1,
                }
            }
        }
    }
    println!("{errors} errors, {whole} as written, {same} as a plain read, {unchecked} that it refuses");
    assert!(errors > 50 && whole > 100 && same > 10, "{errors} {whole} {same}");
}
