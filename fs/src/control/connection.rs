//! The daemon's side of one control connection: a request in, one or more answers out.
//!
//! Owns what a peer may cost: a line of a bounded length within a bounded time, answers that are written within one, and
//! work that ends with the peer that asked for it. Refuses peers of other users. Called by [`crate::daemon`].

use std::future::Future;
use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Answer, LINE_BYTES_MAX, LINE_WAIT, REQUEST_WAIT, Request};

/// Answers that may wait for a slow peer; whoever has more to say waits.
const ANSWERS_AHEAD: usize = 16;

/// Where the answers to one request go.
#[derive(Clone, Debug)]
pub struct Answers(mpsc::Sender<Answer>);

/// Who asked has gone.
#[derive(Debug, thiserror::Error)]
#[error("whoever asked has gone")]
pub struct PeerGone;

impl Answers {
    /// Sends one answer more; waits while the peer is slow.
    ///
    /// # Errors
    /// If the peer has gone: nobody needs further work.
    pub async fn send(&self, answer: Answer) -> Result<(), PeerGone> {
        self.0.send(answer).await.map_err(|_| PeerGone)
    }
}

/// A request, and the connection that it came on.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// What the peer says next.
    pub reader: BufReader<OwnedReadHalf>,
    /// Where answers go.
    pub write: OwnedWriteHalf,
}

/// Reads one request. `None` where it was not understood, which the peer has been told.
///
/// # Errors
/// If the peer is another user's, sends no request in time, or goes away.
pub async fn receive(stream: UnixStream) -> io::Result<Option<Asked>> {
    check_peer(&stream)?;
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::new(read);
    match in_time(REQUEST_WAIT, request(&mut reader)).await {
        Ok(request) => Ok(Some(Asked {
            request,
            reader,
            write,
        })),
        // So that a person at the other end, or a program of another version, learns what was wrong.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let reason =
                format!("the daemon does not understand the request ({error}); is it another version?");
            send(&mut write, &Answer::Failed(reason)).await?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Writes the answers that `handle` sends to a request. Where the peer goes away, or does not take an answer in
/// time, the future of `handle` is dropped, which ends its work. What that future yields is kept until the last answer is
/// out, and dropped then.
///
/// # Errors
/// If the peer goes away, says more, or does not take an answer in time.
pub async fn serve<T, F>(
    mut reader: BufReader<OwnedReadHalf>,
    mut write: OwnedWriteHalf,
    handle: impl FnOnce(Answers) -> F,
) -> io::Result<()>
where
    F: Future<Output = T>,
{
    let (answers, mut to_send) = mpsc::channel(ANSWERS_AHEAD);
    let work = handle(Answers(answers));
    tokio::pin!(work);
    let (mut kept, mut is_silent) = (None, false);
    let gone = end_of(&mut reader);
    tokio::pin!(gone);
    // The work ends once it has yielded and its last sender has gone, in either order.
    while kept.is_none() || !is_silent {
        tokio::select! {
            yielded = &mut work, if kept.is_none() => kept = Some(yielded),
            answer = to_send.recv(), if !is_silent => match answer {
                Some(answer) => send(&mut write, &answer).await?,
                None => is_silent = true,
            },
            error = &mut gone => return Err(error),
        }
    }
    Ok(())
}

/// The socket's mode keeps other users out, but a run directory may be anywhere, and a mode can be changed.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid != 0 && uid != nix::unistd::geteuid().as_raw() {
        let message = format!("user {uid} may not ask this daemon");
        tracing::warn!(uid, "another user asked the control socket, and was refused");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

async fn request(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Request> {
    let mut line = Vec::new();
    let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        let message = format!("the peer stopped after {read} bytes without the end of a line");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Ends when the peer does. It has said all it may: a peer that says more is cut off.
async fn end_of(reader: &mut BufReader<OwnedReadHalf>) -> io::Error {
    match reader.fill_buf().await {
        Ok([]) => io::Error::new(io::ErrorKind::ConnectionAborted, "the peer has gone"),
        Ok(_) => io::Error::new(io::ErrorKind::InvalidData, "the peer says more than one request"),
        Err(error) => error,
    }
}

/// Writes one line.
///
/// # Errors
/// `TimedOut` where the peer does not read; others as the socket says.
pub async fn send(write: &mut OwnedWriteHalf, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    in_time(LINE_WAIT, write.write_all(&line)).await
}

async fn in_time<T>(wait: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(wait, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests;
