//! What a peer may do to a control connection: nothing that others would notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

/// As the daemon does with a request whose answers are all it says.
async fn serve_all<T, F>(stream: UnixStream, handle: impl FnOnce(Request, Answers) -> F) -> io::Result<()>
where
    F: Future<Output = T>,
{
    match receive(stream).await? {
        Some(Asked {
            request,
            reader,
            write,
        }) => serve(reader, write, |answers| handle(request, answers)).await,
        None => Ok(()),
    }
}

const STATS: &[u8] = b"{\"Stats\":{\"reset\":false}}\n";

/// Sets its flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn several_answers_come_in_order_and_the_yield_lives_until_the_last_is_out() {
    let (mut peer, stream) = pair();
    peer.write_all(STATS).await.unwrap();
    let (is_dropped, sent) = (Arc::new(AtomicBool::new(false)), 100);
    let kept = Dropped(is_dropped.clone());
    let served = serve_all(stream, |_, answers| async move {
        for number in 0..sent {
            answers.send(Answer::Failed(number.to_string())).await.unwrap();
        }
        kept
    });
    let read = async {
        let mut text = String::new();
        peer.read_to_string(&mut text).await.unwrap();
        text
    };
    let (served, text) = tokio::join!(served, read);
    served.unwrap();
    let lines: Vec<String> = (0..sent).map(|n| format!("{{\"Failed\":\"{n}\"}}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert!(is_dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn work_ends_with_the_peer_that_asked_for_it() {
    let (mut peer, stream) = pair();
    peer.write_all(STATS).await.unwrap();
    let is_dropped = Arc::new(AtomicBool::new(false));
    let working = Dropped(is_dropped.clone());
    let served = tokio::spawn(serve_all(stream, |_, answers| async move {
        let _working = working;
        answers.send(Answer::Mounted).await.unwrap();
        std::future::pending::<()>().await;
    }));
    let mut answer = String::new();
    BufReader::new(&mut peer).read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "\"Mounted\"\n");
    assert!(!is_dropped.load(Ordering::SeqCst));
    drop(peer);
    let error = served.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(is_dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_trickles_is_cut_off_once_its_time_is_up() {
    let (mut peer, stream) = pair();
    let begun = tokio::time::Instant::now();
    let served = tokio::spawn(serve_all(stream, |_, _| async {}));
    // A byte a second: no single wait is long.
    let trickle = async {
        while peer.write_all(b" ").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let (served, ()) = tokio::join!(served, trickle);
    assert_eq!(served.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(begun.elapsed() <= REQUEST_WAIT * 2, "by the test's own clock");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_answer_is_cut_off_and_the_work_ends() {
    let (mut peer, stream) = pair();
    peer.write_all(STATS).await.unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let served = serve_all(stream, |_, answers| async move {
        let long = "x".repeat(100_000);
        while answers.send(Answer::Failed(long.clone())).await.is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(served.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 200, "{sent} answers were made for a peer that reads none");
}

#[tokio::test]
async fn garbage_is_answered_with_a_sentence_and_reaches_nobody() {
    for garbage in [
        &b"GET / HTTP/1.1\n"[..],
        b"{\"Stats\":7}\n",
        b"\xff\xfe\0\n",
        b"{}\n",
    ] {
        let (mut peer, stream) = pair();
        peer.write_all(garbage).await.unwrap();
        serve_all(stream, |request, _| async move { panic!("{request:?}") })
            .await
            .unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("does not understand"), "{garbage:?}: {text}");
    }
}

#[tokio::test]
async fn a_line_without_end_is_refused_at_its_limit() {
    let (mut peer, stream) = pair();
    let served = tokio::spawn(serve_all(stream, |_, _| async {}));
    let block = vec![b' '; 1 << 16];
    let mut written = 0;
    while peer.write_all(&block).await.is_ok() {
        written += block.len() as u64;
        assert!(written < LINE_BYTES_MAX * 2, "it reads on");
    }
    let error = served.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_peer_that_says_more_than_its_request_is_cut_off() {
    let (mut peer, stream) = pair();
    peer.write_all(STATS).await.unwrap();
    peer.write_all(b"more").await.unwrap();
    let served = serve_all(stream, |_, _answers| std::future::pending::<()>());
    assert_eq!(served.await.unwrap_err().kind(), io::ErrorKind::InvalidData);
}
