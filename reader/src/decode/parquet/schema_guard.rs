//! Looks at a footer's schema before the format library does.
//!
//! The library builds the schema by recursion and reserves memory by the number of children that the
//! footer states, and neither has a bound: 60 KB of hostile footer would end the process, which no
//! caller can catch. Owns just that check. Called by [`super::footer`].

use super::thrift::{LIST, SKIP_DEPTH_MAX, STRUCT, Thrift};

/// Deeper schemas are refused. Iceberg and Spark stop far below.
const SCHEMA_DEPTH_MAX: usize = 64;

/// Checks the schema in the Thrift (compact protocol) bytes of a `FileMetaData`.
pub(super) fn check_schema(footer: &[u8]) -> Result<(), String> {
    let mut thrift = Thrift { bytes: footer };
    let children = children_counts(&mut thrift).ok_or("the footer is cut or malformed")?;
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

/// `num_children` of every `SchemaElement`, 0 where there is none.
fn children_counts(thrift: &mut Thrift<'_>) -> Option<Vec<i32>> {
    let mut field = 0;
    loop {
        let kind = thrift.field(&mut field)?;
        match (field, kind) {
            (_, 0) => return Some(Vec::new()),
            (2, LIST) => break,
            _ => thrift.skip(kind, SKIP_DEPTH_MAX)?,
        }
    }
    let (kind, count) = thrift.list()?;
    if kind != STRUCT && count > 0 {
        return None;
    }
    let mut counts = Vec::new();
    for _ in 0..count {
        counts.push(children_count(thrift)?);
    }
    Some(counts)
}

fn children_count(thrift: &mut Thrift<'_>) -> Option<i32> {
    let mut field = 0;
    let mut children = 0;
    loop {
        match (thrift.field(&mut field)?, field) {
            (0, _) => return Some(children),
            (5, 5) => {
                let raw = thrift.varint()? as u32;
                children = (raw >> 1) as i32 ^ -((raw & 1) as i32);
            }
            (kind, _) => thrift.skip(kind, SKIP_DEPTH_MAX)?,
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
