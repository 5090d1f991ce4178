//! What one row of a Parquet file costs at the source, cold and warm: the NameNode's requests by its audit log, the
//! DataNodes' by the daemon's count of reads.

use std::path::PathBuf;

use super::super::error::{BenchError, Result};
use super::super::program;
use super::super::statistics::Estimate;
use super::{LOOKUP_DIRECTORY, Session};
use crate::row::RowId;
use crate::table::{OpenOptions, Projection, Table};

/// The row that is looked up, if the file has as many.
const ROW: u64 = 777;

impl Session<'_> {
    pub(super) fn lookups(&mut self) -> Result<()> {
        let what = "requests of lookups";
        let mut names = names(&self.options.local.join(LOOKUP_DIRECTORY));
        if names.len() < 3 {
            self.findings
                .skip(what, format!("no three Parquet files in {LOOKUP_DIRECTORY}"));
            return Ok(());
        }
        let (Some(audit), Some(lookupfs)) = (&self.options.audit, &self.options.lookupfs) else {
            self.findings.skip(
                what,
                "they are counted by --audit and --lookupfs, which were not both given",
            );
            return Ok(());
        };
        names.truncate(3);
        let mount = &self.options.mounts[0];
        let path = |name: &str| mount.join(LOOKUP_DIRECTORY).join(name);
        let count = || -> Result<(u64, u64)> {
            let asked = program::stats(lookupfs, mount)?.asked();
            let reads = asked
                .ok_or_else(|| BenchError::Invalid("the daemon counts no reads of its sources".into()))?;
            Ok((program::audited(audit, None)?, reads.reads))
        };
        let cost = |path: PathBuf| -> Result<(f64, f64)> {
            let before = count()?;
            one_row(path)?;
            let after = count()?;
            Ok(((after.0 - before.0) as f64, (after.1 - before.1) as f64))
        };
        one_row(path(&names[0]))?;
        // Known by its attributes, and by nothing else.
        std::fs::metadata(path(&names[1])).map_err(|error| BenchError::file(&path(&names[1]), error))?;
        let known = cost(path(&names[1]))?;
        let cold = cost(path(&names[2]))?;
        let warm = cost(path(&names[2]))?;
        let findings = &mut self.findings;
        let mut judge = |what, requests| {
            findings.judge(what, "", &Estimate::counted(requests), 0, "one value of one row")
        };
        judge("warm lookup, NameNode", warm.0)?;
        judge("warm lookup, DataNode", warm.1)?;
        judge("cold lookup, attributes known, NameNode", known.0)?;
        judge("cold lookup, NameNode", cold.0)?;
        judge(
            "cold lookup, sibling's footer read, DataNode",
            known.1.max(cold.1),
        )?;
        Ok(())
    }
}

/// The Parquet files of a directory, in name order.
fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = entries.filter(|name| name.ends_with(".parquet")).collect();
    names.sort();
    names
}

/// Opens the file anew, as a process would that looks one row up, and reads the last column of it.
fn one_row(path: PathBuf) -> Result<()> {
    let table = Table::open(path, OpenOptions::default())?;
    let schema = table.schema();
    let column = schema.fields().last().map(|field| field.name().clone());
    let row = RowId(ROW.min(table.row_count().saturating_sub(1)));
    table.get(&[row], &Projection::columns(column.iter()))?;
    Ok(())
}
