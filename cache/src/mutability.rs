//! Which names may hold other bytes tomorrow, told by the name alone.
//!
//! Owns two lists. *Mutable* names are written again in place, or numbered anew after a rollback: pointers to the newest
//! snapshot, numbered snapshots and metadata files, Parquet's summary files. *Unique* names hold a UUID: writers of tables
//! never use one twice. Decides nothing: how long an answer about a name may be used is up to the mount.

use crate::version::SourcePath;

/// Written again under the same name.
const POINTERS: [&[u8]; 8] = [
    b"LATEST",
    b"EARLIEST",
    b"version-hint.text",
    b"_metadata",
    b"_common_metadata",
    b"_last_checkpoint",
    b"_latest.manifest",
    b"_SUCCESS",
];
/// A prefix, then a number: a rollback takes numbers back, and the next commit uses them again.
const NUMBERED: [(&[u8], &[u8]); 7] = [
    (b"snapshot-", b""),
    (b"schema-", b""),
    (b"changelog-", b""),
    (b"v", b".metadata.json"),
    (b"v", b".gz.metadata.json"),
    (b"v", b".metadata.json.gz"),
    (b"", b".manifest"),
];
/// A prefix, then a name that people choose.
const NAMED: [&[u8]; 3] = [b"tag-", b"branch-", b"consumer-"];

/// Whether the file at `path` may get other bytes under its name, even in a tree whose other files never change.
pub fn is_mutable(path: &SourcePath) -> bool {
    let name = path.name();
    POINTERS.contains(&name)
        || NUMBERED.iter().any(|(prefix, suffix)| {
            let number = name
                .strip_prefix(*prefix)
                .and_then(|rest| rest.strip_suffix(*suffix));
            number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
        })
        || (!is_unique(path) && NAMED.iter().any(|prefix| name.starts_with(prefix)))
}

/// Whether the name holds a UUID, as in `manifest-<uuid>-0` or `<uuid>-m0.avro`: it is never used for other bytes.
pub fn is_unique(path: &SourcePath) -> bool {
    path.name().windows(UUID_LEN).any(is_uuid)
}

const UUID_LEN: usize = 36;

fn is_uuid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0e1d2c3b-4a59-6877-8695-a4b3c2d1e0f9";

    fn path(text: &str) -> SourcePath {
        SourcePath::parse(format!("/t/{text}").as_bytes()).unwrap()
    }

    #[test]
    fn names_that_are_written_again_are_mutable_and_unique_names_are_not() {
        for name in [
            "snapshot-12",
            "LATEST",
            "EARLIEST",
            "version-hint.text",
            "v3.metadata.json",
            "v3.gz.metadata.json",
            "_metadata",
            "_common_metadata",
            "schema-0",
            "7.manifest",
            "_last_checkpoint",
            "tag-nightly",
        ] {
            assert!(is_mutable(&path(name)) && !is_unique(&path(name)), "{name}");
        }
        for name in [
            format!("manifest-{UUID}-0"),
            format!("manifest-list-{UUID}-3"),
            format!("data-{UUID}-12.parquet"),
            format!("{UUID}-m0.avro"),
            format!("snap-812-1-{UUID}.avro"),
            format!("00000-{UUID}.metadata.json"),
            format!("{UUID}.lance"),
            format!("tag-{}", UUID.to_uppercase()),
        ] {
            assert!(is_unique(&path(&name)) && !is_mutable(&path(&name)), "{name}");
        }
        for name in [
            "data.parquet",
            "snapshot-",
            "snapshot-x",
            "v.metadata.json",
            "part-0.orc",
            "0e1d2c3b-4a59",
        ] {
            assert!(!is_mutable(&path(name)) && !is_unique(&path(name)), "{name}");
        }
    }
}
