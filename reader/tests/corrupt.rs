//! Damaged and hostile files: an error or the right rows, never a panic, never a wrong row.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::read_at::MemoryFile;
use lookupfs_reader::{OpenOptions, Projection, RowId, Table};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterVersion};
use support::*;

/// Damaged copies of each fixture; `LOOKUPFS_DAMAGED_COPIES` asks for more.
fn damaged_copies() -> u64 {
    let asked = std::env::var("LOOKUPFS_DAMAGED_COPIES");
    asked.map_or(220, |copies| copies.parse().unwrap())
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

/// Ends the process if a damaged file keeps a reader busy: a loop that never ends must fail the test
/// and not hang it. Dropped, it watches no more.
struct Watchdog(mpsc::SyncSender<String>);

impl Watchdog {
    fn start() -> Watchdog {
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
        Watchdog(send)
    }
}

fn open_bytes(bytes: Bytes) -> lookupfs_reader::Result<Table> {
    let opener = Opener::new(move |_| Ok(Box::new(MemoryFile(bytes.clone())) as Box<_>));
    let options = OpenOptions {
        opener: Some(opener),
        parallel_reads: 1,
        ..OpenOptions::default()
    };
    Table::open(Path::new("/damaged"), options)
}

/// The library's own read of the same rows, which has no use for the page index.
fn oracle(bytes: Bytes, ids: &[RowId], count: u64) -> Option<RecordBatch> {
    let mut selectors = Vec::new();
    let mut at = 0;
    for id in ids {
        selectors.push(RowSelector::skip((id.0 - at) as usize));
        selectors.push(RowSelector::select(1));
        at = id.0 + 1;
    }
    selectors.push(RowSelector::skip((count - at) as usize));
    ORACLE.set(true);
    let read = || plain_read(bytes, None, Some(RowSelection::from(selectors)));
    let read = catch_unwind(AssertUnwindSafe(read));
    ORACLE.set(false);
    read.ok()?.ok().filter(|batch| batch.num_rows() == ids.len())
}

fn damage(bytes: &[u8], r: &mut Seeded) -> (String, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    let len = bytes.len() as u64;
    // Half of the damage is in footer and page index, where a bit means most.
    let tail = len.min(6_000);
    let at = if r.below(2) == 0 {
        r.below(len)
    } else {
        len - 1 - r.below(tail)
    } as usize;
    let what = match r.below(4) {
        0 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        1 => {
            for (place, byte) in bytes[at..].iter_mut().take(8).enumerate() {
                *byte = (r.next() >> (place * 8)) as u8;
            }
            format!("8 bytes at {at}")
        }
        _ => {
            let bit = r.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of {at}")
        }
    };
    (what, bytes)
}

#[test]
fn damaged_fixtures_give_an_error_or_what_a_plain_read_gives() {
    silence();
    let dog = Watchdog::start();
    let (mut errors, mut whole, mut same, mut unchecked) = (0, 0, 0, 0);
    for fixture in fixtures() {
        let name = fixture.file_name().unwrap().to_str().unwrap().to_owned();
        let undamaged = std::fs::read(fixture.join("data.parquet")).unwrap();
        let all = plain_read(undamaged.clone().into(), None, None).unwrap();
        // 400 columns take long.
        let copies = damaged_copies() / if name.contains("wide400") { 4 } else { 1 };
        for seed in 0..copies {
            let mut r = Seeded::new(seed);
            let (what, bytes) = damage(&undamaged, &mut r);
            let bytes = Bytes::from(bytes);
            let what = format!("{name}, seed {seed}: {what}");
            dog.0.send(what.clone()).unwrap();
            let Ok(table) = open_bytes(bytes.clone()) else {
                errors += 1;
                continue;
            };
            let count = table.row_count();
            if count == 0 || count > 1 << 32 {
                continue;
            }
            let mut ids: Vec<_> = (0..10).map(|_| RowId(r.below(count))).collect();
            ids.sort_unstable();
            ids.dedup();
            let Ok(got) = table.get(&ids, &Projection::all()) else {
                errors += 1;
                continue;
            };
            // The rows as they were written are right whatever a plain read makes of the damage: it
            // counts rows by the headers of all data pages before, which may be what was damaged.
            if ids.iter().all(|id| id.0 < all.num_rows() as u64)
                && got.columns() == pick(&all, &ids).columns()
            {
                whole += 1;
                continue;
            }
            match oracle(bytes, &ids, count) {
                Some(want) => {
                    assert_eq!(got.columns(), want.columns(), "{what}");
                    same += 1;
                }
                None => unchecked += 1,
            }
        }
    }
    println!("{errors} errors, {whole} as written, {same} as a plain read, {unchecked} that it refuses");
    assert!(
        errors > 500 && whole > 500 && same > 10,
        "{errors} {whole} {same}"
    );
}

fn small_file(version: WriterVersion, nested: bool) -> Vec<u8> {
    let fields = 0..60i64;
    let id = Arc::new(arrow_array::Int64Array::from_iter_values(fields.clone())) as _;
    let list = arrow_array::ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>(
        fields.map(|i| Some((0..i % 4).map(move |n| Some(i * 10 + n)))),
    );
    let batch = match nested {
        true => RecordBatch::try_from_iter([("list", Arc::new(list) as _)]).unwrap(),
        false => RecordBatch::try_from_iter([("id", id)]).unwrap(),
    };
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(5)
        .set_writer_version(version)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn no_flipped_bit_of_an_offset_index_gives_a_wrong_row() {
    silence();
    let (mut right, mut errors, mut given_up) = (0, 0, 0);
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for nested in [false, true] {
            let whole = small_file(version, nested);
            let all = plain_read(whole.clone().into(), None, None).unwrap();
            let metadata = ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Skip)
                .parse_and_finish(&Bytes::from(whole.clone()))
                .unwrap();
            let index = metadata.row_group(0).column(0).offset_index_range().unwrap();
            for bit in index.start * 8..index.end * 8 {
                let mut bytes = whole.clone();
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
                let table = open_bytes(bytes.into()).unwrap();
                for id in (0..60).step_by(7) {
                    let id = [RowId(id)];
                    match table.get(&id, &Projection::all()) {
                        Ok(got) => {
                            assert_same(&format!("bit {bit}"), &got, &pick(&all, &id));
                            right += 1;
                        }
                        Err(_) => errors += 1,
                    }
                }
                given_up += table.counters().indexes_given_up;
            }
        }
    }
    println!("{right} rows right, {errors} errors, {given_up} indexes given up");
    // The data is whole, so that every index that is wrong can be done without.
    assert!(
        right > 5_000 && errors == 0 && given_up > 50,
        "{right} {errors} {given_up}"
    );
}

