//! Who listens at a control socket, also where its process is stopped.
//!
//! Owns the way to a connection in a bounded time, and what people are told of a process that does not answer. Refuses to
//! guess: a process is named where the kernel says which one it is. Called by the asking side.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_to};
use nix::sys::socket::{getsockopt, setsockopt, socket as new_socket};
use nix::sys::time::TimeVal;

/// How long a connection may take. It takes time only where so many wait already that the kernel holds no more of them,
/// as it comes to with a process that is stopped and asked again and again.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// Connects within one second.
///
/// # Errors
/// `WouldBlock` where too many wait already; others as the socket says.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let descriptor: OwnedFd = new_socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let seconds = i64::try_from(CONNECT_WAIT.as_secs()).unwrap_or(1);
    // unix(7): connecting waits for room in the backlog as long as sending may wait.
    setsockopt(&descriptor, SendTimeout, &TimeVal::new(seconds, 0))?;
    connect_to(descriptor.as_raw_fd(), &UnixAddr::new(socket)?)?;
    let stream = UnixStream::from(descriptor);
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// A daemon for people: its socket, and its process where the kernel says it.
pub fn shown(socket: &Path) -> String {
    let path = socket.display();
    match pid(socket) {
        Some(pid) => format!("the daemon at {path} (pid {pid}) does not answer"),
        None => format!("the daemon at {path} (`fuser {path}` names its process) does not answer"),
    }
}

/// The process that listens; answered by the kernel, so that it need not run.
fn pid(socket: &Path) -> Option<i32> {
    let stream = connect(socket).ok()?;
    let pid = getsockopt(&stream, PeerCredentials).ok()?.pid();
    // 0: it is in another namespace of processes.
    (pid != 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn who_listens_is_named_and_a_full_backlog_is_waited_for_no_longer_than_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let own = format!("(pid {})", std::process::id());
        assert!(shown(&path).contains(&own), "{}", shown(&path));
        // Nobody accepts: the kernel holds so many, and the next one is told to come again.
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&path) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100_000, "the backlog has an end");
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(shown(&path).contains("fuser"), "{}", shown(&path));
    }
}
