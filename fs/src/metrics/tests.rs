//! The table of metrics agrees with itself and with Prometheus's rules for names.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::counters::CounterValues;
use crate::kernel_settings::KernelSettings;
use crate::open_files::OpenStats;
use crate::options::DaemonOptions;
use crate::stats::MountStats;

fn stats(daemon: &str, mount_point: &str) -> Stats {
    Stats {
        daemon: daemon.into(),
        pid: 1,
        version: "0".into(),
        uptime_s: 1.5,
        options: DaemonOptions::default(),
        mount_namespace: None,
        mounts: vec![MountStats {
            mount_point: mount_point.into(),
            source: "file:///x".into(),
            source_id: "file:///s".into(),
            inodes: 3,
            opens: OpenStats::default(),
            requests: CounterValues::default(),
            fetched_bytes: (1 << 53) - 1,
            fetched_extents: 0,
            in_flight: 0,
            oldest: None,
            settings: KernelSettings::default(),
            files: None,
        }],
        kernel: CounterValues::default(),
        cache: json!({"data": {"hits": 7}}),
        sources: Vec::new(),
        at_reset: None,
    }
}

#[test]
fn names_follow_prometheus_rules() {
    let mut seen = BTreeSet::new();
    for family in table::FAMILIES {
        let name = family.name;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("lookupfs_"), "{name}");
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), family.kind == Type::Counter, "{name}");
        assert!(!family.help.is_empty() && family.help.ends_with('.'), "{name}");
        for scaled in ["_ms", "_milliseconds", "_kb", "_kib", "_mb", "_percent", "_s"] {
            assert!(
                !name.ends_with(scaled),
                "{name}: base units are seconds and bytes"
            );
        }
    }
}

#[test]
fn every_sample_has_a_family_and_no_two_are_the_same() {
    let names: BTreeSet<&str> = table::FAMILIES.iter().map(|family| family.name).collect();
    let mut seen = BTreeSet::new();
    for sample in [
        samples::DAEMON,
        samples::CACHE,
        samples::DISK,
        samples::SOURCE,
        samples::NAMES,
        samples::MOUNT,
    ]
    .concat()
    {
        assert!(names.contains(sample.family), "{}", sample.family);
        assert!(seen.insert((sample.family, sample.labels)), "{sample:?}");
    }
}

#[test]
fn several_daemons_share_one_header_and_labels_are_escaped() {
    let text = text(&[stats("a", "/mnt/a"), stats("b", "/mnt/quote\" back\\ line\nend")]).unwrap();
    let count = |part: &str| text.matches(part).count();
    assert_eq!(count("# TYPE lookupfs_cache_hits_total counter\n"), 1, "{text}");
    assert_eq!(count("# HELP lookupfs_cache_hits_total "), 1);
    for daemon in ["a", "b"] {
        let line =
            format!("lookupfs_cache_hits_total{{daemon=\"{daemon}\",tier=\"memory\",kind=\"data\"}} 7\n");
        assert_eq!(count(&line), 1, "{text}");
    }
    assert!(
        text.contains(r#"mount="/mnt/quote\" back\\ line\nend""#),
        "{text}"
    );
    assert!(
        text.contains(" 9007199254740991\n"),
        "a large count is written exactly: {text}"
    );
    assert!(!text.contains("misses"), "what is not in the JSON is not written");
}
