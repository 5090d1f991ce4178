//! [`KeyBounds`]: between which values the keys of each row group and data page lie, by what the file states.
//!
//! Owns the reading of the column index and of a column's statistics, once a file and only when a key is looked for, and the
//! choice of data pages that may hold what is sought. What is absent, malformed, of an unknown order or NaN is no bound, and
//! the data page is looked at. Bounds that a data page was found to break are given up for its row group. The order that an
//! index claims for its pages is not used: whether they ascend is seen here. Called by [`super::key_search`].

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bytes::Bytes;
use parquet::basic::{ColumnOrder, SortOrder};
use parquet::data_type::AsBytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::index_reader::decode_column_index;
use parquet::file::statistics::Statistics;

use super::ParquetFile;
use super::thrift::{SKIP_DEPTH_MAX, STRUCT, Thrift};
use crate::decode::guarded;
use crate::error::Result;
use crate::fetch::Fetched;
use crate::keys::{KeyOrder, Ordered, Sought};

/// Bounds of one column in all row groups of a file.
#[derive(Debug)]
pub(crate) struct KeyBounds {
    groups: Vec<GroupBounds>,
}

/// Bounds of one column in one row group.
#[derive(Debug, Default)]
struct GroupBounds {
    /// The least and the greatest of all.
    all: Option<(Ordered, Ordered)>,
    pages: Option<PageBounds>,
    /// All rows are null.
    no_values: bool,
    /// NaN lies outside of all bounds.
    may_have_nan: bool,
    distrusted: AtomicBool,
}

/// Bounds of the data pages of a column chunk. Pages of nulls alone are left out.
#[derive(Debug, Default)]
struct PageBounds {
    /// Numbers of the pages with bounds, and the bounds of each.
    pages: Vec<u32>,
    mins: Vec<Ordered>,
    maxs: Vec<Ordered>,
    /// Neither minima nor maxima ever go down.
    ascending: bool,
    /// Numbers of the pages without bounds.
    unknown: Vec<u32>,
}

/// How data pages lie by their bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sortedness {
    /// Whether each begins where the one before ends or later; `Some(false)` is the other way round.
    pub(crate) ascending: Option<bool>,
    /// In how many data pages a key may lie, on average over the least values of all of them.
    pub(crate) pages_per_key: f64,
}

/// What of a row group has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// No row has what is sought.
    Nowhere,
    /// These data pages, by number.
    Pages(Vec<u32>),
    /// All of it.
    Everywhere,
}

impl KeyBounds {
    /// What of a row group may hold what is sought.
    pub(crate) fn look(&self, row_group: usize, sought: &Sought) -> Look {
        let Some(group) = self.groups.get(row_group) else {
            return Look::Everywhere;
        };
        if group.distrusted.load(SeqCst) {
            return Look::Everywhere;
        }
        if group.no_values {
            return Look::Nowhere;
        }
        if group.may_have_nan && sought.has_nan() {
            return Look::Everywhere;
        }
        if group
            .all
            .as_ref()
            .is_some_and(|(min, max)| !sought.meets(min, max))
        {
            return Look::Nowhere;
        }
        match &group.pages {
            None => Look::Everywhere,
            Some(pages) => match pages.that_meet(sought) {
                pages if pages.is_empty() => Look::Nowhere,
                pages => Look::Pages(pages),
            },
        }
    }

    /// Whether values from `min` to `max` may lie in a data page; where they may not, the bounds lie.
    pub(crate) fn allow(&self, row_group: usize, page: u32, min: &Ordered, max: &Ordered) -> bool {
        let Some(group) = self.groups.get(row_group) else {
            return true;
        };
        if group.distrusted.load(SeqCst) {
            return true;
        }
        // NaN is above all else, and no bound speaks of it.
        let within = |(low, high): (&Ordered, &Ordered)| {
            low <= min && (max <= high || (group.may_have_nan && max.is_nan()))
        };
        let by_group = group.all.as_ref().is_none_or(|(low, high)| within((low, high)));
        let by_page = group.pages.as_ref().is_none_or(|pages| {
            match pages.pages.binary_search(&page) {
                Ok(place) => within((&pages.mins[place], &pages.maxs[place])),
                // A page that should have no values has some, or nothing is known of it.
                Err(_) => pages.unknown.binary_search(&page).is_ok(),
            }
        });
        by_group && by_page && !group.no_values
    }

