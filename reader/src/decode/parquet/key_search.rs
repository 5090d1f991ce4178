//! Where in a file keys are looked for: the data pages of one column of a row group, and their values in order.
//!
//! Owns what has to be read for a search and what is made of it; what was made is kept in the
//! [`StructureCache`]. A data page whose values break the bounds, or that is not what its index says, makes the search of its
//! row group begin again without these. Called by [`crate::table`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::bounds::{KeyBounds, Look};
use super::gather::{Locations, Walked};
use super::key_page::{KeyPage, NoKeyPage};
use super::mapped::{MappedPage, Mapping, map_dictionary};
use super::page_header::walk;
use super::plain::{Dictionary, PlainType};
use super::{FileStructure, ParquetFile};
use crate::decode::guarded;
use crate::fetch::Fetched;
use crate::keys::{KeyColumn, KeyOrder, Sought, leaf_types};
use crate::plan::Layout;
use crate::structures::{ColumnKey, StructureCache};
use crate::{ReadError, Result};

/// A data page that may hold what is sought.
#[derive(Debug, Clone)]
pub(crate) struct KeyPiece {
    key: ColumnKey,
    page: u32,
    bytes: Range<u64>,
    dictionary: Range<u64>,
    rows: u64,
    /// Its first row, counted from the beginning of the file.
    pub(crate) first_row: u64,
}

/// What is known of a data page.
#[derive(Debug, Default)]
pub(crate) struct Known {
    page: Option<Arc<KeyPage>>,
    /// With its body in memory.
    mapped: Option<Arc<MappedPage>>,
    dictionary: Option<Arc<Dictionary>>,
    may_need_dictionary: bool,
}

impl Known {
    /// What has to be read to know the rest.
    pub(crate) fn needed(&self, piece: &KeyPiece) -> Vec<Range<u64>> {
        let mut needed = Vec::new();
        if self.page.is_none() && self.mapped.is_none() {
            needed.push(piece.bytes.clone());
        }
        if self.may_need_dictionary {
            needed.push(piece.dictionary.clone());
        }
        needed
    }
}

/// What became of a data page.
pub(crate) enum Searched {
    /// Its values in order, and whether they were known.
    Page(Arc<KeyPage>, bool),
    /// Bounds or index lie: the row group has to be searched again.
    Again,
}

/// What is searched, and what is known about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) column: &'a KeyColumn,
    pub(crate) order: KeyOrder,
    pub(crate) bounds: &'a KeyBounds,
    pub(crate) cache: &'a StructureCache,
}

impl FileStructure {
    /// No other file that was opened has it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl ParquetFile {
    /// What is known of the file, under whatever path.
    pub(crate) fn structure(&self) -> &FileStructure {
        &self.structure
    }

    /// A column that rows can be looked up by.
    pub(crate) fn key_column(&self, name: &str) -> Result<KeyColumn> {
        let columns = self.project(Some(&[name.to_owned()]))?;
        let invalid = |what: String| ReadError::Invalid(format!("key column '{name}': {what}"));
        let [leaf] = columns.leaves[..] else {
            let count = columns.leaves.len();
            return Err(invalid(format!(
                "has {count} parts; name one of them, as {name}.x"
            )));
        };
        let types = leaf_types(self.schema().fields());
        let Some(kind) = types
            .get(leaf)
            .filter(|_| types.len() == self.metadata().file_metadata().schema_descr().num_columns())
        else {
            return Err(invalid(
                "the file has groups without columns, which are not supported here".into(),
            ));
        };
        let column = KeyColumn::new(name, leaf, kind.clone());
        self.key_order(&column)?;
        Ok(column)
    }

    /// How its stored values are ordered in this file.
    pub(crate) fn key_order(&self, column: &KeyColumn) -> Result<KeyOrder> {
        let descriptor = self
            .metadata()
            .file_metadata()
            .schema_descr()
            .column(column.leaf());
        KeyOrder::of(&descriptor, column.data_type()).map_err(|what| column.invalid(&what))
    }

    fn column_key(&self, row_group: usize, leaf: usize) -> ColumnKey {
        ColumnKey {
            file: self.structure.id,
            row_group: row_group as u32,
            leaf: leaf as u32,
        }
    }

