//! Complete files: versions of which every page is on disk, and every checksum was verified since this daemon started.
//!
//! Owns the pins: what is pinned is not evicted. Refuses to wait: whoever asks for a file that is complete but not yet
//! verified starts the verification, and asks again later. Called by `page_cache.rs`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::index::Standing;
use super::version_file::{ReadPage, VersionFiles, Wait, run_pages_max};
use super::{Core, Lost};
use crate::version::{FileVersion, VersionId};

/// Verifications at once. Each reads as fast as the disk gives.
const RUNNING_MAX: usize = 2;
/// Versions remembered as verified, at most; each keeps a descriptor.
const VERIFIED_MAX: usize = 1024;

/// How long a version that could not be verified is left alone: each try reads all of it.
const REST: Duration = Duration::from_secs(10);
/// Such versions that are remembered.
const FAILED_MAX: usize = 1024;

/// Which versions are verified, and which are being.
#[derive(Debug, Default)]
pub(super) struct Verified(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<VersionId, Proof>,
    running: Vec<VersionId>,
    /// Those that failed a moment ago, and when.
    failed: HashMap<VersionId, Instant>,
}

/// That a file has the bytes of its version.
#[derive(Clone, Debug)]
struct Proof {
    ticket: u64,
    /// Once a page has gone it is another.
    generation: u64,
    file: Arc<File>,
    seal: Seal,
}

/// What changes with every write to a file, and every cut, that does not go round the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seal {
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Seal {
    fn of(file: &File) -> Option<Seal> {
        let metadata = file.metadata().ok()?;
        Some(Seal {
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Verified {
    /// Lets go of a version's file, so that its room is given back once it is deleted.
    pub(super) fn forget(&self, id: VersionId) {
        self.0.lock().files.remove(&id);
    }

    /// As [`Verified::forget`], for all versions.
    pub(super) fn forget_all(&self) {
        self.0.lock().files.clear();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().files.len()
    }
}

/// A version that is whole and verified on disk: at each offset the file has the version's bytes. While the value lives
/// nothing of the version is evicted.
#[derive(Debug)]
pub struct CompleteFile {
    file: Arc<File>,
    _pin: Pin,
}

/// Why the local file of a version cannot be used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Pages are missing on disk, or there is no disk tier.
    Incomplete,
    /// It may be complete, but has not been read against its checksums since the daemon started, or was changed since. That
    /// has begun.
    Unverified,
}

/// Nothing of the version goes while this lives.
#[derive(Debug)]
struct Pin {
    core: Arc<Core>,
    id: VersionId,
    ticket: u64,
}

impl CompleteFile {
    /// The sparse file without a hole, opened for reading alone.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.index.lock().unpin(self.id, self.ticket);
    }
}

pub(super) fn complete_file(core: &Arc<Core>, version: &FileVersion) -> Result<CompleteFile, Unready> {
    let id = version.id();
    if core.switch.is_off() {
        return Err(Unready::Incomplete);
    }
    let is_left = matches!(core.index.lock().standing(id), Standing::Left(_));
    if !is_left {
        // Pinned first, so that what is then seen to be complete stays so.
        let (pin, generation) = pin_if_complete(core, version).ok_or(Unready::Incomplete)?;
        let proof = core.verified.0.lock().files.get(&id).cloned();
        if let Some(proof) = proof {
            let is_of_this = (proof.ticket, proof.generation) == (pin.ticket, generation);
            let is_sealed = Seal::of(&proof.file) == Some(proof.seal);
            if is_of_this && is_sealed {
                return Ok(CompleteFile {
                    file: proof.file,
                    _pin: pin,
                });
            }
            if is_of_this {
                tracing::warn!(
                    %version,
                    "somebody else has changed its file in the cache: it is verified again before the kernel reads it"
                );
            }
            core.verified.0.lock().files.remove(&id);
        }
    } else {
        core.verified.0.lock().files.remove(&id);
    }
    start_to_verify(core, version);
    Err(Unready::Unverified)
}

/// In the background, and once for all who ask meanwhile.
fn start_to_verify(core: &Arc<Core>, version: &FileVersion) {
    let id = version.id();
    let mut verified = core.verified.0.lock();
    // One that has ended since the proof was looked for has left its own, for whoever asks next.
    let is_known = verified.files.contains_key(&id) || verified.running.contains(&id);
    let rests = verified.failed.get(&id).is_some_and(|at| at.elapsed() < REST);
    if is_known || rests || verified.running.len() >= RUNNING_MAX {
        return;
    }
    verified.running.push(id);
    drop(verified);
    let (works, version) = (core.clone(), version.clone());
    let started = std::thread::Builder::new()
        .name("disk-verifier".into())
        .spawn(move || verify(&works, &version));
    if let Err(error) = started {
        tracing::warn!(%error, "no thread to verify a file");
        core.verified.0.lock().running.retain(|running| *running != id);
    }
}

/// Ends a run, also one that panics: its place is for others.
struct Run<'a>(&'a Core, VersionId);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0
            .verified
            .0
            .lock()
            .running
            .retain(|running| *running != self.1);
    }
}

