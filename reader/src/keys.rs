//! [`Key`], [`KeyRange`] and [`KeyColumn`]: rows named by a value they hold.
//!
//! Owns what a key is, how lists of keys are read, and what a key means in a column. Refuses columns that have no order or
//! no single value a row, and keys of another type than the column's. Finding the rows is [`crate::table`]'s. Called by
//! the command line and by tools that link this crate.

mod order;
mod text;

use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Fields};

use crate::error::{ReadError, Result};
pub(crate) use order::{KeyOrder, Ordered};

/// At most so many keys in one request.
pub const KEYS_MAX: usize = 16 << 20;

/// The longest key on a stream.
pub const KEY_BYTES_MAX: u64 = 1 << 20;

/// A value to look for.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    /// Matches no row, as no null equals another.
    Null,
    /// In a column of booleans.
    Boolean(bool),
    /// In a column of integers; or the stored number of a date, time, timestamp or decimal.
    Integer(i128),
    /// In a column of floats. -0 equals +0, and NaN equals NaN and is above all else.
    Float(f64),
    /// In a column of strings or binary.
    Bytes(Vec<u8>),
    /// As `lookup` prints values, whatever the type of the column.
    Text(String),
}

impl From<i64> for Key {
    fn from(value: i64) -> Key {
        Key::Integer(value.into())
    }
}

impl From<u64> for Key {
    fn from(value: u64) -> Key {
        Key::Integer(value.into())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::Text(text.to_owned())
    }
}

impl Key {
    /// Reads keys from a stream, one a line; empty lines are skipped.
    pub fn from_lines(mut input: impl BufRead) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = std::io::Read::take(&mut input, KEY_BYTES_MAX + 2)
                .read_until(b'\n', &mut line)
                .map_err(|e| ReadError::Invalid(format!("cannot read keys: {e}")))?;
            if read == 0 {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.len() as u64 > KEY_BYTES_MAX {
                return Err(ReadError::Invalid(format!(
                    "line {number} of the keys is longer than {KEY_BYTES_MAX} bytes; write one key a line"
                )));
            }
            let text = std::str::from_utf8(text).map_err(|_| {
                ReadError::Invalid(format!(
                    "line {number} of the keys is not text; write binary keys as hex"
                ))
            })?;
            if text.is_empty() {
                continue;
            }
            if keys.len() >= KEYS_MAX {
                return Err(ReadError::Invalid(format!(
                    "more than {KEYS_MAX} keys in one request; split the list"
                )));
            }
            keys.push(Key::Text(text.to_owned()));
        }
        Ok(keys)
    }
}

/// Keys from one on, and before another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyRange {
    /// The least; `None` is the least there is.
    pub start: Option<Key>,
    /// The one after the last; `None` includes the greatest.
    pub end: Option<Key>,
}

impl FromStr for KeyRange {
    type Err = ReadError;

    /// `A..B` excludes `B`; either may be left out. Keys are as `lookup` prints them, and `A` has no `..` in it.
    fn from_str(text: &str) -> Result<KeyRange> {
        let Some((start, end)) = text.split_once("..") else {
            return Err(ReadError::Invalid(format!(
                "'{text}': write A..B (B is excluded)"
            )));
        };
        let key = |text: &str| (!text.is_empty()).then(|| Key::from(text));
        Ok(KeyRange {
            start: key(start),
            end: key(end),
        })
    }
}

/// A column that rows are looked up by. Made by [`crate::Table::key_column`].
#[derive(Debug, Clone, PartialEq)]
pub struct KeyColumn {
    name: Arc<str>,
    leaf: usize,
    kind: DataType,
}

impl KeyColumn {
    /// The leaf column `leaf`, which Arrow reads as `kind`.
    pub(crate) fn new(name: &str, leaf: usize, kind: DataType) -> KeyColumn {
        KeyColumn {
            name: name.into(),
            leaf,
            kind,
        }
    }

    /// As it was named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What Arrow reads it as.
    pub fn data_type(&self) -> &DataType {
        &self.kind
    }

    pub(crate) fn leaf(&self) -> usize {
        self.leaf
    }

    /// What `key` is in this column; `None` if no row can have it.
    pub(crate) fn ordered(&self, key: &Key) -> Result<Option<Ordered>> {
        let kind = match &self.kind {
            DataType::Dictionary(_, values) => values,
            kind => kind,
        };
        let wide = matches!(kind, DataType::Decimal256(..));
        let number = kind.is_integer() || kind.is_temporal() || kind.is_decimal();
        Ok(Some(match key {
            Key::Null => return Ok(None),
            Key::Text(text) => text::parse(text, kind).map_err(|what| self.invalid(&what))?,
            Key::Boolean(value) if *kind == DataType::Boolean => Ordered::Number(i128::from(*value)),
            Key::Integer(value) if wide => {
                let mut bytes = [if *value < 0 { 0xff } else { 0 }; 32];
                bytes[16..].copy_from_slice(&value.to_be_bytes());
                Ordered::wide(bytes)
            }
            Key::Integer(value) if number => Ordered::Number(*value),
            Key::Float(value) if kind.is_floating() => Ordered::float(*value),
            Key::Bytes(bytes) if is_bytes(kind) => Ordered::Bytes(bytes.as_slice().into()),
            other => return Err(self.invalid(&format!("{other:?} is no {kind}"))),
        }))
    }

