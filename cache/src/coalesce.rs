//! Missing pages → extents. Pure arithmetic; called by `page_cache.rs`.

use std::ops::Range;

/// How pages are joined into one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentRule {
    /// Pages that nobody asked for and that are still cheaper fetched than a second request.
    pub(crate) gap_pages: u64,
    /// Pages in one extent, at least 1.
    pub(crate) max_pages: u64,
}

/// Joins `missing` into extents of pages. `taken` are pages that somebody else is fetching. Both are page indexes in
/// ascending order without repeats.
///
/// Every missing page is in exactly one extent; an extent begins and ends with a missing page, is at most
/// `max_pages` long, has no gap of more than `gap_pages`, and no taken page in a gap.
pub(crate) fn extents(missing: &[u64], taken: &[u64], rule: ExtentRule) -> Vec<Range<u64>> {
    let mut extents: Vec<Range<u64>> = Vec::new();
    let taken_before = |page: u64| taken.partition_point(|taken| *taken < page);
    for &page in missing {
        match extents.last_mut() {
            Some(last)
                if page - last.end <= rule.gap_pages
                    && page - last.start < rule.max_pages.max(1)
                    && taken_before(last.end) == taken_before(page) =>
            {
                last.end = page + 1;
            }
            _ => extents.push(page..page + 1),
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_missing_page_is_in_one_extent_and_no_rule_is_broken(
            pages in proptest::collection::btree_set(0u64..400, 0..200),
            others in proptest::collection::btree_set(0u64..400, 0..40),
            gap_pages in 0u64..6,
            max_pages in 0u64..40,
        ) {
            let missing: Vec<u64> = pages.iter().copied().collect();
            let taken: Vec<u64> = others.difference(&pages).copied().collect();
            let extents = extents(&missing, &taken, ExtentRule { gap_pages, max_pages });
            let mut covered = BTreeSet::new();
            let mut before: Option<Range<u64>> = None;
            for extent in &extents {
                prop_assert!(extent.end - extent.start <= max_pages.max(1));
                prop_assert!(pages.contains(&extent.start) && pages.contains(&(extent.end - 1)));
                let mut gap = 0;
                for page in extent.clone() {
                    gap = if pages.contains(&page) { 0 } else { gap + 1 };
                    prop_assert!(gap <= gap_pages && !taken.contains(&page));
                    prop_assert!(covered.insert(page));
                }
                if let Some(before) = before {
                    // Neighbours stay apart only because a rule says so.
                    prop_assert!(
                        extent.start - before.end > gap_pages
                            || taken.iter().any(|page| (before.end..extent.start).contains(page))
                            || extent.start - before.start >= max_pages.max(1)
                    );
                }
                before = Some(extent.clone());
            }
            prop_assert!(pages.is_subset(&covered));
        }
    }
}
