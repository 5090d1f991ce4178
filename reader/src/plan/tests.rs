//! The plan against a naive model.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A file whose columns have data pages at random places, or unknown ones.
#[derive(Debug, Clone)]
struct Model(Vec<ModelGroup>);

#[derive(Debug, Clone)]
struct ModelGroup {
    rows: u64,
    columns: Vec<ModelColumn>,
}

#[derive(Debug, Clone)]
struct ModelColumn {
    bytes: Range<u64>,
    pages: Option<Vec<DataPage>>,
}

impl Layout for Model {
    fn row_groups(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, row_group: usize) -> u64 {
        self.0[row_group].rows
    }

    fn column_bytes(&self, row_group: usize, column: usize) -> Range<u64> {
        self.0[row_group].columns[column].bytes.clone()
    }

    fn data_pages(&self, row_group: usize, column: usize) -> Option<usize> {
        self.0[row_group].columns[column].pages.as_ref().map(Vec::len)
    }

    fn data_page(&self, row_group: usize, column: usize, page: usize) -> DataPage {
        self.0[row_group].columns[column].pages.as_ref().unwrap()[page].clone()
    }
}

const COLUMNS: usize = 3;

/// Rows a group; for each column: rows a data page, bytes a data page, bytes of the dictionary,
/// whether there is an index.
type ColumnSizes = (u64, u64, u64, bool);
type Sizes = Vec<(u64, Vec<ColumnSizes>)>;

fn model(sizes: Sizes) -> Model {
    let mut at = 4;
    let column = |rows: u64, sizes: ColumnSizes, at: &mut u64| {
        let (page_rows, page_bytes, dictionary, indexed) = sizes;
        let start = *at;
        *at += dictionary;
        let mut pages = Vec::new();
        for first_row in (0..rows).step_by(page_rows as usize) {
            pages.push(DataPage {
                first_row,
                bytes: *at..*at + page_bytes,
            });
            *at += page_bytes;
        }
        ModelColumn {
            bytes: start..*at,
            pages: indexed.then_some(pages),
        }
    };
    Model(
        sizes
            .into_iter()
            .map(|(rows, columns)| ModelGroup {
                rows,
                columns: columns
                    .into_iter()
                    .map(|sizes| column(rows, sizes, &mut at))
                    .collect(),
            })
            .collect(),
    )
}

fn models() -> impl Strategy<Value = Model> {
    let column = (
        1..40u64,
        1..300u64,
        prop_oneof![Just(0u64), 1..100u64],
        prop::bool::weighted(0.8),
    );
    let group = (0..120u64, prop::collection::vec(column, COLUMNS));
    prop::collection::vec(group, 0..5).prop_map(model)
}

/// Every byte that the rows need, one row at a time.
fn bytes_needed(model: &Model, rows: &[u64], columns: &[usize]) -> BTreeSet<u64> {
    let mut needed = BTreeSet::new();
    for row in rows {
        let mut start = 0;
        for group in &model.0 {
            if (start..start + group.rows).contains(row) {
                for column in columns.iter().map(|c| &group.columns[*c]) {
                    let Some(pages) = &column.pages else {
                        needed.extend(column.bytes.clone());
                        continue;
                    };
                    needed.extend(column.bytes.start..pages[0].bytes.start);
                    let page = pages.iter().rfind(|p| p.first_row <= row - start).unwrap();
                    needed.extend(page.bytes.clone());
                }
            }
            start += group.rows;
        }
    }
    needed
}

