//! Avro container files, as far as table metadata needs them: the texts and numbers of each record, by their path.
//!
//! Owns the container (header, codecs, blocks) and the walk through values. The bytes are those of strangers: nothing here
//! panics on them, what is unpacked is bounded, and each value that is announced must take at least a byte that is there.
//! Called by `paimon.rs` and `iceberg.rs`.

use std::io::Read;

use flate2::read::DeflateDecoder;

use super::FILE_BYTES_MAX;
use super::schema::{Schema, Type, TypeId};

const MAGIC: &[u8] = b"Obj\x01";
/// Nesting of values; table metadata has less than ten.
const DEPTH_MAX: usize = 64;

/// What is met in a record. A path is the names of fields with dots; `[]` stands for the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A text at a path.
    Text(&'a str, &'a str),
    /// A whole number, or the number of an enum's symbol.
    Number(&'a str, i64),
    /// The record ends.
    End,
}

/// Reads all records of a file.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn records(file: &[u8], mut visit: impl FnMut(Event<'_>)) -> Result<(), String> {
    let header = Header::read(file).ok_or("it is no Avro file, or damaged at its beginning")?;
    let mut rest = header.blocks;
    while !rest.is_empty() {
        let block = read_block(&mut rest, header.sync).ok_or("a block of it is cut or damaged")?;
        let unpacked = header.codec.unpack(block.bytes)?;
        let mut values = Values {
            schema: &header.schema,
            bytes: &unpacked,
            path: String::new(),
        };
        for _ in 0..block.records {
            let before = values.bytes.len();
            values.walk(0, 0, &mut visit).ok_or("a record of it is damaged")?;
            if values.bytes.len() == before {
                return Err("its records are empty".to_owned());
            }
            visit(Event::End);
        }
    }
    Ok(())
}

struct Header<'a> {
    schema: Schema,
    codec: Codec,
    sync: &'a [u8],
    blocks: &'a [u8],
}

