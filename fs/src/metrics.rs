//! Counters in Prometheus's text format: what is scraped, and what `lookupfs stats --prometheus` prints.
//!
//! Owns the names ([`table`]) and the way from the JSON of [`Stats`] to samples. Refuses paths of files as labels, whose
//! number has no bound. METRICS.md documents every name, and a test compares the two.

use std::collections::BTreeMap;

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use serde_json::Value;

use crate::path_text;
use crate::stats::Stats;

pub mod crowd;
pub mod http;
pub mod samples;
pub mod table;

use samples::Sample;
use table::{Family, Type};

/// The media type of [`text`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of some daemons.
///
/// # Errors
/// One sentence, if a name of the table will not do.
pub fn text<'a>(daemons: impl IntoIterator<Item = &'a Stats>) -> Result<String, String> {
    let mut samples = Samples::default();
    for stats in daemons {
        samples.add_daemon(stats);
    }
    let families: Vec<MetricFamily> = table::FAMILIES
        .iter()
        .filter_map(|family| {
            let metrics = samples.0.remove(family.name)?;
            Some(in_prometheus_words(family, metrics))
        })
        .collect();
    TextEncoder::new()
        .encode_to_string(&families)
        .map_err(|error| format!("the metrics cannot be written: {error}"))
}

type Labels = Vec<(&'static str, String)>;

/// Samples by the name of their family.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, Vec<(Labels, f64)>>);

impl Samples {
    fn add_daemon(&mut self, stats: &Stats) {
        let daemon = ("daemon", stats.daemon.clone());
        let labels = vec![daemon.clone()];
        let info = [labels.clone(), vec![("version", stats.version.clone())]].concat();
        self.add("lookupfs_build_info", info, 1.0);
        let all = serde_json::to_value(stats).unwrap_or_default();
        self.add_all(samples::DAEMON, &labels, &all);
        self.add_all(samples::CACHE, &labels, &stats.cache);
        if let Some(disk) = stats.cache.get("disk") {
            self.add_all(samples::DISK, &labels, disk);
        }
        for source in &stats.sources {
            let labels = vec![daemon.clone(), ("source", source.id.clone())];
            self.add_all(samples::SOURCE, &labels, &source.requests);
            self.add_all(samples::NAMES, &labels, &source.namespace);
            let delayed_ms = source
                .namespace
                .pointer("/rate/delayed_ms")
                .and_then(Value::as_f64);
            if let Some(milliseconds) = delayed_ms {
                self.add(
                    "lookupfs_source_delay_seconds_total",
                    labels,
                    milliseconds / 1000.0,
                );
            }
        }
        for mount in &stats.mounts {
            let labels = vec![
                daemon.clone(),
                ("mount", path_text::escaped(&mount.mount_point)),
                ("source", mount.source_id.clone()),
            ];
            let all = serde_json::to_value(mount).unwrap_or_default();
            self.add_all(samples::MOUNT, &labels, &all);
            let age = mount.oldest.as_ref().map_or(0.0, |oldest| oldest.age_s);
            self.add("lookupfs_mount_oldest_operation_age_seconds", labels.clone(), age);
            let settings = [
                ("url", mount.source.clone()),
                ("abi", mount.settings.abi.clone()),
                ("opens", mount.settings.opens.clone()),
            ];
            self.add("lookupfs_mount_info", [labels, settings.into()].concat(), 1.0);
        }
    }

    /// Those samples of `table` that `value` has a number for.
    fn add_all(&mut self, table: &[Sample], labels: &Labels, value: &Value) {
        for sample in table {
            if let Some(number) = value.pointer(sample.at).and_then(Value::as_f64) {
                let own = sample
                    .labels
                    .iter()
                    .map(|(name, value)| (*name, (*value).to_owned()));
                self.add(sample.family, labels.iter().cloned().chain(own).collect(), number);
            }
        }
    }

    fn add(&mut self, family: &'static str, labels: Labels, value: f64) {
        self.0.entry(family).or_default().push((labels, value));
    }
}

fn in_prometheus_words(family: &Family, samples: Vec<(Labels, f64)>) -> MetricFamily {
    let metric = |(labels, value): (Labels, f64)| {
        let pair = |(name, value): (&str, String)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value);
            pair
        };
        let mut metric = Metric::from_label(labels.into_iter().map(pair).collect());
        match family.kind {
            Type::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Type::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        metric
    };
    let mut out = MetricFamily::default();
    out.set_name(family.name.to_owned());
    out.set_help(family.help.to_owned());
    out.set_field_type(match family.kind {
        Type::Counter => MetricType::COUNTER,
        Type::Gauge => MetricType::GAUGE,
    });
    out.set_metric(samples.into_iter().map(metric).collect());
    out
}

#[cfg(test)]
mod tests;
