//! P6: memory stays under its budget, whatever is read. The daemon's own process is measured, allocator included.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;

use lookupfs_tests::{Daemon, Tree, cpu_seconds, pattern, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const FILES: usize = 64;
const FILE_BYTES: usize = 12 << 20;
const READS: usize = 300_000;
const READERS: usize = 8;
const MEMORY_BYTES: u64 = 256 << 20;
/// What a process may need beside the budget: code, threads, statuses, the allocator's waste.
const BESIDE_BYTES: u64 = 128 << 20;

/// A buffer that O_DIRECT accepts, so that the kernel keeps nothing and the daemon answers every read.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

#[test]
fn three_hundred_thousand_random_reads_stay_under_the_budget_p6() {
    let seed = seed();
    let tree = Tree::new();
    let bytes = pattern(FILE_BYTES);
    for i in 0..FILES {
        tree.write(&format!("f{i}"), &bytes);
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "memory=256m,ttl=600");
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (mount, bytes) = (&mount, &bytes);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed + reader as u64);
                let open = |i| {
                    File::options()
                        .read(true)
                        .custom_flags(libc::O_DIRECT)
                        .open(mount.join(format!("f{i}")))
                };
                let files: Vec<File> = (0..FILES).map(|i| open(i).unwrap()).collect();
                let mut buffer = Aligned([0; 4096]);
                for _ in 0..READS / READERS {
                    let offset = random.random_range(0..FILE_BYTES / 4096) * 4096;
                    let file = &files[random.random_range(0..FILES)];
                    file.read_exact_at(&mut buffer.0, offset as u64).unwrap();
                    assert!(
                        buffer.0[..] == bytes[offset..offset + 4096],
                        "other bytes at {offset}"
                    );
                }
            });
        }
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    println!(
        "peak {} MiB resident, {:.2} s of processor time; {}",
        peak >> 20,
        cpu_seconds(daemon.pid()),
        daemon.stats()["cache"]
    );
    assert!(
        daemon.count("/kernel/reads") >= READS as u64,
        "every read reached the daemon"
    );
    assert!(
        daemon.count("/cache/data/evictions") > 0,
        "more was read than fits"
    );
    assert_eq!(daemon.count("/cache/inflight_bytes"), 0);
    assert!(peak <= MEMORY_BYTES + BESIDE_BYTES, "{} MiB", peak >> 20);
}
