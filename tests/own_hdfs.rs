//! A real HDFS that one test owns and may break; tests that only use one share [`crate::hdfs::MiniHdfs`].

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ports that one instance uses, from its base.
const PORTS: u16 = 200;
/// Bases: below the ports that the kernel gives to clients, any of which may hold one that a server wants, and below
/// those that the scripts take.
const BASES: std::ops::Range<u16> = 5000..20000;
const TRIES: usize = 5;

/// One instance; its processes end when it is dropped.
#[derive(Debug)]
pub struct OwnHdfs {
    home: tempfile::TempDir,
    base_port: u16,
    /// The last port from the base on, which the instance does not use: who listens on it has them all.
    _claim: TcpListener,
}

/// Ports of one instance that no other test has, of this process or another.
fn claim_ports() -> (u16, TcpListener) {
    for base in BASES.step_by(usize::from(PORTS)) {
        if let Ok(claim) = TcpListener::bind((Ipv4Addr::LOCALHOST, base + PORTS - 1)) {
            return (base, claim);
        }
    }
    panic!("no {PORTS} ports in a row are free in {BASES:?}");
}

impl OwnHdfs {
    /// Starts an instance with the arguments of `minihdfs.sh start`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(arguments: &[&str]) -> OwnHdfs {
        let mut last = String::new();
        // Held until the end: each try has other ports.
        let mut tried = Vec::new();
        while tried.len() < TRIES {
            let home = match tempfile::tempdir() {
                Ok(home) => home,
                Err(error) => panic!("no temporary folder: {error}"),
            };
            let (base_port, claim) = claim_ports();
            let hdfs = OwnHdfs {
                home,
                base_port,
                _claim: claim,
            };
            let mut all = vec!["start", "--fresh"];
            all.extend_from_slice(arguments);
            match hdfs.try_run(&all) {
                Ok(_) => return hdfs,
                Err(error) => {
                    last = error;
                    tried.push(hdfs);
                }
            }
        }
        panic!("minihdfs.sh start failed {TRIES} times: {last}");
    }

    /// Runs a command of `minihdfs.sh` and answers what it printed.
    ///
    /// # Panics
    /// Where it fails.
    pub fn run(&self, arguments: &[&str]) -> String {
        match self.try_run(arguments) {
            Ok(printed) => printed,
            Err(error) => panic!("minihdfs.sh {arguments:?}: {error}"),
        }
    }

    /// The configuration folder for a client.
    pub fn conf(&self) -> PathBuf {
        PathBuf::from(self.run(&["conf"]).trim())
    }

    /// Flips bytes in the middle of every finished replica.
    ///
    /// # Panics
    /// Where there is none.
    pub fn damage_replicas(&self) {
        let mut damaged = 0;
        let mut folders = vec![self.home.path().join("run")];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if path.is_dir() {
                    folders.push(path);
                } else if name.starts_with("blk_") && !name.ends_with(".meta") {
                    damaged += u32::from(damage(&path).is_ok());
                }
            }
        }
        assert!(damaged > 0, "no replica below {}", self.home.path().display());
    }

    fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mount-scripts/minihdfs.sh");
        let script = std::env::var_os("LOOKUPFS_TEST_MINIHDFS").map_or(default, PathBuf::from);
        let output = Command::new("bash")
            .arg(script)
            .args(arguments)
            .env("MINIHDFS_HOME", self.home.path().join("run"))
            .env("MINIHDFS_PORT", self.base_port.to_string())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for OwnHdfs {
    fn drop(&mut self) {
        if let Err(error) = self.try_run(&["stop"]) {
            eprintln!("minihdfs.sh stop: {error}");
        }
    }
}

fn damage(path: &Path) -> std::io::Result<()> {
    let mut bytes = std::fs::read(path)?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0xff;
    }
    std::fs::write(path, bytes)
}
