//! Harness of the end-to-end tests: programs, daemons and mounts of their own, what the source side does.
//!
//! Tests that mount use a run directory of their own, so that they never meet a daemon of the host or of another test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod hdfs;
pub mod lookups;
pub mod own_hdfs;
pub mod reference;
pub mod source_side;
pub mod warms;

/// The built program `name`: from `$LOOKUPFS_BIN` or `$LOOKUP_BIN`, else beside the test itself.
pub fn program(name: &str) -> PathBuf {
    if let Some(set) = std::env::var_os(format!("{}_BIN", name.to_uppercase())) {
        return PathBuf::from(set);
    }
    let test = std::env::current_exe().expect("the test's own file");
    let built = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST")
        .join(name);
    assert!(
        built.exists(),
        "{} is not built: run `cargo build --workspace` first",
        built.display()
    );
    built
}

/// A random seed, printed so that a failure can be run again with `LOOKUPFS_TEST_SEED`.
pub fn seed() -> u64 {
    let seed = match std::env::var("LOOKUPFS_TEST_SEED") {
        Ok(text) => text.parse().expect("LOOKUPFS_TEST_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH
            .elapsed()
            .expect("a clock after 1970")
            .subsec_nanos()
            .into(),
    };
    println!("LOOKUPFS_TEST_SEED={seed}");
    seed
}

/// A daemon with its mounts, all taken down when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    directory: TempDir,
    mounts: Vec<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon::new()
    }
}

impl Daemon {
    /// A run directory without a daemon yet; the first mount starts it.
    pub fn new() -> Daemon {
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse is missing: these tests mount"
        );
        let directory = tempfile::Builder::new()
            .prefix("lookupfs-test.")
            .tempdir()
            .expect("a directory");
        Daemon {
            directory,
            mounts: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// With a variable in the environment of all its commands.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Daemon {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs `lookupfs ARGS` against this run directory.
    pub fn lookupfs<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Output {
        let mut command = Command::new(program("lookupfs"));
        command.env("LOOKUPFS_RUN_DIR", self.run_directory()).args(args);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command.output().expect("lookupfs runs")
    }

    /// Where its socket, lock and log are.
    pub fn run_directory(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// A new empty directory to mount on.
    pub fn new_mount_point(&self) -> PathBuf {
        let path = self.directory.path().join(format!("mnt{}", self.mounts.len()));
        std::fs::create_dir_all(&path).expect("a mount point");
        path
    }

    /// Mounts `source` with `options`.
    pub fn mount(&mut self, source: &str, options: &str) -> PathBuf {
        self.mount_many(source, options, 1).remove(0)
    }

    /// Mounts `source` on `count` mount points with one command.
    pub fn mount_many(&mut self, source: &str, options: &str, count: usize) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for _ in 0..count {
            let path = self.new_mount_point();
            self.mounts.push(path.clone());
            paths.push(path);
        }
        let mut args = vec!["mount".into(), source.into(), "-o".into(), options.into()];
        args.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        let output = self.lookupfs(&args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "lookupfs mount: {errors}\n{}",
            self.log()
        );
        paths
    }

    /// The counters of the daemon.
    pub fn stats(&self) -> serde_json::Value {
        let output = self.lookupfs(&["stats", "--all", "--json"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("stats are JSON")
    }

    /// One number of the counters, by its path such as `/kernel/reads`.
    pub fn count(&self, pointer: &str) -> u64 {
        let stats = self.stats();
        let value = stats.pointer(pointer).and_then(serde_json::Value::as_u64);
        value.unwrap_or_else(|| panic!("no number {pointer} in {stats}"))
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.run_directory().join("default.log")).unwrap_or_default()
    }

    /// The process id of the daemon.
    pub fn pid(&self) -> u32 {
        u32::try_from(self.count("/pid")).expect("a process id")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.lookupfs(&["stats", "--all", "--json"]);
        let pid = serde_json::from_slice::<serde_json::Value>(&pid.stdout)
            .ok()
            .and_then(|stats| stats.get("pid").and_then(serde_json::Value::as_u64));
        for path in &self.mounts {
            self.lookupfs(&["umount".as_ref(), "--lazy".as_ref(), path.as_os_str()]);
        }
        if let Some(pid) = pid {
            let ended = wait_until(Duration::from_secs(10), || has_ended(pid as u32));
            if !ended {
                eprintln!("daemon {pid} does not end; its log:\n{}", self.log());
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
        }
        if std::thread::panicking() {
            eprintln!("log of the daemon:\n{}", self.log());
        }
    }
}

/// A local directory to mount, and its URL.
#[derive(Debug)]
pub struct Tree {
    directory: TempDir,
}

impl Default for Tree {
    fn default() -> Self {
        Tree::new()
    }
}

impl Tree {
    /// An empty directory.
    pub fn new() -> Tree {
        Tree {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What to mount.
    pub fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Writes a file in place.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        path
    }
}

/// Bytes that are different everywhere, and the same each time.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Whether a process has ended; one that nobody has waited for yet has.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // proc(5): the state follows the name, which is in parentheses.
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with('Z'))
}

/// Processor time that a process has used, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // proc(5): `utime` and `stime` are the 12th and 13th after the name, in hundredths of a second.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Looks again and again until `is_true`, for at most `patience`; whether it became true.
pub fn wait_until(patience: Duration, is_true: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_true() {
        if start.elapsed() > patience {
            return false;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a bounded look at another process, which sends no event"
        )]
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The whole of a file through mmap. Panics where it cannot be mapped.
pub fn read_mapped(file: &File) -> Vec<u8> {
    let len = file.metadata().expect("stat").len();
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: the mapping is private and read-only, and the mounted file's bytes never change under an inode.
    let map = unsafe { memmap2::Mmap::map(file) }.expect("mmap");
    map.to_vec()
}
