//! [`inflate`]: undoes those codecs whose decoders in the format library write on for as long as there is input.
//!
//! A kilobyte can inflate to gigabytes, whatever the header of its page states. Owns the bound of GZIP, Brotli and the older
//! LZ4, which is what the header states; Snappy, Zstandard and LZ4_RAW have theirs in the library, which writes into as many
//! bytes. Refuses what does not inflate to just so many. Called by [`super::inflated`].

use std::io::{self, Read};

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};

/// Bytes that a Brotli decoder reads at a time.
const BROTLI_INPUT_BYTES: usize = 4096;

/// Sizes before each block of Hadoop's LZ4: inflated and packed, both with the highest byte first.
const HADOOP_SIZES: usize = 8;

/// Whether pages of this codec are inflated here.
pub(super) fn is_unbounded(codec: Compression) -> bool {
    matches!(
        codec,
        Compression::GZIP(_) | Compression::BROTLI(_) | Compression::LZ4
    )
}

/// Inflates a page that was read as if it had no codec, to the `inflated` bytes that its header states.
pub(super) fn inflate(mut page: Page, codec: Compression, inflated: usize) -> Result<Page> {
    let plain = match &page {
        // Levels of version 2 have no codec, and nor have its values where it says so.
        Page::DataPageV2 {
            is_compressed: false, ..
        } => return Ok(page),
        Page::DataPageV2 {
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => (*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize),
        _ => 0,
    };
    let (Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. }) =
        &mut page;
    let (levels, packed) = buf
        .split_at_checked(plain)
        .filter(|_| plain <= inflated)
        .ok_or_else(|| ParquetError::General("a page is shorter than its levels".into()))?;
    let mut out = Vec::with_capacity(inflated);
    out.extend_from_slice(levels);
    // No values at all are no bytes, whatever the codec would make of none.
    if inflated > plain {
        let start = out.len();
        out.resize(inflated, 0);
        undo(codec, packed, &mut out[start..])
            .map_err(|error| ParquetError::General(format!("a page does not inflate: {error}")))?;
    }
    *buf = Bytes::from(out);
    Ok(page)
}

/// Fills `out` with what `packed` is. `Err` if that is more, less or malformed.
fn undo(codec: Compression, packed: &[u8], out: &mut [u8]) -> io::Result<()> {
    match codec {
        Compression::GZIP(_) => fill(flate2::read::MultiGzDecoder::new(packed), out),
        Compression::BROTLI(_) => fill(brotli::Decompressor::new(packed, BROTLI_INPUT_BYTES), out),
        // Three formats have gone by this name, and nothing tells which it is.
        Compression::LZ4 => hadoop_lz4(packed, out)
            .or_else(|_| fill(lz4_flex::frame::FrameDecoder::new(packed), out))
            .or_else(|_| lz4_block(packed, out)),
        codec => Err(io::Error::other(format!("{codec} is not undone here"))),
    }
}

fn fill(mut decoder: impl Read, out: &mut [u8]) -> io::Result<()> {
    decoder.read_exact(out)?;
    // Checksums come behind the last byte.
    match decoder.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(more_than_stated(out.len())),
    }
}

fn more_than_stated(stated: usize) -> io::Error {
    io::Error::other(format!(
        "it is more than the {stated} bytes that its header states"
    ))
}

