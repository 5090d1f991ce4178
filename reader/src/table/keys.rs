//! Lookups by key: [`Table::get_keys`] and [`Table::scan_keys`].
//!
//! Owns what a caller asks of keys and what comes back: rows in the order of the keys, or of the file. Finding them is
//! [`super::search`]'s, reading them [`super::lookup`]'s.

use arrow_array::RecordBatch;

use super::lookup::Kept;
use super::search::{Match, Searchable, Unit};
use super::{Inner, Missing, Projection, RowStream, Table};
use crate::decode::parquet::KeyPage;
use crate::error::{ReadError, Result};
use crate::fetch::Deadline;
use crate::keys::{KEYS_MAX, Key, KeyColumn, KeyRange, Ordered, Sought};
use crate::row::{ROW_IDS_MAX, RowId};

/// Keys that an error names.
const KEYS_NAMED_MAX: usize = 5;

/// The row id of a row that does not exist.
const NO_ROW: RowId = RowId(u64::MAX);

/// The rows of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundKeys {
    rows: Vec<RowId>,
    /// Where the rows of each key end.
    ends: Vec<usize>,
}

impl FoundKeys {
    /// All rows, key by key in the order asked, those of one key in the table's order.
    pub fn rows(&self) -> &[RowId] {
        &self.rows
    }

    /// The rows of the `number`-th key.
    pub fn rows_of(&self, number: usize) -> &[RowId] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[start..self.ends[number]]
    }

    /// Numbers of the keys that no row has.
    pub fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ends.len()).filter(|number| self.rows_of(*number).is_empty())
    }

    /// The rows, with a row that does not exist for each key that no row has.
    fn with_gaps(&self) -> Vec<RowId> {
        let rows = (0..self.ends.len()).map(|number| match self.rows_of(number) {
            [] => &[NO_ROW],
            rows => rows,
        });
        rows.flatten().copied().collect()
    }
}

/// A row and its key. Ordered by key, then by row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyedRow {
    pub(crate) key: Ordered,
    pub(crate) row: u64,
}

impl Table {
    /// A column that rows can be looked up by: one value a row, of a type with an order. `a.b` is the field `b` of the
    /// struct `a`.
    ///
    /// Costs nothing but the resolution of its name.
    pub fn key_column(&self, name: &str) -> Result<KeyColumn> {
        self.0.files[0].parquet.key_column(name)
    }

    /// The rows that hold these keys, duplicates included. A key that no row has is left out.
    ///
    /// Costs what [`Table::find_keys`] and [`Table::get`] cost.
    pub fn get_keys(&self, column: &KeyColumn, keys: &[Key], projection: &Projection) -> Result<RecordBatch> {
        let deadline = self.deadline();
        let found = self.0.find(column, keys, &deadline)?;
        self.0.lookup(
            &found.rows,
            projection,
            Missing::Error,
            &deadline,
            &mut Kept::default(),
        )
    }

    /// As [`Table::get_keys`], in batches and with a choice of what becomes of keys that no row has.
    pub fn get_keys_stream(
        &self,
        column: &KeyColumn,
        keys: &[Key],
        projection: &Projection,
        missing: Missing,
    ) -> Result<(RowStream, FoundKeys)> {
        let found = self.find_keys(column, keys)?;
        let rows = match missing {
            Missing::Error => {
                self.check_found(column, keys, &found)?;
                found.rows.clone()
            }
            Missing::Skip => found.rows.clone(),
            Missing::Null => found.with_gaps(),
        };
        Ok((
            RowStream::of_rows(self.clone(), rows, projection.clone(), missing)?,
            found,
        ))
    }

    /// Where the rows with these keys are.
    ///
    /// The first search by a column reads its column indexes, together and once a file, and the footer again if a row group
    /// has none. Each search reads the data pages of the column whose bounds may hold a key, all together, unless they are
    /// known from an earlier one; then it reads nothing. Bounds help where the column is sorted or nearly so. Where they do
    /// not, all its data pages are read.
    pub fn find_keys(&self, column: &KeyColumn, keys: &[Key]) -> Result<FoundKeys> {
        self.0.find(column, keys, &self.deadline())
    }

    /// The rows whose keys lie in a range, in the table's order, in batches of `page` rows, or of fewer where these would be
    /// more than `max_result_bytes`.
    ///
    /// Costs as [`Table::find_keys`], one row group after the other; a row group's matches are held at once.
    pub fn scan_keys(
        &self,
        column: &KeyColumn,
        range: &KeyRange,
        projection: &Projection,
        page: usize,
    ) -> Result<RowStream> {
        let end = |key: &Option<Key>| match key {
            None => Ok(None),
            Some(key) => match column.ordered(key)? {
                None => Err(column.invalid("null is no end of a range; leave the end out")),
                key => Ok(key),
            },
        };
        let sought = Sought::Range(end(&range.start)?, end(&range.end)?);
        let deadline = self.deadline();
        let scan = KeyScan {
            searchable: self.0.searchable(column, &deadline)?,
            sought,
            units: self.0.units().collect::<Vec<_>>().into_iter(),
            rows: Vec::new(),
            next: 0,
        };
        RowStream::of_keys(self.clone(), scan, projection.clone(), page)
    }