    /// The data pages of a row group that may hold what is sought. `None` if nobody knows where its data pages are.
    pub(crate) fn key_pieces(
        &self,
        row_group: usize,
        search: &Search<'_>,
        sought: &Sought,
        walked: &Walked,
    ) -> Option<Vec<KeyPiece>> {
        let look = search.bounds.look(row_group, sought);
        if look == Look::Nowhere || self.rows(row_group) == 0 {
            return Some(Vec::new());
        }
        let leaf = search.column.leaf();
        let key = self.column_key(row_group, leaf);
        let locations = match self.structure.index.locations(row_group, leaf) {
            Some(stated) => Locations::Stated(stated),
            None => Locations::Walked(
                walked
                    .get(&key)
                    .cloned()
                    .or_else(|| self.known_locations(search.cache, key))?,
            ),
        };
        let start = self.structure.row_group_starts[row_group];
        let column_start = self.column_bytes(row_group, leaf).start;
        let dictionary = column_start..locations.first().map_or(column_start, |l| l.offset as u64);
        let piece = |page: u32| {
            let here = locations.get(page as usize)?;
            let end = locations.get(page as usize + 1);
            let end = end.map_or(self.rows(row_group), |next| next.first_row_index as u64);
            Some(KeyPiece {
                key,
                page,
                bytes: here.offset as u64..here.offset as u64 + here.compressed_page_size.max(0) as u64,
                dictionary: dictionary.clone(),
                rows: end - here.first_row_index as u64,
                first_row: start + here.first_row_index as u64,
            })
        };
        Some(match look {
            Look::Pages(pages) => pages.into_iter().filter_map(piece).collect(),
            _ => (0..u32::try_from(locations.len()).unwrap_or(u32::MAX))
                .filter_map(piece)
                .collect(),
        })
    }

    /// All bytes of a column of a row group, to look for its data pages.
    pub(crate) fn walk_bytes(&self, row_group: usize, column: &KeyColumn) -> Range<u64> {
        self.column_bytes(row_group, column.leaf())
    }

    /// Looks for the data pages of a column of a row group by their headers, and remembers where they are.
    pub(crate) fn walk_key_column(
        &self,
        row_group: usize,
        search: &Search<'_>,
        fetched: &Fetched,
        walked: &mut Walked,
    ) -> Result<()> {
        let leaf = search.column.leaf();
        let range = self.column_bytes(row_group, leaf);
        let locations = fetched
            .get(&range)
            .and_then(|bytes| walk(&bytes, &range, self.rows(row_group)))
            .ok_or_else(|| self.unsearchable(search, row_group, "its data pages do not add up"))?;
        let key = self.column_key(row_group, leaf);
        let locations: Arc<[_]> = locations.into();
        self.keep_locations(search.cache, key, &locations);
        walked.insert(key, locations);
        Ok(())
    }

    fn unsearchable(&self, search: &Search<'_>, row_group: usize, what: &str) -> ReadError {
        search
            .column
            .unsearchable(&self.path, &format!("row group {row_group}: {what}"))
    }

    /// What is known of a data page. It stays at hand, whatever the cache drops meanwhile.
    pub(crate) fn known_key_page(&self, piece: &KeyPiece, cache: &StructureCache) -> Known {
        let mut known = Known {
            page: cache.key_page(piece.key, piece.bytes.start),
            ..Known::default()
        };
        if known.page.is_none() {
            let mapped = cache.page(piece.key, piece.bytes.start);
            known.mapped = mapped.filter(|page| page.body().is_some());
            if !piece.dictionary.is_empty()
                && known.mapped.as_ref().is_none_or(|page| page.needs_dictionary())
            {
                known.dictionary = cache.dictionary(piece.key);
                known.may_need_dictionary = known.dictionary.is_none();
            }
        }
        known
    }

    /// The values of a data page in order, known or out of what was read.
    pub(crate) fn key_page(
        &self,
        piece: &KeyPiece,
        known: &Known,
        search: &Search<'_>,
        fetched: &Fetched,
    ) -> Result<Searched> {
        let row_group = piece.key.row_group as usize;
        let page = match &known.page {
            Some(page) => page.clone(),
            None => match self.make_key_page(piece, known, search, fetched)? {
                Some(page) => page,
                None => return Ok(Searched::Again),
            },
        };
        let allowed = page
            .bounds()
            .is_none_or(|(min, max)| search.bounds.allow(row_group, piece.page, &min, &max));
        if !allowed {
            search.bounds.distrust(row_group);
            return Ok(Searched::Again);
        }
        Ok(Searched::Page(page, known.page.is_some()))
    }

