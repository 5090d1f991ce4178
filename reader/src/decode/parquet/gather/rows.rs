//! The rows of a [`Gather`]: what was missing is mapped and kept, values are copied out, Arrow rows are made of them.
//!
//! Owns what happens between the fetched bytes and the rows in the order asked. Hands over to the format library what cannot
//! be mapped. Called by [`crate::table`].

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::column::page::Page;
use parquet::file::metadata::ColumnChunkMetaData;

use super::super::ParquetFile;
use super::super::kept::{ReaderParts, read_rows};
use super::super::mapped::{MappedPage, Mapping, Place, map_dictionary};
use super::super::plain::{Dictionary, PlainType};
use super::super::values::{ColumnValues, TooMany};
use super::{FileRows, Gather, GatherCounts, Piece, Stop, disagrees};
use crate::decode::guarded;
use crate::error::ReadError;
use crate::fetch::{Deadline, Fetched};

impl Gather<'_> {
    /// The rows: of `order`, their places among the wanted rows of all files, or all of these as they are.
    pub(crate) fn finish(
        mut self,
        fetched: &[Fetched],
        order: Option<&[u64]>,
        limit_bytes: u64,
        deadline: &Deadline,
    ) -> Result<(RecordBatch, GatherCounts), Stop> {
        let wanted: usize = self.files.iter().map(|file| file.rows.len()).sum();
        let rows = order.map_or(wanted, <[u64]>::len);
        let kinds = self.columns.kinds.iter();
        let mut values: Vec<ColumnValues> = kinds
            .map(|(kind, level)| ColumnValues::new(*kind, *level, wanted))
            .collect();
        let mut left_bytes = limit_bytes;
        let pieces = std::mem::take(&mut self.pieces);
        let mut touched = 0;
        for (number, piece) in pieces.iter().enumerate() {
            if number == touched {
                touched = Gather::window_end(&pieces, number);
                self.touch(&pieces[number..touched]);
            }
            // A page that is mapped is inflated first, which may take milliseconds.
            if piece.mapped.is_none() {
                deadline.check("decoding").map_err(Stop::Failed)?;
            }
            self.append(
                piece,
                &fetched[piece.file],
                &mut values[piece.slot],
                &mut left_bytes,
            )?;
        }
        for rows in self.files {
            rows.file.structure.flush();
        }
        let mut left_bytes = limit_bytes;
        let pages: Vec<Page> = values
            .into_iter()
            .map(|values| values.into_page(order, &mut left_bytes))
            .collect::<Result<_, TooMany>>()?;
        let file = self.files.first().map(|first| first.file);
        let file = file.ok_or(Stop::Again)?;
        let parts = ReaderParts {
            shape: &file.structure.shape,
            leaves: &self.columns.leaves,
            levels: &self.columns.levels,
            metadata: file.metadata(),
        };
        let batch =
            guarded(&file.path, "decoding rows", || read_rows(&parts, pages, rows)).map_err(Stop::Failed)?;
        if batch.num_rows() != rows {
            let what = format!("decoding rows: {rows} rows planned, {} found", batch.num_rows());
            return Err(Stop::Failed(ReadError::corrupt(&file.path, what)));
        }
        Ok((batch, self.counts))
    }

    /// Appends the values of a piece to those of its column.
    fn append(
        &mut self,
        piece: &Piece,
        fetched: &Fetched,
        values: &mut ColumnValues,
        left_bytes: &mut u64,
    ) -> Result<(), Stop> {
        let FileRows { file, rows } = self.files[piece.file];
        let leaf = piece.key.leaf as usize;
        let (page, fresh) = self.mapped(piece, fetched)?;
        let dictionary = match page.needs_dictionary() {
            true => Some(self.dictionary(piece, fetched)?),
            false => None,
        };
        let body = fresh.as_ref().or(page.body());
        for row in &rows[piece.wanted.clone()] {
            let place = page.place((row - piece.first_row) as usize);
            match place.ok_or(Stop::Fallback(leaf))? {
                Place::Null(level) => values.push_null(level, left_bytes)?,
                Place::Dictionary(index) => {
                    let value = dictionary.as_ref().and_then(|dictionary| dictionary.value(index));
                    values.push(value.ok_or(Stop::Fallback(leaf))?, left_bytes)?;
                }
                Place::Body(part, bit) => match body {
                    Some(body) => {
                        let value = body.get(part).ok_or(Stop::Fallback(leaf))?;
                        match bit {
                            Some(bit) => values.push(&[value[0] >> bit & 1], left_bytes)?,
                            None => values.push(value, left_bytes)?,
                        }
                    }
                    None => {
                        let range = page.range_in_file(&part);
                        let value = range.and_then(|range| fetched.get(&range));
                        let value = value.ok_or_else(|| outside_of_plan(file))?;
                        match bit {
                            Some(bit) => values.push(&[value[0] >> bit & 1], left_bytes)?,
                            None if self.is_whole(piece.slot, &value) => values.push(&value, left_bytes)?,
                            None => {
                                let path = file.path.clone();
                                return Err(Stop::Failed(ReadError::Changed { path }));
                            }
                        }
                    }
                },
            }
        }
        Ok(())
    }

    /// Whether a value that was read by its own bytes has the length that it had when its page was mapped.
    fn is_whole(&self, slot: usize, value: &[u8]) -> bool {
        self.columns.kinds[slot].0 != PlainType::Lengths
            || value
                .split_first_chunk::<4>()
                .is_some_and(|(len, rest)| u32::from_le_bytes(*len) as usize == rest.len())
    }

    /// The page of a piece, and its body if it was mapped just now.
    fn mapped(&mut self, piece: &Piece, fetched: &Fetched) -> Result<(Arc<MappedPage>, Option<Bytes>), Stop> {
        if let Some(page) = &piece.mapped {
            return Ok((page.clone(), None));
        }
        let FileRows { file, .. } = self.files[piece.file];
        let bytes = fetched.get(&piece.bytes).ok_or_else(|| outside_of_plan(file))?;
        let mapping = guarded(&file.path, "mapping a data page", || {
            MappedPage::map(
                &bytes,
                piece.bytes.start,
                column_of(file, piece.key.row_group, piece.key.leaf),
                piece.page_rows,
                self.cache.held_body_bytes(),
            )
        });
        match mapping {
            Ok(Mapping::Mapped(page, body)) => {
                self.counts.pages_mapped += 1;
                file.keep_page(self.cache, piece.key, &piece.bytes, &page);
                Ok((page, Some(body)))
            }
            Ok(Mapping::Disagrees) => Err(disagrees(&self.files[piece.file], piece.key)),
            // What the format library cannot read either, it says itself.
            Ok(Mapping::Unmappable) | Err(_) => Err(Stop::Fallback(piece.key.leaf as usize)),
        }
    }

    fn dictionary(&mut self, piece: &Piece, fetched: &Fetched) -> Result<Arc<Dictionary>, Stop> {
        let fallback = Stop::Fallback(piece.key.leaf as usize);
        let Some(slot) = piece.dictionary.map(|place| &mut self.dictionaries[place]) else {
            return Err(fallback);
        };
        if let Some(held) = &slot.held {
            return Ok(held.clone());
        }
        let FileRows { file, .. } = self.files[slot.file];
        let bytes = fetched.get(&slot.bytes).ok_or_else(|| outside_of_plan(file))?;
        let mapped = guarded(&file.path, "reading a dictionary", || {
            map_dictionary(
                &bytes,
                slot.bytes.start,
                column_of(file, slot.key.row_group, slot.key.leaf),
            )
        });
        let Ok(Some(dictionary)) = mapped else {
            return Err(fallback);
        };
        let dictionary = Arc::new(dictionary);
        self.counts.dictionaries_mapped += 1;
        self.cache.put_dictionary(slot.key, dictionary.clone());
        slot.held = Some(dictionary.clone());
        Ok(dictionary)
    }
}

fn column_of(file: &ParquetFile, row_group: u32, leaf: u32) -> &ColumnChunkMetaData {
    file.metadata()
        .row_group(row_group as usize)
        .column(leaf as usize)
}

fn outside_of_plan(file: &ParquetFile) -> Stop {
    Stop::Failed(ReadError::corrupt(
        &file.path,
        "bytes outside of the plan of this lookup were needed",
    ))
}
