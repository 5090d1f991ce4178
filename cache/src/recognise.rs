//! What a file is for, told by its name alone. A wrong guess is only a wasted byte.
//!
//! Owns the list of names. Refuses to look into files. Called by `tails.rs`.

use crate::version::SourcePath;

/// What the cache knows of a file by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    Plain,
    /// Data with a footer at its end that says where what is.
    Footer(Format),
    /// Small, and read from its first byte to its last: manifests, snapshots, schemas.
    Whole,
}

/// Formats with a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Orc,
    Lance,
    Puffin,
    PaimonRow,
}

/// The role of the file at `path`.
pub(crate) fn recognise(path: &SourcePath) -> Role {
    let name = path.name();
    for (suffix, format) in [
        (&b".parquet"[..], Format::Parquet),
        (b".parq", Format::Parquet),
        (b".orc", Format::Orc),
        (b".lance", Format::Lance),
        (b".puffin", Format::Puffin),
        // Iceberg's statistics are Puffin files.
        (b".stats", Format::Puffin),
        (b".row", Format::PaimonRow),
    ] {
        if name.ends_with(suffix) {
            return Role::Footer(format);
        }
    }
    if is_whole(name) { Role::Whole } else { Role::Plain }
}

fn is_whole(name: &[u8]) -> bool {
    // Iceberg: manifests and their lists, table metadata. Lance: manifests.
    const SUFFIXES: [&[u8]; 4] = [b".avro", b".metadata.json", b".metadata.json.gz", b".manifest"];
    // Parquet's summary files are all footer.
    const NAMES: [&[u8]; 5] = [
        b"version-hint.text",
        b"LATEST",
        b"EARLIEST",
        b"_metadata",
        b"_common_metadata",
    ];
    const PREFIXES: [&[u8]; 3] = [b"manifest-", b"index-", b"index-manifest-"];
    const NUMBERED: [&[u8]; 3] = [b"snapshot-", b"schema-", b"changelog-"];
    NAMES.contains(&name)
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NUMBERED.iter().any(|prefix| {
            name.strip_prefix(*prefix)
                .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
        })
}

/// The directory whose files have metadata of like size: partitions and buckets of a table count as the table.
pub(crate) fn table_directory(path: &SourcePath) -> SourcePath {
    let mut directory = path.parent();
    while !directory.is_root()
        && (directory.name().contains(&b'=') || directory.name().starts_with(b"bucket-"))
    {
        directory = directory.parent();
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SourcePath {
        SourcePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn names_of_each_format_are_known() {
        for (name, role) in [
            ("/t/part-0.snappy.parquet", Role::Footer(Format::Parquet)),
            ("/t/data-1.orc", Role::Footer(Format::Orc)),
            ("/t/data/1.lance", Role::Footer(Format::Lance)),
            ("/t/metadata/dv.puffin", Role::Footer(Format::Puffin)),
            ("/t/bucket-0/data-1.parquet.row", Role::Footer(Format::PaimonRow)),
            ("/t/metadata/snap-12-0-ab.avro", Role::Whole),
            ("/t/metadata/v3.metadata.json", Role::Whole),
            ("/t/metadata/version-hint.text", Role::Whole),
            ("/t/snapshot/LATEST", Role::Whole),
            ("/t/snapshot/snapshot-12", Role::Whole),
            ("/t/schema/schema-0", Role::Whole),
            ("/t/manifest/manifest-list-ab-0", Role::Whole),
            ("/t/index/index-ab-0", Role::Whole),
            ("/t/_versions/7.manifest", Role::Whole),
            ("/t/schema/schema-", Role::Plain),
            ("/t/snapshot-12.csv", Role::Plain),
            ("/t/latest", Role::Plain),
            ("/t/data.csv", Role::Plain),
        ] {
            assert_eq!(recognise(&path(name)), role, "{name}");
        }
    }

    #[test]
    fn partitions_and_buckets_share_what_is_learned() {
        assert_eq!(
            table_directory(&path("/w/t/day=1/bucket-0/a.parquet")),
            path("/w/t")
        );
        assert_eq!(table_directory(&path("/w/t/a.parquet")), path("/w/t"));
        assert_eq!(table_directory(&path("/x=1/a.parquet")), path("/"));
    }
}
