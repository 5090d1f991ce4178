//! Bytes of the disk tier: the header and the entries of a page map. cache/FORMAT.md draws them.
//!
//! Pure: no I/O. Refuses every number that is not exactly right before it is used: whoever reads a map reads what a
//! crash, a bad disk or a stranger left. Called by `version_file.rs`.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::memory::Kind;
use crate::page::PageSize;
use crate::version::{FileVersion, SourceId, SourcePath, VersionId};

/// Another number is another format: its files are dropped, which is a miss.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: u64 = 8;
/// The unit in which file systems give out room.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a header before its names.
pub(crate) const FIXED_BYTES: usize = 72;
/// The longest header: HDFS allows paths of 8,000 characters, and no more is believed.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_BYTES + 1024 + 32 * 1024;
/// More pages than that are not kept: a length from a source may be absurd, and the map is read whole.
pub(crate) const PAGES_MAX: u64 = 1 << 26;

const MAGIC: [u8; 8] = *b"lookupfs";
const CHECKSUM_AT: usize = 64;
const SOURCE_BYTES_MAX: usize = 1024;
const PATH_BYTES_MAX: usize = 32 * 1024;

const METADATA_BIT: u64 = 1;
const PRESENT_BIT: u64 = 2;

/// Whether the disk tier keeps such a version at all.
pub(crate) fn is_keepable(version: &FileVersion, page_size: PageSize) -> bool {
    version.len() > 0
        && version.len().div_ceil(page_size.bytes()) <= PAGES_MAX
        && version.source().as_str().len() <= SOURCE_BYTES_MAX
        && version.path().as_bytes().len() <= PATH_BYTES_MAX
}

