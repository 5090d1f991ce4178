//! The smallest HTTP server that Prometheus can scrape: `GET /metrics`, one request a connection.
//!
//! Owns what a client may cost: a head of a bounded length within a bounded time. Refuses everything else that HTTP can
//! do. Started by [`crate::daemon`] where the option `metrics` says so.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::MEDIA_TYPE;
use super::crowd::Crowd;

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take to send its request: a scraper has it ready.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// How long it may take to take the answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Connections served at once; more wait.
pub const CONNECTIONS_MAX: usize = 64;
/// Of those, connections whose request has not come; where more want to be heard, the oldest makes way.
pub const SILENT_MAX: usize = 48;

/// Serves one connection of the `crowd`; `metrics` is asked only where a request wants them.
///
/// # Errors
/// If the client is too slow, silent while others wait, or goes away.
pub async fn serve<S, F>(mut stream: S, crowd: Arc<Crowd>, metrics: impl FnOnce() -> F) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<String, String>>,
{
    let mut place = crowd.enter().await;
    let head = tokio::select! {
        // What has come is heard first.
        biased;
        head = in_time(REQUEST_WAIT, read_head(&mut stream)) => head?,
        () = place.is_to_make_way() => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "silent, while others wait to be heard"));
        }
    };
    drop(place);
    let Some(head) = head else {
        let reason = format!("the head of a request has at most {HEAD_BYTES_MAX} bytes\n");
        return answer(&mut stream, "431 Request Header Fields Too Large", &reason, true).await;
    };
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_http = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    let has_body = method != Some("HEAD");
    match (method, path) {
        _ if !is_http => {
            answer(
                &mut stream,
                "400 Bad Request",
                "this is no HTTP/1 request\n",
                true,
            )
            .await
        }
        (Some("GET" | "HEAD"), Some("/metrics")) => match metrics().await {
            Ok(text) => answer(&mut stream, "200 OK", &text, has_body).await,
            Err(reason) => answer(&mut stream, "500 Internal Server Error", &reason, has_body).await,
        },
        (Some("GET" | "HEAD"), _) => {
            answer(
                &mut stream,
                "404 Not Found",
                "metrics are at /metrics\n",
                has_body,
            )
            .await
        }
        _ => {
            answer(
                &mut stream,
                "405 Method Not Allowed",
                "only GET and HEAD\n",
                has_body,
            )
            .await
        }
    }
}

/// The head of a request, or `None` where it is too long.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    body: &str,
    has_body: bool,
) -> io::Result<()> {
    let media_type = if status.starts_with("200") {
        MEDIA_TYPE
    } else {
        "text/plain; charset=utf-8"
    };
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let len = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\n{allow}Connection: close\r\n\r\n"
    );
    if has_body {
        text.push_str(body);
    }
    in_time(ANSWER_WAIT, async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    })
    .await
}

async fn in_time<T>(wait: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(wait, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(request: &[u8]) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(request).await.unwrap();
        serve(server, Crowd::new(1), || async { Ok("m 1\n".to_owned()) })
            .await
            .unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn only_what_asks_for_metrics_gets_them() {
        let got = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(
            got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nm 1\n"),
            "{got}"
        );
        assert!(
            got.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n")
        );
        let head = ask(b"HEAD /metrics?x=y HTTP/1.0\r\n\r\n").await;
        assert!(
            head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1 x\r\n\r\n", "400"),
            (b"\x16\x03\x01\0\r\n\r\n", "400"),
            (&[b'x'; HEAD_BYTES_MAX + 2000], "431"),
        ] {
            let got = ask(request).await;
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
            assert!(!got.contains("m 1\n"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_trickles_or_stays_silent_is_cut_off() {
        let (mut client, server) = tokio::io::duplex(64);
        let served = tokio::spawn(serve(server, Crowd::new(1), || async { Ok(String::new()) }));
        let trickle = async {
            while client.write_all(b"G").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let (served, ()) = tokio::join!(served, trickle);
        assert_eq!(served.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_answer_is_cut_off() {
        let (mut client, server) = tokio::io::duplex(64);
        let request = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let served = serve(server, Crowd::new(1), || async { Ok("x".repeat(1 << 20)) });
        let (sent, served) = tokio::join!(request, served);
        sent.unwrap();
        assert_eq!(served.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
