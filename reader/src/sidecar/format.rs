//! The bytes of a sidecar: a header that names the version, and records behind it, each with a checksum.
//!
//! Owns the framing that `SIDECAR.md` describes. Refuses records that are cut, moved or of another version. Pure. What
//! stands in a record is for those who wrote it. Called by [`super::file`].

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::read_at::VersionKey;

/// The first bytes of a sidecar.
const MAGIC: &[u8; 8] = b"lookupsc";

/// The layout that this code reads and writes.
const FORMAT: u32 = 1;

/// Bytes of a header.
pub(super) const HEADER_LEN: usize = 96;

/// Bytes of a record before its payload.
pub(super) const FRAME_LEN: usize = 40;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Where the values of a data page lie.
    Map = 1,
    /// Where the data pages of a column of a row group lie.
    Index = 2,
}

/// What a record is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RecordKey {
    pub(crate) kind: RecordKind,
    pub(crate) row_group: u32,
    pub(crate) leaf: u32,
    /// Of the data page in the file; 0 for an index.
    pub(crate) offset: u64,
    /// Bytes of the data page with its header; 0 for an index.
    pub(crate) len: u64,
}

/// The header for a version of `len` bytes.
pub(super) fn header(key: &VersionKey, len: u64) -> [u8; HEADER_LEN] {
    let mut identity = Vec::with_capacity(HEADER_LEN);
    let kind = match key {
        VersionKey::Version(version) => {
            identity.extend(version);
            1u32
        }
        VersionKey::Attributes {
            dev,
            ino,
            len,
            mtime_ns,
            ctime_ns,
        } => {
            identity.extend(dev.to_le_bytes());
            identity.extend(ino.to_le_bytes());
            identity.extend(len.to_le_bytes());
            identity.extend(mtime_ns.to_le_bytes());
            identity.extend(ctime_ns.to_le_bytes());
            2
        }
    };
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&kind.to_le_bytes());
    header[16..24].copy_from_slice(&len.to_le_bytes());
    header[24..24 + identity.len()].copy_from_slice(&identity);
    let checksum = xxh3_64(&header[..88]);
    header[88..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Appends a record to `out`. `None`, and nothing appended, if the payload is too long for one.
pub(super) fn append(out: &mut Vec<u8>, seed: u64, key: &RecordKey, payload: &[u8]) -> Option<()> {
    let len = u32::try_from(payload.len()).ok()?;
    let start = out.len();
    out.extend([0; 8]);
    out.extend(len.to_le_bytes());
    out.extend([key.kind as u8, 0, 0, 0]);
    out.extend(key.row_group.to_le_bytes());
    out.extend(key.leaf.to_le_bytes());
    out.extend(key.offset.to_le_bytes());
    out.extend(key.len.to_le_bytes());
    out.extend(payload);
    let checksum = xxh3_64_with_seed(&out[start + 8..], seed);
    out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

/// The record that `bytes` begin with, if it is whole and right: what it is about, and its payload.
pub(super) fn record(bytes: &[u8], seed: u64) -> Option<(RecordKey, &[u8])> {
    let frame = bytes.first_chunk::<FRAME_LEN>()?;
    let u32_at = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let end = FRAME_LEN.checked_add(u32_at(8) as usize)?;
    let body = bytes.get(8..end)?;
    if xxh3_64_with_seed(body, seed) != u64_at(0) || frame[13..16] != [0; 3] {
        return None;
    }
    let key = RecordKey {
        kind: match frame[12] {
            1 => RecordKind::Map,
            2 => RecordKind::Index,
            _ => return None,
        },
        row_group: u32_at(16),
        leaf: u32_at(20),
        offset: u64_at(24),
        len: u64_at(32),
    };
    Some((key, &bytes[FRAME_LEN..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey = RecordKey {
        kind: RecordKind::Map,
        row_group: 1,
        leaf: 2,
        offset: 3,
        len: 4,
    };

    #[test]
    fn a_record_is_read_back_and_any_changed_bit_is_seen() {
        let mut bytes = Vec::new();
        append(&mut bytes, 7, &KEY, b"payload").unwrap();
        assert_eq!(record(&bytes, 7), Some((KEY, &b"payload"[..])));
        assert_eq!(record(&bytes, 8), None, "a record of another version");
        for len in 0..bytes.len() {
            assert_eq!(record(&bytes[..len], 7), None, "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(record(&bad, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn headers_of_different_versions_differ() {
        let version = |byte| VersionKey::Version([byte; 16]);
        let attributes = |ctime_ns| VersionKey::Attributes {
            dev: 1,
            ino: 2,
            len: 3,
            mtime_ns: 4,
            ctime_ns,
        };
        let headers = [
            header(&version(1), 9),
            header(&version(2), 9),
            header(&version(1), 8),
            header(&attributes(5), 3),
            header(&attributes(6), 3),
        ];
        for (number, one) in headers.iter().enumerate() {
            assert!(headers[..number].iter().all(|other| other != one), "{number}");
        }
    }
}
