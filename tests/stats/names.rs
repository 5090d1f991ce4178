//! fs/METRICS.md and a running daemon name the same numbers.

use std::collections::{BTreeMap, BTreeSet};

use lookupfs_fs::stats::GAUGES;
use lookupfs_tests::Daemon;
use serde_json::Value;

use super::{exposition, stdout};

/// Names that are only there on some hosts.
const ON_SOME_HOSTS: [&str; 2] = [
    "mounts[].settings.congestion_threshold",
    "mounts[].settings.read_ahead_bytes",
];

/// Compares fs/METRICS.md with a daemon that has a mount, a file that was read, and an operation that waits.
pub(super) fn all_are_documented(daemon: &Daemon) {
    let documented = documented();
    let json = stdout(daemon, &["stats", "--all", "--json", "--files"]);
    let mut leaves = BTreeSet::new();
    name_leaves("", &serde_json::from_str(&json).unwrap(), &mut leaves);
    let json_names: BTreeSet<String> = documented
        .keys()
        .filter(|n| !n.starts_with("lookupfs_"))
        .cloned()
        .collect();
    let is_everywhere = |name: &&String| !ON_SOME_HOSTS.contains(&name.as_str());
    let undocumented: Vec<_> = leaves.difference(&json_names).collect();
    let missing: Vec<_> = json_names.difference(&leaves).filter(is_everywhere).collect();
    assert!(undocumented.is_empty(), "not in fs/METRICS.md: {undocumented:?}");
    assert!(
        missing.is_empty(),
        "in fs/METRICS.md, and nowhere else: {missing:?}"
    );
    for (name, kind) in &documented {
        let last = name.rsplit('.').next().unwrap();
        let is_counted = [
            "cache.",
            "sources[].requests.",
            "sources[].namespace.",
            "mounts[].requests.",
            "kernel.",
        ];
        if is_counted.iter().any(|part| name.starts_with(part)) {
            assert_eq!(
                GAUGES.contains(&last),
                kind == "gauge",
                "{name}: `--reset` would take it for the other"
            );
        }
    }

    let families = exposition::read(&stdout(daemon, &["stats", "--all", "--prometheus"]));
    let of_some_hosts = [
        "lookupfs_mount_congestion_threshold_requests",
        "lookupfs_mount_read_ahead_bytes",
    ];
    for (name, family) in &families {
        assert_eq!(
            documented.get(name),
            Some(&family.kind),
            "{name} in fs/METRICS.md"
        );
    }
    for name in documented.keys().filter(|name| name.starts_with("lookupfs_")) {
        let is_there = families.contains_key(name) || of_some_hosts.contains(&name.as_str());
        assert!(is_there, "in fs/METRICS.md, and not among the metrics: {name}");
    }
}

/// Names of the tables of fs/METRICS.md with their types.
fn documented() -> BTreeMap<String, String> {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let rows = include_str!("../../fs/METRICS.md").lines().map(cells);
    let named = rows.filter(|row| row.len() >= 6 && row[1].starts_with('`') && row[1].ends_with('`'));
    let mut names = BTreeMap::new();
    for row in named {
        let name = row[1].trim_matches('`').to_owned();
        assert!(
            names.insert(name, row[2].clone()).is_none(),
            "{} is there twice",
            row[1]
        );
    }
    names
}

fn name_leaves(prefix: &str, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if prefix.is_empty() { "" } else { "." };
                name_leaves(&format!("{prefix}{dot}{name}"), value, names);
            }
        }
        Value::Array(members) => {
            assert!(!members.is_empty(), "{prefix} is empty, which proves nothing");
            for value in members {
                name_leaves(&format!("{prefix}[]"), value, names);
            }
        }
        _ => {
            names.insert(prefix.to_owned());
        }
    }
}
