//! Rows that hold a key: which row groups may, which of their data pages, and which rows of these do.
//!
//! Owns the order of these steps, that each is planned and fetched for many row groups together, and that what was found to
//! lie is gone round. Memory is bounded by batches of data pages, and by the number of rows that may be found. Called by
//! [`super::keys`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::{Inner, Stage};
use crate::decode::parquet::{KeyBounds, KeyPage, KeyPiece, Known, Search, Searched, Walked, bounds};
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetched};
use crate::keys::{KeyColumn, KeyOrder, Sought};
use crate::plan::{Layout, coalesce_ranges};
use crate::row::ROW_IDS_MAX;

/// Bytes of data pages that are searched at a time. A single one may be longer.
const BATCH_BYTES: u64 = 32 << 20;

/// A row group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unit {
    file: usize,
    row_group: usize,
}

/// A row that holds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Which of the keys, if keys are sought.
    pub(super) key: u32,
    /// Its row id.
    pub(super) row: u64,
}

/// What is known of the files of a table before data pages are read.
#[derive(Debug)]
pub(super) struct Searchable {
    column: KeyColumn,
    files: Vec<(KeyOrder, Arc<KeyBounds>)>,
}

/// Byte ranges wanted of files, by number.
type Needed = Vec<(usize, Vec<Range<u64>>)>;

