//! `lookup rewrite`: its flags, and what it shows.
//!
//! Owns the progress bar on stderr, drawn only where that is a terminal, and the one line at the end. Decides nothing about
//! files. Called by [`super`].

use std::io::{self, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::{ByteSize, MountArgs};
use crate::error::Result;
use crate::output::written;
use crate::rewrite::{Codec, Progress, RewriteOptions, SizeStatistics, ValueEncoding, rewrite};
use crate::structures::StructureCache;
use crate::table::{OpenOptions, Table};

#[derive(Debug, clap::Args)]
pub(super) struct RewriteArgs {
    #[command(flatten)]
    mounts: MountArgs,
    /// The file to write, on a local disk.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Rows of every data page but the last of a row group. Default: as many as 64 KiB hold, up to
    /// 4096, column by column.
    #[arg(long, value_name = "N", value_parser = rows)]
    page_rows: Option<usize>,
    /// Rows of a row group; one that takes more than 256 MiB of memory ends earlier.
    #[arg(long, value_name = "N", default_value = "131072", value_parser = rows)]
    row_group_rows: usize,
    /// Size statistics (level histograms, unencoded sizes): none, chunk (of columns, in the footer)
    /// or page (these, and of data pages, in the page index).
    #[arg(long, value_name = "LEVEL", default_value = "chunk")]
    size_statistics: SizeStatistics,
    /// none, snappy, lz4, zstd, gzip or brotli, of the last three also with a level, as zstd:3.
    /// Default: each column keeps its codec.
    #[arg(long, value_name = "CODEC")]
    codec: Option<Codec>,
    /// auto (a dictionary where IN has one, else plain), plain, dictionary, delta or
    /// byte-stream-split; plain where the type has no such encoding.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    encoding: ValueEncoding,
    /// Sort the rows by this column, nulls last, rows with equal keys in the order that they have.
    #[arg(long, value_name = "COL")]
    sort_by: Option<String>,
    /// Read OUT back before it gets its name, and compare every value with IN.
    #[arg(long)]
    verify: bool,
    /// Replace a file that is there already.
    #[arg(long)]
    force: bool,
    /// Memory for rows, and for keys to sort (a half of it). Units: KiB, MiB, GiB.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
}

fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows) if (1..=1 << 24).contains(&rows) => Ok(rows),
        _ => Err("write a number of rows from 1 to 16777216".into()),
    }
}

pub(super) fn run(args: RewriteArgs) -> Result<()> {
    let open = OpenOptions {
        max_result_bytes: args.memory.0 / 8,
        max_fetch_bytes: args.memory.0 / 4,
        structures: StructureCache::new(args.memory.0 / 8),
        ..args.mounts.options()
    };
    let table = Table::open(args.mounts.target(), open)?;
    let options = RewriteOptions {
        page_rows: args.page_rows,
        row_group_rows: Some(args.row_group_rows),
        size_statistics: args.size_statistics,
        codec: args.codec,
        encoding: args.encoding,
        sort_by: args.sort_by,
        verify: args.verify,
        force: args.force,
        memory_bytes: args.memory.0 / 2,
    };
    let bar = ProgressBar::with_draw_target(Some(table.row_count()), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} rows {msg} {elapsed}") {
        bar.set_style(style);
    }
    let result = rewrite(&table, &args.out, &options, &mut |progress| match progress {
        Progress::Sorting => bar.set_message("sorting"),
        Progress::Written(rows) => {
            bar.set_message("written");
            bar.set_position(rows);
        }
        Progress::Verified(rows) => {
            bar.set_message("verified");
            bar.set_position(rows);
        }
    });
    bar.finish_and_clear();
    let done = result?;
    let line = format!(
        "{}: {} rows in {} row groups, {} bytes{}\n",
        args.out.display(),
        done.rows,
        done.row_groups,
        done.bytes,
        if options.verify { ", verified" } else { "" }
    );
    io::stdout().lock().write_all(line.as_bytes()).map_err(written)
}
