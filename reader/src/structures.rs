//! [`StructureCache`]: what is known of files between lookups, under one budget in bytes.
//!
//! Owns the keys, the weights and the costs of decoded structure, `store` the eviction: footers with their offset indexes, indexes made by
//! walking a column, dictionaries, mapped and inflated data pages, and for keys bounds and sorted data pages. Entries are immutable and belong to one version of one file, so that
//! a changed file never finds them. Refuses errors: what failed is tried again. Shared by all tables whose
//! [`OpenOptions`](crate::OpenOptions) are clones of one another. Called by [`crate::table`].

mod store;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parquet::file::page_index::offset_index::PageLocation;

use crate::decode::parquet::{
    Dictionary, FileStructure, Inflated, KeyBounds, KeyPage, MappedPage, Shape, Span,
};
use crate::mounts::OpenFiles;
use crate::read_at::VersionKey;
use store::Store;

/// What an entry takes beside what it weighs itself: key, hash table, counts, and what the allocator adds.
const ENTRY_BYTES: u64 = 224;

/// What a read costs, in bytes that are read and inflated: some 30 µs.
pub(crate) const READ_COST: u64 = 32 << 10;

/// Bodies of uncompressed data pages up to this length stay in memory by default: a read of any value would cost more
/// than it saves.
const HELD_BODY_BYTES: usize = 64 << 10;

/// By how much shorter bodies have to be once half of the budget is used.
const PRESSED: usize = 16;

/// Files that are remembered as open without looking whether they still are.
const OPEN_FILES_MIN: usize = 64;

/// Different schemas that are remembered.
const SHAPES_MAX: usize = 64;

/// Where an entry belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StructureKey {
    /// Footer and offset index of a version.
    File(VersionKey),
    /// Of a column of a row group of a file that was opened.
    Column(ColumnKey),
    /// The dictionary of it.
    Dictionary(ColumnKey),
    /// The data page of it that lies at this offset.
    Page(ColumnKey, u64),
    /// The page of it that lies at this offset, as the format library has it.
    Inflated(ColumnKey, u64),
    /// Pages of it, whose records do not all begin with one.
    Spans(ColumnKey),
    /// Bounds of a leaf column of a file that was opened.
    KeyBounds(u64, u32),
    /// The data page of a column that lies at this offset, its values in order.
    KeyPage(ColumnKey, u64),
}

/// A column of a row group. `file` is the number of a [`FileStructure`], which no other gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ColumnKey {
    pub(crate) file: u64,
    pub(crate) row_group: u32,
    pub(crate) leaf: u32,
}

#[derive(Debug, Clone)]
enum Entry {
    File(Arc<FileStructure>),
    Locations(Arc<[PageLocation]>),
    Dictionary(Arc<Dictionary>),
    Page(Arc<MappedPage>),
    Inflated(Arc<Inflated>),
    Spans(Arc<[Span]>),
    KeyBounds(Arc<KeyBounds>),
    KeyPage(Arc<KeyPage>),
}

impl Entry {
    fn weight(&self) -> u64 {
        ENTRY_BYTES
            + match self {
                Entry::File(file) => file.weight() as u64,
                Entry::Locations(locations) => size_of_val(&locations[..]) as u64,
                Entry::Dictionary(dictionary) => dictionary.weight() as u64,
                Entry::Page(page) => page.weight() as u64,
                Entry::Inflated(page) => page.weight() as u64,
                Entry::Spans(spans) => size_of_val(&spans[..]) as u64,
                Entry::KeyBounds(bounds) => bounds.weight() as u64,
                Entry::KeyPage(page) => page.weight() as u64,
            }
    }
}

impl Entry {
    /// What it took to make, as bytes that are read and inflated.
    fn cost(&self) -> u64 {
        match self {
            // Without it nothing that is known of the file is found.
            Entry::File(file) => 1024 * file.weight() as u64,
            Entry::Locations(locations) => locations
                .iter()
                .map(|location| u64::try_from(location.compressed_page_size).unwrap_or(0))
                .fold(READ_COST, u64::saturating_add),
            Entry::Dictionary(dictionary) => READ_COST + dictionary.weight() as u64,
            Entry::Page(page) => page.cost(),
            Entry::Inflated(page) => page.cost(),
            Entry::Spans(spans) => spans
                .iter()
                .map(|span| span.bytes.end - span.bytes.start)
                .fold(READ_COST, u64::saturating_add),
            Entry::KeyBounds(bounds) => READ_COST + 4 * bounds.weight() as u64,
            // Sorting.
            Entry::KeyPage(page) => READ_COST + 8 * page.weight() as u64,
        }
    }
}

