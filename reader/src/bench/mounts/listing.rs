//! `ls -l` of a directory of many files, cold: time against `ls -l` of the same names on a local disk plus the HDFS
//! client's own listing, and requests by the NameNode's audit log.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::super::cell::{Condition, Side};
use super::super::error::Result;
use super::super::findings::target_of;
use super::super::pread::Run;
use super::super::program;
use super::super::statistics::Estimate;
use super::{LISTING_DIRECTORY, Session, refresh};

const TIME: &str = "cold ls -l, mount / (ext4 + hdfs-native)";
const REQUESTS: &str = "cold ls -l, listings at the source";
const BASE: &str = "ext4 + hdfs-native";
const OURS: &str = "mount";
/// How often the requests are counted. Whoever else walks over the mounts can only add to a count: the least one holds.
const COUNTED: usize = 3;
/// Entries that the NameNode puts into one answer.
const ENTRIES_PER_REQUEST: u64 = 1000;

impl Session<'_> {
    pub(super) fn listing(&mut self) -> Result<()> {
        let local = self.options.local.join(LISTING_DIRECTORY);
        let files = std::fs::read_dir(&local).map_or(0, |entries| entries.count() as u64);
        if files == 0 {
            self.findings.skip("cold ls -l", self.no_file(LISTING_DIRECTORY));
            return Ok(());
        }
        let Some((mount, command)) = self.options.fresh.clone() else {
            self.findings.skip("cold ls -l", "no --fresh-mount was given");
            return Ok(());
        };
        let directory = mount.join(LISTING_DIRECTORY);
        self.count_listings(&directory, &command, files)?;
        let Some(native) = self.native.as_mut() else {
            self.findings
                .skip(TIME, "no --native program was given to compare with");
            return Ok(());
        };
        let base = |_: &[u64]| {
            let listed = native.list(LISTING_DIRECTORY)?;
            let mut run = ls(&local)?;
            run.seconds += listed.seconds;
            Ok(run)
        };
        let ours = |_: &[u64]| {
            refresh(&command)?;
            ls(&directory)
        };
        let sides = vec![Side::new(BASE, base), Side::new(OURS, ours)];
        let rounds = vec![Vec::new(); self.options.pairs];
        let condition = Condition {
            name: "cold ls -l",
            size_bytes: 0,
            threads: 1,
        };
        let mut cell = condition.measure(sides, &rounds, self.options.seed)?;
        cell.notes.push(format!("{files} files"));
        // Times and not rates: how many times as long ours takes.
        if let Some((estimate, errors)) = cell.ratio(BASE, OURS, self.options.seed) {
            self.findings
                .judge(TIME, &format!("{files} files"), &estimate, errors, "")?;
        }
        self.findings.cells.push(cell);
        Ok(())
    }

    fn count_listings(&mut self, directory: &Path, command: &str, files: u64) -> Result<()> {
        let Some(audit) = self.options.audit.clone() else {
            self.findings.skip(REQUESTS, "no --audit program was given");
            return Ok(());
        };
        let count = |name| program::audited(&audit, name);
        let mut seen = Vec::new();
        for _ in 0..COUNTED {
            refresh(command)?;
            let before = (count(Some("listStatus"))?, count(None)?);
            ls(directory)?;
            seen.push((count(Some("listStatus"))? - before.0, count(None)? - before.1));
        }
        let (listings, all) = seen.iter().copied().min().unwrap_or_default();
        let target = target_of(REQUESTS)?.scaled(files.div_ceil(ENTRIES_PER_REQUEST) as f64);
        let detail = format!(
            "{all} NameNode requests in all, the statuses of the directory itself among them; the least of (listings, all) {seen:?}"
        );
        self.findings.judge_by(
            &target,
            &format!("{files} files"),
            &Estimate::counted(listings as f64),
            0,
            &detail,
        );
        Ok(())
    }
}

/// Runs `ls -l`; the time is that of the whole process. Its output is not compared: owners and times may differ.
fn ls(directory: &Path) -> Result<Run> {
    let mut command = Command::new("ls");
    command
        .args(["-l", "--"])
        .arg(directory)
        .env("LC_ALL", "C")
        .env("TZ", "UTC");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let began = Instant::now();
    program::output(&mut command)?;
    Ok(Run {
        seconds: began.elapsed().as_secs_f64(),
        operations: 1,
        ..Run::default()
    })
}
