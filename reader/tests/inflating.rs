//! Pages that inflate to more than they state, or state more than there can be: an error, and no memory for it.
//!
//! A program of its own, since it counts every allocation.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::{OpenOptions, Projection, Table};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use support::raw_pages::{header, list_body, of_pages, thrift_int};
use support::*;

/// More than a lookup of a few rows takes, and far less than what the pages here want.
const MEMORY_MAX: u64 = 24 << 20;

/// What the pages inflate to.
const BOMB_BYTES: usize = 256 << 20;

struct Counting;

static HELD: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: all is handed to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size() as u64, SeqCst) + layout.size() as u64;
        PEAK.fetch_max(held, SeqCst);
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, SeqCst);
        // SAFETY: the caller keeps what `dealloc` asks for, and all memory came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One test at a time: all of them count the same memory.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a lookup, and the memory that it took at most.
fn refused(bytes: &Bytes, row: u64) -> (String, u64) {
    let file = bytes.clone();
    let options = OpenOptions {
        opener: Some(Opener::new(move |_| {
            Ok(Box::new(Versioned::new(&file, [4; 16])) as Box<_>)
        })),
        ..OpenOptions::default()
    };
    let table = Table::open("/f", options).unwrap();
    let before = HELD.load(SeqCst);
    PEAK.store(before, SeqCst);
    let error = table
        .get(&rows([row]), &Projection::all())
        .unwrap_err()
        .to_string();
    (error, PEAK.load(SeqCst) - before)
}

/// So many zeros, packed.
fn zeros(codec: Compression) -> Vec<u8> {
    let chunk = vec![0; 1 << 20];
    let chunks = BOMB_BYTES / chunk.len();
    match codec {
        Compression::GZIP(_) => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            (0..chunks).for_each(|_| out.write_all(&chunk).unwrap());
            out.finish().unwrap()
        }
        Compression::BROTLI(_) => {
            let mut out = brotli::CompressorWriter::new(Vec::new(), 1 << 16, 1, 22);
            (0..chunks).for_each(|_| out.write_all(&chunk).unwrap());
            out.into_inner()
        }
        Compression::LZ4 => {
            let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
            (0..chunks).for_each(|_| out.write_all(&chunk).unwrap());
            out.finish().unwrap()
        }
        Compression::ZSTD(_) => zstd::bulk::compress(&vec![0; BOMB_BYTES], 1).unwrap(),
        Compression::LZ4_RAW => lz4_flex::block::compress(&vec![0; BOMB_BYTES]),
        _ => {
            // A block that states what is true.
            let mut encoder = snap::raw::Encoder::new();
            encoder.compress_vec(&vec![0; BOMB_BYTES]).unwrap()
        }
    }
}

fn codecs() -> [Compression; 6] {
    [
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::LZ4,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ]
}

#[test]
fn what_inflates_to_more_than_it_states_is_refused() {
    let _alone = alone();
    for codec in codecs() {
        let body = zeros(codec);
        for column in ["repeated int64 a", "optional int64 a"] {
            let mut page = header(28, body.len(), 2, &[]);
            page.extend(&body);
            let (error, peak) = refused(&of_pages(column, codec, &[page], 2), 1);
            println!("{codec} {column}: {} bytes at most; {error}", peak);
            assert!(peak < MEMORY_MAX + body.len() as u64, "{codec} {column}: {peak}");
            assert!(error.contains("/f"), "{error}");
        }
    }
}

#[test]
fn a_length_that_is_stated_twice_is_refused() {
    let _alone = alone();
    let body = list_body(0b00, 0b11, &[1, 2]);
    let inflated = body.len() as i32;
    let packed = snap::raw::Encoder::new().compress_vec(&body).unwrap();
    // Type, length, and the length once more, as a number of 64 bits with field id 2; then as `header` has it.
    for second in [0x06, 0x05] {
        let mut page = vec![0x15, 0, 0x15];
        page.extend(thrift_int(inflated));
        page.extend([second, 4]);
        page.extend(thrift_int(i32::MAX));
        page.push(0x15);
        page.extend(thrift_int(packed.len() as i32));
        page.extend([0x2c, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        page.extend(&packed);
        for column in ["repeated int64 a", "optional int64 a"] {
            let (error, peak) = refused(&of_pages(column, Compression::SNAPPY, &[page.clone()], 2), 1);
            assert!(peak < MEMORY_MAX, "{column} {second}: {peak} {error}");
        }
    }
}

#[test]
fn more_values_than_levels_are_an_error() {
    let _alone = alone();
    // A block of 128 in 4 parts, 2^27 values, the first is 0; and a block without bits.
    let many = [0x80, 1, 4, 0x80, 0x80, 0x80, 0x40, 0, 0, 0, 0, 0, 0];
    let two = [0x80, 1, 4, 2, 0, 0, 0, 0, 0, 0];
    // DELTA_LENGTH_BYTE_ARRAY, and DELTA_BYTE_ARRAY with the lie in its first and in its second part.
    for (encoding, parts) in [
        (6, vec![&many[..]]),
        (7, vec![&many, &two]),
        (7, vec![&two, &many]),
    ] {
        for column in ["repeated binary a", "required binary a"] {
            let mut body = if column.starts_with("rep") {
                list_body(0b00, 0b11, &[])
            } else {
                Vec::new()
            };
            body.extend(parts.concat());
            let mut page = header(body.len() as i32, body.len(), 2, &[]);
            // The encoding stands behind the number of levels.
            let place = page.windows(3).position(|w| w == [4, 0x15, 0]).unwrap();
            page[place + 2] = encoding << 1;
            page.extend(&body);
            let (error, peak) = refused(&of_pages(column, Compression::UNCOMPRESSED, &[page], 2), 1);
            assert!(peak < MEMORY_MAX, "{column}: {peak} {error}");
            assert!(error.contains("DELTA"), "{error}");
        }
    }
}

#[test]
fn lengths_of_levels_that_overflow_are_an_error() {
    let _alone = alone();
    let body = list_body(0b00, 0b11, &[1, 2]);
    // A header of version 2 beside that of version 1, whose lengths of levels are more than 32 bits together.
    let mut more = vec![0x3c, 0x15, 4, 0x15, 0, 0x15, 4, 0x15, 0];
    for _ in 0..2 {
        more.push(0x15);
        more.extend(thrift_int(i32::MAX));
    }
    more.push(0);
    let mut page = header(body.len() as i32, body.len(), 2, &more);
    page.extend(&body);
    // The library panics, which is caught; what the message costs with a backtrace is no matter of ours.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let pages = ["repeated int64 a", "optional int64 a"].map(|column| {
        let bytes = of_pages(column, Compression::UNCOMPRESSED, &[page.clone()], 2);
        (column, refused(&bytes, 1))
    });
    std::panic::set_hook(hook);
    for (column, (error, peak)) in pages {
        assert!(peak < MEMORY_MAX, "{column}: {peak} {error}");
    }
}