/// Decoded structure of files. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct StructureCache(Arc<Shared>);

struct Shared {
    entries: Store<StructureKey, Entry>,
    /// Files that somebody may have open, with what has been closed since this was looked through.
    open_files: Mutex<HashMap<VersionKey, Weak<FileStructure>>>,
    /// How many of them there may be before it is looked through again.
    open_files_checked: AtomicUsize,
    shapes: Mutex<VecDeque<Arc<Shape>>>,
    kept_open: OpenFiles,
    held_body_bytes: usize,
}

impl StructureCache {
    /// A cache that holds up to `budget_bytes`. What is larger than a quarter of that is used and dropped.
    pub fn new(budget_bytes: u64) -> StructureCache {
        StructureCache::holding_bodies(budget_bytes, HELD_BODY_BYTES)
    }

    /// As [`StructureCache::new`]; bodies of uncompressed data pages stay in memory up to `held_body_bytes`, or up to 16
    /// times as much where their values are small. The values of longer ones are read one by one when they are asked for.
    pub fn holding_bodies(budget_bytes: u64, held_body_bytes: usize) -> StructureCache {
        StructureCache(Arc::new(Shared {
            entries: Store::new(budget_bytes),
            open_files: Mutex::default(),
            open_files_checked: AtomicUsize::new(OPEN_FILES_MIN),
            shapes: Mutex::default(),
            kept_open: OpenFiles::default(),
            held_body_bytes,
        }))
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.0.entries.bytes()
    }

    /// Bytes that may be held.
    pub fn budget_bytes(&self) -> u64 {
        self.0.entries.budget_bytes()
    }

    /// Files that stay open from one table to the next.
    pub(crate) fn kept_open(&self) -> &OpenFiles {
        &self.0.kept_open
    }

    /// How long the body of a data page may be to stay in memory. Where more is asked for than fits, maps without bodies are
    /// worth more than bodies: all of them fit, and each value is one read.
    pub(crate) fn held_body_bytes(&self) -> usize {
        match self.bytes() > self.budget_bytes() / 2 {
            true => self.0.held_body_bytes / PRESSED,
            false => self.0.held_body_bytes,
        }
    }

    pub(crate) fn file(&self, key: VersionKey) -> Option<Arc<FileStructure>> {
        if let Some(Entry::File(file)) = self.0.entries.get(&StructureKey::File(key)) {
            return Some(file);
        }
        // Tables that are open do not use the entry, but what they know hangs on the file's number.
        let file = self.0.open_files.lock().get(&key)?.upgrade()?;
        self.put(StructureKey::File(key), Entry::File(file.clone()));
        Some(file)
    }

    pub(crate) fn put_file(&self, key: VersionKey, file: Arc<FileStructure>) {
        let mut open_files = self.0.open_files.lock();
        if open_files.len() >= self.0.open_files_checked.load(Relaxed) {
            open_files.retain(|_, file| file.strong_count() > 0);
            let checked = (2 * open_files.len()).max(OPEN_FILES_MIN);
            self.0.open_files_checked.store(checked, Relaxed);
        }
        open_files.insert(key, Arc::downgrade(&file));
        drop(open_files);
        self.put(StructureKey::File(key), Entry::File(file));
    }

    pub(crate) fn locations(&self, key: ColumnKey) -> Option<Arc<[PageLocation]>> {
        match self.0.entries.get(&StructureKey::Column(key))? {
            Entry::Locations(locations) => Some(locations),
            _ => None,
        }
    }

    pub(crate) fn put_locations(&self, key: ColumnKey, locations: Arc<[PageLocation]>) {
        self.put(StructureKey::Column(key), Entry::Locations(locations));
    }

    pub(crate) fn dictionary(&self, key: ColumnKey) -> Option<Arc<Dictionary>> {
        match self.0.entries.get(&StructureKey::Dictionary(key))? {
            Entry::Dictionary(dictionary) => Some(dictionary),
            _ => None,
        }
    }

    pub(crate) fn put_dictionary(&self, key: ColumnKey, dictionary: Arc<Dictionary>) {
        self.put(StructureKey::Dictionary(key), Entry::Dictionary(dictionary));
    }

