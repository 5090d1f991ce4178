//! The two files of one version: a sparse file with its bytes where they are in the version, and the map of its pages.
//!
//! Owns the order in which they are written: bytes before their entry, and when they are dropped, the entry before the
//! bytes. So a crash leaves bytes without an entry, which are nothing, and never an entry that promises what was not
//! written; what a power cut tears is found by its checksum. Refuses to decide what is kept. Called by `disk.rs`,
//! `writer.rs` and `verify.rs`.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, fallocate};

use super::format::{self, BLOCK_BYTES, ENTRY_BYTES, HEADER_BYTES_MAX};
use super::geometry::Shape;
use super::kernel_pages;
use crate::memory::Kind;
use crate::page::{PageIndex, PageSize};
use crate::version::{FileVersion, VersionId};

/// Bytes and pages read with one system call: a few MiB in memory, and a vector that the kernel takes.
const RUN_BYTES_MAX: u64 = 4 << 20;
const RUN_PAGES_MAX: u64 = 256;
/// Entries read at once when a map is loaded.
const LOAD_ENTRIES: u64 = 32 * 1024;

/// Pages of this size read with one system call, at most.
pub(super) fn run_pages_max(page_size: PageSize) -> u64 {
    (RUN_BYTES_MAX / page_size.bytes()).clamp(1, RUN_PAGES_MAX)
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Only what the kernel has in its page cache: event loops never wait.
    Never,
    /// As long as the disk takes.
    AsLongAsItTakes,
}

/// A page as it came back from disk.
#[derive(Debug)]
pub(super) enum ReadPage {
    /// Its bytes passed their checksum.
    Whole(u64, Box<[u8]>, Kind),
    /// Its bytes did not.
    Torn(u64),
    /// The map has no entry for it, whatever the index says.
    Absent(u64),
}

/// Both files of a version, open.
#[derive(Debug)]
pub(super) struct VersionFiles {
    data: File,
    map: File,
    id: VersionId,
    len: u64,
    entries_at: u64,
    page_size: PageSize,
}

impl VersionFiles {
    /// Two files that were just made: empty so far.
    pub(super) fn create(
        data: File,
        map: File,
        version: &FileVersion,
        page_size: PageSize,
    ) -> io::Result<VersionFiles> {
        data.set_len(version.len())?;
        map.write_all_at(&format::encode_header(version, page_size), 0)?;
        Ok(VersionFiles {
            data,
            map,
            id: version.id(),
            len: version.len(),
            entries_at: format::entries_at(version, page_size),
            page_size,
        })
    }

    /// Two files that an earlier daemon left, if they are of the version `id`, this format and this page size.
    pub(super) fn open(
        data: File,
        map: File,
        id: VersionId,
        page_size: PageSize,
    ) -> io::Result<Option<VersionFiles>> {
        let mut header = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut at = 0;
        while at < HEADER_BYTES_MAX {
            header.resize(at + BLOCK_BYTES as usize, 0);
            let n = map.read_at(&mut header[at..], at as u64)?;
            header.truncate(at + n);
            at += n;
            // Most headers end within the first block.
            if n == 0 || format::decode_header(&header, page_size).is_some() {
                break;
            }
        }
        let Some((version, entries_at)) = format::decode_header(&header, page_size) else {
            return Ok(None);
        };
        let is_whole = version.id() == id && data.metadata()?.len() == version.len();
        Ok(is_whole.then_some(VersionFiles {
            data,
            map,
            id,
            len: version.len(),
            entries_at,
            page_size,
        }))
    }

    /// The version's bytes, as far as they are here.
    pub(super) fn data(&self) -> &File {
        &self.data
    }