/// The header of a version's map.
pub(crate) fn encode_header(version: &FileVersion, page_size: PageSize) -> Vec<u8> {
    let (source, path) = (version.source().as_str().as_bytes(), version.path().as_bytes());
    let mut bytes = Vec::with_capacity(FIXED_BYTES + source.len() + path.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&(page_size.bytes() as u32).to_le_bytes());
    bytes.extend_from_slice(&version.id().to_bytes());
    bytes.extend_from_slice(&version.len().to_le_bytes());
    bytes.extend_from_slice(&version.mtime_ms().to_le_bytes());
    bytes.extend_from_slice(&version.tag().to_le_bytes());
    bytes.extend_from_slice(&(source.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(source);
    bytes.extend_from_slice(path);
    let checksum = xxh3_64(&bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The page size that a map says it has, whatever else is in it; `None` where it is no map of this format.
pub(super) fn page_bytes_of(header: &[u8; 16]) -> Option<u64> {
    let word: [u8; 4] = header[12..].try_into().ok()?;
    (header[..8] == MAGIC[..]).then_some(u64::from(u32::from_le_bytes(word)))
}

/// The version that a map belongs to, and where its entries begin. `bytes` is the beginning of the map, as much as
/// there is of [`HEADER_BYTES_MAX`]. `None` for whatever is not a whole header of this format and page size.
pub(crate) fn decode_header(bytes: &[u8], page_size: PageSize) -> Option<(FileVersion, u64)> {
    let u32_at = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let u64_at = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let is_ours = bytes.starts_with(&MAGIC)
        && u32_at(8)? == FORMAT_VERSION
        && u64::from(u32_at(12)?) == page_size.bytes();
    let source_len = usize::try_from(u32_at(56)?).ok()?;
    let path_len = usize::try_from(u32_at(60)?).ok()?;
    if !is_ours || source_len > SOURCE_BYTES_MAX || path_len > PATH_BYTES_MAX {
        return None;
    }
    let header = bytes.get(..FIXED_BYTES + source_len + path_len)?;
    let mut plain = header.to_vec();
    plain[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
    if xxh3_64(&plain) != u64_at(CHECKSUM_AT)? {
        return None;
    }
    let (source, path) = header[FIXED_BYTES..].split_at(source_len);
    let source = SourceId::new(std::str::from_utf8(source).ok()?);
    let path = SourcePath::parse(path).ok()?;
    let version = FileVersion::new(source, path, u64_at(32)?, u64_at(40)?, u64_at(48)?);
    let is_itself = bytes[16..32] == version.id().to_bytes() && is_keepable(&version, page_size);
    is_itself.then(|| {
        let entries_at = entries_at(&version, page_size);
        (version, entries_at)
    })
}

/// Where the entries begin: behind the header if all of them fit into its block, else in the next one.
pub(crate) fn entries_at(version: &FileVersion, page_size: PageSize) -> u64 {
    let names = version.source().as_str().len() + version.path().as_bytes().len();
    let header = (FIXED_BYTES + names) as u64;
    let entries = version.len().div_ceil(page_size.bytes()) * ENTRY_BYTES;
    let close = header.next_multiple_of(ENTRY_BYTES);
    if close + entries <= BLOCK_BYTES {
        close
    } else {
        header.next_multiple_of(BLOCK_BYTES)
    }
}

/// The entry of a page that is there: 62 bits of a checksum over version, page number, kind and bytes, and two flags.
pub(crate) fn entry(version: VersionId, page: u64, kind: Kind, bytes: &[u8]) -> u64 {
    let flags = PRESENT_BIT | u64::from(kind == Kind::Metadata);
    let mut name = [0; 25];
    name[..16].copy_from_slice(&version.to_bytes());
    name[16..24].copy_from_slice(&page.to_le_bytes());
    name[24] = flags as u8;
    xxh3_64_with_seed(bytes, xxh3_64(&name)) & !(PRESENT_BIT | METADATA_BIT) | flags
}

/// What an entry says of its page: `None` for one that is not there.
pub(crate) fn kind_of(entry: u64) -> Option<Kind> {
    match (entry & PRESENT_BIT != 0, entry & METADATA_BIT != 0) {
        (false, _) => None,
        (true, false) => Some(Kind::Data),
        (true, true) => Some(Kind::Metadata),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn version(len: u64) -> FileVersion {
        let path = SourcePath::parse(b"/t/part-0.parquet").unwrap();
        FileVersion::new(SourceId::new("hdfs://ns1"), path, len, 1_700_000_000_123, 7)
    }

    fn page_size() -> PageSize {
        PageSize::new(4096).unwrap()
    }

    /// Made by another program (tests/golden/make.py), from FORMAT.md alone.
    #[test]
    fn the_map_of_a_small_file_is_the_golden_one() {
        let golden: &[u8] = include_bytes!("../../tests/golden/small.map");
        let data: &[u8] = include_bytes!("../../tests/golden/small.data");
        let version = version(9000);
        let mut map = encode_header(&version, page_size());
        let at = entries_at(&version, page_size()) as usize;
        map.resize(at, 0);
        map.extend(entry(version.id(), 0, Kind::Data, &data[..4096]).to_le_bytes());
        map.extend([0; 8]);
        map.extend(entry(version.id(), 2, Kind::Metadata, &data[8192..]).to_le_bytes());
        assert_eq!(map, golden);
        assert_eq!(decode_header(golden, page_size()), Some((version, at as u64)));
    }

    #[test]
    fn another_format_version_page_size_or_magic_is_a_miss() {
        let version = version(9000);
        let good = encode_header(&version, page_size());
        assert!(decode_header(&good, PageSize::new(8192).unwrap()).is_none());
        // A header that is right in itself, but of the format before or after this one.
        for number in [0u32, 2, u32::MAX] {
            let mut other = good.clone();
            other[8..12].copy_from_slice(&number.to_le_bytes());
            other[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
            let checksum = xxh3_64(&other);
            other[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
            assert!(decode_header(&other, page_size()).is_none(), "{number}");
        }
    }

    #[test]
    fn damaged_headers_are_refused_and_none_panics() {
        let seed = 0x5eed_d15c;
        println!("seed {seed:#x}");
        let mut random = StdRng::seed_from_u64(seed);
        let good = encode_header(&version(9000), page_size());
        for len in 0..good.len() {
            assert!(decode_header(&good[..len], page_size()).is_none(), "{len}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= random.random_range(1..=255u8);
            assert!(decode_header(&bad, page_size()).is_none(), "byte {at}");
        }
        // Right checksums over hostile numbers.
        for _ in 0..20_000 {
            let mut bad = good.clone();
            let from = random.random_range(16..60);
            for byte in &mut bad[from..from + 4] {
                *byte = [0, 1, 0x7f, 0xff][random.random_range(0..4)];
            }
            bad[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
            let checksum = xxh3_64(&bad);
            bad[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
            if bad[..64] != good[..64] {
                assert!(decode_header(&bad, page_size()).is_none());
            }
        }
    }

    #[test]
    fn absurd_versions_are_not_kept() {
        for len in [0, 4096 * PAGES_MAX + 1, 1 << 62, u64::MAX] {
            assert!(!is_keepable(&version(len), page_size()), "{len}");
        }
        assert!(is_keepable(&version(4096 * PAGES_MAX), page_size()));
    }

    #[test]
    fn entries_name_their_place() {
        let (version, bytes) = (version(1 << 20), [7; 4096]);
        let one = entry(version.id(), 3, Kind::Data, &bytes);
        assert_eq!(kind_of(one), Some(Kind::Data));
        assert_eq!(kind_of(0), None);
        assert_ne!(one, entry(version.id(), 4, Kind::Data, &bytes));
        assert_ne!(one & !3, entry(version.id(), 3, Kind::Metadata, &bytes) & !3);
        let other = FileVersion::new(version.source().clone(), version.path().clone(), 1 << 20, 0, 0);
        assert_ne!(one, entry(other.id(), 3, Kind::Data, &bytes));
    }
}