    pub(crate) fn page(&self, key: ColumnKey, offset: u64) -> Option<Arc<MappedPage>> {
        match self.0.entries.get(&StructureKey::Page(key, offset))? {
            Entry::Page(page) => Some(page),
            _ => None,
        }
    }

    pub(crate) fn put_page(&self, key: ColumnKey, offset: u64, page: Arc<MappedPage>) {
        self.put(StructureKey::Page(key, offset), Entry::Page(page));
    }

    pub(crate) fn inflated(&self, key: ColumnKey, offset: u64) -> Option<Arc<Inflated>> {
        match self.0.entries.get(&StructureKey::Inflated(key, offset))? {
            Entry::Inflated(page) => Some(page),
            _ => None,
        }
    }

    pub(crate) fn put_inflated(&self, key: ColumnKey, offset: u64, page: Arc<Inflated>) {
        self.put(StructureKey::Inflated(key, offset), Entry::Inflated(page));
    }

    pub(crate) fn spans(&self, key: ColumnKey) -> Option<Arc<[Span]>> {
        match self.0.entries.get(&StructureKey::Spans(key))? {
            Entry::Spans(spans) => Some(spans),
            _ => None,
        }
    }

    pub(crate) fn put_spans(&self, key: ColumnKey, spans: Arc<[Span]>) {
        self.put(StructureKey::Spans(key), Entry::Spans(spans));
    }

    pub(crate) fn key_bounds(&self, file: u64, leaf: usize) -> Option<Arc<KeyBounds>> {
        match self.0.entries.get(&StructureKey::KeyBounds(file, leaf as u32))? {
            Entry::KeyBounds(bounds) => Some(bounds),
            _ => None,
        }
    }

    pub(crate) fn put_key_bounds(&self, file: u64, leaf: usize, bounds: Arc<KeyBounds>) {
        self.put(
            StructureKey::KeyBounds(file, leaf as u32),
            Entry::KeyBounds(bounds),
        );
    }

    pub(crate) fn key_page(&self, key: ColumnKey, offset: u64) -> Option<Arc<KeyPage>> {
        match self.0.entries.get(&StructureKey::KeyPage(key, offset))? {
            Entry::KeyPage(page) => Some(page),
            _ => None,
        }
    }

    pub(crate) fn put_key_page(&self, key: ColumnKey, offset: u64, page: Arc<KeyPage>) {
        self.put(StructureKey::KeyPage(key, offset), Entry::KeyPage(page));
    }

    fn put(&self, key: StructureKey, entry: Entry) {
        let (weight, cost) = (entry.weight(), entry.cost());
        self.0.entries.put(key, entry, weight, cost);
    }

    /// The one copy of a schema, so that files of one table share what is built for it.
    pub(crate) fn shape(&self, shape: Shape) -> Arc<Shape> {
        let mut shapes = self.0.shapes.lock();
        if let Some(known) = shapes.iter().find(|known| ***known == shape) {
            return known.clone();
        }
        let shape = Arc::new(shape);
        shapes.push_back(shape.clone());
        if shapes.len() > SHAPES_MAX {
            shapes.pop_front();
        }
        shape
    }
}

impl Default for StructureCache {
    /// 512 MiB: the structure of some 1,500,000 rows of 42 columns.
    fn default() -> Self {
        StructureCache::new(512 << 20)
    }
}

impl fmt::Debug for StructureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StructureCache({} of {} bytes)",
            self.bytes(),
            self.budget_bytes()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_never_passes_the_budget_and_what_is_large_is_not_kept() {
        let locations = |count: usize| -> Arc<[PageLocation]> {
            let location = PageLocation {
                offset: 0,
                compressed_page_size: 0,
                first_row_index: 0,
            };
            vec![location; count].into()
        };
        let key = |leaf: usize| ColumnKey {
            file: 1,
            row_group: 0,
            leaf: leaf as u32,
        };
        for budget in [1 << 20, 128 << 20] {
            let cache = StructureCache::new(budget);
            // Some weigh most of a quarter, and together they are 8 budgets.
            let count = budget as usize / 5 / size_of::<PageLocation>();
            for leaf in 0..40 {
                cache.put_locations(key(leaf), locations(count));
                assert!(cache.bytes() <= budget, "{} of {budget}", cache.bytes());
                assert!(cache.locations(key(leaf)).is_some(), "{leaf}");
            }
            assert!(cache.bytes() >= budget / 2, "{} of {budget}", cache.bytes());
            cache.put_locations(key(99), locations(count * 2));
            assert!(cache.locations(key(99)).is_none());
        }
    }
}
