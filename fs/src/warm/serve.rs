//! The daemon's side of the conversation: paths come in, events go out, and a closed connection ends the work.
//!
//! Owns the pace of the progress lines, which also find out that nobody listens any more. Refuses lines that are too long,
//! and a peer that does not read. Called by [`crate::daemon`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::page_cache::PageCache;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::job::Job;
use super::{Event, Input, WarmRequest};
use crate::control::connection::send;
use crate::mounts::Mounts;

/// Between two progress lines.
const TICK: Duration = Duration::from_millis(200);
/// Longest line that is read: a path of `PATH_MAX` bytes, each as a number.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Paths, and failures, that may wait.
const QUEUE_MAX: usize = 64;

/// Works until all is done or the connection is closed.
///
/// # Errors
/// If the peer goes away, sends no paths, or does not read.
pub async fn serve(
    request: WarmRequest,
    lines: BufReader<OwnedReadHalf>,
    mut out: OwnedWriteHalf,
    (pages, mounts): (Arc<PageCache>, Arc<Mounts>),
) -> io::Result<()> {
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
            Some(event) = events.recv() => send(&mut out, &event).await?,
            _ = tick.tick() => send(&mut out, &Event::Progress(job.totals())).await?,
        }
    }
    while let Ok(event) = events.try_recv() {
        send(&mut out, &event).await?;
    }
    send(&mut out, &Event::Done(job.totals())).await
}

/// Hands the paths on; returns only once the peer has closed the connection, or talks nonsense.
async fn read_inputs(mut lines: BufReader<OwnedReadHalf>, inputs: mpsc::Sender<Input>) -> io::Result<()> {
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