impl Inner {
    /// Reads the bounds of a column in all files, where they are not known.
    pub(super) fn searchable(&self, column: &KeyColumn, deadline: &Deadline) -> Result<Searchable> {
        let cache = &self.options.structures;
        let leaf = column.leaf();
        let mut files: Vec<Option<(KeyOrder, Arc<KeyBounds>)>> = Vec::with_capacity(self.files.len());
        let mut needed: Needed = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let order = file.parquet.key_order(column)?;
            let known = cache.key_bounds(file.parquet.structure().id(), leaf);
            if known.is_none() {
                needed.push((number, bounds::bytes_wanted(&file.parquet, leaf)));
            }
            files.push(known.map(|bounds| (order, bounds)));
        }
        for batch in batches(needed, BATCH_BYTES, |(_, ranges)| length(ranges)) {
            let fetched = self.timed(Stage::Fetch, || self.read(&batch, deadline))?;
            for ((number, _), fetched) in batch.iter().zip(&fetched) {
                let file = &self.files[*number].parquet;
                let order = file.key_order(column)?;
                let bounds = Arc::new(self.timed(Stage::Plan, || bounds::read(file, leaf, order, fetched))?);
                cache.put_key_bounds(file.structure().id(), leaf, bounds.clone());
                files[*number] = Some((order, bounds));
            }
        }
        Ok(Searchable {
            column: column.clone(),
            files: files.into_iter().flatten().collect(),
        })
    }

    /// All row groups in the table's order.
    pub(super) fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.files.iter().enumerate().flat_map(|(file, of)| {
            (0..(&of.parquet).row_groups()).map(move |row_group| Unit { file, row_group })
        })
    }

    /// The rows of `units` that hold what is sought, in the table's order.
    pub(super) fn search(
        &self,
        searchable: &Searchable,
        units: &[Unit],
        sought: &Sought,
        deadline: &Deadline,
    ) -> Result<Vec<Match>> {
        let take = |page: &KeyPage, first_row: u64, matches: &mut Vec<Match>| {
            add_matches(sought, page, first_row, matches);
        };
        self.search_with(searchable, units, sought, deadline, &take)
    }

    /// What `take` takes from the data pages of `units` that may hold what is sought, in the table's order. It is given
    /// the row id of the first row of each.
    pub(super) fn search_with<T>(
        &self,
        searchable: &Searchable,
        units: &[Unit],
        sought: &Sought,
        deadline: &Deadline,
        take: &dyn Fn(&KeyPage, u64, &mut Vec<T>),
    ) -> Result<Vec<T>> {
        let mut found: Vec<(Unit, Vec<T>)> = Vec::new();
        let mut pending: Vec<Unit> = units.to_vec();
        let mut walked = Walked::default();
        let mut count = 0;
        while !pending.is_empty() {
            deadline.check("looking for keys")?;
            let (pieces, walks) =
                self.timed(Stage::Plan, || self.pieces(searchable, &pending, sought, &walked));
            if !walks.is_empty() {
                self.walk(searchable, walks, &mut walked, deadline)?;
                continue;
            }
            let mut again = BTreeSet::new();
            let mut here: Vec<(Unit, Vec<T>)> = Vec::new();
            let bytes = |(unit, piece): &(Unit, KeyPiece)| {
                let file = &self.files[unit.file].parquet;
                length(&file.known_key_page(piece, &self.options.structures).needed(piece))
            };
            for batch in batches(pieces, BATCH_BYTES, bytes) {
                deadline.check("looking for keys")?;
                self.search_batch(
                    searchable,
                    &batch,
                    deadline,
                    &mut again,
                    &mut |unit, page, first_row| {
                        if here.last().is_none_or(|(last, _)| *last != unit) {
                            here.push((unit, Vec::new()));
                        }
                        if let Some((_, taken)) = here.last_mut() {
                            take(page, first_row, taken);
                        }
                    },
                )?;
                let so_far: usize = here.iter().map(|(_, matches)| matches.len()).sum();
                self.check_found(count + so_far)?;
            }
            here.retain(|(unit, _)| !again.contains(unit));
            count += here.iter().map(|(_, matches)| matches.len()).sum::<usize>();
            found.append(&mut here);
            pending.retain(|unit| again.contains(unit));
        }
        found.sort_by_key(|(unit, _)| *unit);
        Ok(found.into_iter().flat_map(|(_, matches)| matches).collect())
    }

    fn check_found(&self, count: usize) -> Result<()> {
        let bytes = |count: usize| (count * size_of::<Match>()) as u64;
        if count <= ROW_IDS_MAX {
            return Ok(());
        }
        Err(ReadError::TooLarge {
            what: format!("{}: the list of rows with these keys", self.path.display()),
            need_bytes: bytes(count),
            limit_bytes: bytes(ROW_IDS_MAX),
            remedy: "ask for fewer keys, or for a range of keys by `lookup scan`",
        })
    }

    fn of<'a>(&'a self, searchable: &'a Searchable, file: usize) -> Search<'a> {
        let (order, bounds) = &searchable.files[file];
        Search {
            column: &searchable.column,
            order: *order,
            bounds,
            cache: &self.options.structures,
        }
    }

    /// The data pages to look at, and the row groups where nobody knows where these are.
    fn pieces(
        &self,
        searchable: &Searchable,
        units: &[Unit],
        sought: &Sought,
        walked: &Walked,
    ) -> (Vec<(Unit, KeyPiece)>, Vec<Unit>) {
        let (mut pieces, mut walks) = (Vec::new(), Vec::new());
        for unit in units {
            let file = &self.files[unit.file].parquet;
            let search = self.of(searchable, unit.file);
            match file.key_pieces(unit.row_group, &search, sought, walked) {
                Some(found) => pieces.extend(found.into_iter().map(|piece| (*unit, piece))),
                None => walks.push(*unit),
            }
        }
        (pieces, walks)
    }

    fn walk(
        &self,
        searchable: &Searchable,
        units: Vec<Unit>,
        walked: &mut Walked,
        deadline: &Deadline,
    ) -> Result<()> {
        let range = |unit: &Unit| {
            let file = &self.files[unit.file].parquet;
            file.walk_bytes(unit.row_group, &searchable.column)
        };
        for batch in batches(units, BATCH_BYTES, |unit| length(&[range(unit)])) {
            let needed: Needed = batch.iter().map(|unit| (unit.file, vec![range(unit)])).collect();
            let fetched = self.timed(Stage::Fetch, || self.read(&needed, deadline))?;
            for (unit, fetched) in batch.iter().zip(&fetched) {
                let file = &self.files[unit.file].parquet;
                let search = self.of(searchable, unit.file);
                self.timed(Stage::Plan, || {
                    file.walk_key_column(unit.row_group, &search, fetched, walked)
                })?;
            }
        }
        Ok(())
    }

    /// Puts data pages in order, and shows each; adds row groups that have to be searched again to `again`.
    fn search_batch(
        &self,
        searchable: &Searchable,
        batch: &[(Unit, KeyPiece)],
        deadline: &Deadline,
        again: &mut BTreeSet<Unit>,
        visit: &mut dyn FnMut(Unit, &KeyPage, u64),
    ) -> Result<()> {
        let cache = &self.options.structures;
        // One entry a file, as pieces come file by file.
        let mut needed: Needed = Vec::new();
        let mut known: Vec<Known> = Vec::with_capacity(batch.len());
        for (unit, piece) in batch {
            let here = self.files[unit.file].parquet.known_key_page(piece, cache);
            let ranges = here.needed(piece);
            known.push(here);
            match needed.last_mut() {
                Some((file, all)) if *file == unit.file => all.extend(ranges),
                _ => needed.push((unit.file, ranges)),
            }
        }
        let fetched = self.timed(Stage::Fetch, || self.read(&needed, deadline))?;
        let mut place = 0;
        self.timed(Stage::Decode, || {
            for ((unit, piece), known) in batch.iter().zip(&known) {
                if needed[place].0 != unit.file {
                    place += 1;
                }
                let file = &self.files[unit.file].parquet;
                let search = self.of(searchable, unit.file);
                let page = match file.key_page(piece, known, &search, &fetched[place])? {
                    Searched::Page(page, known) => {
                        self.done.add_key_page(known);
                        page
                    }
                    Searched::Again => {
                        again.insert(*unit);
                        continue;
                    }
                };
                let first_row = self.row_map.start_of(unit.file) + piece.first_row;
                visit(*unit, &page, first_row);
            }
            Ok(())
        })
    }

    /// Reads ranges of files, one entry for each; none of it if nothing is needed.
    fn read(&self, needed: &[(usize, Vec<Range<u64>>)], deadline: &Deadline) -> Result<Vec<Fetched>> {
        if needed.iter().all(|(_, ranges)| ranges.is_empty()) {
            return Ok(vec![Fetched::default(); needed.len()]);
        }
        let extents: Vec<_> = needed
            .iter()
            .map(|(_, ranges)| coalesce_ranges(ranges.clone(), self.options.coalesce))
            .collect();
        let bytes = extents.iter().map(|extents| length(extents)).sum();
        self.check_size("looking for these keys", bytes, self.options.max_fetch_bytes)?;
        let wanted: Vec<_> = needed
            .iter()
            .zip(&extents)
            .map(|((file, _), extents)| (self.files[*file].mounted.clone(), &extents[..]))
            .collect();
        let fetched = self.fetcher.fetch(&wanted, &[], deadline)?;
        for (file, _) in needed {
            self.files[*file].mounted.check_unchanged()?;
        }
        self.close_extra(needed.iter().map(|(file, _)| *file));
        Ok(fetched)
    }
}

