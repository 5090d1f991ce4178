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
        let names = names(&self.options.local.join(LOOKUP_DIRECTORY));
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
        let mount = &self.options.mounts[0];
        let path = |name: &str| mount.join(LOOKUP_DIRECTORY).join(name);
        let count = || -> Result<(u64, u64)> {
            let asked = program::stats(lookupfs, mount)?.asked();
            let reads = asked
                .ok_or_else(|| BenchError::Invalid("the daemon counts no reads of its sources".into()))?;
            Ok((program::audited(audit, None)?, reads.reads))
        };
        let cost = |name: &str, column| -> Result<Cost> {
            let before = count()?;
            let asked = one_value(path(name), column)?;
            let after = count()?;
            Ok(Cost {
                namenode: (after.0 - before.0) as f64,
                datanode: (after.1 - before.1) as f64,
                asked,
            })
        };
        one_value(path(&names[0]), Column::Last)?;
        // Known by its attributes, and by nothing else.
        std::fs::metadata(path(&names[1])).map_err(|error| BenchError::file(&path(&names[1]), error))?;
        let known = cost(&names[1], Column::Last)?;
        let cold = cost(&names[2], Column::Last)?;
        let warm = cost(&names[2], Column::Last)?;
        let narrow = names.get(3).map(|name| cost(name, Column::First)).transpose()?;
        let findings = &mut self.findings;
        let mut judge = |what, requests, cost: &Cost| {
            findings.judge(what, "", &Estimate::counted(requests), 0, &cost.asked)
        };
        judge("warm lookup, NameNode", warm.namenode, &warm)?;
        judge("warm lookup, DataNode", warm.datanode, &warm)?;
        judge("cold lookup, attributes known, NameNode", known.namenode, &known)?;
        judge("cold lookup, NameNode", cold.namenode, &cold)?;
        let most = known.datanode.max(cold.datanode);
        judge("cold lookup, sibling's footer read, DataNode", most, &cold)?;
        if let Some(narrow) = narrow {
            let name = format!("cold lookup of the first column, DataNode ({})", narrow.asked);
            findings.count(name, narrow.datanode, "requests");
        }
        Ok(())
    }
}

/// What a lookup was seen to cost, and what it asked of the mount.
struct Cost {
    namenode: f64,
    datanode: f64,
    asked: String,
}

/// Which column's value is looked up.
#[derive(Clone, Copy)]
enum Column {
    First,
    Last,
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

/// Opens the file anew, as a process would that looks one row up, and reads one column of it. Says what it asked for.
fn one_value(path: PathBuf, column: Column) -> Result<String> {
    let table = Table::open(path, OpenOptions::default())?;
    let fields = table.schema().fields();
    let field = match column {
        Column::First => fields.first(),
        Column::Last => fields.last(),
    };
    let column = field.map(|field| field.name().clone()).unwrap_or_default();
    let row = RowId(ROW.min(table.row_count().saturating_sub(1)));
    table.get(&[row], &Projection::columns([&column]))?;
    let asked = table.counters();
    Ok(format!(
        "column {column} of one row: {} reads of {} KiB in all",
        asked.reads,
        asked.bytes.div_ceil(1024)
    ))
}
