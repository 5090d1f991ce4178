//! A scan of far more than fits pushes out neither footers nor hot pages. Counts, through a real mount; O_DIRECT, so that
//! the kernel keeps nothing and the daemon answers every read.
//!
//! `LOOKUPFS_TEST_SCALE=4` runs it with 1,000 footers, 256 MiB of memory and a scan of 2 GiB; the default is a quarter of all.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lookupfs_tests::{Daemon, Tree, pattern};

const MIB: u64 = 1 << 20;
/// Times that hot pages are read before the scan.
const HOT_READS: usize = 4;

/// Reads files as a program does that keeps the kernel out of it.
struct Reader {
    mount: PathBuf,
    buffer: Vec<u8>,
}

impl Reader {
    fn new(mount: &Path) -> Reader {
        Reader {
            mount: mount.to_owned(),
            buffer: vec![0; (MIB + 4096) as usize],
        }
    }

    fn open(&self, name: &str) -> File {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECT);
        options.open(self.mount.join(name)).unwrap()
    }

    /// Bytes from `offset`, a multiple of 4096, up to `offset + len`.
    fn read(&mut self, file: &File, offset: u64, len: u64) -> &[u8] {
        let from = self.buffer.as_ptr().align_offset(4096);
        let room = len.next_multiple_of(4096) as usize;
        let buffer = &mut self.buffer[from..from + room];
        let n = file.read_at(buffer, offset).unwrap();
        assert!(n as u64 >= len, "{n} of {len} bytes at {offset}");
        &buffer[..n]
    }

    /// The whole footer of a Parquet file, found as readers find it: through the eight bytes at the end.
    fn footer(&mut self, name: &str) -> Vec<u8> {
        let file = self.open(name);
        let len = file.metadata().unwrap().len();
        let last = (len - 8) / 4096 * 4096;
        let end = self.read(&file, last, len - last);
        let mark = &end[end.len() - 8..];
        assert_eq!(&mark[4..], b"PAR1");
        let footer_len = u64::from(u32::from_le_bytes(mark[..4].try_into().unwrap())) + 8;
        let from = (len - footer_len) / 4096 * 4096;
        let bytes = self.read(&file, from, len - from);
        bytes[bytes.len() - footer_len as usize..].to_vec()
    }
}

/// (hits of metadata, misses of all kinds, reads at the source) so far.
fn counts(daemon: &Daemon) -> (u64, u64, u64) {
    let stats = daemon.stats();
    let count = |pointer: &str| stats.pointer(pointer).unwrap().as_u64().unwrap();
    (
        count("/cache/metadata/hits"),
        count("/cache/metadata/misses") + count("/cache/data/misses"),
        count("/sources/0/requests/read"),
    )
}

/// Parquet files, a hot file, and a large one that takes no room.
fn tree_of(footers: u64, hot: &[u8], scan: u64) -> Tree {
    let tree = Tree::new();
    // Real files, written by another program; links, since each path is a version of its own.
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet-codecs/data.parquet");
    let first = tree.path().join("0.parquet");
    std::fs::copy(&fixture, &first).unwrap();
    for i in 1..footers {
        std::fs::hard_link(&first, tree.path().join(format!("{i}.parquet"))).unwrap();
    }
    tree.write("hot", hot);
    let large = File::create(tree.path().join("large")).unwrap();
    large.set_len(scan).unwrap();
    tree
}

#[test]
fn a_scan_of_eight_times_the_memory_pushes_out_neither_footers_nor_hot_pages() {
    let scale: u64 = std::env::var("LOOKUPFS_TEST_SCALE").map_or(1, |scale| scale.parse().unwrap());
    let (footers, memory, scan, hot) = (250 * scale, 64 * MIB * scale, 512 * MIB * scale, 4 * MIB * scale);
    let hot_bytes = pattern(hot as usize);
    let tree = tree_of(footers, &hot_bytes, scan);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &format!("memory={memory},ttl=600"));
    let mut reader = Reader::new(&mount);

    let footer = reader.footer("0.parquet");
    for i in 1..footers {
        assert!(reader.footer(&format!("{i}.parquet")) == footer, "{i}");
    }
    let file = reader.open("hot");
    // Backwards, so that nothing is read ahead and each page is asked for each time.
    let read_hot = |reader: &mut Reader| {
        for page in (0..hot / 16384).rev() {
            let bytes = reader.read(&file, page * 16384, 16384);
            assert!(
                *bytes == hot_bytes[(page * 16384) as usize..][..16384],
                "page {page}"
            );
        }
    };
    for _ in 0..HOT_READS {
        read_hot(&mut reader);
    }

    let large = reader.open("large");
    for at in (0..scan).step_by(MIB as usize) {
        assert!(
            reader.read(&large, at, MIB).iter().all(|byte| *byte == 0),
            "at {at}"
        );
    }
    let scanned = daemon.count("/cache/data/evictions");
    assert!(
        scanned > scan / 16384 / 2,
        "the scan went through memory: {scanned} evictions"
    );

    let before = counts(&daemon);
    for i in 0..footers {
        assert!(reader.footer(&format!("{i}.parquet")) == footer, "{i}");
    }
    let after = counts(&daemon);
    assert!(
        after.0 >= before.0 + footers,
        "metadata hits: {before:?} {after:?}"
    );
    assert_eq!(
        (after.1, after.2),
        (before.1, before.2),
        "footer misses and reads at the source"
    );
    assert_eq!(daemon.count("/cache/metadata/evictions"), 0);

    read_hot(&mut reader);
    let missed = counts(&daemon).1 - after.1;
    let pages = hot / 16384;
    println!(
        "{} of {pages} hot pages survived a scan of {} MiB",
        pages - missed,
        scan / MIB
    );
    assert!(missed * 10 <= pages, "{missed} of {pages} hot pages were lost");
    assert_eq!(daemon.count("/cache/inflight_bytes"), 0);
}