fn verify(core: &Arc<Core>, version: &FileVersion) {
    let id = version.id();
    let _run = Run(core, id);
    // One that cannot be loaded is not complete either.
    let _ = core.make_sure_it_is_loaded(id, false);
    let pinned = pin_if_complete(core, version);
    let file = pinned.and_then(|(pin, generation)| {
        // The file that was read, whatever stands in its place by now; and as it was before the first byte was read.
        let (files, seal) = core.read_whole(id, generation)?;
        let file = files.data_for_reading().ok()?;
        (Seal::of(&file) == Some(seal)).then_some((pin, generation, file, seal))
    });
    let mut verified = core.verified.0.lock();
    let Some((pin, generation, file, seal)) = file else {
        if verified.failed.len() >= FAILED_MAX {
            verified.failed.retain(|_, at| at.elapsed() < REST);
        }
        if verified.failed.len() < FAILED_MAX {
            verified.failed.insert(id, Instant::now());
        }
        return;
    };
    verified.failed.remove(&id);
    // Taken out of the index as a whole, it is nobody's, and its file would never be let go.
    let ticket = core.index.lock().versions.get(&id).map(|version| version.ticket);
    if ticket == Some(pin.ticket) {
        core.counters.verified_files.add(1);
        if verified.files.len() >= VERIFIED_MAX {
            // Any of them: who asks for it again has it verified again.
            let any = verified.files.keys().next().copied();
            any.and_then(|any| verified.files.remove(&any));
        }
        let proof = Proof {
            ticket: pin.ticket,
            generation,
            file: Arc::new(file),
            seal,
        };
        verified.files.insert(id, proof);
        // While nobody can see the proof yet: who has seen it may evict the version.
        drop(pin);
    }
}

/// Pins the version if all of its pages are there.
fn pin_if_complete(core: &Arc<Core>, version: &FileVersion) -> Option<(Pin, u64)> {
    let id = version.id();
    let mut index = core.index.lock();
    let known = index.versions.get(&id)?;
    let loaded = known.loaded.as_ref()?;
    if loaded.pages != loaded.shape.pages || loaded.shape.len != version.len() {
        return None;
    }
    let (ticket, generation) = (known.ticket, loaded.generation);
    index.pin(id);
    let pin = Pin {
        core: core.clone(),
        id,
        ticket,
    };
    Some((pin, generation))
}

impl Core {
    /// Reads every page against its checksum; a page that fails is dropped as any other that a reader meets.
    /// The files, if all passed, and the seal that the data had before.
    fn read_whole(&self, id: VersionId, generation: u64) -> Option<(Arc<VersionFiles>, Seal)> {
        let (files, pages) = {
            let index = self.index.lock();
            let loaded = index.loaded(id)?;
            (loaded.files.clone(), loaded.shape.pages)
        };
        let files = files.or_else(|| self.reopen(id))?;
        files.read_anew();
        let seal = Seal::of(files.data())?;
        let step = run_pages_max(self.page_size);
        (0..pages)
            .step_by(step as usize)
            .all(|first| self.is_run_whole(&files, id, first..(first + step).min(pages), generation))
            .then_some((files, seal))
    }

    fn is_run_whole(
        &self,
        files: &VersionFiles,
        id: VersionId,
        run: std::ops::Range<u64>,
        generation: u64,
    ) -> bool {
        if self.switch.is_off() {
            return false;
        }
        let mut lost = Lost::default();
        match files.read(run.clone(), Wait::AsLongAsItTakes) {
            Ok(read) => lost
                .damaged
                .extend(read.into_iter().filter_map(|page| match page {
                    ReadPage::Whole(..) => None,
                    ReadPage::Torn(page) | ReadPage::Absent(page) => Some(page),
                })),
            Err(error) => {
                self.count_failed_read(id, &error);
                lost.unreadable.extend(run);
            }
        }
        let is_whole = lost.is_empty();
        self.forget_lost(id, &lost, generation);
        is_whole
    }
}
