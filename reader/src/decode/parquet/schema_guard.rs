//! Looks at a footer's schema before the format library does.
//!
//! The library builds the schema by recursion and reserves memory by the number of children that the
//! footer states, and neither has a bound: 60 KB of hostile footer would end the process, which no
//! caller can catch. Owns just that check. Called by [`super::footer`].

/// Deeper schemas are refused. Iceberg and Spark stop far below.
const SCHEMA_DEPTH_MAX: usize = 64;

/// Nesting of Thrift values that are skipped.
const SKIP_DEPTH_MAX: usize = 32;

const STRUCT: u8 = 12;
const LIST: u8 = 9;

/// Checks the schema in the Thrift (compact protocol) bytes of a `FileMetaData`.
pub(super) fn check_schema(footer: &[u8]) -> Result<(), String> {
    let mut thrift = Thrift { bytes: footer };
    let children = thrift.children_counts().ok_or("the footer is cut or malformed")?;
    let mut open: Vec<usize> = Vec::new();
    for (position, children_here) in children.iter().enumerate() {
        let left = children.len() - position - 1;
        let count = usize::try_from(*children_here).unwrap_or(usize::MAX);
        if count > left {
            return Err(format!(
                "the footer's schema states {children_here} children where {left} elements are left"
            ));
        }
        if count > 0 {
            open.push(count);
            if open.len() > SCHEMA_DEPTH_MAX {
                return Err(format!(
                    "the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels"
                ));
            }
            continue;
        }
        while let Some(last) = open.last_mut() {
            *last -= 1;
            if *last > 0 {
                break;
            }
            open.pop();
        }
    }
    Ok(())
}

struct Thrift<'a> {
    bytes: &'a [u8],
}

/// `None` everywhere: the bytes end early or are no Thrift.
impl Thrift<'_> {
    /// `num_children` of every `SchemaElement`, 0 where there is none.
    fn children_counts(&mut self) -> Option<Vec<i32>> {
        let mut field = 0;
        loop {
            let kind = self.field(&mut field)?;
            match (field, kind) {
                (_, 0) => return Some(Vec::new()),
                (2, LIST) => break,
                _ => self.skip(kind, SKIP_DEPTH_MAX)?,
            }
        }
        let (kind, count) = self.list()?;
        if kind != STRUCT && count > 0 {
            return None;
        }
        let mut counts = Vec::new();
        for _ in 0..count {
            counts.push(self.children_count()?);
        }
        Some(counts)
    }

    fn children_count(&mut self) -> Option<i32> {
        let mut field = 0;
        let mut children = 0;
        loop {
            match (self.field(&mut field)?, field) {
                (0, _) => return Some(children),
                (5, 5) => {
                    let raw = self.varint()? as u32;
                    children = (raw >> 1) as i32 ^ -((raw & 1) as i32);
                }
                (kind, _) => self.skip(kind, SKIP_DEPTH_MAX)?,
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
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

    fn take(&mut self, len: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    /// The next field's type; 0 is the end of the struct.
    fn field(&mut self, id: &mut i64) -> Option<u8> {
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
        Some(header & 0x0f)
    }

    /// Element type and count. Each element takes at least a byte.
    fn list(&mut self) -> Option<(u8, u64)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        (count <= self.bytes.len() as u64).then_some((header & 0x0f, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `FileMetaData { 1: version 1, 2: schema }` with so many children an element.
    fn footer(children: &[i32]) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x02, 0x19, 0xfc];
        put_varint(&mut bytes, children.len() as u64);
        for count in children {
            bytes.extend([0x48, 1, b'x', 0x15]); // 4: name, 5: num_children
            put_varint(&mut bytes, ((*count << 1) ^ (*count >> 31)) as u32 as u64);
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    #[test]
    fn ordinary_schemas_pass() {
        check_schema(&footer(&[2, 0, 1, 0])).unwrap();
        check_schema(&footer(&[1000].into_iter().chain([0; 1000]).collect::<Vec<_>>())).unwrap();
        check_schema(&footer(&vec![1; 60].into_iter().chain([0]).collect::<Vec<_>>())).unwrap();
    }

    #[test]
    fn deep_and_lying_schemas_do_not() {
        let deep: Vec<_> = vec![1; 100_000].into_iter().chain([0]).collect();
        assert!(check_schema(&footer(&deep)).unwrap_err().contains("deeper"));
        for lie in [3, i32::MAX, -1, i32::MIN] {
            assert!(check_schema(&footer(&[lie, 0, 0])).is_err(), "{lie}");
        }
    }

    #[test]
    fn every_cut_footer_is_refused_or_read() {
        let whole = footer(&[2, 0, 1, 0]);
        for len in 0..whole.len() {
            let _ = check_schema(&whole[..len]);
        }
        assert!(check_schema(&whole[..10]).is_err());
        assert!(check_schema(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }
}