const EXACT: Coalesce = Coalesce {
    gap_bytes: 0,
    extent_bytes_max: 0,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_plan_needs_what_a_naive_model_needs(
        files in prop::collection::vec(models(), 1..4),
        picks in prop::collection::vec(any::<u32>(), 0..60),
        columns in prop::collection::btree_set(0..COLUMNS, 0..=COLUMNS),
        gap_bytes in prop_oneof![Just(0u64), 1..500u64],
    ) {
        let counts: Vec<u64> = files.iter().map(|f| f.0.iter().map(|g| g.rows).sum()).collect();
        let row_map = RowMap::new(counts.iter().copied()).unwrap();
        let total = row_map.row_count();
        prop_assume!(total > 0 || picks.is_empty());
        let rows: Vec<_> = picks.iter().map(|p| RowId(u64::from(*p) % total)).collect();
        let columns: Vec<_> = columns.into_iter().collect();
        let exact = LookupPlan::new(&rows, &row_map, &files, &columns, EXACT).unwrap();

        // The order puts every row where it was asked for.
        let mut wanted = Vec::new();
        for plan in &exact.files {
            let mut start = row_map.0[plan.file];
            let mut groups = plan.row_groups.iter().peekable();
            for (number, group) in files[plan.file].0.iter().enumerate() {
                if let Some(planned) = groups.next_if(|g| g.row_group == number) {
                    prop_assert!(planned.rows.windows(2).all(|p| p[0].end < p[1].start));
                    wanted.extend(planned.rows.iter().flat_map(|r| r.clone().map(|row| start + row)));
                }
                start += group.rows;
            }
            prop_assert!(groups.next().is_none());
        }
        let ordered: Vec<u64> = match &exact.order {
            None => wanted.clone(),
            Some(order) => order.iter().map(|place| wanted[*place as usize]).collect(),
        };
        prop_assert_eq!(ordered, rows.iter().map(|r| r.0).collect::<Vec<_>>());
        prop_assert_eq!(exact.row_count(), wanted.len());

        // Exact extents hold what the model needs and not a byte more.
        let coalesce = Coalesce { gap_bytes, extent_bytes_max: 2_000 };
        let merged = LookupPlan::new(&rows, &row_map, &files, &columns, coalesce).unwrap();
        for (exact, merged) in exact.files.iter().zip(&merged.files) {
            let start = row_map.0[exact.file];
            let local: Vec<u64> = wanted
                .iter()
                .filter(|row| (start..start + counts[exact.file]).contains(row))
                .map(|row| row - start)
                .collect();
            let needed = bytes_needed(&files[exact.file], &local, &columns);
            let planned: BTreeSet<u64> = exact.extents.iter().cloned().flatten().collect();
            prop_assert_eq!(&planned, &needed);
            let read: BTreeSet<u64> = merged.extents.iter().cloned().flatten().collect();
            prop_assert!(needed.is_subset(&read));
            prop_assert!(merged.extents.windows(2).all(|p| p[0].end <= p[1].start));
            prop_assert!(merged.extents.len() <= exact.extents.len());
        }
    }
}

#[test]
fn rows_past_the_end_are_named_in_the_order_asked() {
    let file = model(vec![(10, vec![(5, 10, 0, true); COLUMNS])]);
    let row_map = RowMap::new([10]).unwrap();
    let rows = [12, 3, 10, 9].map(RowId);
    let absent = LookupPlan::new(&rows, &row_map, &[file], &[0], EXACT).unwrap_err();
    assert_eq!(absent, RowsAbsent(vec![RowId(12), RowId(10)]));
}

#[test]
fn row_groups_and_files_without_rows_are_passed_over() {
    let column = vec![(5, 10, 3, true); COLUMNS];
    let empty = model(vec![(0, column.clone())]);
    let file = model(vec![
        (0, column.clone()),
        (7, column.clone()),
        (0, column.clone()),
        (1, column),
    ]);
    let row_map = RowMap::new([0, 8, 0, 8]).unwrap();
    let files = [empty.clone(), file.clone(), empty, file];
    let plan = LookupPlan::new(&[15, 0].map(RowId), &row_map, &files, &[1], EXACT).unwrap();
    let places: Vec<_> = plan
        .files
        .iter()
        .map(|f| (f.file, f.row_groups[0].row_group, f.row_groups[0].rows[0].clone()))
        .collect();
    assert_eq!(places, [(1, 1, 0..1), (3, 3, 0..1)]);
    assert_eq!(plan.order, Some(vec![1, 0]));
}

#[test]
fn extents_stop_growing_at_their_limit_but_a_data_page_is_never_cut() {
    let coalesce = Coalesce {
        gap_bytes: 10,
        extent_bytes_max: 100,
    };
    let merged = coalesce_ranges(
        vec![0..60, 65..90, 95..110, 200..900, 905..906, 950..950],
        coalesce,
    );
    assert_eq!(merged, [0..90, 95..110, 200..900, 905..906]);
    assert_eq!(
        coalesce_ranges(vec![5..9, 0..7, 6..8], EXACT),
        std::slice::from_ref(&(0..9)),
        "what overlaps is one"
    );
}
