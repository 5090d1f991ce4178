//! [`LookupPlan`]: row ids in, exact byte ranges out. Pure: no file is touched.
//!
//! Owns sorting, deduplication, which data pages hold a row, the coalescing of byte ranges into
//! extents, and the caller's order. Refuses row ids past the end. [`crate::table`] makes plans,
//! [`crate::fetch`] runs their extents, [`crate::decode`] reads the rows out.

mod extents;

use std::ops::Range;

use crate::row::RowId;
pub use extents::Coalesce;
pub(crate) use extents::coalesce_ranges;

/// One data page of a column, by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPage {
    /// Its first row, counted from the start of the row group.
    pub first_row: u64,
    /// Where it lies in the file, header included.
    pub bytes: Range<u64>,
}

/// Where the columns of a file lie. What an implementation gives has been checked: row groups add
/// up, ranges lie in the file, data pages follow one another and cover all rows.
pub trait Layout {
    /// How many row groups.
    fn row_groups(&self) -> usize;

    /// Rows in a row group.
    fn rows(&self, row_group: usize) -> u64;

    /// All bytes of a column in a row group, dictionary included.
    fn column_bytes(&self, row_group: usize, column: usize) -> Range<u64>;

    /// How many data pages, or `None` if nobody knows where they are.
    fn data_pages(&self, row_group: usize, column: usize) -> Option<usize>;

    /// The `page`-th data page.
    fn data_page(&self, row_group: usize, column: usize, page: usize) -> DataPage;
}

/// Table row ids to files: where each file's rows begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowMap(Vec<u64>);

impl RowMap {
    /// Files one after the other, with so many rows each. `None` if the sum overflows.
    pub fn new(rows: impl IntoIterator<Item = u64>) -> Option<RowMap> {
        let mut starts = vec![0u64];
        for rows in rows {
            starts.push(starts.last()?.checked_add(rows)?);
        }
        Some(RowMap(starts))
    }

    /// Rows in all files.
    pub fn row_count(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// The row id of a file's first row.
    pub(crate) fn start_of(&self, file: usize) -> u64 {
        self.0[file]
    }

    /// The file that holds a row.
    fn file_of(&self, row: u64) -> usize {
        self.0.partition_point(|start| *start <= row) - 1
    }
}

/// What of a column is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnPlan {
    /// Known data pages, by number, and the dictionary if there is one.
    Pages {
        /// The leaf column.
        column: usize,
        /// Bytes of the dictionary.
        dictionary: Option<Range<u64>>,
        /// Sorted numbers of the data pages that hold a wanted row.
        pages: Vec<usize>,
    },
    /// All of it, since nobody knows where its data pages are.
    Whole {
        /// The leaf column.
        column: usize,
    },
}

/// The wanted rows of one row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowGroupPlan {
    /// Its number in the file.
    pub row_group: usize,
    /// Wanted rows counted from the start of the row group: sorted, disjoint, not touching.
    pub rows: Vec<Range<u64>>,
    /// One entry a wanted column.
    pub columns: Vec<ColumnPlan>,
}

/// The wanted rows of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    /// Its number in the table.
    pub file: usize,
    /// Sorted; without row groups of which nothing is wanted.
    pub row_groups: Vec<RowGroupPlan>,
    /// Sorted, disjoint byte ranges to read. Each planned data page lies in exactly one.
    pub extents: Vec<Range<u64>>,
    /// How many rows are wanted.
    pub row_count: usize,
}

/// Everything that one request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupPlan {
    /// Files that hold wanted rows, in the table's order.
    pub files: Vec<FilePlan>,
    /// For each row asked for, its place among the wanted rows of all files in the table's order.
    /// `None` if that is the order asked for already.
    pub order: Option<Vec<u64>>,
}

/// Row ids that a table does not have, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsAbsent(pub Vec<RowId>);

/// The wanted rows of a table, without their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Sorted and different.
    pub rows: Vec<u64>,
    /// For each row asked for, its place among these. `None` if that is the order asked for already.
    pub order: Option<Vec<u64>>,
}

impl Wanted {
    /// Sorts `rows`, which may come in any order and more than once.
    pub fn new(rows: &[RowId], row_map: &RowMap) -> Result<Wanted, RowsAbsent> {
        let row_count = row_map.row_count();
        let absent: Vec<_> = rows.iter().copied().filter(|row| row.0 >= row_count).collect();
        if !absent.is_empty() {
            return Err(RowsAbsent(absent));
        }
        let (rows, order) = sort_rows(rows);
        Ok(Wanted { rows, order })
    }

