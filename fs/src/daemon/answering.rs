//! What the daemon answers on its control socket.
//!
//! Owns the way from a request to its answers. Refuses to wait for a source but where a mount is asked for. Called by
//! `daemon.rs` for each connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::UnixStream;

use super::Daemon;
use crate::control::connection::{self, Answers};
use crate::control::{Answer, FilesRequest, MountRequest, Request, StatsRequest};
use crate::metrics;
use crate::mounts::{Mounted, Mounts};
use crate::stats::{MountStats, SourceStats, Stats};

/// Has the daemon look whether it is still needed, once nobody holds this any more: neither who mounts, nor who waits
/// for the answer. A daemon that was started for a mount that failed ends then, after the answer is out.
struct LookAgain(Arc<Mounts>);

impl Drop for LookAgain {
    fn drop(&mut self) {
        self.0.look_again();
    }
}

impl Daemon {
    /// Serves one control connection.
    pub(super) async fn serve(self: Arc<Self>, stream: UnixStream) -> std::io::Result<()> {
        connection::serve(stream, |request, answers| self.answer(request, answers)).await
    }

    async fn answer(self: Arc<Self>, request: Request, answers: Answers) -> Option<Arc<LookAgain>> {
        match request {
            Request::Mount(request) => {
                let look_again = Arc::new(LookAgain(self.mounts.clone()));
                let answer = self.answer_mount(request, look_again.clone()).await;
                // Who has gone is not told; what is mounted stays mounted.
                let _ = answers.send(answer).await;
                Some(look_again)
            }
            Request::Stats(request) => {
                // Finding the files with most bytes takes a while where the kernel holds a million.
                let this = self.clone();
                let stats = tokio::task::spawn_blocking(move || this.stats_for(request)).await;
                let answer = match stats {
                    Ok(stats) => Answer::Stats(Box::new(stats)),
                    Err(error) => {
                        Answer::Failed(format!("the daemon failed at counting ({error}); see its log"))
                    }
                };
                let _ = answers.send(answer).await;
                None
            }
        }
    }

    /// Mounts on a thread that may block. It goes on where the connection ends meanwhile.
    async fn answer_mount(self: &Arc<Self>, request: Box<MountRequest>, held: Arc<LookAgain>) -> Answer {
        let this = self.clone();
        let mounting = tokio::task::spawn_blocking(move || {
            let _held = held;
            this.mount(&request)
        });
        match mounting.await {
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
            self.at_reset.lock().replace(Box::new(stats.clone()))
        } else {
            self.at_reset.lock().clone()
        };
        stats.at_reset = at_reset;
        if let Some(FilesRequest { mount_point, count }) = files {
            for mounted in self.mounts.list() {
                let is_wanted = mount_point.as_ref().is_none_or(|wanted| *wanted == mounted.path);
                let of_it = |mount: &&mut MountStats| is_wanted && mount.mount_point == mounted.path;
                if let Some(mount) = stats.mounts.iter_mut().find(of_it) {
                    mount.files = Some(mounted.filesystem.top_files(count));
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