/// The rows of a data page that hold what is sought.
fn add_matches(sought: &Sought, page: &KeyPage, first_row: u64, matches: &mut Vec<Match>) {
    let before = matches.len();
    match sought {
        Sought::Keys(keys) => {
            let Some((min, max)) = page.bounds() else {
                return;
            };
            let from = keys.partition_point(|key| *key < min);
            for (number, key) in keys
                .iter()
                .enumerate()
                .skip(from)
                .take_while(|(_, key)| **key <= max)
            {
                matches.extend(page.equal(key).map(|place| Match {
                    key: number as u32,
                    row: first_row + page.row(place),
                }));
            }
        }
        Sought::Range(start, end) => {
            let from = start.as_ref().map_or(0, |start| page.below(start));
            let to = end.as_ref().map_or(page.len(), |end| page.below(end));
            matches.extend((from..to).map(|place| Match {
                key: 0,
                row: first_row + page.row(place),
            }));
            matches[before..].sort_unstable_by_key(|found| found.row);
        }
    }
}

fn length(ranges: &[Range<u64>]) -> u64 {
    ranges
        .iter()
        .map(|range| range.end.saturating_sub(range.start))
        .sum()
}

/// Cuts a list so that no part is longer than `bytes_max`, but for a single item, whose length nobody asks for then.
fn batches<T>(items: Vec<T>, bytes_max: u64, bytes: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    if items.len() == 1 {
        return vec![items];
    }
    let mut all: Vec<Vec<T>> = Vec::new();
    let mut sum = 0u64;
    for item in items {
        let len = bytes(&item);
        sum = sum.saturating_add(len);
        match all.last_mut() {
            Some(last) if sum <= bytes_max => last.push(item),
            _ => {
                sum = len;
                all.push(vec![item]);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_what_fits_and_at_least_one() {
        let cut = |items: &[u64]| batches(items.to_vec(), 10, |item| *item);
        assert_eq!(
            cut(&[4, 6, 1, 20, 3, 3]),
            [vec![4, 6], vec![1], vec![20], vec![3, 3]]
        );
        assert_eq!(cut(&[0, 0, 0]), [vec![0, 0, 0]]);
        assert!(cut(&[]).is_empty());
        assert_eq!(batches(vec![7], 10, |_| unreachable!()), [[7]]);
    }
}
