//! What the structure cache says it holds is what the process allocated for it.
//!
//! A program of its own, since it counts every allocation. The count is exact; resident memory, which the allocator rounds up
//! and does not always give back, is held to a bound.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use lookupfs_reader::mounts::Opener;
use lookupfs_reader::sample::{self, SampleOptions, Shape};
use lookupfs_reader::{OpenOptions, Projection, RowId, StructureCache, Table};
use support::Versioned;

struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is handed to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, SeqCst);
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, SeqCst);
        // SAFETY: the caller keeps what `dealloc` asks for, and all memory came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn resident_bytes() -> u64 {
    // SAFETY: gives memory back that is not in use.
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kib << 10
}

fn sample_bytes(shape: Shape, rows: u64, page_rows: Option<usize>) -> Bytes {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let options = SampleOptions {
        shape,
        rows,
        page_rows,
        ..SampleOptions::default()
    };
    sample::write(&path, options).unwrap();
    std::fs::read(&path).unwrap().into()
}

/// Everything of a file is looked up once; gives what the cache says, what was allocated, and what became resident.
fn held_of(bytes: &Bytes, rows: u64, step: usize) -> (u64, u64, u64) {
    let structures = StructureCache::holding_bodies(1 << 30, 1 << 30);
    let (allocated, resident) = (ALLOCATED.load(SeqCst), resident_bytes());
    let (file, held) = (bytes.clone(), structures.clone());
    // A thread of its own, whose readers go with it.
    std::thread::spawn(move || {
        let options = OpenOptions {
            opener: Some(Opener::new(move |_| {
                Ok(Box::new(Versioned::new(&file, [1; 16])) as Box<_>)
            })),
            structures: held,
            ..OpenOptions::default()
        };
        let table = Table::open("/f", options).unwrap();
        for row in (0..rows).step_by(step) {
            table.get(&[RowId(row)], &Projection::all()).unwrap();
        }
    })
    .join()
    .unwrap();
    let allocated = ALLOCATED.load(SeqCst) - allocated;
    (
        structures.bytes(),
        allocated,
        resident_bytes().saturating_sub(resident),
    )
}

#[test]
fn what_is_held_weighs_what_was_allocated_for_it() {
    let shapes = [
        (Shape::Wide, 100_000, None),
        (Shape::Varying, 20_000, None),
        (Shape::Narrow, 20_000, None),
        (Shape::Key, 20_000, None),
        // Small data pages: what an entry takes beside them is a good part.
        (Shape::Key, 40_000, Some(40)),
    ];
    for (shape, rows, page_rows) in shapes {
        let bytes = sample_bytes(shape, rows, page_rows);
        let (held, allocated, resident) = held_of(&bytes, rows, page_rows.unwrap_or(100));
        println!("{shape:?}: {held} held, {allocated} allocated, {resident} resident");
        assert!(held > 8 << 20, "{shape:?}: {held} bytes prove nothing");
        let difference = held.abs_diff(allocated);
        assert!(
            difference <= held / 20,
            "{shape:?}: {held} bytes held, {allocated} allocated"
        );
        assert!(
            resident <= held + held / 4 + (8 << 20),
            "{shape:?}: {held} bytes held, {resident} resident"
        );
    }
}
