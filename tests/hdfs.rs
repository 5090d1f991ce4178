//! The real HDFS that `tests/run.sh` has started: where it is, and what its NameNode was asked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

/// A real HDFS on loopback, given by the environment.
#[derive(Debug)]
pub struct MiniHdfs {
    /// The clients' `HADOOP_CONF_DIR`.
    pub conf: PathBuf,
    /// `minihdfs.sh` of the instance; the instance's own variables are in the environment.
    pub script: PathBuf,
}

impl MiniHdfs {
    /// The instance in `LOOKUPFS_TEST_HDFS_CONF` and `LOOKUPFS_TEST_MINIHDFS`.
    ///
    /// # Panics
    /// Where there is none: these tests are not skipped.
    pub fn from_env() -> MiniHdfs {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        match (
            variable("LOOKUPFS_TEST_HDFS_CONF"),
            variable("LOOKUPFS_TEST_MINIHDFS"),
        ) {
            (Some(conf), Some(script)) => MiniHdfs { conf, script },
            _ => panic!("no HDFS to test with: run `tests/run.sh hdfs`, which starts one"),
        }
    }

    /// `hdfs://HOST:PORT`, from the clients' configuration.
    pub fn url(&self) -> String {
        let text = std::fs::read_to_string(self.conf.join("core-site.xml")).expect("core-site.xml");
        let after = text
            .split("<name>fs.defaultFS</name>")
            .nth(1)
            .expect("fs.defaultFS");
        let value = after
            .split("<value>")
            .nth(1)
            .and_then(|rest| rest.split("</value>").next());
        value.expect("a value").trim().to_owned()
    }

    /// A path of HDFS that no other test uses.
    pub fn new_path(&self, what: &str) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!(
            "/test/{what}.{}.{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// Runs a command of `minihdfs.sh`.
    pub fn run(&self, args: &[&str]) -> Output {
        let output = Command::new(&self.script)
            .args(args)
            .output()
            .expect("minihdfs.sh runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "minihdfs.sh {args:?}: {errors}");
        output
    }

    /// Copies a local file or tree to `to` with Hadoop's own client.
    pub fn put(&self, from: &Path, to: &str) {
        let parent = to
            .rsplit_once('/')
            .map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent });
        self.run(&["fs", "-mkdir", "-p", parent]);
        self.run(&["fs", "-put", from.to_str().expect("UTF-8"), to]);
    }
}