    /// From now on the row group is one without bounds.
    pub(crate) fn distrust(&self, row_group: usize) {
        if let Some(group) = self.groups.get(row_group) {
            group.distrusted.store(true, SeqCst);
        }
    }

    /// How the data pages of all row groups lie; `None` if any of them has no bounds, or if there is only one.
    pub(crate) fn sortedness(&self) -> Option<Sortedness> {
        let (mut mins, mut maxs) = (Vec::new(), Vec::new());
        for group in self.groups.iter().filter(|group| !group.no_values) {
            let pages = group.pages.as_ref().filter(|pages| pages.unknown.is_empty())?;
            mins.extend(&pages.mins);
            maxs.extend(&pages.maxs);
        }
        if mins.len() < 2 {
            return None;
        }
        let follow = |(max, min): (&&Ordered, &&Ordered)| max <= min;
        let order = if maxs.iter().zip(&mins[1..]).all(follow) {
            Some(true)
        } else if maxs[1..].iter().zip(&mins).all(follow) {
            Some(false)
        } else {
            None
        };
        let keys = mins.clone();
        mins.sort_unstable();
        maxs.sort_unstable();
        // Pages that begin at or before a key, without those that end before it.
        let holding =
            |key: &&Ordered| mins.partition_point(|min| min <= key) - maxs.partition_point(|max| max < key);
        let sum: usize = keys.iter().map(holding).sum();
        Some(Sortedness {
            ascending: order,
            pages_per_key: sum as f64 / keys.len() as f64,
        })
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        let bytes = |bound: &Ordered| {
            size_of::<Ordered>()
                + match bound {
                    Ordered::Bytes(bytes) => bytes.len(),
                    Ordered::Number(_) => 0,
                }
        };
        let group = |group: &GroupBounds| {
            let pages = group.pages.iter().flat_map(|p| p.mins.iter().chain(&p.maxs));
            let all = group.all.iter().flat_map(|(min, max)| [min, max]);
            let numbers = group
                .pages
                .as_ref()
                .map_or(0, |p| 4 * (p.pages.len() + p.unknown.len()));
            size_of::<GroupBounds>() + numbers + pages.chain(all).map(bytes).sum::<usize>()
        };
        self.groups.iter().map(group).sum()
    }
}

impl PageBounds {
    /// Sorted numbers of the pages that may hold what is sought.
    fn that_meet(&self, sought: &Sought) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        match sought {
            Sought::Keys(keys) if self.ascending => {
                let mut at = 0;
                for key in keys {
                    at += self.maxs[at..].partition_point(|max| max < key);
                    let pages = self.mins[at..].iter().take_while(|min| *min <= key).count();
                    let fresh = self.pages[at..at + pages].iter().copied();
                    let last = found.last().copied();
                    found.extend(fresh.filter(|page| last.is_none_or(|last| last < *page)));
                }
            }
            Sought::Range(start, end) if self.ascending => {
                let from = start
                    .as_ref()
                    .map_or(0, |s| self.maxs.partition_point(|max| max < s));
                let to = end
                    .as_ref()
                    .map_or(self.mins.len(), |end| self.mins.partition_point(|min| min < end));
                found.extend(self.pages.get(from..to).unwrap_or_default());
            }
            _ => {
                let bounds = self.pages.iter().zip(self.mins.iter().zip(&self.maxs));
                found.extend(
                    bounds
                        .filter(|(_, (min, max))| sought.meets(min, max))
                        .map(|(page, _)| page),
                );
            }
        }
        if !self.unknown.is_empty() {
            found.extend(&self.unknown);
            found.sort_unstable();
        }
        found
    }
}

