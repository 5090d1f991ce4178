//! Measures what a page size costs at a real HDFS: cold random reads of 4 KiB and a cold sequential read, with the bytes
//! that the source was asked for. fs/CONFIG.md shows the figures of one run and the command.
//!
//! Needs the environment of the HDFS tests; `LOOKUPFS_BIN` should be a release build. Each figure has a daemon of its own, so
//! that nothing is in memory; page sizes alternate, and medians are shown. An argument is other mount options to compare, such as
//! `page_size=16k,max_inflight=16m`; without any, five page sizes are.

#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::source_side::{HdfsSide, SourceSide};
use lookupfs_tests::{Daemon, cpu_seconds, pattern, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const FILE_BYTES: usize = 128 << 20;
const RANDOM_READS: usize = 300;
const REPETITIONS: usize = 3;

/// One measured workload.
#[derive(Clone, Copy)]
struct Figure {
    seconds: f64,
    /// Processor time of the daemon.
    cpu_seconds: f64,
    /// Requests for bytes, and the bytes.
    requests: u64,
    source_bytes: u64,
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn measure(hdfs: &MiniHdfs, directory: &str, options: &str, workload: impl FnOnce(&Path)) -> Figure {
    let mut daemon = Daemon::new().with_env("HADOOP_CONF_DIR", hdfs.conf.to_str().unwrap());
    let mount = daemon.mount(
        &format!("{}{directory}", hdfs.url()),
        &format!("memory=1g,ttl=600,{options}"),
    );
    let file = mount.join("f");
    std::fs::metadata(&file).unwrap();
    let cpu_before = cpu_seconds(daemon.pid());
    let begun = Instant::now();
    workload(&file);
    Figure {
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds(daemon.pid()) - cpu_before,
        requests: daemon.count("/cache/extents"),
        source_bytes: daemon.count("/sources/0/requests/read_bytes"),
    }
}

fn random(file: &Path, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(file)
        .unwrap();
    let mut buffer = Aligned([0; 4096]);
    for _ in 0..RANDOM_READS {
        let offset = random.random_range(0..FILE_BYTES / 4096) * 4096;
        file.read_exact_at(&mut buffer.0, offset as u64).unwrap();
    }
}

fn sequential(file: &Path) {
    let copied = std::io::copy(&mut File::open(file).unwrap(), &mut std::io::sink()).unwrap();
    assert_eq!(copied, FILE_BYTES as u64);
}

fn median(mut figures: Vec<Figure>) -> Figure {
    figures.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    figures[figures.len() / 2]
}

fn main() {
    let mut choices: Vec<String> = std::env::args().skip(1).collect();
    if choices.is_empty() {
        choices = ["4k", "16k", "64k", "256k", "1m"]
            .map(|size| format!("page_size={size}"))
            .into();
    }
    let seed = seed();
    let hdfs = MiniHdfs::from_env();
    let directory = hdfs.new_path("page-sizes");
    HdfsSide::new(&hdfs, &directory).create("f", &pattern(FILE_BYTES));
    let mut figures = vec![(Vec::new(), Vec::new()); choices.len()];
    for repetition in 0..REPETITIONS {
        for (choice, figures) in choices.iter().zip(&mut figures) {
            let seed = seed + repetition as u64;
            figures
                .0
                .push(measure(&hdfs, &directory, choice, |file| random(file, seed)));
            figures.1.push(measure(&hdfs, &directory, choice, sequential));
        }
    }
    println!(
        "| options | random: ms a read | bytes of the source ÷ bytes read | sequential: MiB/s | daemon CPU ms a MiB | requests |"
    );
    println!("|---|---|---|---|---|---|");
    for (choice, (random, sequential)) in choices.iter().zip(figures) {
        let (random, sequential) = (median(random), median(sequential));
        let mib = (FILE_BYTES >> 20) as f64;
        println!(
            "| `{choice}` | {:.2} | {:.1} | {:.0} | {:.2} | {} |",
            random.seconds * 1e3 / RANDOM_READS as f64,
            random.source_bytes as f64 / (RANDOM_READS * 4096) as f64,
            mib / sequential.seconds,
            sequential.cpu_seconds * 1e3 / mib,
            sequential.requests,
        );
    }
}
