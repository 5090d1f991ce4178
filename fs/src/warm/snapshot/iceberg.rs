//! Iceberg: `metadata/*.metadata.json` names manifest lists (Avro), those name manifests (Avro), those name data and
//! delete files.
//!
//! Files are named by URLs below the table's location; a table that was moved, or that other hosts reach by another name,
//! is still itself, so what follows the location counts. A URL elsewhere is found by its last part. Called by
//! `snapshot.rs`.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::avro::Event;
use super::{FILE_BYTES_MAX, Result, Snapshot, SnapshotError, SnapshotId, damaged, json, read, records};
use crate::warm::inputs::shown_path;

/// Entries of manifests that are no longer part of the table.
const DELETED: i64 = 2;

pub(super) fn find(table: &Path, id: SnapshotId) -> Result<Snapshot> {
    let path = newest_metadata(table)?;
    let metadata = json(&path, &unpacked(&path)?)?;
    let current = metadata.get("current-snapshot-id").and_then(Value::as_i64);
    let wanted = match id {
        SnapshotId::Latest => current,
        SnapshotId::Number(number) => Some(number),
    };
    let has_id =
        |snapshot: &&Value| wanted.is_some() && snapshot.get("snapshot-id").and_then(Value::as_i64) == wanted;
    let snapshots = metadata.get("snapshots").and_then(Value::as_array);
    let Some(snapshot) = snapshots.and_then(|all| all.iter().find(has_id)) else {
        return Err(SnapshotError::NoSnapshot {
            table: shown_path(table),
            id: wanted.map_or("at all".to_owned(), |id| id.to_string()),
            newest: current.map_or("none".to_owned(), |id| id.to_string()),
        });
    };
    let location = metadata
        .get("location")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let place = Place { table, location };
    let mut found = Snapshot::default();
    found.paths.push(path.clone());
    let mut manifests: Vec<PathBuf> = Vec::new();
    if let Some(url) = snapshot.get("manifest-list").and_then(Value::as_str) {
        let list = place.metadata(url);
        records(&list, |event| {
            if let Event::Text("manifest_path", url) = event {
                manifests.push(place.metadata(url));
            }
        })?;
        found.paths.push(list);
    } else if let Some(urls) = snapshot.get("manifests").and_then(Value::as_array) {
        // Format version 1 may name them here.
        manifests.extend(
            urls.iter()
                .filter_map(Value::as_str)
                .map(|url| place.metadata(url)),
        );
    } else {
        return Err(damaged(&path, "its snapshot names no manifests"));
    }
    for manifest in &manifests {
        note_living(&place, manifest, &mut found)?;
    }
    let metadata_files = found.paths.len().min(2);
    found.paths.splice(metadata_files..metadata_files, manifests);
    // Deletion vectors of several data files share a file.
    let mut seen = std::collections::HashSet::new();
    found.paths.retain(|path| seen.insert(path.clone()));
    Ok(found)
}

/// A metadata file, unpacked where it is packed.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let bytes = read(path)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..])
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut plain)
        .map_err(|error| damaged(path, format!("no gzip: {error}")))?;
    Ok(plain)
}

/// Notes the files of a manifest that are part of the table.
fn note_living(place: &Place<'_>, manifest: &Path, found: &mut Snapshot) -> Result<()> {
    let (mut status, mut url) = (0, String::new());
    records(manifest, |event| match event {
        Event::Number("status", number) => status = number,
        Event::Text("data_file.file_path", text) => url = text.to_owned(),
        Event::End => {
            if status != DELETED && !url.is_empty() {
                place.note(&url, found);
            }
            (status, url) = (0, String::new());
        }
        _ => {}
    })
}

/// Where the table is, and where it says that it is.
struct Place<'a> {
    table: &'a Path,
    location: &'a str,
}

impl Place<'_> {
    /// The path of a URL below the location.
    fn below(&self, url: &str) -> Option<PathBuf> {
        let rest = url.strip_prefix(self.location.trim_end_matches('/'))?;
        let rest = Path::new(rest.strip_prefix('/')?);
        let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
        is_plain.then(|| self.table.join(rest))
    }

    /// A manifest or a list of them: below the location, else in the directory where they belong.
    fn metadata(&self, url: &str) -> PathBuf {
        let name = url.rsplit('/').next().unwrap_or_default();
        self.below(url)
            .unwrap_or_else(|| self.table.join("metadata").join(name))
    }

    fn note(&self, url: &str, found: &mut Snapshot) {
        match self.below(url) {
            Some(path) => found.paths.push(path),
            None => drop(
                found
                    .names
                    .insert(url.rsplit('/').next().unwrap_or_default().into()),
            ),
        }
    }
}

/// `v12.metadata.json` or `00012-UUID.metadata.json`: the one with the highest number, as writers without a catalog do.
fn newest_metadata(table: &Path) -> Result<PathBuf> {
    let no_table = || SnapshotError::NoTable(shown_path(table));
    let directory = table.join("metadata");
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in directory.read_dir().map_err(|_| no_table())?.flatten() {
        let name = entry.file_name();
        let Some(stem) = name.to_str().and_then(|name| {
            let name = name.strip_suffix(".gz").unwrap_or(name);
            let name = name.strip_suffix(".metadata.json")?;
            Some(name.strip_suffix(".gz").unwrap_or(name))
        }) else {
            continue;
        };
        let digits = stem.strip_prefix('v').unwrap_or(stem);
        let digits = digits.split('-').next().unwrap_or_default();
        if let Ok(number) = digits.parse() {
            newest = newest.max(Some((number, entry.path())));
        }
    }
    newest.map(|(_, path)| path).ok_or_else(no_table)
}
