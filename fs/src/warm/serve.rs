//! The daemon's side of the conversation: paths come in, events go out, and a closed connection ends the work.
//!
//! Owns the pace of the progress lines, which also find out that nobody listens any more. Refuses lines that are too long,
//! and a peer that does not read. Called by [`crate::daemon`] on a thread of the connection's own.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::page_cache::PageCache;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::job::Job;
use super::{Event, Input, WarmRequest};
use crate::mounts::Mounts;

/// Between two progress lines.
const TICK: Duration = Duration::from_millis(200);
/// How long the peer may take to read a line.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// Longest line that is read: a path of `PATH_MAX` bytes, each as a number.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Paths, and failures, that may wait.
const QUEUE_MAX: usize = 64;

/// Works until all is done or the connection is closed.
///
/// # Errors
/// If the peer goes away, sends no paths, or does not read.
pub async fn serve(
    stream: StdStream,
    request: WarmRequest,
    pages: Arc<PageCache>,
    mounts: Arc<Mounts>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let (lines, mut out) = UnixStream::from_std(stream)?.into_split();
    let (send_inputs, inputs) = mpsc::channel(QUEUE_MAX);
    let (send_events, mut events) = mpsc::channel(QUEUE_MAX);
    let job = Job::new(request, pages, mounts, send_events);
    let running = job.run(inputs);
    let reading = read_inputs(lines, send_inputs);
    tokio::pin!(running, reading);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut running => break,
            gone = &mut reading => return gone,
            Some(event) = events.recv() => write(&mut out, &event).await?,
            _ = tick.tick() => write(&mut out, &Event::Progress(job.totals())).await?,
        }
    }
    while let Ok(event) = events.try_recv() {
        write(&mut out, &event).await?;
    }
    write(&mut out, &Event::Done(job.totals())).await
}

/// Hands the paths on; returns only once the peer has closed the connection, or talks nonsense.
async fn read_inputs(lines: OwnedReadHalf, inputs: mpsc::Sender<Input>) -> io::Result<()> {
    let mut lines = BufReader::new(lines);
    let mut inputs = Some(inputs);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await?;
        if read == 0 {
            let message = "the command has ended before its work";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        match serde_json::from_slice(&line)? {
            // The job sees the end once nobody can send any more.
            Input::End => inputs = None,
            input => {
                if let Some(inputs) = &inputs {
                    let _ = inputs.send(input).await;
                }
            }
        }
    }
}

async fn write<T: Serialize>(out: &mut OwnedWriteHalf, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    timeout(WRITE_WAIT, out.write_all(&line))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the command does not read"))?
}
