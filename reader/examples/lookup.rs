//! Looks rows up in a file, as in the README: `cargo run --example lookup -- FILE 9 7 7`.

use lookupfs_reader::output::{Output, RowWriter};
use lookupfs_reader::{OpenOptions, Projection, ReadError, RowId, Table};

fn main() -> lookupfs_reader::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = || ReadError::Invalid("give a Parquet file and row ids".into());
    let table = Table::open(args.next().ok_or_else(usage)?, OpenOptions::default())?;
    let rows = args
        .map(|id| id.parse().map(RowId))
        .collect::<Result<Vec<_>, _>>();
    let batch = table.get(&rows.map_err(|_| usage())?, &Projection::all())?;
    let mut writer = RowWriter::new(std::io::stdout(), Output::Json, &batch.schema())?;
    writer.write(&batch)?;
    writer.finish()
}
