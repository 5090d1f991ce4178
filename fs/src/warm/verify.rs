//! For mounts with passthrough: files that lie complete on disk are checked now, so that already their first reader is
//! passed through.
//!
//! Owns the turns, so that each file has the disk for itself while its time runs. Refuses to wait for a disk that is far too
//! slow: after the first file that was not done in time no other is waited for. Called by `file.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lookupfs_cache::disk::Unready;
use lookupfs_cache::page_cache::PageCache;
use lookupfs_cache::version::FileVersion;
use tokio::sync::Semaphore;

/// As many as the cache verifies at once.
const TURNS: usize = 2;
/// How long a file may take, beside what its length takes on a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that a slow disk reads in a second.
const SLOW_DISK_BYTES: u64 = 20 << 20;
const POLL: Duration = Duration::from_millis(10);

/// What the files of one job share.
#[derive(Debug)]
pub(super) struct Verifying {
    turns: Semaphore,
    has_given_up: AtomicBool,
}

impl Default for Verifying {
    fn default() -> Verifying {
        Verifying {
            turns: Semaphore::new(TURNS),
            has_given_up: AtomicBool::new(false),
        }
    }
}

impl Verifying {
    /// Whether the version lies complete on disk, and every checksum was right.
    pub(super) async fn verify(&self, pages: &std::sync::Arc<PageCache>, version: &FileVersion) -> bool {
        // It is never closed.
        let Ok(_turn) = self.turns.acquire().await else {
            return false;
        };
        if self.has_given_up.load(Ordering::Relaxed) {
            return false;
        }
        let patience = PATIENCE + Duration::from_secs(version.len() / SLOW_DISK_BYTES);
        let verifying = async {
            loop {
                match pages.complete_file(version) {
                    Ok(_) => return true,
                    Err(Unready::Incomplete) => return false,
                    Err(Unready::Unverified) => tokio::time::sleep(POLL).await,
                }
            }
        };
        match tokio::time::timeout(patience, verifying).await {
            Ok(is_verified) => is_verified,
            Err(_) => {
                if !self.has_given_up.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %version,
                        seconds = patience.as_secs(),
                        "it was not verified in time: the disk is slow or hangs, and files are left to their first readers"
                    );
                }
                false
            }
        }
    }
}
