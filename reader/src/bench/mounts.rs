//! The workload `mounts`: raw reads through mounts, against the same files on a local disk and against the HDFS client
//! alone.
//!
//! Owns what is given ([`MountsOptions`]), the names of the files, and the order of the parts. Each part is a file of
//! its own below. Refuses nothing that is missing: a part without its means is skipped, and the report says why. Called
//! by the command line.

mod cold;
mod listing;
mod lookups;
mod memory;
mod sequential;
mod warm;

use std::path::{Path, PathBuf};

use super::error::{BenchError, Result};
use super::findings::Findings;
use super::native::Native;
use super::program;
use super::random::Random;
use super::report::{About, MOUNTS_CONDITIONS, Report};

/// Random reads of a file that stays in memory.
const WARM_FILE: &str = "warm.bin";
/// Reads of which each is the first of its bytes.
const COLD_FILE: &str = "cold.bin";
/// Read from begin to end.
const SEQUENTIAL_FILE: &str = "sequential.bin";
/// A directory of many empty files.
const LISTING_DIRECTORY: &str = "many";
/// A directory of three or more Parquet files, as `lookup sample` writes them.
const LOOKUP_DIRECTORY: &str = "rows";

/// Read sizes.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Concurrencies.
const THREADS: [usize; 3] = [1, 4, 16];

/// What a run is given.
#[derive(Debug, Clone, Default)]
pub struct MountsOptions {
    /// Mount points of one source; the first is "1 mount", all of them are the other case.
    pub mounts: Vec<PathBuf>,
    /// The same files on a local disk.
    pub local: PathBuf,
    /// A command that answers reads by the HDFS client alone.
    pub native: Option<String>,
    /// Mount points that serve complete files by passthrough.
    pub passthrough: Vec<PathBuf>,
    /// A mount point in the lookup profile.
    pub exact: Option<PathBuf>,
    /// A mount point of a daemon with a small budget of its own.
    pub memory: Option<PathBuf>,
    /// A mount point, and the command that makes it anew, so that nothing is known of its files.
    pub fresh: Option<(PathBuf, String)>,
    /// Mount points of other filesystems, by name; the command of `fresh` makes them anew too.
    pub peers: Vec<(String, PathBuf)>,
    /// The program to ask for a daemon's counters.
    pub lookupfs: Option<PathBuf>,
    /// The program to ask for the NameNode's audit log.
    pub audit: Option<PathBuf>,
    /// Pairs of each comparison.
    pub pairs: usize,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// What offsets and bootstrap follow from.
    pub seed: u64,
}

/// Measures everything that the options give the means for.
pub fn run(options: &MountsOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    if options.mounts.is_empty() || options.pairs == 0 {
        return Err(BenchError::Invalid(
            "give one --mount DIR or more, and one pair or more".into(),
        ));
    }
    let mut session = Session {
        options,
        native: options.native.as_deref().map(Native::start).transpose()?,
        findings: Findings::default(),
        random: Random::new(options.seed),
    };
    let load_before = super::report::load();
    type Part<'a> = fn(&mut Session<'a>) -> Result<()>;
    let parts: [(&str, Part<'_>); 6] = [
        ("warm reads", Session::warm),
        ("cold reads", Session::cold),
        ("cold sequential reads", Session::sequential),
        ("cold ls -l", Session::listing),
        ("requests of lookups", Session::lookups),
        ("memory", Session::memory),
    ];
    for (name, part) in parts {
        progress(name);
        part(&mut session)?;
    }
    let daemon = match &options.lookupfs {
        Some(lookupfs) => program::stats(lookupfs, &options.mounts[0]).ok(),
        None => None,
    };
    let about = About {
        workload: "mounts",
        quick: options.quick,
        pairs: options.pairs,
        seed: options.seed,
        daemon: daemon.map(|stats| stats.options().clone()),
        conditions: &MOUNTS_CONDITIONS,
    };
    Ok(Report::new(about, session.findings, load_before))
}

/// A run under way.
struct Session<'a> {
    options: &'a MountsOptions,
    native: Option<Native>,
    findings: Findings,
    random: Random,
}

impl Session<'_> {
    /// Length of a file below the local directory; `None` where there is none.
    fn local_len(&self, name: &str) -> Option<u64> {
        let metadata = std::fs::metadata(self.options.local.join(name)).ok()?;
        (metadata.len() > 0).then_some(metadata.len())
    }

    fn no_file(&self, name: &str) -> String {
        format!("no {name} in {}", self.options.local.display())
    }

    /// Counters of the daemon behind a mount point.
    fn stats(&self, mount_point: &Path) -> Result<Option<program::Stats>> {
        match &self.options.lookupfs {
            Some(lookupfs) => program::stats(lookupfs, mount_point).map(Some),
            None => Ok(None),
        }
    }
}

/// Makes the mounts of `--fresh-mount` and the peers anew.
fn refresh(command: &str) -> Result<()> {
    let mut words = program::command(command)?;
    program::output(program::piped(&mut words)).map(drop)
}

fn size_text(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

fn mounts_text(count: usize) -> String {
    match count {
        1 => "1 mount".to_owned(),
        count => format!("{count} mounts"),
    }
}

fn threads_text(count: usize) -> String {
    match count {
        1 => "1 thread".to_owned(),
        count => format!("{count} threads"),
    }
}