impl<'a> Header<'a> {
    fn read(file: &'a [u8]) -> Option<Header<'a>> {
        let mut bytes = file.strip_prefix(MAGIC)?;
        let (mut schema, mut codec) = (None, Codec::Null);
        // A map of bytes: blocks of entries, the last one empty.
        loop {
            let mut count = long(&mut bytes)?;
            if count == 0 {
                break;
            }
            if count < 0 {
                long(&mut bytes)?;
                count = count.checked_neg()?;
            }
            for _ in 0..count {
                let key = blob(&mut bytes)?;
                let value = blob(&mut bytes)?;
                match key {
                    b"avro.schema" => schema = Some(Schema::parse(value)?),
                    b"avro.codec" => codec = Codec::named(value)?,
                    _ => {}
                }
            }
        }
        let (sync, blocks) = bytes.split_at_checked(16)?;
        Some(Header {
            schema: schema?,
            codec,
            sync,
            blocks,
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl Codec {
    fn named(name: &[u8]) -> Option<Codec> {
        Some(match name {
            b"null" => Codec::Null,
            b"deflate" => Codec::Deflate,
            b"snappy" => Codec::Snappy,
            b"zstandard" => Codec::Zstandard,
            _ => return None,
        })
    }

    fn unpack(self, block: &[u8]) -> Result<Vec<u8>, String> {
        let mut unpacked = Vec::new();
        let done = match self {
            Codec::Null => {
                unpacked.extend_from_slice(block);
                Ok(())
            }
            Codec::Deflate => bounded(DeflateDecoder::new(block), &mut unpacked),
            Codec::Zstandard => {
                zstd::Decoder::with_buffer(block).and_then(|decoder| bounded(decoder, &mut unpacked))
            }
            Codec::Snappy => {
                // A checksum of four bytes follows.
                let block = block.get(..block.len().saturating_sub(4)).unwrap_or_default();
                match snap::raw::decompress_len(block) {
                    Ok(len) if len as u64 > FILE_BYTES_MAX => Err(too_large()),
                    _ => snap::raw::Decoder::new()
                        .decompress_vec(block)
                        .map(|bytes| unpacked = bytes)
                        .map_err(std::io::Error::other),
                }
            }
        };
        match done {
            Ok(()) => Ok(unpacked),
            Err(error) => Err(format!("a block of it cannot be unpacked: {error}")),
        }
    }
}

fn bounded(from: impl Read, into: &mut Vec<u8>) -> std::io::Result<()> {
    from.take(FILE_BYTES_MAX + 1).read_to_end(into)?;
    if into.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> std::io::Error {
    std::io::Error::other(format!("it becomes more than {FILE_BYTES_MAX} bytes"))
}

struct Block<'a> {
    records: u64,
    bytes: &'a [u8],
}

fn read_block<'a>(rest: &mut &'a [u8], sync: &[u8]) -> Option<Block<'a>> {
    let records = u64::try_from(long(rest)?).ok()?;
    let bytes = blob(rest)?;
    *rest = rest.strip_prefix(sync)?;
    Some(Block { records, bytes })
}

/// A cursor through the values of a block.
struct Values<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
    path: String,
}

impl Values<'_> {
    fn walk(&mut self, id: TypeId, depth: usize, visit: &mut impl FnMut(Event<'_>)) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let schema = self.schema;
        match schema.types.get(id)? {
            Type::Null => Some(()),
            Type::Boolean => self.skip(1),
            Type::Float => self.skip(4),
            Type::Double => self.skip(8),
            Type::Fixed(len) => self.skip(*len),
            Type::Long => {
                let number = long(&mut self.bytes)?;
                visit(Event::Number(&self.path, number));
                Some(())
            }
            Type::Bytes => blob(&mut self.bytes).map(drop),
            Type::Text => {
                let text = std::str::from_utf8(blob(&mut self.bytes)?).ok()?;
                visit(Event::Text(&self.path, text));
                Some(())
            }
            Type::Union(branches) => {
                let branch = usize::try_from(long(&mut self.bytes)?).ok()?;
                self.walk(*branches.get(branch)?, depth + 1, visit)
            }
            Type::Record(fields) => {
                let end = self.path.len();
                for (name, field) in fields {
                    if end > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(name);
                    self.walk(*field, depth + 1, visit)?;
                    self.path.truncate(end);
                }
                Some(())
            }
            Type::Array(element) => self.blocks(*element, false, depth, visit),
            Type::Map(value) => self.blocks(*value, true, depth, visit),
        }
    }

    /// An array, or the values of a map: blocks of elements, the last one empty.
    fn blocks(
        &mut self,
        element: TypeId,
        has_keys: bool,
        depth: usize,
        visit: &mut impl FnMut(Event<'_>),
    ) -> Option<()> {
        let end = self.path.len();
        self.path.push_str("[]");
        loop {
            let mut count = long(&mut self.bytes)?;
            if count == 0 {
                break;
            }
            if count < 0 {
                long(&mut self.bytes)?;
                count = count.checked_neg()?;
            }
            for _ in 0..count {
                let before = self.bytes.len();
                if has_keys {
                    blob(&mut self.bytes)?;
                }
                self.walk(element, depth + 1, visit)?;
                if self.bytes.len() == before {
                    return None;
                }
            }
        }
        self.path.truncate(end);
        Some(())
    }

    fn skip(&mut self, len: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(len).ok()?..)?;
        Some(())
    }
}

/// A variable-length zig-zag number.
fn long(bytes: &mut &[u8]) -> Option<i64> {
    let mut raw = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        raw |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some((raw >> 1) as i64 ^ -((raw & 1) as i64));
        }
    }
    None
}