    /// Gives every row that has a value of a column, row group by row group.
    pub(crate) fn each_keyed_row(
        &self,
        column: &KeyColumn,
        take: &mut dyn FnMut(Vec<KeyedRow>) -> Result<()>,
    ) -> Result<()> {
        let searchable = self.0.searchable(column, &self.deadline())?;
        let all = |page: &KeyPage, first_row: u64, rows: &mut Vec<KeyedRow>| {
            rows.extend((0..page.len()).map(|place| KeyedRow {
                key: page.value(place),
                row: first_row + page.row(place),
            }));
        };
        let everything = Sought::Range(None, None);
        for unit in self.0.units() {
            take(
                self.0
                    .search_with(&searchable, &[unit], &everything, &self.deadline(), &all)?,
            )?;
        }
        Ok(())
    }

    fn check_found(&self, column: &KeyColumn, keys: &[Key], found: &FoundKeys) -> Result<()> {
        let count = found.missing().count();
        if count == 0 {
            return Ok(());
        }
        let shown = |number: usize| match &keys[number] {
            Key::Text(text) => format!("'{text}'"),
            key => format!("{key:?}"),
        };
        Err(ReadError::KeysAbsent {
            path: self.0.path.clone(),
            column: column.name().to_owned(),
            keys: found.missing().take(KEYS_NAMED_MAX).map(shown).collect(),
            count,
        })
    }
}

impl Inner {
    fn find(&self, column: &KeyColumn, keys: &[Key], deadline: &Deadline) -> Result<FoundKeys> {
        if keys.len() > KEYS_MAX {
            return Err(column.invalid(&format!("more than {KEYS_MAX} keys; split the list")));
        }
        let ordered = keys
            .iter()
            .map(|key| column.ordered(key))
            .collect::<Result<Vec<_>>>()?;
        let mut sorted: Vec<_> = ordered.iter().flatten().cloned().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let searchable = self.searchable(column, deadline)?;
        let units: Vec<Unit> = self.units().collect();
        let sought = Sought::Keys(sorted);
        let mut matches = self.search(&searchable, &units, &sought, deadline)?;
        let Sought::Keys(sorted) = sought else {
            return Err(column.invalid("no keys"));
        };
        // Stable: the rows of a key stay in the table's order.
        matches.sort_by_key(|found| found.key);
        let mut found = FoundKeys {
            rows: Vec::with_capacity(matches.len()),
            ends: Vec::with_capacity(keys.len()),
        };
        for key in &ordered {
            let number = key.as_ref().and_then(|key| sorted.binary_search(key).ok());
            if let Some(number) = number {
                let number = number as u32;
                let from = matches.partition_point(|found| found.key < number);
                let rows = matches[from..].iter().take_while(|found| found.key == number);
                found.rows.extend(rows.map(|found| RowId(found.row)));
            }
            if found.rows.len() > ROW_IDS_MAX {
                let what = "keys that are asked for again and again have too many rows; ask for each once";
                return Err(column.invalid(what));
            }
            found.ends.push(found.rows.len());
        }
        Ok(found)
    }
}

/// A range of keys on its way through the row groups.
#[derive(Debug)]
pub(super) struct KeyScan {
    searchable: Searchable,
    sought: Sought,
    units: std::vec::IntoIter<Unit>,
    /// Found and not read yet, from `next` on.
    rows: Vec<Match>,
    next: usize,
}

impl KeyScan {
    /// The next `count` rows, or as many as there are.
    pub(super) fn ahead(&mut self, table: &Table, count: usize) -> Result<Vec<RowId>> {
        while self.rows.len() - self.next < count {
            let Some(unit) = self.units.next() else {
                break;
            };
            self.rows.drain(..self.next);
            self.next = 0;
            let deadline = table.deadline();
            let found = table
                .0
                .search(&self.searchable, &[unit], &self.sought, &deadline)?;
            self.rows.extend(found);
        }
        let rows = self.rows[self.next..].iter().take(count);
        Ok(rows.map(|found| RowId(found.row)).collect())
    }

    /// Passes over rows that were read.
    pub(super) fn advance(&mut self, count: usize) {
        self.next += count;
    }
}
