//! [`KeyPage`]: the values of one data page, sorted, each with its row.
//!
//! Owns the search within a data page: whatever the order of the rows, a key is found by halving, and all rows that have it
//! come in the file's order. Nulls are left out. Refuses pages whose values are more than a limit. Made by
//! [`super::key_search`], kept by [`crate::structures`].

use std::ops::Range;

use bytes::Bytes;

use super::mapped::{MappedPage, Place};
use super::plain::Dictionary;
use crate::keys::{KeyOrder, Ordered};

/// Bytes of the values of one data page.
const VALUES_BYTES_MAX: usize = 256 << 20;

/// The values of one data page in order.
#[derive(Debug)]
pub(crate) struct KeyPage {
    values: Values,
    /// Of each value, counted from the beginning of the page. `None` if every row has a value and they are sorted as it is.
    rows: Option<Box<[u32]>>,
}

#[derive(Debug)]
enum Values {
    Narrow(Box<[i64]>),
    Wide(Box<[i128]>),
    /// Bytes of all, and where each ends.
    Bytes(Box<[u8]>, Box<[u32]>),
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoKeyPage {
    /// A value is not one of its column.
    Malformed,
    /// The values are more than the limit.
    TooLarge,
}

impl KeyPage {
    /// Of a mapped page with its body, and the dictionary if it needs one. `lengths` is whether values have their lengths
    /// before them.
    pub(super) fn of(
        page: &MappedPage,
        body: &Bytes,
        dictionary: Option<&Dictionary>,
        order: KeyOrder,
        lengths: bool,
    ) -> Result<KeyPage, NoKeyPage> {
        let rows = usize::try_from(page.rows()).map_err(|_| NoKeyPage::TooLarge)?;
        let mut pairs: Vec<(Ordered, u32)> = Vec::new();
        let mut bytes = 0usize;
        for row in 0..rows {
            let value = match page.place(row).ok_or(NoKeyPage::Malformed)? {
                Place::Null(_) => continue,
                Place::Body(range, None) => order.value(value(body.get(range), lengths)?),
                Place::Body(range, Some(bit)) => {
                    let byte = value(body.get(range), false)?.first().copied().unwrap_or(0);
                    order.value(&[byte >> bit & 1])
                }
                Place::Dictionary(index) => {
                    order.value(value(dictionary.and_then(|d| d.value(index)), lengths)?)
                }
            };
            let value = value.ok_or(NoKeyPage::Malformed)?;
            bytes += size_of::<Ordered>()
                + match &value {
                    Ordered::Bytes(bytes) => bytes.len(),
                    Ordered::Number(_) => 0,
                };
            if bytes > VALUES_BYTES_MAX {
                return Err(NoKeyPage::TooLarge);
            }
            pairs.push((value, u32::try_from(row).map_err(|_| NoKeyPage::TooLarge)?));
        }
        KeyPage::sorted(pairs, rows)
    }

