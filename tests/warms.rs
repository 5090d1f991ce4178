//! What `lookupfs warm` must do on any source; the tests of a local directory and of a real HDFS share it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use crate::{Daemon, program};

/// A Parquet file of 4,000 rows: ids, and payloads of 1 KiB.
///
/// # Panics
/// Where it cannot be made.
pub fn sample() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("sample.parquet");
    let args = [
        OsStr::new("sample"),
        file.as_os_str(),
        "--rows".as_ref(),
        "4000".as_ref(),
    ];
    run("lookup", &args);
    std::fs::read(file).expect("the sample")
}

/// Runs a program that must succeed.
///
/// # Panics
/// Where it does not.
pub fn run<S: AsRef<OsStr>>(name: &str, args: &[S]) -> Output {
    let output = Command::new(program(name)).args(args).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    output
}

/// Runs `lookupfs warm ARGS --json PATHS`, which must succeed, and answers its object.
///
/// # Panics
/// Where it does not.
pub fn warm(daemon: &Daemon, args: &[&str], paths: &[&Path]) -> serde_json::Value {
    let output = try_warm(daemon, args, paths);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lookupfs warm {args:?}: {errors}");
    object(&output)
}

/// The JSON object that a command has printed.
///
/// # Panics
/// Where it has printed something else.
pub fn object(output: &Output) -> serde_json::Value {
    match serde_json::from_slice(&output.stdout) {
        Ok(object) => object,
        Err(error) => panic!("{error}: {output:?}"),
    }
}

/// Runs `lookupfs warm ARGS --json PATHS`.
pub fn try_warm(daemon: &Daemon, args: &[&str], paths: &[&Path]) -> Output {
    let mut all: Vec<&OsStr> = ["warm", "--json"].iter().map(OsStr::new).collect();
    all.extend(args.iter().map(OsStr::new));
    all.extend(paths.iter().map(|path| path.as_os_str()));
    daemon.lookupfs(&all)
}

/// Requests and bytes that the source was read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Calls.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What the source of the only mount was read with so far.
pub fn source(daemon: &Daemon) -> Read {
    Read {
        requests: daemon.count("/sources/0/requests/read"),
        bytes: daemon.count("/sources/0/requests/read_bytes"),
    }
}

/// What `work` has read from the source.
pub fn cost(daemon: &Daemon, work: impl FnOnce()) -> Read {
    let before = source(daemon);
    work();
    let after = source(daemon);
    Read {
        requests: after.requests - before.requests,
        bytes: after.bytes - before.bytes,
    }
}

const NOTHING: Read = Read {
    requests: 0,
    bytes: 0,
};

/// Warms the `files` copies of [`sample`] in the directory `t` of a fresh mount step by step; each step costs what the
/// command says, and what was warmed costs nothing when it is read.
///
/// # Panics
/// Where that is not so.
pub fn compare_steps(daemon: &Daemon, mount: &Path, sample: &[u8], files: u64) {
    let directory = mount.join("t");
    let file = |at: u64| directory.join(format!("{at}.parquet"));
    let inspect = |at| drop(run("lookup", &[OsStr::new("inspect"), file(at).as_os_str()]));
    let get = |at, column: &str| {
        let path = file(at);
        let args = ["get", "--rows", "3,1777,3999", "--columns", column].map(OsStr::new);
        let all: Vec<&OsStr> = args.into_iter().chain([path.as_os_str()]).collect();
        drop(run("lookup", &all));
    };

    assert_ne!(cost(daemon, || inspect(0)), NOTHING, "cold");
    let steps = [
        ("--metadata", Box::new(inspect) as Box<dyn Fn(u64)>),
        // The last column: what the kernel reads ahead of its reader is kept as well.
        ("--columns=payload", Box::new(|at| get(at, "payload"))),
        (
            "--all",
            Box::new(|at| assert!(std::fs::read(file(at)).expect("read") == sample)),
        ),
    ];
    let mut before = source(daemon);
    for (flag, read) in steps {
        let cold = warm(daemon, &[flag, "--check"], &[&directory]);
        assert_eq!(source(daemon), before, "{flag}: a check fetches nothing");
        assert_ne!(cold["files_kept"], files, "{flag}");
        let done = warm(daemon, &[flag], &[&directory]);
        let after = source(daemon);
        assert_eq!(done["fetched_bytes"], after.bytes - before.bytes, "{flag}");
        assert_eq!(
            (&done["files"], &done["files_done"]),
            (&files.into(), &files.into())
        );
        assert_eq!(done["failed"], 0);
        let checked = warm(daemon, &[flag, "--check"], &[&directory]);
        assert_eq!(checked["files_kept"], files, "{flag}: {checked}");
        assert_eq!(checked["pages_kept"], checked["pages"], "{flag}");
        let again = warm(daemon, &[flag], &[&directory]);
        assert_eq!(again["fetched_bytes"], 0, "{flag} again");
        for at in 0..files {
            assert_eq!(cost(daemon, || read(at)), NOTHING, "{flag} {at}");
        }
        before = source(daemon);
    }
    let page = daemon.count("/options/page_size");
    let pages = files * (sample.len() as u64).div_ceil(page);
    let checked = warm(daemon, &["--all", "--check"], &[&directory]);
    assert_eq!(checked["pages"], pages);
    assert_eq!(checked["pages_in_memory"], pages);
    assert_eq!(checked["bytes"], files * sample.len() as u64);

    // Evicted, the kernel's pages too: a read costs again what it did.
    let evicted = warm(daemon, &["--evict"], &[&file(0), &file(1)]);
    let each = (sample.len() as u64).div_ceil(page);
    assert_eq!(
        (&evicted["files_done"], &evicted["pages_dropped"]),
        (&2.into(), &(2 * each).into())
    );
    let checked = warm(daemon, &["--all", "--check"], &[&directory]);
    assert_eq!(checked["pages_kept"], pages - 2 * each);
    assert_eq!(checked["files_kept"], files - 2);
    assert_ne!(cost(daemon, || get(0, "payload")), NOTHING, "cold again");
    let read = cost(daemon, || {
        assert!(std::fs::read(file(1)).expect("read") == sample);
    });
    assert_eq!(read.bytes, sample.len() as u64);
    assert_eq!(cost(daemon, || get(2, "payload")), NOTHING, "the others stay");
}