    /// An error about this column.
    pub(crate) fn invalid(&self, what: &str) -> ReadError {
        ReadError::Invalid(format!("key column '{}': {what}", self.name))
    }

    /// An error about this column of a file.
    pub(crate) fn unsearchable(&self, path: &Path, what: &str) -> ReadError {
        ReadError::Unsearchable {
            path: path.to_owned(),
            column: self.name.to_string(),
            what: what.to_owned(),
        }
    }
}

fn is_bytes(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(
        kind,
        Binary | BinaryView | FixedSizeBinary(_) | LargeBinary | LargeUtf8 | Utf8 | Utf8View
    )
}

/// What Arrow reads each leaf column as, in the file's order.
pub(crate) fn leaf_types(fields: &Fields) -> Vec<DataType> {
    let mut types = Vec::new();
    for field in fields {
        add_leaf_types(field.data_type(), &mut types);
    }
    types
}

fn add_leaf_types(kind: &DataType, types: &mut Vec<DataType>) {
    match kind {
        DataType::Struct(fields) => fields
            .iter()
            .for_each(|field| add_leaf_types(field.data_type(), types)),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => add_leaf_types(item.data_type(), types),
        kind => types.push(kind.clone()),
    }
}

/// What is looked for.
#[derive(Debug, Clone)]
pub(crate) enum Sought {
    /// Sorted and different.
    Keys(Vec<Ordered>),
    /// From the first on, before the second.
    Range(Option<Ordered>, Option<Ordered>),
}

impl Sought {
    /// Whether any of it may lie among values from `min` to `max`, both included.
    pub(crate) fn meets(&self, min: &Ordered, max: &Ordered) -> bool {
        match self {
            Sought::Keys(keys) => keys
                .get(keys.partition_point(|key| key < min))
                .is_some_and(|key| key <= max),
            Sought::Range(start, end) => {
                start.as_ref().is_none_or(|start| start <= max) && end.as_ref().is_none_or(|end| min < end)
            }
        }
    }

    /// Whether NaN is looked for, in a column of floats.
    pub(crate) fn has_nan(&self) -> bool {
        match self {
            Sought::Keys(keys) => keys.last().is_some_and(Ordered::is_nan),
            Sought::Range(start, end) => {
                end.is_none() && !matches!(start, Some(start) if *start > Ordered::float(f64::NAN))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Sought::{Keys, Range};

    fn number(value: i128) -> Ordered {
        Ordered::Number(value)
    }

    #[test]
    fn lists_of_keys_have_one_a_line() {
        let keys = Key::from_lines(&b"a,b\r\n\n c \nd"[..]).unwrap();
        assert_eq!(keys, ["a,b", " c ", "d"].map(Key::from));
        let long = vec![b'x'; KEY_BYTES_MAX as usize + 1];
        assert!(
            Key::from_lines(&long[..])
                .unwrap_err()
                .to_string()
                .starts_with("line 1 ")
        );
        assert!(Key::from_lines(&long[1..]).is_ok());
        assert!(Key::from_lines(&b"\xff\n"[..]).is_err());
    }

    #[test]
    fn ranges_are_cut_at_the_first_two_points() {
        let range: KeyRange = "a..b..c".parse().unwrap();
        assert_eq!((range.start, range.end), (Some("a".into()), Some("b..c".into())));
        assert_eq!("..".parse::<KeyRange>().unwrap(), KeyRange::default());
        assert!("5".parse::<KeyRange>().is_err());
    }

    #[test]
    fn keys_of_another_type_are_refused() {
        let column = KeyColumn::new("k", 0, DataType::Int64);
        assert_eq!(column.ordered(&Key::Null).unwrap(), None);
        assert_eq!(
            column.ordered(&Key::Integer(1 << 100)).unwrap(),
            Some(number(1 << 100))
        );
        for key in [
            Key::Boolean(true),
            Key::Float(1.0),
            Key::Bytes(vec![]),
            "x".into(),
        ] {
            let error = column.ordered(&key).unwrap_err().to_string();
            assert!(error.contains("'k'"), "{error}");
        }
        let wide = KeyColumn::new("w", 0, DataType::Decimal256(60, 2));
        assert_eq!(
            wide.ordered(&Key::Integer(-100)).unwrap(),
            wide.ordered(&"-1".into()).unwrap()
        );
    }

    #[test]
    fn what_is_sought_meets_bounds_that_include_it() {
        let keys = Keys(vec![number(3), number(9)]);
        assert!(keys.meets(&number(3), &number(3)) && keys.meets(&number(4), &number(20)));
        assert!(!keys.meets(&number(4), &number(8)) && !keys.meets(&number(10), &number(11)));
        let range = Range(Some(number(3)), Some(number(9)));
        assert!(range.meets(&number(0), &number(3)) && range.meets(&number(8), &number(99)));
        assert!(!range.meets(&number(9), &number(99)) && !range.meets(&number(0), &number(2)));
        assert!(Range(None, None).meets(&number(0), &number(0)) && Range(None, None).has_nan());
    }
}