/// What has to be read for the bounds of a column: all of its column indexes, and the footer if a row group has none.
pub(crate) fn bytes_wanted(file: &ParquetFile, leaf: usize) -> Vec<Range<u64>> {
    let end = file.len() - file.footer_bytes();
    let groups = file.metadata().row_groups();
    let with_rows = groups.iter().filter(|group| group.num_rows() > 0);
    let ranges: Vec<_> = with_rows
        .map(|group| index_range(group.column(leaf), end))
        .collect();
    let mut wanted: Vec<_> = ranges.iter().flatten().cloned().collect();
    if wanted.len() < ranges.len() {
        wanted.push(end..file.len());
    }
    wanted
}

/// Makes the bounds of a column of what was read for them.
pub(crate) fn read(file: &ParquetFile, leaf: usize, order: KeyOrder, fetched: &Fetched) -> Result<KeyBounds> {
    let metadata = file.metadata();
    let footer = file.len() - file.footer_bytes();
    let column_order = metadata.file_metadata().column_order(leaf);
    let statistics = match fetched.get(&(footer..file.len())) {
        Some(bytes) => Some(guarded(file.path(), "reading statistics", || {
            parse_statistics(&bytes, file.len(), leaf)
        })?),
        None => None,
    };
    let mut groups = Vec::new();
    for (number, row_group) in metadata.row_groups().iter().enumerate() {
        let column = row_group.column(leaf);
        let stated = index_range(column, footer).and_then(|range| fetched.get(&range));
        let index = stated.and_then(|bytes| parse_index(file.path(), &bytes, column));
        let rows = page_rows(file, number, leaf);
        let by_index = index
            .filter(|_| is_ordered(column_order, order))
            .and_then(|index| from_index(&index, order, rows.as_deref()));
        groups.push(match by_index {
            Some(group) => group,
            None => statistics
                .as_ref()
                .and_then(|metadata| metadata.row_groups().get(number))
                .and_then(|row_group| {
                    row_group
                        .column(leaf)
                        .statistics()
                        .map(|s| (s, row_group.num_rows()))
                })
                .map(|(statistics, rows)| from_statistics(statistics, column_order, order, rows))
                .unwrap_or_default(),
        });
    }
    Ok(KeyBounds { groups })
}

/// Rows of each data page, where the offset index tells.
fn page_rows(file: &ParquetFile, row_group: usize, leaf: usize) -> Option<Vec<i64>> {
    let locations = file.structure.index.locations(row_group, leaf)?;
    let end = file.metadata().row_group(row_group).num_rows();
    let starts = locations.iter().map(|l| l.first_row_index);
    let ends = locations.iter().skip(1).map(|l| l.first_row_index).chain([end]);
    Some(starts.zip(ends).map(|(start, end)| end - start).collect())
}

pub(super) fn index_range(column: &ColumnChunkMetaData, end: u64) -> Option<Range<u64>> {
    let start = u64::try_from(column.column_index_offset()?).ok()?;
    let len = u64::try_from(column.column_index_length()?)
        .ok()
        .filter(|len| *len > 0)?;
    let range = start..start.checked_add(len)?;
    (range.end <= end).then_some(range)
}

/// The library reserves memory by the counts that lists state, so that these are looked at before.
pub(super) fn parse_index(
    path: &Path,
    bytes: &Bytes,
    column: &ColumnChunkMetaData,
) -> Option<ColumnIndexMetaData> {
    Thrift { bytes }.skip(STRUCT, SKIP_DEPTH_MAX)?;
    guarded(path, "reading the column index", || {
        decode_column_index(bytes, column.column_type())
    })
    .ok()
}