    fn sorted(mut pairs: Vec<(Ordered, u32)>, rows: usize) -> Result<KeyPage, NoKeyPage> {
        let sorted = pairs.is_sorted();
        if !sorted {
            pairs.sort_unstable();
        }
        let identity = sorted && pairs.len() == rows;
        let rows = (!identity).then(|| pairs.iter().map(|(_, row)| *row).collect());
        let numbers = |pair: &(Ordered, u32)| match pair.0 {
            Ordered::Number(number) => Some(number),
            Ordered::Bytes(_) => None,
        };
        let wide: Option<Vec<i128>> = pairs.iter().map(numbers).collect();
        let values = match wide {
            Some(wide) => match wide.iter().map(|n| i64::try_from(*n).ok()).collect() {
                Some(narrow) => Values::Narrow(narrow),
                None => Values::Wide(wide.into()),
            },
            None => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(pairs.len()));
                for (value, _) in &pairs {
                    let Ordered::Bytes(value) = value else {
                        return Err(NoKeyPage::Malformed);
                    };
                    bytes.extend_from_slice(value);
                    ends.push(u32::try_from(bytes.len()).map_err(|_| NoKeyPage::TooLarge)?);
                }
                Values::Bytes(bytes.into(), ends.into())
            }
        };
        Ok(KeyPage { values, rows })
    }

    /// Values, without nulls.
    pub(crate) fn len(&self) -> usize {
        match &self.values {
            Values::Narrow(all) => all.len(),
            Values::Wide(all) => all.len(),
            Values::Bytes(_, ends) => ends.len(),
        }
    }

    /// The least and the greatest value.
    pub(crate) fn bounds(&self) -> Option<(Ordered, Ordered)> {
        let last = self.len().checked_sub(1)?;
        Some((self.value(0), self.value(last)))
    }

    /// The `place`-th value in order.
    pub(crate) fn value(&self, place: usize) -> Ordered {
        match &self.values {
            Values::Narrow(all) => Ordered::Number(all[place].into()),
            Values::Wide(all) => Ordered::Number(all[place]),
            Values::Bytes(bytes, ends) => Ordered::Bytes(slice(bytes, ends, place).into()),
        }
    }

    /// The row of the `place`-th value, counted from the beginning of the page.
    pub(crate) fn row(&self, place: usize) -> u64 {
        match &self.rows {
            Some(rows) => u64::from(rows[place]),
            None => place as u64,
        }
    }

    /// How many values are below `key`.
    pub(crate) fn below(&self, key: &Ordered) -> usize {
        match (&self.values, key) {
            (Values::Narrow(all), Ordered::Number(key)) => all.partition_point(|v| i128::from(*v) < *key),
            (Values::Wide(all), Ordered::Number(key)) => all.partition_point(|v| v < key),
            (Values::Bytes(bytes, ends), Ordered::Bytes(key)) => {
                halve(ends.len(), |place| slice(bytes, ends, place) < &key[..])
            }
            _ => 0,
        }
    }

    /// The places of the values that equal `key`.
    pub(crate) fn equal(&self, key: &Ordered) -> Range<usize> {
        let start = self.below(key);
        let end = match (&self.values, key) {
            (Values::Narrow(all), Ordered::Number(key)) => {
                start + all[start..].partition_point(|v| i128::from(*v) == *key)
            }
            (Values::Wide(all), Ordered::Number(key)) => start + all[start..].partition_point(|v| v == key),
            (Values::Bytes(bytes, ends), Ordered::Bytes(key)) => {
                halve(ends.len(), |place| slice(bytes, ends, place) <= &key[..])
            }
            _ => start,
        };
        start..end
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        let values = match &self.values {
            Values::Narrow(all) => size_of_val(&all[..]),
            Values::Wide(all) => size_of_val(&all[..]),
            Values::Bytes(bytes, ends) => bytes.len() + size_of_val(&ends[..]),
        };
        values + self.rows.as_ref().map_or(0, |rows| size_of_val(&rows[..])) + size_of::<KeyPage>()
    }
}

/// The bytes of a value without the length before it.
fn value(bytes: Option<&[u8]>, lengths: bool) -> Result<&[u8], NoKeyPage> {
    let bytes = bytes.ok_or(NoKeyPage::Malformed)?;
    match lengths {
        true => bytes.get(4..).ok_or(NoKeyPage::Malformed),
        false => Ok(bytes),
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[u32], place: usize) -> &'a [u8] {
    let start = place.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &bytes[start..ends[place] as usize]
}

/// How many places from the first on `holds` is true for.
fn halve(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(values: &[Option<Ordered>]) -> KeyPage {
        let pairs = values
            .iter()
            .zip(0..)
            .filter_map(|(v, row)| Some((v.clone()?, row)));
        KeyPage::sorted(pairs.collect(), values.len()).unwrap()
    }

    fn rows(page: &KeyPage, key: &Ordered) -> Vec<u64> {
        page.equal(key).map(|place| page.row(place)).collect()
    }

    #[test]
    fn all_rows_of_a_key_come_in_order_whatever_the_page() {
        let number = Ordered::Number;
        let text = |text: &str| Ordered::Bytes(text.as_bytes().into());
        let unsorted = page(&[5, 3, 5, -1, 5].map(|n| Some(number(n))));
        assert_eq!(rows(&unsorted, &number(5)), [0, 2, 4]);
        assert_eq!(rows(&unsorted, &number(4)), [] as [u64; 0]);
        assert_eq!(unsorted.bounds(), Some((number(-1), number(5))));
        let sorted = page(&[1, 2, 2, 3].map(|n| Some(number(n))));
        assert!(sorted.rows.is_none());
        assert_eq!(rows(&sorted, &number(2)), [1, 2]);
        let wide = page(&[Some(number(1 << 90)), None, Some(number(-7))]);
        assert_eq!(
            (rows(&wide, &number(1 << 90)), rows(&wide, &number(-7))),
            (vec![0], vec![2])
        );
        let texts = page(&["b", "", "abc", "b"].map(|t| Some(text(t))));
        assert_eq!(rows(&texts, &text("b")), [0, 3]);
        assert_eq!(rows(&texts, &text("")), [1]);
        assert_eq!((rows(&texts, &text("ab")), texts.below(&text("b"))), (vec![], 2));
        let nothing = page(&[None, None]);
        assert_eq!((nothing.len(), nothing.bounds()), (0, None));
        assert_eq!(rows(&nothing, &number(0)), [] as [u64; 0]);
    }
}
