//! [`Way`]: the lookups whose instructions are counted.
//!
//! Owns what each of them asks for, and that what is counted begins when all is known. Refuses wrong values before that. Called
//! by `instructions.rs`, and by the process that callgrind runs.

use std::hint::black_box;
use std::path::Path;
use std::str::FromStr;

use super::super::error::{BenchError, Result};
use super::super::random::mix;
use crate::keys::{Key, KeyColumn};
use crate::row::RowId;
use crate::sample::{self, Shape};
use crate::table::{OpenOptions, Projection, Table};

/// Rows of a request that asks for many.
const MANY: u64 = 1024;

/// Rows that are compared and made known together.
const CHECKED_TOGETHER: u64 = 1000;

/// How rows are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One row of 2 columns.
    Narrow,
    /// The same, from a file that is opened for it.
    NarrowOpened,
    /// One row of 42 columns.
    Wide,
    /// The same, from a file that is opened for it.
    WideOpened,
    /// 1,024 rows of 42 columns.
    WideMany,
    /// One row of 11 columns, by its key.
    Key,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] = [
        Way::Narrow,
        Way::NarrowOpened,
        Way::Wide,
        Way::WideOpened,
        Way::WideMany,
        Way::Key,
    ];

    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Narrow => "2 columns, table kept",
            Way::NarrowOpened => "2 columns, file opened",
            Way::Wide => "42 columns, table kept",
            Way::WideOpened => "42 columns, file opened",
            Way::WideMany => "42 columns, 1,024 rows a request, table kept",
            Way::Key => "11 columns by key, table kept",
        }
    }

    /// As the command line names it.
    pub fn word(self) -> &'static str {
        match self {
            Way::Narrow => "narrow",
            Way::NarrowOpened => "narrow-opened",
            Way::Wide => "wide",
            Way::WideOpened => "wide-opened",
            Way::WideMany => "wide-many",
            Way::Key => "key",
        }
    }

    pub(super) fn shape(self) -> Shape {
        match self {
            Way::Narrow | Way::NarrowOpened => Shape::Narrow,
            Way::Wide | Way::WideOpened | Way::WideMany => Shape::Wide,
            Way::Key => Shape::Key,
        }
    }

    pub(super) fn shape_name(self) -> &'static str {
        match self.shape() {
            Shape::Wide => "wide.parquet",
            Shape::Key => "key.parquet",
            _ => "narrow.parquet",
        }
    }

    /// What a figure is of.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Way::WideMany => "instructions a row",
            _ => "instructions a lookup",
        }
    }

    /// Units in a lookup.
    pub(super) fn units(self) -> u64 {
        match self {
            Way::WideMany => MANY,
            _ => 1,
        }
    }
}

impl FromStr for Way {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Way> {
        let found = Way::ALL.into_iter().find(|way| way.word() == text);
        found.ok_or_else(|| {
            let words = Way::ALL.map(Way::word).join(", ");
            BenchError::Invalid(format!("'{text}': write one of {words}"))
        })
    }
}

/// Makes all of a sample file known, compares every value, and looks rows up: what callgrind counts.
///
/// # Errors
/// Where a lookup fails, or a value is wrong.
pub fn look_up(way: Way, file: &Path, lookups: u64, seed: u64) -> Result<(), BenchError> {
    let options = OpenOptions::default();
    let table = Table::open(file, options.clone())?;
    let all = Projection::all();
    let rows = table.row_count();
    for start in (0..rows).step_by(CHECKED_TOGETHER as usize) {
        let end = rows.min(start + CHECKED_TOGETHER);
        let ids: Vec<RowId> = (start..end).map(RowId).collect();
        sample::check_rows(&table, &table.get(&ids, &all)?, way.shape(), 0, start..end)?;
    }
    let ids: Vec<Vec<RowId>> = (0..lookups)
        .map(|lookup| {
            let id = |n| RowId(mix(seed ^ mix(lookup * MANY + n)) % rows.max(1));
            (0..way.units()).map(id).collect()
        })
        .collect();
    let mut work: Box<dyn FnMut(usize) -> Result<()>> = match way {
        Way::Narrow | Way::Wide | Way::WideMany => Box::new(|lookup| {
            black_box(table.get(&ids[lookup], &all)?);
            Ok(())
        }),
        Way::NarrowOpened | Way::WideOpened => Box::new(|lookup| {
            black_box(Table::open(file, options.clone())?.get(&ids[lookup], &all)?);
            Ok(())
        }),
        Way::Key => {
            let column = table.key_column("key")?;
            let keys: Vec<Key> = ids
                .iter()
                .map(|ids| Key::from(sample::key_of(0, ids[0].0)))
                .collect();
            // Once, so that bounds and values in order are known.
            for key in &keys {
                found(&table, &column, key, &all)?;
            }
            let table = &table;
            let all = &all;
            Box::new(move |lookup| found(table, &column, &keys[lookup], all))
        }
    };
    // Readers that a thread keeps are made by the first lookup.
    work(0)?;
    counted(lookups as usize, &mut work)
}

fn found(table: &Table, column: &KeyColumn, key: &Key, all: &Projection) -> Result<()> {
    let rows = table.get_keys(column, std::slice::from_ref(key), all)?;
    match black_box(rows).num_rows() {
        0 => Err(BenchError::Invalid("a key that is there was not found".into())),
        _ => Ok(()),
    }
}

/// Callgrind counts from its begin to its end, so that it has to stay a function of its own.
#[inline(never)]
fn counted(lookups: usize, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    (0..lookups).try_for_each(work)
}