    /// The files that hold wanted rows, in the table's order, each with these rows counted from its beginning.
    pub fn by_file(&self, row_map: &RowMap) -> Vec<(usize, Vec<u64>)> {
        let mut files = Vec::new();
        let mut rest = &self.rows[..];
        while let Some(first) = rest.first() {
            let file = row_map.file_of(*first);
            let (here, after) = rest.split_at(rest.partition_point(|row| *row < row_map.0[file + 1]));
            files.push((file, here.iter().map(|row| row - row_map.0[file]).collect()));
            rest = after;
        }
        files
    }
}

impl LookupPlan {
    /// Plans the lookup of `rows` in any order, duplicates included, for the leaf columns `columns`.
    pub fn new<L: Layout>(
        rows: &[RowId],
        row_map: &RowMap,
        files: &[L],
        columns: &[usize],
        coalesce: Coalesce,
    ) -> Result<LookupPlan, RowsAbsent> {
        let wanted = Wanted::new(rows, row_map)?;
        let plan = |(file, rows): (usize, Vec<u64>)| plan_file(file, &rows, &files[file], columns, coalesce);
        Ok(LookupPlan {
            files: wanted.by_file(row_map).into_iter().map(plan).collect(),
            order: wanted.order,
        })
    }

    /// Bytes of all extents.
    pub fn fetch_bytes(&self) -> u64 {
        self.files
            .iter()
            .flat_map(|f| &f.extents)
            .map(|e| e.end - e.start)
            .sum()
    }

    /// Different rows, in all files.
    pub fn row_count(&self) -> usize {
        self.files.iter().map(|f| f.row_count).sum()
    }
}

/// Sorted and unique, and for each row asked for its place among these.
fn sort_rows(rows: &[RowId]) -> (Vec<u64>, Option<Vec<u64>>) {
    if rows.windows(2).all(|pair| pair[0] < pair[1]) {
        return (rows.iter().map(|row| row.0).collect(), None);
    }
    let mut asked: Vec<(u64, usize)> = rows.iter().map(|row| row.0).zip(0..).collect();
    asked.sort_unstable();
    let mut wanted: Vec<u64> = Vec::with_capacity(asked.len());
    let mut order = vec![0; asked.len()];
    for (row, position) in asked {
        if wanted.last() != Some(&row) {
            wanted.push(row);
        }
        order[position] = wanted.len() as u64 - 1;
    }
    (wanted, Some(order))
}

/// Plans the lookup of sorted, different `rows` of one file.
pub(crate) fn plan_file<L: Layout>(
    file: usize,
    rows: &[u64],
    layout: &L,
    columns: &[usize],
    coalesce: Coalesce,
) -> FilePlan {
    let mut row_groups = Vec::new();
    let mut needed = Vec::new();
    let mut rest = rows;
    let mut start = 0;
    for row_group in 0..layout.row_groups() {
        let end = start + layout.rows(row_group);
        let (here, after) = rest.split_at(rest.partition_point(|row| *row < end));
        if !here.is_empty() {
            let rows = to_ranges(here.iter().map(|row| row - start));
            let columns = columns
                .iter()
                .map(|column| plan_column(layout, row_group, *column, &rows, &mut needed))
                .collect();
            row_groups.push(RowGroupPlan {
                row_group,
                rows,
                columns,
            });
        }
        rest = after;
        start = end;
    }
    FilePlan {
        file,
        row_groups,
        extents: coalesce_ranges(needed, coalesce),
        row_count: rows.len(),
    }
}

fn plan_column<L: Layout>(
    layout: &L,
    row_group: usize,
    column: usize,
    rows: &[Range<u64>],
    needed: &mut Vec<Range<u64>>,
) -> ColumnPlan {
    let all = layout.column_bytes(row_group, column);
    let Some(page_count) = layout.data_pages(row_group, column) else {
        needed.push(all);
        return ColumnPlan::Whole { column };
    };
    let first = layout.data_page(row_group, column, 0).bytes.start;
    let dictionary = (all.start < first).then_some(all.start..first);
    needed.extend(dictionary.clone());
    let mut pages: Vec<usize> = Vec::new();
    // Number of data pages that begin at or before a row, looked for from where the last was found.
    let beginning_by = |row: u64, from: usize| {
        let (mut low, mut high) = (from, page_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if layout.data_page(row_group, column, middle).first_row <= row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    for range in rows {
        let from = pages.last().copied().unwrap_or(0);
        let first = beginning_by(range.start, from).saturating_sub(1);
        let end = beginning_by(range.end - 1, first);
        let first = if pages.last() == Some(&first) {
            first + 1
        } else {
            first
        };
        pages.extend(first..end);
    }
    needed.extend(
        pages
            .iter()
            .map(|page| layout.data_page(row_group, column, *page).bytes),
    );
    ColumnPlan::Pages {
        column,
        dictionary,
        pages,
    }
}

/// Sorted, unique rows as ranges.
fn to_ranges(rows: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
