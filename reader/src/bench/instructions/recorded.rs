//! [`Recorded`]: instructions of a build that were written down, for others to compare with.
//!
//! Owns the file: which way costs what, and which build on which processor that was. Called by `instructions.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::error::{BenchError, Result};
use super::Way;

/// What release builds of this version cost.
const OF_THIS_VERSION: &str = include_str!("../../../bench/instructions.json");

/// Figures that were recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Recorded {
    /// Which version of this program.
    version: String,
    /// Whether it was built with optimisation.
    optimised: bool,
    /// Which processor: the C library and codecs choose their code by what it can do.
    processor: String,
    /// Instructions, by the word of the way.
    instructions: BTreeMap<String, f64>,
}

impl Recorded {
    /// Instructions of a unit of `way`.
    pub(super) fn of(&self, way: Way) -> Option<f64> {
        self.instructions
            .get(way.word())
            .copied()
            .filter(|count| *count > 0.0)
    }
}

/// Figures of a file, or of this version. The inner error is why there is nothing to compare with.
pub(super) fn to_compare_with(path: Option<&Path>) -> Result<Result<Recorded, String>> {
    let Some(path) = path else {
        let of_this_version: Recorded = serde_json::from_str(OF_THIS_VERSION)?;
        return Ok(match of_this_version.optimised == is_optimised() {
            true => Ok(of_this_version),
            false => Err("figures were recorded of a release build, and this is none; build with --release, or give --recorded".into()),
        });
    };
    let text = std::fs::read_to_string(path).map_err(|error| BenchError::file(path, error))?;
    serde_json::from_str(&text).map(Ok).map_err(|error| {
        BenchError::Invalid(format!("{}: not what --record writes: {error}", path.display()))
    })
}

/// Writes what was counted.
pub(super) fn write(path: &Path, made: &[(Way, f64)]) -> Result<()> {
    let recorded = Recorded {
        version: env!("CARGO_PKG_VERSION").into(),
        optimised: is_optimised(),
        processor: processor(),
        instructions: made
            .iter()
            .map(|(way, count)| (way.word().to_owned(), count.round()))
            .collect(),
    };
    let text = serde_json::to_string_pretty(&recorded)? + "\n";
    std::fs::write(path, text).map_err(|error| BenchError::file(path, error))
}

fn is_optimised() -> bool {
    !cfg!(debug_assertions)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':'));
    model.map_or("not known", |(_, model)| model.trim()).to_owned()
}