fn lz4_block(packed: &[u8], out: &mut [u8]) -> io::Result<()> {
    match lz4_flex::block::decompress_into(packed, out) {
        Ok(len) if len == out.len() => Ok(()),
        Ok(len) => Err(io::Error::other(format!(
            "{len} bytes where its header states {}",
            out.len()
        ))),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Blocks, each behind its two sizes.
fn hadoop_lz4(mut packed: &[u8], mut out: &mut [u8]) -> io::Result<()> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    while !packed.is_empty() {
        let (sizes, rest) = packed.split_first_chunk::<HADOOP_SIZES>().ok_or_else(cut)?;
        let [a, b, c, d, e, f, g, h] = *sizes;
        let inflated = u32::from_be_bytes([a, b, c, d]) as usize;
        let len = u32::from_be_bytes([e, f, g, h]) as usize;
        let (block, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        let (here, after) = out.split_at_mut_checked(inflated).ok_or_else(cut)?;
        lz4_block(block, here)?;
        (packed, out) = (rest, after);
    }
    match out.is_empty() {
        true => Ok(()),
        false => Err(cut()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parquet::basic::{BrotliLevel, GzipLevel};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn brotli(bytes: &[u8]) -> Vec<u8> {
        let mut out = ::brotli::CompressorWriter::new(Vec::new(), 4096, 1, 22);
        out.write_all(bytes).unwrap();
        out.into_inner()
    }

    fn frame(bytes: &[u8]) -> Vec<u8> {
        let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn hadoop(bytes: &[u8]) -> Vec<u8> {
        let block = |bytes: &[u8]| {
            let packed = lz4_flex::block::compress(bytes);
            let sizes = [bytes.len() as u32, packed.len() as u32].map(u32::to_be_bytes);
            [&sizes.concat()[..], &packed].concat()
        };
        // The second is longer than the first, and the other way round.
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let (second, third) = second.split_at(second.len() - 7);
        [block(first), block(second), block(third)].concat()
    }

    fn undone(codec: Compression, packed: &[u8], stated: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; stated];
        undo(codec, packed, &mut out).ok().map(|()| out)
    }

    #[test]
    fn what_is_stated_is_what_comes_out_or_nothing_does() {
        let bytes: Vec<u8> = (0..5000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        let gzips = [&gzip(&bytes[..900])[..], &gzip(&bytes[900..])].concat();
        let ways = [
            (Compression::GZIP(GzipLevel::default()), gzip(&bytes)),
            (Compression::GZIP(GzipLevel::default()), gzips),
            (Compression::BROTLI(BrotliLevel::default()), brotli(&bytes)),
            (Compression::LZ4, frame(&bytes)),
            (Compression::LZ4, hadoop(&bytes)),
            (Compression::LZ4, lz4_flex::block::compress(&bytes)),
        ];
        for (number, (codec, packed)) in ways.iter().enumerate() {
            let len = bytes.len();
            assert!(undone(*codec, packed, len).as_ref() == Some(&bytes), "{number}");
            for stated in [0, 1, 900, len - 1, len + 1, 2 * len] {
                assert!(undone(*codec, packed, stated).is_none(), "{number}: {stated}");
            }
            for cut in [0, 1, 7, packed.len() / 2, packed.len() - 1] {
                // What is cut may be no more than a mark that nothing follows.
                let got = undone(*codec, &packed[..cut], len);
                assert!(got.is_none_or(|got| got == bytes), "{number}: cut at {cut}");
            }
        }
    }

    #[test]
    fn levels_of_version_2_have_no_codec() {
        let page = |body: &[u8], levels: u32, is_compressed| Page::DataPageV2 {
            buf: Bytes::copy_from_slice(body),
            num_values: 1,
            encoding: parquet::basic::Encoding::PLAIN,
            num_nulls: 0,
            num_rows: 1,
            def_levels_byte_len: levels,
            rep_levels_byte_len: 1,
            is_compressed,
            statistics: None,
        };
        let codec = Compression::GZIP(GzipLevel::default());
        let body = [&[1, 2, 3][..], &gzip(&[7; 50])].concat();
        let got = inflate(page(&body, 2, true), codec, 53).unwrap();
        assert_eq!(got.buffer()[..], [&[1, 2, 3][..], &[7; 50]].concat());
        let got = inflate(page(&[1, 2, 3, 4], 2, false), codec, 4).unwrap();
        assert_eq!(got.buffer()[..], [1, 2, 3, 4]);
        // No values, and so nothing behind the levels.
        assert_eq!(
            inflate(page(&[1, 2, 3], 2, true), codec, 3).unwrap().buffer()[..],
            [1, 2, 3]
        );
        for (levels, inflated) in [(2, 2), (9, 20), (u32::MAX, 53)] {
            assert!(
                inflate(page(&[1, 2, 3], levels, true), codec, inflated).is_err(),
                "{levels}"
            );
        }
    }
}
