//! As much of Thrift's compact protocol as it takes to find the page index in a Parquet footer.
//!
//! Owns a cursor over bytes of strangers: it allocates nothing, recurses to a fixed depth, and does work in proportion to
//! its input, since every element that is announced must take at least a byte that is there. Refuses everything else with
//! `None`. Called by `footer.rs`.

/// Nesting of structures; Parquet's own has less than ten.
const MAX_DEPTH: u32 = 24;

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// A cursor.
pub(crate) struct Compact<'a> {
    bytes: &'a [u8],
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type(u8);

impl Type {
    pub(crate) const BINARY: Type = Type(BINARY);
    pub(crate) const I32: Type = Type(I32);
    pub(crate) const I64: Type = Type(I64);
    pub(crate) const LIST: Type = Type(LIST);
    pub(crate) const STRUCT: Type = Type(STRUCT);
}

impl<'a> Compact<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Compact<'a> {
        Compact { bytes }
    }

    /// Reads the fields of a structure: `field` is given each one's id and type, and consumes its value or leaves it by
    /// answering `Some(false)`.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Compact<'a>, i16, Type) -> Option<bool>,
    ) -> Option<()> {
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            let kind = Type(head & 0x0f);
            if !field(self, id, kind)? {
                self.skip_field(kind, 0)?;
            }
        }
    }

    /// The head of a list: how many elements, and of which type.
    pub(crate) fn list(&mut self) -> Option<(u64, Type)> {
        let head = self.byte()?;
        let len = match head >> 4 {
            15 => self.varint()?,
            len => u64::from(len),
        };
        // Every element takes a byte at least.
        (len <= self.bytes.len() as u64).then_some((len, Type(head & 0x0f)))
    }

    /// A 16, 32 or 64 bit number.
    pub(crate) fn zigzag(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A string.
    pub(crate) fn binary(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        let bytes = self.bytes.get(..usize::try_from(len).ok()?)?;
        self.drop_bytes(len)?;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        varint(&mut self.bytes)
    }

    fn drop_bytes(&mut self, count: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn skip_field(&mut self, kind: Type, depth: u32) -> Option<()> {
        match kind.0 {
            // The value of a field of this type is in its type.
            BOOL_TRUE | BOOL_FALSE => Some(()),
            _ => self.skip(kind, depth),
        }
    }

    fn skip(&mut self, kind: Type, depth: u32) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind.0 {
            BOOL_TRUE | BOOL_FALSE | I8 => self.drop_bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.drop_bytes(8),
            UUID => self.drop_bytes(16),
            BINARY => {
                let len = self.varint()?;
                self.drop_bytes(len)
            }
            LIST | SET => {
                let (len, element) = self.list()?;
                (0..len).try_for_each(|_| self.skip(element, depth + 1))
            }
            MAP => self.skip_map(depth),
            STRUCT => self.skip_struct(depth),
            _ => None,
        }
    }

    fn skip_map(&mut self, depth: u32) -> Option<()> {
        let len = self.varint()?;
        if len == 0 {
            return Some(());
        }
        if len > self.bytes.len() as u64 {
            return None;
        }
        let types = self.byte()?;
        (0..len).try_for_each(|_| {
            self.skip(Type(types >> 4), depth + 1)?;
            self.skip(Type(types & 0x0f), depth + 1)
        })
    }

    fn skip_struct(&mut self, depth: u32) -> Option<()> {
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            if head >> 4 == 0 {
                self.zigzag()?;
            }
            self.skip_field(Type(head & 0x0f), depth + 1)?;
        }
    }
}

/// A variable-length number of at most 64 bits, as Thrift and Protocol Buffers write it.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_the_rest_is_skipped() {
        // 1: i64 150; 2: list of two strings; 3: true; 20 (long form): i64 -1; 21: struct { 1: map of one; }; stop.
        let bytes = [
            0x16, 0xac, 0x02, 0x19, 0x28, 1, b'a', 2, b'b', b'c', 0x11, 0x06, 40, 0x01, 0x1c, 0x1b, 1, 0x85,
            1, b'k', 7, 0x00, 0x00,
        ];
        let mut seen = Vec::new();
        let done = Compact::new(&bytes).fields(|compact, id, kind| {
            if kind != Type::I64 {
                seen.push((id, 0));
                return Some(false);
            }
            seen.push((id, compact.zigzag()?));
            Some(true)
        });
        assert_eq!(done, Some(()));
        assert_eq!(seen, [(1, 150), (2, 0), (3, 0), (20, -1), (21, 0)]);
    }

    #[test]
    fn what_is_too_deep_too_long_or_cut_is_refused() {
        let skip = |bytes: &[u8]| Compact::new(bytes).fields(|_, _, _| Some(false));
        assert_eq!(skip(&[0x1c; 4096]), None, "structures without end");
        assert_eq!(skip(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f]), None, "a long list");
        assert_eq!(skip(&[0x18, 5, b'a']), None, "a cut string");
        assert_eq!(skip(&[0x16, 0xff]), None, "a cut number");
        assert_eq!(varint(&mut &[0x80; 16][..]), None, "a number of 112 bits");
    }
}
