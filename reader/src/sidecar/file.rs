//! [`Sidecar`]: the records of one version, in one file.
//!
//! Owns where each record lies, and that records are appended whole or not at all. A file that is damaged is taken away
//! and begun anew; one that cannot be read or written is as if it were not there. Refuses more records and bytes than the
//! limits below. Called by [`crate::decode::parquet`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::Sidecars;
use super::format::{self, FRAME_LEN, HEADER_LEN, RecordKey};
use crate::read_at::VersionKey;

/// Bytes that a sidecar may have.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Records whose places are remembered.
const RECORDS_MAX: usize = 1 << 16;

/// Records of so many bytes are written without waiting for the end of a lookup.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// What is known of one version on disk.
#[derive(Debug)]
pub(crate) struct Sidecar {
    owner: Sidecars,
    path: PathBuf,
    header: [u8; HEADER_LEN],
    /// Of the checksums, so that a record of another version is none.
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where each record lies in the file, and its length.
    places: HashMap<RecordKey, (u64, usize)>,
    file_len: u64,
    pending: Vec<u8>,
    pending_places: Vec<(RecordKey, usize, usize)>,
    /// Nothing more is written.
    full: bool,
}

impl Sidecar {
    /// What there is of a version of `len` bytes.
    pub(super) fn load(owner: Sidecars, path: PathBuf, key: &VersionKey, len: u64) -> Sidecar {
        let header = format::header(key, len);
        let seed = u64::from_le_bytes(header[88..].try_into().unwrap_or_default());
        let sidecar = Sidecar {
            owner,
            path,
            header,
            seed,
            state: Mutex::default(),
        };
        match sidecar.read_all() {
            Ok(Some(bytes)) => sidecar.index(&bytes),
            Ok(None) => {}
            // Nobody knows what is in it.
            Err(_) => sidecar.state.lock().full = true,
        }
        sidecar
    }

    /// All of the file, if there is one that nobody writes at the moment.
    fn read_all(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // What is used stays; that the time cannot be set is nobody's concern.
        let _ = file.set_modified(SystemTime::now());
        file.try_lock_shared()?;
        let mut bytes = Vec::new();
        (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Notes where the records are.
    fn index(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        let mut at = HEADER_LEN;
        let mut whole = bytes.starts_with(&self.header);
        while whole && at < bytes.len() {
            whole = match format::record(&bytes[at..], self.seed) {
                Some((key, payload)) if state.places.len() < RECORDS_MAX => {
                    let len = FRAME_LEN + payload.len();
                    state.places.insert(key, (at as u64, len));
                    at += len;
                    true
                }
                _ => false,
            };
        }
        state.file_len = at as u64;
        if !whole {
            // Records behind the damage would never be found.
            state.places.clear();
            state.file_len = 0;
            self.owner.count_damaged();
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Bytes of memory that it takes, as far as it is read.
    pub(crate) fn weight(&self) -> usize {
        /// Key, place, and what a hash table adds.
        const PLACE_BYTES: usize = 80;
        size_of::<Sidecar>() + self.state.lock().places.len() * PLACE_BYTES
    }

    /// The payload of a record.
    pub(crate) fn get(&self, key: &RecordKey) -> Option<Vec<u8>> {
        let (at, len) = *self.state.lock().places.get(key)?;
        let mut bytes = vec![0; len];
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, at));
        let payload = match (read, format::record(&bytes, self.seed)) {
            (Ok(()), Some((found, payload))) if found == *key => Some(payload.to_vec()),
            _ => None,
        };
        if payload.is_none() {
            self.state.lock().places.remove(key);
        }
        payload
    }

    /// All records of a kind.
    pub(crate) fn keys(&self, wanted: impl Fn(&RecordKey) -> bool) -> Vec<RecordKey> {
        let state = self.state.lock();
        state.places.keys().filter(|key| wanted(key)).copied().collect()
    }

    /// Adds a record, which is written by [`Sidecar::flush`]. One that is there already stays as it is.
    pub(crate) fn put(&self, key: RecordKey, payload: impl FnOnce() -> Vec<u8>) {
        let mut state = self.state.lock();
        let records = state.places.len() + state.pending_places.len();
        let known = state.places.contains_key(&key)
            || state.pending_places.iter().any(|(pending, ..)| *pending == key);
        if known || state.full || records >= RECORDS_MAX {
            return;
        }
        let start = state.pending.len();
        if format::append(&mut state.pending, self.seed, &key, &payload()).is_none() {
            return;
        }
        let end = state.pending.len();
        let len = end - start;
        if state.file_len.max(HEADER_LEN as u64) + end as u64 > FILE_BYTES_MAX {
            state.pending.truncate(start);
            return;
        }
        state.pending_places.push((key, start, len));
        if end >= PENDING_BYTES_MAX {
            self.write(&mut state);
        }
    }

    /// Writes what was added: one write, or none if there is nothing.
    pub(crate) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.pending.is_empty() {
            self.write(&mut state);
        }
    }

    fn write(&self, state: &mut State) {
        let pending = std::mem::take(&mut state.pending);
        let places = std::mem::take(&mut state.pending_places);
        match self.append(&pending) {
            Ok((start, end)) => {
                let at = |(key, from, len)| (key, (start + from as u64, len));
                state.places.extend(places.into_iter().map(at));
                self.owner.count_bytes(end.saturating_sub(state.file_len));
                state.file_len = end;
            }
            // A disk that is full, or a directory that has gone: what is not kept is made again.
            Err(_) => state.full = true,
        }
    }

    /// Where in the file the records begin, and the file ends.
    fn append(&self, records: &[u8]) -> io::Result<(u64, u64)> {
        let mut file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        // Two processes write one after the other, and nobody waits for a third that hangs.
        file.try_lock()?;
        let before = file.seek(SeekFrom::End(0))?;
        let written = self.append_at(&mut file, before, records);
        if written.is_err() {
            // A part of a record would hide those behind it.
            let _ = file.set_len(before);
        }
        written
    }

    fn append_at(&self, file: &mut File, before: u64, records: &[u8]) -> io::Result<(u64, u64)> {
        if before == 0 {
            let all = [&self.header[..], records].concat();
            file.write_all(&all)?;
            return Ok((HEADER_LEN as u64, all.len() as u64));
        }
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0)?;
        if header != self.header || before.saturating_add(records.len() as u64) > FILE_BYTES_MAX {
            return Err(io::Error::other("the sidecar of another version, or a full one"));
        }
        file.write_all(records)?;
        Ok((before, before + records.len() as u64))
    }
}
