//! Cold sequential reads of one file, against the HDFS client's own stream and other filesystems' mounts. Before each
//! read of a mount all of them are made anew: new daemons, empty caches, no kernel pages. A few bytes of another file are
//! read first, so that a mount has its connections as the client has, which stays up for the whole run.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::cell::{Condition, Side};
use super::super::error::{BenchError, Result};
use super::super::pread;
use super::{COLD_FILE, SEQUENTIAL_FILE, Session, refresh};

const WHAT: &str = "cold sequential, mount / hdfs-native";
const PEER: &str = "cold sequential, mount / peer";
const NATIVE: &str = "hdfs-native";
const OURS: &str = "mount";

impl Session<'_> {
    pub(super) fn sequential(&mut self) -> Result<()> {
        let Some(len) = self.local_len(SEQUENTIAL_FILE) else {
            self.findings
                .skip("cold sequential reads", self.no_file(SEQUENTIAL_FILE));
            return Ok(());
        };
        let Some((mount, command)) = self.options.fresh.clone() else {
            self.findings
                .skip("cold sequential reads", "no --fresh-mount was given");
            return Ok(());
        };
        let mut sides = Vec::new();
        match self.native.as_mut() {
            Some(native) => sides.push(Side::new(NATIVE, |_| native.stream(SEQUENTIAL_FILE))),
            None => self
                .findings
                .skip(WHAT, "no --native program was given to compare with"),
        }
        let through = |directory: &Path| {
            refresh(&command)?;
            connect(directory)?;
            pread::read_through(&directory.join(SEQUENTIAL_FILE))
        };
        sides.push(Side::new(OURS, |_| through(&mount)));
        for (name, directory) in &self.options.peers {
            let through = &through;
            sides.push(Side::new(name.clone(), move |_| through(directory)));
        }
        let rounds = vec![Vec::new(); self.options.pairs];
        let condition = Condition {
            name: "cold sequential",
            size_bytes: 0,
            threads: 1,
        };
        let mut cell = condition.measure(sides, &rounds, self.options.seed)?;
        cell.notes.push(format!("one file of {} MiB", len >> 20));
        if self.native.is_some() {
            self.findings
                .judge_pair(WHAT, "", &cell, (OURS, NATIVE), self.options.seed)?;
        }
        for (name, _) in &self.options.peers {
            self.findings
                .judge_pair(PEER, name, &cell, (OURS, name), self.options.seed)?;
        }
        if self.options.peers.is_empty() {
            self.findings.skip(PEER, "no --peer-mount was given");
        }
        self.findings.cells.push(cell);
        Ok(())
    }
}

/// Reads a few bytes of another file, if there is one.
fn connect(directory: &Path) -> Result<()> {
    let path = directory.join(COLD_FILE);
    let Ok(file) = File::open(&path) else {
        return Ok(());
    };
    let read = file.read_at(&mut [0; 8], 0);
    read.map(drop).map_err(|error| BenchError::file(&path, error))
}
