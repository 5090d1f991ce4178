//! The Thrift compact protocol, as far as footers and data page headers need it.
//!
//! Owns the reading of fields, lists and numbers out of bytes that somebody else wrote, and the skipping of
//! what is not wanted. Refuses whatever nests too deep. Called by [`super::schema_guard`] and
//! [`super::page_header`].

/// Nesting of values that are skipped.
pub(super) const SKIP_DEPTH_MAX: usize = 32;

pub(super) const INT: u8 = 5;
pub(super) const STRUCT: u8 = 12;
pub(super) const LIST: u8 = 9;

/// What is left to read.
pub(super) struct Thrift<'a> {
    pub(super) bytes: &'a [u8],
}

/// `None` everywhere: the bytes end early or are no Thrift.
impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// An unsigned number.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A signed number of 32 bits.
    pub(super) fn int(&mut self) -> Option<i32> {
        let raw = u32::try_from(self.varint()?).ok()?;
        Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    fn take(&mut self, len: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    /// The next field's type; 0 is the end of the struct. A number of a field has 16 bits, and more would be cut by others.
    pub(super) fn field(&mut self, id: &mut i64) -> Option<u8> {
        let header = self.byte()?;
        if header == 0 {
            return Some(0);
        }
        *id = match header >> 4 {
            0 => {
                let raw = self.varint()?;
                (raw >> 1) as i64 ^ -((raw & 1) as i64)
            }
            delta => id.checked_add(i64::from(delta))?,
        };
        i16::try_from(*id).ok()?;
        Some(header & 0x0f)
    }

    /// Element type and count. Each element takes at least a byte.
    pub(super) fn list(&mut self) -> Option<(u8, u64)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        (count <= self.bytes.len() as u64).then_some((header & 0x0f, count))
    }

    /// Passes over a value of a kind.
    pub(super) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => Some(()),
            3 => self.take(1),
            4..=6 => self.varint().map(drop),
            7 => self.take(8),
            8 => {
                let len = self.varint()?;
                self.take(len)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    // In a list a boolean is a byte of its own.
                    if matches!(kind, 1 | 2) {
                        self.take(1)?
                    } else {
                        self.skip(kind, depth)?
                    }
                }
                Some(())
            }
            STRUCT => {
                let mut field = 0;
                loop {
                    match self.field(&mut field)? {
                        0 => return Some(()),
                        kind => self.skip(kind, depth)?,
                    }
                }
            }
            _ => None,
        }
    }
}