fn parse_statistics(footer: &Bytes, len: u64, leaf: usize) -> Result<ParquetMetaData, ParquetError> {
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::skip_except(&[leaf]))
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let mut reader = ParquetMetaDataReader::new()
        .with_metadata_options(Some(options))
        .with_page_index_policy(PageIndexPolicy::Skip);
    reader.try_parse_sized(footer, len)?;
    reader.finish()
}

/// Whether bounds that were written in this order are bounds in ours.
fn is_ordered(stated: ColumnOrder, order: KeyOrder) -> bool {
    match stated {
        ColumnOrder::TYPE_DEFINED_ORDER(by_type) => {
            !matches!(by_type, SortOrder::UNDEFINED) && order != KeyOrder::Int96
        }
        ColumnOrder::IEEE_754_TOTAL_ORDER => order == KeyOrder::Float,
        ColumnOrder::INT96_TIMESTAMP_ORDER => order == KeyOrder::Int96,
        // As before orders were stated: all was compared as signed.
        ColumnOrder::UNDEFINED => matches!(order, KeyOrder::Signed | KeyOrder::Float | KeyOrder::Boolean),
        ColumnOrder::UNKNOWN => false,
    }
}

/// `rows` are those of each data page.
fn from_index(index: &ColumnIndexMetaData, order: KeyOrder, rows: Option<&[i64]>) -> Option<GroupBounds> {
    let count = u32::try_from(index.num_pages()).ok()?;
    // Another number of pages than there are data pages: it speaks of something else.
    if count == 0 || rows.is_some_and(|rows| rows.len() != count as usize) {
        return None;
    }
    let mut pages = PageBounds::default();
    let mut may_have_nan = false;
    for page in 0..count {
        let place = page as usize;
        let nulls = index.null_count(place);
        if index.is_null_page(place) {
            let all_null = match (nulls, rows) {
                (Some(nulls), Some(rows)) => nulls == rows[place],
                _ => true,
            };
            if !all_null {
                pages.unknown.push(page);
            }
            continue;
        }
        may_have_nan |= order.has_nan() && index.nan_count(place) != Some(0);
        match page_bounds(index, place, order) {
            Some((min, max)) if min <= max => {
                pages.pages.push(page);
                pages.mins.push(min);
                pages.maxs.push(max);
            }
            _ => pages.unknown.push(page),
        }
    }
    pages.ascending = pages.mins.is_sorted() && pages.maxs.is_sorted();
    let all = match pages.unknown.is_empty() {
        true => pages
            .mins
            .iter()
            .min()
            .cloned()
            .zip(pages.maxs.iter().max().cloned()),
        false => None,
    };
    Some(GroupBounds {
        all,
        no_values: pages.pages.is_empty() && pages.unknown.is_empty(),
        pages: Some(pages),
        may_have_nan,
        distrusted: AtomicBool::new(false),
    })
}

fn page_bounds(index: &ColumnIndexMetaData, page: usize, order: KeyOrder) -> Option<(Ordered, Ordered)> {
    macro_rules! typed {
        ($index:expr) => {
            $index
                .min_value(page)
                .zip($index.max_value(page))
                .and_then(|(min, max)| bound(min.as_bytes(), order).zip(bound(max.as_bytes(), order)))
        };
    }
    match index {
        ColumnIndexMetaData::BOOLEAN(index) => typed!(index),
        ColumnIndexMetaData::INT32(index) => typed!(index),
        ColumnIndexMetaData::INT64(index) => typed!(index),
        ColumnIndexMetaData::INT96(index) => typed!(index),
        ColumnIndexMetaData::FLOAT(index) => typed!(index),
        ColumnIndexMetaData::DOUBLE(index) => typed!(index),
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            typed!(index)
        }
    }
}

fn bound(bytes: &[u8], order: KeyOrder) -> Option<Ordered> {
    order.bound(bytes)
}