    /// The data once more, for reading alone: the same file, also where another has taken its name.
    pub(super) fn data_for_reading(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.data.as_raw_fd()))
    }

    /// Has the data read from the disk itself from now on, and not from what the kernel keeps of writing it.
    pub(super) fn read_anew(&self) {
        kernel_pages::read_anew(&self.data);
    }

    /// What follows from the version's identity.
    pub(super) fn shape(&self) -> Shape {
        Shape::of(self.len, self.entries_at, self.page_size)
    }

    /// The kind of each page that the map says is there, ascending.
    pub(super) fn load(&self, mut found: impl FnMut(u64, Kind)) -> io::Result<()> {
        let pages = self.len.div_ceil(self.page_size.bytes());
        // What lies behind the end of the map is absent; holes cost no reading from the disk.
        let written = self.map.metadata()?.len().saturating_sub(self.entries_at) / ENTRY_BYTES;
        let pages = pages.min(written);
        let mut first = 0;
        while first < pages {
            let end = (first + LOAD_ENTRIES).min(pages);
            for (page, entry) in (first..).zip(self.entries(first..end, Wait::AsLongAsItTakes)?) {
                if let Some(kind) = format::kind_of(entry) {
                    found(page, kind);
                }
            }
            first = end;
        }
        Ok(())
    }

    /// The pages of `run`, at most [`run_pages_max`] of them, each with its verdict.
    ///
    /// # Errors
    /// `WouldBlock` or `Unsupported` where the read may not wait and would; else what the disk says.
    pub(super) fn read(&self, run: Range<u64>, wait: Wait) -> io::Result<Vec<ReadPage>> {
        let entries = self.entries(run.clone(), wait)?;
        let mut pages: Vec<Box<[u8]>> = run.clone().map(|page| self.buffer(page)).collect();
        let mut vector: Vec<IoSliceMut<'_>> = pages.iter_mut().map(|page| IoSliceMut::new(page)).collect();
        read_exact(&self.data, &mut vector, run.start * self.page_size.bytes(), wait)?;
        let judge = |((page, bytes), entry): ((u64, Box<[u8]>), u64)| match format::kind_of(entry) {
            None => ReadPage::Absent(page),
            Some(kind) if format::entry(self.id, page, kind, &bytes) == entry => {
                ReadPage::Whole(page, bytes, kind)
            }
            Some(_) => ReadPage::Torn(page),
        };
        Ok(run.zip(pages).zip(entries).map(judge).collect())
    }

    /// Writes the bytes of pages; they are nothing until [`VersionFiles::enter`].
    pub(super) fn write(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        self.data.write_all_at(bytes, page * self.page_size.bytes())
    }

    /// Enters consecutive pages from `first` on, whose bytes are written.
    pub(super) fn enter(&self, first: u64, entries: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        self.map
            .write_all_at(&bytes, self.entries_at + first * ENTRY_BYTES)
    }

    /// The entry of a page that is to be written.
    pub(super) fn entry(&self, page: u64, kind: Kind, bytes: &[u8]) -> u64 {
        format::entry(self.id, page, kind, bytes)
    }

    /// Takes pages out of the map, and gives their room back.
    pub(super) fn drop_pages(&self, run: Range<u64>) -> io::Result<()> {
        self.enter_nothing(run.clone())?;
        self.punch(run)
    }

    /// Takes pages out of the map.
    pub(super) fn enter_nothing(&self, run: Range<u64>) -> io::Result<()> {
        self.enter(run.start, &vec![0; (run.end - run.start) as usize])
    }

    /// Gives the room of pages back that have no entry.
    pub(super) fn punch(&self, run: Range<u64>) -> io::Result<()> {
        let page = self.page_size.bytes();
        let (from, to) = (
            run.start * page,
            (run.end * page).min(self.len).next_multiple_of(BLOCK_BYTES),
        );
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.data, flags, from as libc::off_t, (to - from) as libc::off_t).map_err(io::Error::from)
    }

    /// Bytes that the file system has given to both files.
    pub(super) fn allocated_bytes(&self) -> io::Result<u64> {
        // stat(2) counts in units of 512 bytes, whatever the file system's own.
        Ok((self.data.metadata()?.blocks() + self.map.metadata()?.blocks()) * 512)
    }

    fn buffer(&self, page: u64) -> Box<[u8]> {
        let range = self.page_size.range_of(PageIndex(page), self.len);
        vec![0; range.len() as usize].into()
    }

    fn entries(&self, run: Range<u64>, wait: Wait) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; ((run.end - run.start) * ENTRY_BYTES) as usize];
        let at = self.entries_at + run.start * ENTRY_BYTES;
        read_exact(&self.map, &mut [IoSliceMut::new(&mut bytes)], at, wait)?;
        let (entries, _) = bytes.as_chunks::<8>();
        Ok(entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect())
    }
}

/// Fills the whole vector. A file that ends before is an error: whatever it held is lost.
fn read_exact(file: &File, mut vector: &mut [IoSliceMut<'_>], mut at: u64, wait: Wait) -> io::Result<()> {
    while vector.iter().any(|part| !part.is_empty()) {
        match read_vector(file, vector, at, wait) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                at += n as u64;
                IoSliceMut::advance_slices(&mut vector, n);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_vector(file: &File, vector: &mut [IoSliceMut<'_>], at: u64, wait: Wait) -> io::Result<usize> {
    let flags = match wait {
        Wait::Never => libc::RWF_NOWAIT,
        Wait::AsLongAsItTakes => 0,
    };
    let count = libc::c_int::try_from(vector.len()).unwrap_or(libc::c_int::MAX);
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `IoSliceMut` has the layout of `iovec`, `vector` holds at least `count` of them for as long as the call
    // takes, and the descriptor is open.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), vector.as_mut_ptr().cast(), count, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
