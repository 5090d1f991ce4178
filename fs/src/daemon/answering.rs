//! What the daemon answers on its control socket.
//!
//! Owns the way from a request to its answers. Refuses to wait for a source but where a mount is asked for. Called by
//! `daemon.rs` for each connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{Daemon, WARMS_MAX};
use crate::control::connection::{self, Answers, Asked};
use crate::control::{Answer, FilesRequest, MountRequest, Request, StatsRequest, mount_namespace};
use crate::file_usage::Since;
use crate::metrics;
use crate::mounts::{Mounted, Mounts};
use crate::stats::{MountStats, SourceStats, Stats};
use crate::warm::{self, WarmRequest};

/// Has the daemon look whether it is still needed, once nobody holds this any more: neither who mounts, nor who waits
/// for the answer. A daemon that was started for a mount that failed ends then, after the answer is out.
struct LookAgain(Arc<Mounts>);

impl Drop for LookAgain {
    fn drop(&mut self) {
        self.0.look_again();
    }
}

/// Files in one answer, over all mounts.
const FILES_MAX: usize = 5000;

impl Daemon {
    /// Serves one control connection.
    pub(super) async fn serve(self: Arc<Self>, stream: UnixStream) -> std::io::Result<()> {
        let Some(asked) = connection::receive(stream).await? else {
            return Ok(());
        };
        let Asked {
            request,
            reader,
            write,
        } = asked;
        match request {
            Request::Mount(request) => {
                let mounting = |answers| self.answer_mount(request, answers);
                connection::serve(reader, write, mounting).await
            }
            Request::Stats(request) => {
                let counting = |answers| self.answer_stats(request, answers);
                connection::serve(reader, write, counting).await
            }
            Request::Warm(request) => self.warm(request, reader, write).await,
        }
    }

    async fn answer_mount(self: Arc<Self>, request: Box<MountRequest>, answers: Answers) -> Arc<LookAgain> {
        let look_again = Arc::new(LookAgain(self.mounts.clone()));
        // At once: whoever asked knows then that somebody works, and may wait for the source.
        let _ = answers.send(Answer::Mounting).await;
        let answer = self.mount_apart(request, look_again.clone()).await;
        // Who has gone is not told.
        let _ = answers.send(answer).await;
        look_again
    }

    async fn answer_stats(self: Arc<Self>, request: StatsRequest, answers: Answers) {
        // Finding the files with most bytes takes a while where the kernel holds a million.
        let stats = tokio::task::spawn_blocking(move || self.stats_for(request)).await;
        let answer = match stats {
            Ok(stats) => Answer::Stats(Box::new(stats)),
            Err(error) => Answer::Failed(format!("the daemon failed at counting ({error}); see its log")),
        };
        let _ = answers.send(answer).await;
    }

    /// A conversation in which paths come in while events go out. On a thread of its own: it stays for long.
    async fn warm(
        &self,
        request: WarmRequest,
        reader: BufReader<OwnedReadHalf>,
        mut write: OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let Ok(turn) = self.warms.clone().try_acquire_owned() else {
            let reason = format!("{WARMS_MAX} others of `lookupfs warm` are at work; wait for one of them");
            return connection::send(&mut write, &Answer::Failed(reason)).await;
        };
        connection::send(&mut write, &Answer::Warming).await?;
        let works_on = (self.shared.pages.clone(), self.mounts.clone());
        let runtime = self.runtime.clone();
        let serving = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            runtime.block_on(warm::serve::serve(request, reader, write, works_on))
        });
        serving
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Mounts on a thread that may block. Where the connection ends meanwhile this future is dropped, and the thread
    /// sees it.
    async fn mount_apart(self: &Arc<Self>, request: Box<MountRequest>, held: Arc<LookAgain>) -> Answer {
        let this = self.clone();
        let somebody_waits = Arc::new(());
        let waits = Arc::downgrade(&somebody_waits);
        let mounting = tokio::task::spawn_blocking(move || {
            let _held = held;
            this.mount(&request, &|| waits.strong_count() > 0)
        });
        let mounted = mounting.await;
        drop(somebody_waits);
        match mounted {
            Ok(Ok(())) => Answer::Mounted,
            _ if self.is_ending.load(Ordering::SeqCst) => Answer::Ending,
            Ok(Err(reason)) => Answer::Failed(reason),
            Err(error) => Answer::Failed(format!("the daemon failed at mounting ({error}); see its log")),
        }
    }

    /// What a scrape is answered with.
    pub(super) fn metrics(self: Arc<Self>) -> impl FnOnce() -> BoxFuture<'static, Result<String, String>> {
        move || async move { metrics::text([&self.stats()]) }.boxed()
    }

    /// Everything that is counted. Waits for no source.
    pub fn stats(&self) -> Stats {
        let sources = self.sources.lock();
        let mut sources: Vec<SourceStats> = sources
            .values()
            .map(|source| SourceStats {
                id: source.namespace.source().id().to_string(),
                requests: source.requests(),
                namespace: serde_json::to_value(source.namespace.stats()).unwrap_or_default(),
            })
            .collect();
        sources.sort_by(|a, b| a.id.cmp(&b.id));
        let mounts = self.mounts.list();
        Stats {
            daemon: self.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            options: self.options.clone(),
            mount_namespace: mount_namespace(),
            mounts: mounts.iter().map(|mounted| mount_stats(mounted)).collect(),
            kernel: self.mounts.asked(),
            cache: serde_json::to_value(self.shared.pages.stats()).unwrap_or_default(),
            sources,
            at_reset: None,
        }
    }

    /// The counters for whoever asks on the control socket.
    fn stats_for(&self, StatsRequest { reset, files }: StatsRequest) -> Stats {
        let mut stats = self.stats();
        let at_reset = if reset {
            for mounted in self.mounts.list() {
                mounted.filesystem.reset_files();
            }
            self.at_reset.lock().replace(Box::new(stats.clone()))
        } else {
            self.at_reset.lock().clone()
        };
        stats.at_reset = at_reset;
        if let Some(FilesRequest {
            mount_point,
            count,
            since_reset,
        }) = files
        {
            let since = if since_reset { Since::Reset } else { Since::Start };
            // An answer is one line, which has a limit.
            let count = count.min(FILES_MAX / self.mounts.list().len().max(1));
            for mounted in self.mounts.list() {
                let is_wanted = mount_point.as_ref().is_none_or(|wanted| *wanted == mounted.path);
                let of_it = |mount: &&mut MountStats| is_wanted && mount.mount_point == mounted.path;
                if let Some(mount) = stats.mounts.iter_mut().find(of_it) {
                    mount.files = Some(mounted.filesystem.top_files(count, since));
                }
            }
        }
        stats
    }
}

fn mount_stats(mounted: &Mounted) -> MountStats {
    let filesystem = &mounted.filesystem;
    let agreed = filesystem.agreed.get().cloned().unwrap_or_default();
    MountStats {
        mount_point: mounted.path.clone(),
        source: mounted.source.clone(),
        source_id: filesystem.namespace().source().id().to_string(),
        inodes: filesystem.inodes_held() as u64,
        opens: filesystem.open_report.stats(),
        requests: filesystem.counters().values(),
        fetched_bytes: filesystem.account.fetched_bytes(),
        fetched_extents: filesystem.account.extents(),
        in_flight: filesystem.operations.in_flight(),
        oldest: filesystem.operations.oldest(Instant::now()),
        settings: agreed.in_force(mounted.device.as_deref()),
        files: None,
    }
}
