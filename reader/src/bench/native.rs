//! [`Native`]: the HDFS client without a mount, in a process of its own that reads by request.
//!
//! One JSON object a line, request and answer in turn. Requests: `{"do":"reads","path","size","threads","offsets"}`,
//! `{"do":"stream","path"}`, `{"do":"list","path"}`. Answers: `seconds`, `operations`, `bytes`, `errors`, `checksum`
//! (as [`super::pread`] makes it), `latencies_ns`, or `{"error"}`. The process takes the times, so that the pipe is in
//! none of them. Refuses to wait longer than [`ANSWER_WAIT`]. Called by the cold measurements.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::{BenchError, Result};
use super::pread::{self, Reads, Run};
use super::program;

/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    Reads {
        path: String,
        size: usize,
        threads: usize,
        offsets: Vec<u64>,
    },
    Stream {
        path: String,
    },
    List {
        path: String,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Answer {
    error: Option<String>,
    seconds: f64,
    operations: u64,
    bytes: u64,
    errors: u64,
    checksum: u64,
    latencies_ns: Vec<u64>,
}

/// A running process that answers.
#[derive(Debug)]
pub(super) struct Native {
    name: String,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Native {
    /// Starts `line`, a program and its arguments.
    pub(super) fn start(line: &str) -> Result<Native> {
        let failed = |what: &str| BenchError::program(line, what);
        let mut command = program::command(line)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| failed(&format!("cannot be run: {error}")))?;
        let requests = child.stdin.take().ok_or_else(|| failed("no input"))?;
        let lines = child.stdout.take().ok_or_else(|| failed("no output"))?;
        let (send, answers) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(std::io::Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Native {
            name: line.to_owned(),
            child,
            requests,
            answers,
        })
    }

    /// Random reads of one file that stays open; the opening is not timed.
    pub(super) fn reads(&mut self, reads: &Reads<'_>) -> Result<Run> {
        self.ask(&Request::Reads {
            path: reads.file.to_owned(),
            size: reads.size_bytes,
            threads: reads.threads,
            offsets: reads.offsets.to_vec(),
        })
    }

    /// A file from its begin to its end.
    pub(super) fn stream(&mut self, path: &str) -> Result<Run> {
        self.ask(&Request::Stream {
            path: path.to_owned(),
        })
    }

    /// A directory's entries with their attributes; `operations` says how many they are.
    pub(super) fn list(&mut self, path: &str) -> Result<Run> {
        self.ask(&Request::List {
            path: path.to_owned(),
        })
    }

    fn ask(&mut self, request: &Request) -> Result<Run> {
        let failed = |what: String| BenchError::program(&self.name, what);
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let sent = self
            .requests
            .write_all(line.as_bytes())
            .and_then(|()| self.requests.flush());
        sent.map_err(|error| failed(format!("takes no request: {error}")))?;
        let answer = self.answers.recv_timeout(ANSWER_WAIT);
        let text =
            answer.map_err(|_| failed("has ended, or does not answer; see its errors above".into()))?;
        let answer: Answer = serde_json::from_str(&text)
            .map_err(|error| failed(format!("'{text:.80}' is no answer: {error}")))?;
        if let Some(error) = answer.error {
            return Err(failed(error));
        }
        let mut latencies = pread::latencies()?;
        answer
            .latencies_ns
            .iter()
            .for_each(|ns| latencies.saturating_record(*ns));
        let run = Run {
            seconds: answer.seconds,
            operations: answer.operations,
            bytes: answer.bytes,
            errors: answer.errors,
            checksum: answer.checksum,
            ..Run::default()
        };
        Ok(run.with_latencies(&latencies))
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // It holds nothing that an ordered end would save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers such requests from a local directory until the input ends, so that a run can be tried without HDFS.
pub fn answer_locally(
    directory: &Path,
    requests: impl BufRead,
    mut answers: impl Write,
) -> Result<(), BenchError> {
    let failed = |error| BenchError::file(Path::new("stdin and stdout"), error);
    for line in requests.lines() {
        let answer = match serde_json::from_str(&line.map_err(failed)?) {
            Ok(request) => answer(directory, &request).unwrap_or_else(|error| Answer {
                error: Some(error.to_string()),
                ..Answer::default()
            }),
            Err(error) => Answer {
                error: Some(error.to_string()),
                ..Answer::default()
            },
        };
        writeln!(answers, "{}", serde_json::to_string(&answer)?).map_err(failed)?;
        answers.flush().map_err(failed)?;
    }
    Ok(())
}

fn answer(directory: &Path, request: &Request) -> Result<Answer> {
    let run = match request {
        Request::Reads {
            path,
            size,
            threads,
            offsets,
        } => {
            let reads = Reads {
                file: path,
                size_bytes: *size,
                threads: (*threads).max(1),
                offsets,
                timed_each: 1,
                direct: false,
            };
            pread::read(&[directory.to_owned()], &reads)?
        }
        Request::Stream { path } => pread::read_through(&directory.join(path))?,
        Request::List { path } => list(&directory.join(path))?,
    };
    Ok(Answer {
        error: None,
        seconds: run.seconds,
        operations: run.operations,
        bytes: run.bytes,
        errors: run.errors,
        checksum: run.checksum,
        latencies_ns: Vec::new(),
    })
}

fn list(directory: &Path) -> Result<Run> {
    let failed = |error| BenchError::file(directory, error);
    let began = Instant::now();
    let mut run = Run::default();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        entry.and_then(|entry| entry.metadata()).map_err(failed)?;
        run.operations += 1;
    }
    run.seconds = began.elapsed().as_secs_f64();
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(directory: &Path, lines: &str) -> Vec<serde_json::Value> {
        let mut answers = Vec::new();
        answer_locally(directory, lines.as_bytes(), &mut answers).unwrap();
        let text = String::from_utf8(answers).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn each_request_has_one_answer_and_a_wrong_one_says_why() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), [1u8; 8192]).unwrap();
        let answers = ask(
            directory.path(),
            "{\"do\":\"reads\",\"path\":\"f\",\"size\":4096,\"threads\":2,\"offsets\":[0,4096]}\n\
             {\"do\":\"stream\",\"path\":\"f\"}\n{\"do\":\"list\",\"path\":\"\"}\n{\"do\":\"dance\"}\n\
             {\"do\":\"stream\",\"path\":\"gone\"}\n",
        );
        assert_eq!(answers.len(), 5);
        assert_eq!(
            (answers[0]["operations"].as_u64(), answers[0]["errors"].as_u64()),
            (Some(2), Some(0))
        );
        assert_eq!(
            (answers[1]["bytes"].as_u64(), answers[1]["checksum"].as_u64()),
            (Some(8192), Some(8192))
        );
        assert_eq!(answers[2]["operations"].as_u64(), Some(1));
        assert!(answers[3]["error"].as_str().unwrap().contains("dance"));
        assert!(answers[4]["error"].as_str().unwrap().contains("gone"));
    }

    #[test]
    fn a_process_that_ends_or_talks_nonsense_is_an_error() {
        for program in ["true", "cat"] {
            let mut native = Native::start(program).unwrap();
            // `cat` answers with the request itself.
            let error = native.stream("f").unwrap_err();
            assert!(error.to_string().starts_with(program), "{error}");
        }
        assert!(Native::start("/no/such/program x").is_err());
    }
}