/// Bytes behind their length.
fn blob<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(long(bytes)?).ok()?;
    let (blob, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "record", "name": "r", "fields": [
        {"name": "kind", "type": "int"},
        {"name": "file", "type": ["null", {"type": "record", "name": "f", "fields": [
            {"name": "name", "type": "string"},
            {"name": "more", "type": {"type": "array", "items": "string"}},
            {"name": "stats", "type": {"type": "map", "values": "double"}},
            {"name": "hash", "type": {"type": "fixed", "name": "h", "size": 2}},
            {"name": "next", "type": ["null", "f"]}]}]},
        {"name": "flag", "type": "boolean"}]}"#;

    fn push_long(out: &mut Vec<u8>, number: i64) {
        let mut raw = ((number << 1) ^ (number >> 63)) as u64;
        while raw >= 0x80 {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
    }

    fn push_blob(out: &mut Vec<u8>, blob: &[u8]) {
        push_long(out, blob.len() as i64);
        out.extend_from_slice(blob);
    }

    fn container(codec: &str, records: i64, block: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        push_long(&mut out, 2);
        push_blob(&mut out, b"avro.schema");
        push_blob(&mut out, SCHEMA.as_bytes());
        push_blob(&mut out, b"avro.codec");
        push_blob(&mut out, codec.as_bytes());
        push_long(&mut out, 0);
        out.extend_from_slice(&[7; 16]);
        push_long(&mut out, records);
        push_blob(&mut out, block);
        out.extend_from_slice(&[7; 16]);
        out
    }

    /// `{kind: -3, file: {name: "a", more: ["b", "c"], stats: {"x": 0.0}, hash: .., next: null}, flag: true}`, and one
    /// without a file.
    fn two_records() -> Vec<u8> {
        let mut out = Vec::new();
        push_long(&mut out, -3);
        push_long(&mut out, 1);
        push_blob(&mut out, b"a");
        // A block that says its length in bytes.
        push_long(&mut out, -2);
        push_long(&mut out, 4);
        push_blob(&mut out, b"b");
        push_blob(&mut out, b"c");
        push_long(&mut out, 0);
        push_long(&mut out, 1);
        push_blob(&mut out, b"x");
        out.extend_from_slice(&[0; 8]);
        push_long(&mut out, 0);
        out.extend_from_slice(&[1, 2]);
        push_long(&mut out, 0);
        out.push(1);
        push_long(&mut out, 8);
        push_long(&mut out, 0);
        out.push(0);
        out
    }

    fn read(file: &[u8]) -> Result<Vec<String>, String> {
        let mut seen = Vec::new();
        records(file, |event| {
            seen.push(match event {
                Event::Text(path, text) => format!("{path}={text}"),
                Event::Number(path, number) => format!("{path}={number}"),
                Event::End => "end".to_owned(),
            });
        })?;
        Ok(seen)
    }

    #[test]
    fn records_are_read_with_every_codec() {
        let plain = two_records();
        let expected = [
            "kind=-3",
            "file.name=a",
            "file.more[]=b",
            "file.more[]=c",
            "end",
            "kind=8",
            "end",
        ];
        let mut deflated = Vec::new();
        let mut encoder = flate2::read::DeflateEncoder::new(&plain[..], flate2::Compression::fast());
        encoder.read_to_end(&mut deflated).unwrap();
        let mut snappy = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
        snappy.extend_from_slice(&[0; 4]);
        let zstandard = zstd::encode_all(&plain[..], 1).unwrap();
        for (codec, block) in [
            ("null", &plain),
            ("deflate", &deflated),
            ("snappy", &snappy),
            ("zstandard", &zstandard),
        ] {
            assert_eq!(read(&container(codec, 2, block)).unwrap(), expected, "{codec}");
        }
        assert!(read(&container("bzip2", 2, &plain)).is_err());
    }

    #[test]
    fn bombs_and_endless_counts_are_refused() {
        let bomb = zstd::encode_all(std::io::repeat(0).take(FILE_BYTES_MAX + 2), 1).unwrap();
        assert!(
            read(&container("zstandard", 1, &bomb))
                .unwrap_err()
                .contains("more than")
        );
        assert!(read(&container("null", i64::MAX, &two_records())).is_err());
        assert!(read(&container("null", -1, &two_records())).is_err());
        assert!(read(b"Obj\x01").is_err() && read(b"PAR1").is_err() && read(b"").is_err());
    }

    #[test]
    fn damaged_files_give_errors_and_no_panic() {
        let file = container("null", 2, &two_records());
        for at in 0..file.len() {
            for bits in [1u8, 0x80, 0xff] {
                let mut damaged = file.clone();
                damaged[at] ^= bits;
                let _ = read(&damaged);
            }
            let _ = read(&file[..at]);
        }
    }
}
