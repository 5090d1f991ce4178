//! The HDFS client without cache or mount: answers read requests on stdin with times on stdout, for `lookup bench
//! --native`. What a mount costs is measured against it.
//!
//! `hdfs_alone PATH`, a directory of the default file system of `HADOOP_CONF_DIR`. One JSON object a line, as
//! reader/src/bench/native.rs says; beside its requests `{"do":"make","path","files"}` makes a directory of empty files.
//! Refuses a range past the end of a file. Owns a runtime of its own: requests under way at once are tasks on it, which
//! is the fastest way to use the client.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use hdfs_native::client::FileStatus;
use hdfs_native::file::FileReader;
use hdfs_native::{Client, ClientBuilder, WriteOptions};
use serde_json::{Value, json};

/// Files made at once.
const MAKERS: usize = 32;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let (Some(directory), None) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        eprintln!("usage: hdfs_alone PATH, with HADOOP_CONF_DIR set; requests come on stdin");
        return ExitCode::from(2);
    };
    match serve(&directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hdfs_alone: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(directory: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let client = ClientBuilder::new().build()?;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?)
            .map_err(Failure::from)
            .and_then(|request: Value| runtime.block_on(answer(&client, directory, &request)));
        let answer = answer.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

async fn answer(client: &Client, directory: &str, request: &Value) -> Result<Value, Failure> {
    let path = request["path"].as_str().ok_or("a request has a path")?;
    let path = format!("{}/{path}", directory.trim_end_matches('/'));
    match request["do"].as_str() {
        Some("reads") => reads(client, &path, request).await,
        Some("stream") => stream(client, &path).await,
        Some("list") => list(client, &path).await,
        Some("make") => make(client, &path, number(request, "files")?).await,
        _ => Err("do is reads, stream, list or make".into()),
    }
}

fn number(request: &Value, name: &str) -> Result<usize, Failure> {
    let number = request[name]
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| format!("{name} is a number").into())
}

/// What one task has read.
#[derive(Default)]
struct Part {
    latencies_ns: Vec<u64>,
    bytes: usize,
    errors: u64,
    checksum: u64,
}

async fn reads(client: &Client, path: &str, request: &Value) -> Result<Value, Failure> {
    let (size, tasks) = (number(request, "size")?, number(request, "threads")?.max(1));
    let offsets = request["offsets"].as_array().ok_or("offsets is a list")?;
    let offsets: Option<Vec<usize>> = offsets
        .iter()
        .map(|offset| Some(offset.as_u64()? as usize))
        .collect();
    let offsets = offsets.ok_or("offsets are numbers")?;
    let reader = Arc::new(client.read(path).await?);
    // The client panics past the end of a file.
    if offsets.iter().any(|offset| offset + size > reader.file_length()) {
        return Err(format!("{path} ends at {}", reader.file_length()).into());
    }
    let share = offsets.len().div_ceil(tasks).max(1);
    let began = Instant::now();
    let running: Vec<_> = offsets
        .chunks(share)
        .map(|share| tokio::spawn(read_share(Arc::clone(&reader), share.to_vec(), size)))
        .collect();
    let mut sum = Part::default();
    for task in running {
        let part = task.await?;
        sum.latencies_ns.extend(part.latencies_ns);
        sum.bytes += part.bytes;
        sum.errors += part.errors;
        sum.checksum = sum.checksum.wrapping_add(part.checksum);
    }
    Ok(json!({
        "seconds": began.elapsed().as_secs_f64(),
        "operations": offsets.len(),
        "bytes": sum.bytes,
        "errors": sum.errors,
        "checksum": sum.checksum,
        "latencies_ns": sum.latencies_ns,
    }))
}

async fn read_share(reader: Arc<FileReader>, offsets: Vec<usize>, size: usize) -> Part {
    let mut part = Part::default();
    for offset in offsets {
        let began = Instant::now();
        match reader.read_range(offset, size).await {
            Ok(bytes) => {
                part.bytes += bytes.len();
                part.checksum = part.checksum.wrapping_add(ends(&bytes));
            }
            Err(_) => part.errors += 1,
        }
        part.latencies_ns.push(began.elapsed().as_nanos() as u64);
    }
    part
}

/// The first and the last word of a read, as `lookup bench` adds them up.
fn ends(bytes: &[u8]) -> u64 {
    let word = |at: &[u8]| at.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    word(bytes).wrapping_add(word(&bytes[bytes.len().saturating_sub(8)..]))
}

async fn stream(client: &Client, path: &str) -> Result<Value, Failure> {
    let began = Instant::now();
    let reader = client.read(path).await?;
    let mut pieces = Box::pin(reader.read_range_stream(0, reader.file_length()));
    let (mut bytes, mut checksum) = (0, 0u64);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        bytes += piece.len();
        checksum = checksum.wrapping_add(piece.iter().map(|byte| u64::from(*byte)).sum());
    }
    Ok(json!({
        "seconds": began.elapsed().as_secs_f64(), "operations": 1, "bytes": bytes, "errors": 0, "checksum": checksum,
    }))
}

async fn list(client: &Client, path: &str) -> Result<Value, Failure> {
    let began = Instant::now();
    let entries: Vec<FileStatus> = client.list_status(path, false).await?;
    Ok(json!({ "seconds": began.elapsed().as_secs_f64(), "operations": entries.len() }))
}

async fn make(client: &Client, path: &str, files: usize) -> Result<Value, Failure> {
    let began = Instant::now();
    client.mkdirs(path, 0o755, true).await?;
    let one = |file: usize| async move {
        let path = format!("{path}/f{file:05}");
        client.create(&path, WriteOptions::default()).await?.close().await
    };
    let mut made = futures::stream::iter((0..files).map(one)).buffer_unordered(MAKERS);
    while let Some(done) = made.next().await {
        done?;
    }
    Ok(json!({ "seconds": began.elapsed().as_secs_f64(), "operations": files }))
}