fn from_statistics(statistics: &Statistics, stated: ColumnOrder, order: KeyOrder, rows: i64) -> GroupBounds {
    let ordered = match statistics.is_min_max_deprecated() {
        // Compared as signed, whatever the type.
        true => matches!(order, KeyOrder::Signed | KeyOrder::Float | KeyOrder::Boolean),
        false => is_ordered(stated, order),
    };
    let bounds = || {
        let (min, max) = statistics.min_bytes_opt().zip(statistics.max_bytes_opt())?;
        let (min, max) = bound(min, order).zip(bound(max, order))?;
        (min <= max).then_some((min, max))
    };
    GroupBounds {
        all: ordered.then(bounds).flatten(),
        no_values: statistics
            .null_count_opt()
            .is_some_and(|nulls| i64::try_from(nulls) == Ok(rows)),
        may_have_nan: order.has_nan() && statistics.nan_count_opt() != Some(0),
        ..GroupBounds::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(bounds: &[(i128, i128)], unknown: &[u32]) -> PageBounds {
        let number = Ordered::Number;
        let known = (0..).filter(|page| !unknown.contains(page));
        let (mins, maxs): (Vec<_>, Vec<_>) = bounds.iter().map(|(a, b)| (number(*a), number(*b))).unzip();
        PageBounds {
            pages: known.take(bounds.len()).collect(),
            ascending: mins.is_sorted() && maxs.is_sorted(),
            mins,
            maxs,
            unknown: unknown.to_vec(),
        }
    }

    fn keys(keys: &[i128]) -> Sought {
        Sought::Keys(keys.iter().copied().map(Ordered::Number).collect())
    }

    #[test]
    fn halving_finds_the_pages_that_looking_at_each_finds() {
        let bounds = [(0, 4), (4, 4), (4, 4), (5, 9), (12, 20), (20, 20)];
        let sorted = pages(&bounds, &[2]);
        let linear = PageBounds {
            ascending: false,
            ..pages(&bounds, &[2])
        };
        assert!(sorted.ascending);
        for low in -2..23 {
            for high in low..23 {
                let two = keys(&[low, high][usize::from(low == high)..]);
                assert_eq!(sorted.that_meet(&two), linear.that_meet(&two), "{low} {high}");
                let range = Sought::Range(Some(Ordered::Number(low)), Some(Ordered::Number(high)));
                assert_eq!(
                    sorted.that_meet(&range),
                    linear.that_meet(&range),
                    "{low}..{high}"
                );
            }
        }
        assert_eq!(sorted.that_meet(&keys(&[4])), [0, 1, 2, 3]);
        assert_eq!(
            sorted.that_meet(&Sought::Range(None, None)),
            [0, 1, 2, 3, 4, 5, 6]
        );
        let none = Sought::Range(Some(Ordered::Number(9)), Some(Ordered::Number(3)));
        assert_eq!(sorted.that_meet(&none), [2], "a page without bounds, always");
    }

    #[test]
    fn bounds_that_a_page_breaks_are_not_used_again() {
        let group = GroupBounds {
            pages: Some(pages(&[(0, 4), (5, 9)], &[])),
            ..GroupBounds::default()
        };
        let bounds = KeyBounds { groups: vec![group] };
        let number = Ordered::Number;
        assert_eq!(bounds.look(0, &keys(&[7])), Look::Pages(vec![1]));
        assert_eq!(bounds.look(0, &keys(&[70])), Look::Nowhere);
        assert!(bounds.allow(0, 1, &number(5), &number(8)));
        assert!(!bounds.allow(0, 1, &number(5), &number(10)));
        assert!(
            !bounds.allow(0, 2, &number(5), &number(5)),
            "a page of nulls that has values"
        );
        bounds.distrust(0);
        assert_eq!(bounds.look(0, &keys(&[70])), Look::Everywhere);
        assert!(bounds.allow(0, 1, &number(5), &number(10)));
    }
}
