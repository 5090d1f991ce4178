//! Programs beside the run, each with a deadline: `lookupfs stats`, the NameNode's audit log, `ls`, a fresh mount.
//!
//! Refuses to wait for ever: what has not ended by then is killed and is an error. Called by the measurements.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::error::{BenchError, Result};

/// How long any of these programs may take. A fresh mount of everything takes a few seconds on a busy machine.
const PROGRAM_WAIT: Duration = Duration::from_secs(120);

/// Runs a program to its end, which must be a success.
pub(super) fn output(command: &mut Command) -> Result<Output> {
    let name = format!("{command:?}");
    let failed = |what: String| BenchError::program(&name, what);
    let child = command
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    let pid = child.id();
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        // Nobody listens any more where the deadline has passed.
        let _ = send.send(child.wait_with_output());
    });
    let Ok(ended) = receive.recv_timeout(PROGRAM_WAIT) else {
        // SAFETY: no memory is touched. The child has not been waited for, so that its number is its own.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        return Err(failed(format!(
            "has not ended after {} s",
            PROGRAM_WAIT.as_secs()
        )));
    };
    let output = ended.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.trim().lines().last().unwrap_or_default();
        return Err(failed(format!("ended with {}: {last}", output.status)));
    }
    Ok(output)
}

/// A command line of words between blanks: program and arguments.
pub(super) fn command(line: &str) -> Result<Command> {
    let mut words = line.split_whitespace();
    let program = words
        .next()
        .ok_or_else(|| BenchError::Invalid("a command is empty: name a program".into()))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// What a daemon says of itself.
#[derive(Debug, Clone)]
pub(super) struct Stats(Value);

/// What a daemon has asked of its sources so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) reads: u64,
    pub(super) bytes: u64,
}

impl Stats {
    /// The bytes and reads at all sources of the daemon.
    pub(super) fn asked(&self) -> Option<Asked> {
        let sources = self.0["sources"].as_array()?;
        let mut asked = Asked::default();
        for source in sources {
            asked.reads += source["requests"]["read"].as_u64()?;
            asked.bytes += source["requests"]["read_bytes"].as_u64()?;
        }
        Some(asked)
    }

    /// The daemon's process.
    pub(super) fn pid(&self) -> Option<u64> {
        self.0["pid"].as_u64()
    }

    /// The daemon's budget for pages.
    pub(super) fn budget_bytes(&self) -> Option<u64> {
        self.0["options"]["memory"].as_u64()
    }

    /// The options of the daemon, as it prints them.
    pub(super) fn options(&self) -> &Value {
        &self.0["options"]
    }

    /// How the files of a mount point were opened so far.
    pub(super) fn opens(&self, mount_point: &Path) -> Option<Opens> {
        let mounts = self.0["mounts"].as_array()?;
        let mount = mounts
            .iter()
            .find(|mount| mount["mount_point"].as_str().map(Path::new) == Some(mount_point))?;
        let opens = &mount["opens"];
        Some(Opens {
            passed: opens["passthrough"].as_u64()?,
            kept: opens["kept"].as_u64()?,
            refusal: opens["refusal"].as_str().map(str::to_owned),
        })
    }
}

/// Opens of a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opens {
    /// Handed to the kernel.
    pub(super) passed: u64,
    /// Served by the daemon.
    pub(super) kept: u64,
    /// Why the kernel takes none.
    pub(super) refusal: Option<String>,
}

/// Asks the daemon behind a mount point.
pub(super) fn stats(lookupfs: &Path, mount_point: &Path) -> Result<Stats> {
    let mut command = Command::new(lookupfs);
    command.arg("stats").arg(mount_point).arg("--json");
    let output = output(piped(&mut command))?;
    Ok(Stats(serde_json::from_slice(&output.stdout)?))
}

/// Requests that the NameNode has written into its audit log so far: all, or those with `cmd=NAME`.
pub(super) fn audited(audit: &Path, name: Option<&str>) -> Result<u64> {
    let mut command = Command::new(audit);
    command
        .args(["audit", "count"])
        .args(name.map(|name| format!("cmd={name}")));
    let output = output(piped(&mut command))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong = |_| {
        BenchError::program(
            &audit.display().to_string(),
            format!("'{}' is no number", text.trim()),
        )
    };
    text.trim().parse().map_err(wrong)
}

/// Both outputs come to us, no input goes there.
pub(super) fn piped(command: &mut Command) -> &mut Command {
    use std::process::Stdio;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// (most, now) resident bytes of a process.
pub(super) fn resident_bytes(pid: u64) -> Result<(u64, u64)> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = std::fs::read_to_string(&path).map_err(|error| BenchError::file(&path, error))?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    match (of("VmHWM:"), of("VmRSS:")) {
        (Some(most), Some(now)) => Ok((most << 10, now << 10)),
        _ => Err(BenchError::Invalid(format!(
            "{}: no VmHWM and VmRSS",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_last_line() {
        let mut command = Command::new("sh");
        let error = output(piped(
            command.args(["-c", "echo first >&2; echo last >&2; exit 3"]),
        ))
        .unwrap_err();
        assert!(
            error.to_string().contains("last") && error.to_string().contains('3'),
            "{error}"
        );
        assert!(output(piped(&mut Command::new("/no/such/program"))).is_err());
        assert!(super::command("  ").is_err());
    }

    #[test]
    fn counters_of_all_sources_are_added_up() {
        let text = r#"{"pid":7,"options":{"memory":268435456},"mounts":[
            {"mount_point":"/m","opens":{"mode":"passthrough","passthrough":3,"kept":1}}],
            "sources":[{"requests":{"read":2,"read_bytes":10}},{"requests":{"read":3,"read_bytes":5}}]}"#;
        let stats = Stats(serde_json::from_str(text).unwrap());
        let asked = stats.asked().unwrap();
        assert_eq!((asked.reads, asked.bytes), (5, 15));
        assert_eq!((stats.pid(), stats.budget_bytes()), (Some(7), Some(256 << 20)));
        let opens = stats.opens(Path::new("/m")).unwrap();
        assert_eq!((opens.passed, opens.kept, opens.refusal), (3, 1, None));
        assert_eq!(stats.opens(Path::new("/n")), None);
        assert!(Stats(serde_json::json!({})).asked().is_none());
    }

    #[test]
    fn the_own_process_is_resident() {
        let (most, now) = resident_bytes(std::process::id().into()).unwrap();
        assert!(most >= now && now > 1 << 20);
    }
}