    /// `None` if the index lies, which is not believed any more.
    fn make_key_page(
        &self,
        piece: &KeyPiece,
        known: &Known,
        search: &Search<'_>,
        fetched: &Fetched,
    ) -> Result<Option<Arc<KeyPage>>> {
        let row_group = piece.key.row_group as usize;
        let leaf = search.column.leaf();
        let Some((mapped, body)) = self.mapped_key_page(piece, known, search, fetched)? else {
            if self.structure.index.locations(row_group, leaf).is_none() {
                let what = "a data page has other rows than its header states";
                return Err(self.unsearchable(search, row_group, what));
            }
            self.structure.index.distrust(row_group, leaf);
            return Ok(None);
        };
        let dictionary = match mapped.needs_dictionary() {
            true => Some(self.key_dictionary(piece, known, search, fetched)?),
            false => None,
        };
        let column = self.metadata().row_group(row_group).column(leaf);
        let lengths = PlainType::of(column.column_descr()) == PlainType::Lengths;
        let page = KeyPage::of(&mapped, &body, dictionary.as_deref(), search.order, lengths);
        let page = page.map_err(|why| {
            let what = match why {
                NoKeyPage::Malformed => "a value is not one of its type",
                NoKeyPage::TooLarge => "the values of one data page are too many to be searched",
            };
            self.unsearchable(search, row_group, what)
        })?;
        let page = Arc::new(page);
        search
            .cache
            .put_key_page(piece.key, piece.bytes.start, page.clone());
        Ok(Some(page))
    }

    /// `None` if the page is not what its index says.
    fn mapped_key_page(
        &self,
        piece: &KeyPiece,
        known: &Known,
        search: &Search<'_>,
        fetched: &Fetched,
    ) -> Result<Option<(Arc<MappedPage>, Bytes)>> {
        if let Some(page) = &known.mapped {
            let body = page.body().cloned().unwrap_or_default();
            return Ok((page.rows() == piece.rows).then(|| (page.clone(), body)));
        }
        let row_group = piece.key.row_group as usize;
        let column = self.metadata().row_group(row_group).column(search.column.leaf());
        let missing = || self.unsearchable(search, row_group, "a data page was not read");
        let bytes = fetched.get(&piece.bytes).ok_or_else(missing)?;
        let held_bytes = search.cache.held_body_bytes();
        let mapping = guarded(&self.path, "reading a data page of keys", || {
            MappedPage::map(&bytes, piece.bytes.start, column, piece.rows, held_bytes)
        });
        match mapping {
            Ok(Mapping::Mapped(page, body)) => {
                self.keep_page(search.cache, piece.key, &piece.bytes, &page);
                Ok(Some((page, body)))
            }
            Ok(Mapping::Unmappable) => Err(self.unsearchable(
                search,
                row_group,
                "a data page is larger than its column, or of an encoding that is not searched",
            )),
            Ok(Mapping::Disagrees) => Ok(None),
            // An index that lies points at what is no page.
            Err(_)
                if self
                    .structure
                    .index
                    .locations(row_group, search.column.leaf())
                    .is_some() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn key_dictionary(
        &self,
        piece: &KeyPiece,
        known: &Known,
        search: &Search<'_>,
        fetched: &Fetched,
    ) -> Result<Arc<Dictionary>> {
        if let Some(dictionary) = &known.dictionary {
            return Ok(dictionary.clone());
        }
        let row_group = piece.key.row_group as usize;
        let column = self.metadata().row_group(row_group).column(search.column.leaf());
        let none = || self.unsearchable(search, row_group, "its dictionary cannot be read");
        let bytes = fetched.get(&piece.dictionary).ok_or_else(none)?;
        let dictionary = guarded(&self.path, "reading a dictionary", || {
            map_dictionary(&bytes, piece.dictionary.start, column)
        })?;
        let dictionary = Arc::new(dictionary.ok_or_else(none)?);
        search.cache.put_dictionary(piece.key, dictionary.clone());
        Ok(dictionary)
    }
}
