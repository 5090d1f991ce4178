//! Paimon: `snapshot/snapshot-N` (JSON) names manifest lists (Avro), those name manifests (Avro), those name data files.
//!
//! Data files are in directories made of partition and bucket; their names are unique, so they are found by name.
//! Called by `snapshot.rs`.

use std::collections::HashMap;
use std::path::Path;

use super::avro::Event;
use super::{Result, Snapshot, SnapshotError, SnapshotId, damaged, inside, json, numbered, read, records};
use crate::warm::inputs::shown_path;

/// Entries of manifests that are undone by later ones.
const DELETE: i64 = 1;

pub(super) fn find(table: &Path, id: SnapshotId) -> Result<Snapshot> {
    // LATEST is a hint, which may be behind: the directory knows.
    let snapshots = numbered(&table.join("snapshot"), "snapshot-")?;
    let chosen = match id {
        SnapshotId::Latest => snapshots.last(),
        SnapshotId::Number(number) => snapshots.iter().find(|(n, _)| *n == number),
    };
    let Some((_, path)) = chosen else {
        return Err(SnapshotError::NoSnapshot {
            table: shown_path(table),
            id: match id {
                SnapshotId::Latest => "at all".to_owned(),
                SnapshotId::Number(number) => number.to_string(),
            },
            newest: snapshots.last().map_or("none".to_owned(), |(n, _)| n.to_string()),
        });
    };
    let snapshot = json(path, &read(path)?)?;
    let mut found = Snapshot::default();
    found.paths.push(path.clone());
    let schema = snapshot
        .get("schemaId")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(0);
    // Data files written before have the schema of their day.
    let schemas = numbered(&table.join("schema"), "schema-")?;
    found.paths.extend(
        schemas
            .into_iter()
            .filter(|(n, _)| *n <= schema)
            .map(|(_, path)| path),
    );

    let directory = table.join("manifest");
    let name_of = |key: &str| snapshot.get(key).and_then(serde_json::Value::as_str);
    let mut manifests = Vec::new();
    for key in ["baseManifestList", "deltaManifestList"] {
        let name = name_of(key).ok_or_else(|| damaged(path, format!("it names no {key}")))?;
        let list = inside(&directory, name).ok_or_else(|| damaged(path, format!("{key} is no name")))?;
        records(&list, |event| {
            if let Event::Text("_FILE_NAME", name) = event {
                manifests.extend(inside(&directory, name));
            }
        })?;
        found.paths.push(list);
    }
    let mut living = Living::default();
    for manifest in &manifests {
        records(manifest, |event| living.note(event))?;
    }
    found.paths.append(&mut manifests);
    if let Some(name) = name_of("indexManifest") {
        let list = inside(&directory, name).ok_or_else(|| damaged(path, "indexManifest is no name"))?;
        // An entry's name, then how it ends: the fields of a record come in the order of its schema.
        records(&list, |event| living.note_index(event))?;
        found.paths.push(list);
    }
    found.names = living.names();
    Ok(found)
}

/// Files by how often they were added more than deleted: an upgraded file is deleted from one level and added to another.
#[derive(Debug, Default)]
struct Living {
    files: HashMap<String, i64>,
    kind: i64,
    entry: Vec<String>,
}

impl Living {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Number("_KIND", kind) => self.kind = kind,
            Event::Text("_FILE._FILE_NAME" | "_FILE._EXTRA_FILES[]", name) => {
                self.entry.push(name.to_owned())
            }
            Event::End => self.end(),
            _ => {}
        }
    }

    fn note_index(&mut self, event: Event<'_>) {
        match event {
            Event::Number("_KIND", kind) => self.kind = kind,
            Event::Text("_FILE_NAME", name) => self.entry.push(name.to_owned()),
            Event::End => self.end(),
            _ => {}
        }
    }

    fn end(&mut self) {
        let change = if self.kind == DELETE { -1 } else { 1 };
        for name in self.entry.drain(..) {
            *self.files.entry(name).or_default() += change;
        }
        self.kind = 0;
    }

    fn names(self) -> std::collections::HashSet<std::ffi::OsString> {
        let living = self.files.into_iter().filter(|(_, count)| *count > 0);
        living.map(|(name, _)| name.into()).collect()
    }
}