#[test]
fn threads_that_find_an_index_wrong_at_once_all_get_right_rows() {
    silence();
    let whole = small_file(WriterVersion::PARQUET_1_0, false);
    let all = plain_read(whole.clone().into(), None, None).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Skip)
        .parse_and_finish(&Bytes::from(whole.clone()))
        .unwrap();
    let index = metadata.row_group(0).column(0).offset_index_range().unwrap();
    let lies = (index.start * 8..index.end * 8).map(|bit| {
        let mut bytes = whole.clone();
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        Bytes::from(bytes)
    });
    let mut given_up = 0;
    for bytes in lies {
        let table = open_bytes(bytes).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (table, all) = (table.clone(), &all);
                scope.spawn(move || {
                    let ids: Vec<_> = (0..60).skip(thread as usize).step_by(7).map(RowId).collect();
                    let got = table.get(&ids, &Projection::all()).unwrap();
                    assert_same("thread", &got, &pick(all, &ids));
                });
            }
        });
        given_up += table.counters().indexes_given_up;
    }
    assert!(given_up > 0);
}

fn with_footer(footer: &[u8]) -> Bytes {
    let len = (footer.len() as u32).to_le_bytes();
    [b"PAR1", footer, &len, b"PAR1"].concat().into()
}

fn error_of(bytes: impl Into<Bytes>) -> String {
    open_bytes(bytes.into()).unwrap_err().to_string()
}

#[test]
fn hostile_footers_are_refused() {
    silence();
    // A schema of 100,000 groups, each in the one before.
    let mut deep = vec![0x15, 0x02, 0x19, 0xfc, 0xa0, 0x8d, 0x06];
    for _ in 0..100_000 {
        deep.extend([0x48, 1, b'x', 0x15, 2, 0]);
    }
    deep.push(0);
    assert!(error_of(with_footer(&deep)).contains("nested deeper"));
    // A group that states 2^30 children.
    let wide = [
        0x15, 2, 0x19, 0x1c, 0x48, 1, b'x', 0x15, 0x80, 0x80, 0x80, 0x80, 8, 0, 0,
    ];
    assert!(error_of(with_footer(&wide)).contains("children"));
    for footer in [
        &[][..],
        &[0],
        &[0xff; 40],
        &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 7],
    ] {
        error_of(with_footer(footer));
    }
    let long = [b"PAR1", &u32::MAX.to_le_bytes()[..], b"PAR1"].concat();
    assert!(error_of(long).contains("should have 4294967295 bytes"));
}

#[test]
fn what_is_no_parquet_file_is_named() {
    let whole = small_file(WriterVersion::PARQUET_1_0, false);
    assert!(error_of(whole[..whole.len() / 2].to_vec()).contains("was cut"));
    assert!(error_of(vec![]).contains("0 bytes are too few"));
    assert!(error_of(vec![7; 1000]).contains("not a Parquet file"));
    assert!(
        error_of([b"ORC", &[0; 100][..]].concat()).contains("ORC is not supported yet; supported: Parquet")
    );
    assert!(error_of([&[0; 100][..], b"LANC"].concat()).contains("Lance is not supported"));
    assert!(error_of([&[0; 100][..], b"PARE"].concat()).contains("encrypted"));
}

#[test]
fn a_data_page_whose_checksum_is_wrong_is_an_error() {
    let fixture = fixtures_dir().join("parquet-v2-zstd-nulls/data.parquet");
    let mut bytes = std::fs::read(fixture).unwrap();
    let whole = open_bytes(bytes.clone().into()).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&Bytes::from(bytes.clone()))
        .unwrap();
    let index = metadata.page_index().unwrap();
    let page = index.page_locations(0, 1).unwrap()[0].clone();
    let at = page.offset as usize + page.compressed_page_size as usize - 3;
    bytes[at] ^= 4;
    let table = open_bytes(bytes.into()).unwrap();
    let name = whole.schema().field(1).name().clone();
    let columns = Projection::columns([name]);
    let error = table.get(&rows([0]), &columns).unwrap_err().to_string();
    assert!(
        error.contains("CRC") && error.starts_with("/damaged: "),
        "{error}"
    );
    // Other data pages of the column are as good as before.
    let last = rows([whole.row_count() - 1]);
    assert_same(
        "last",
        &table.get(&last, &columns).unwrap(),
        &whole.get(&last, &columns).unwrap(),
    );
}
