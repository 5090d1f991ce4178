//! Who reads sequentially, and what to fetch ahead of them.
//!
//! A mount that needs no `open` knows no handles, so streams are told apart by version and position alone. Random
//! reads, which adjoin nothing, get nothing fetched. Owns a table of fixed size: a stream that others push out starts
//! anew. Refuses to wait: where two threads meet in the table, one of them does without. Called by `page_cache.rs`.

use parking_lot::Mutex;

use crate::page::{ByteRange, PageSize};
use crate::version::VersionId;

/// The first window; it doubles with each refill.
const MIN_WINDOW: u64 = 256 << 10;
/// How far ahead of the stream a read still belongs to it: the kernel delivers the parts of one large read in any order.
const MAX_LEAP: u64 = 1 << 20;
/// Reads that came early and wait for those before them.
const EARLY: usize = 8;
/// Reads in a row, each adjoining the one before, that make a reader sequential.
const MIN_RUN: u32 = 3;
/// Extents that one window is fetched in, so that they travel in parallel.
const EXTENTS_PER_WINDOW: u64 = 4;

/// Announced reads that are remembered in a set.
const ANNOUNCED: usize = 8;

const SETS: usize = 256;
const WAYS: usize = 8;

#[derive(Clone, Copy)]
struct Stream {
    version: VersionId,
    /// Where the next read of this stream begins.
    next: u64,
    run: u32,
    window: u64,
    /// What is before this has been asked for, by the reader or ahead of it.
    fetched_to: u64,
    early: [Option<ByteRange>; EARLY],
    used: u64,
}

#[derive(Default)]
struct Set {
    streams: [Option<Stream>; WAYS],
    /// What readers have said that they read, and have not read to its end; the newest first.
    announced: [Option<(VersionId, ByteRange)>; ANNOUNCED],
    clock: u64,
}

/// The streams of all versions.
pub(crate) struct Streams {
    sets: Box<[Mutex<Set>]>,
    max_window: u64,
    page: u64,
    max_extent: u64,
}

impl Streams {
    /// Windows of at most `max_window` bytes (0: none), in extents of at most `max_extent`.
    pub(crate) fn new(max_window: u64, page_size: PageSize, max_extent: u64) -> Streams {
        Streams {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            max_window,
            page: page_size.bytes(),
            max_extent,
        }
    }

    /// Takes note of a read, and says what to fetch ahead of the reader: page-aligned, inside the file, in order.
    pub(crate) fn observe(
        &self,
        version: VersionId,
        file_len: u64,
        read: ByteRange,
    ) -> Option<Vec<ByteRange>> {
        if self.max_window == 0 || read.is_empty() {
            return None;
        }
        let mut set = self.set(version).try_lock()?;
        if set.is_announced(version, read) {
            return None;
        }
        self.follow(&mut set, version, file_len, read)
    }

    /// A reader is about to read all of `range`. The pieces that the kernel asks for it are no stream; announcements that
    /// adjoin are one, and then this says what to fetch ahead, as [`Streams::observe`] does.
    pub(crate) fn announce(
        &self,
        version: VersionId,
        file_len: u64,
        range: ByteRange,
    ) -> Option<Vec<ByteRange>> {
        if self.max_window == 0 || range.is_empty() {
            return None;
        }
        let mut set = self.set(version).lock();
        // The oldest gives way.
        set.announced.rotate_right(1);
        set.announced[0] = Some((version, range));
        self.follow(&mut set, version, file_len, range)
    }

    fn follow(
        &self,
        set: &mut Set,
        version: VersionId,
        file_len: u64,
        read: ByteRange,
    ) -> Option<Vec<ByteRange>> {
        let stream = set.find(version, read);
        let before = stream.next;
        if !stream.advance(read) {
            return None;
        }
        let ahead = self.refill(stream, before, file_len);
        (!ahead.is_empty()).then_some(ahead)
    }

    /// Forgets the streams of a version that has gone.
    pub(crate) fn forget(&self, version: VersionId) {
        let mut set = self.set(version).lock();
        for stream in &mut set.streams {
            stream.take_if(|stream| stream.version == version);
        }
        for announced in &mut set.announced {
            announced.take_if(|(announced, _)| *announced == version);
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        for set in &self.sets {
            *set.lock() = Set::default();
        }
    }

    fn set(&self, version: VersionId) -> &Mutex<Set> {
        &self.sets[version.low_u64() as usize % SETS]
    }

    /// Moves the window of a sequential stream once half of it is used up.
    fn refill(&self, stream: &mut Stream, before: u64, file_len: u64) -> Vec<ByteRange> {
        let page_end = stream.next.next_multiple_of(self.page);
        stream.fetched_to = stream.fetched_to.max(page_end);
        // Without a window yet, it begins as the reader comes to another page: small reads inside of one are no scan, and
        // the reads of a scan may never end where a page does.
        let is_far_ahead = if stream.window == 0 {
            before / self.page == stream.next / self.page
        } else {
            stream.fetched_to - stream.next > stream.window / 2
        };
        if stream.fetched_to >= file_len || is_far_ahead {
            return Vec::new();
        }
        stream.window = (stream.window * 2).clamp(MIN_WINDOW.min(self.max_window), self.max_window);
        let unit = (stream.window / EXTENTS_PER_WINDOW)
            .min(self.max_extent)
            .max(MIN_WINDOW.min(self.max_window))
            .next_multiple_of(self.page);
        let mut ahead = Vec::new();
        let until = stream.next.saturating_add(stream.window).min(file_len);
        while stream.fetched_to < until {
            let range = ByteRange::clamped(stream.fetched_to, unit, file_len);
            stream.fetched_to = range.end();
            ahead.push(range);
        }
        ahead
    }
}

impl Set {
    /// Whether `read` lies in what was announced. That is forgotten with its last byte: whoever comes later may be a stream.
    fn is_announced(&mut self, version: VersionId, read: ByteRange) -> bool {
        // The last piece may reach further, up to the end of the kernel's window.
        let covers = |announced: &&mut Option<(VersionId, ByteRange)>| {
            announced.is_some_and(|(of, range)| {
                of == version && (range.start()..range.end()).contains(&read.start())
            })
        };
        let Some(announced) = self.announced.iter_mut().find(covers) else {
            return false;
        };
        announced.take_if(|(_, range)| range.end() <= read.end());
        true
    }

    /// The stream that `read` belongs to, or a new one in place of the least valuable.
    fn find(&mut self, version: VersionId, read: ByteRange) -> &mut Stream {
        self.clock += 1;
        let at = self
            .streams
            .iter()
            .position(|way| way.is_some_and(|stream| stream.version == version && stream.takes(read)))
            .unwrap_or_else(|| {
                let at = self.least_valuable();
                self.streams[at] = None;
                at
            });
        let stream = self.streams[at].get_or_insert(Stream {
            version,
            next: read.start(),
            run: 0,
            window: 0,
            fetched_to: 0,
            early: [None; EARLY],
            used: 0,
        });
        stream.used = self.clock;
        stream
    }

    /// A free place, else one of the reads that nothing followed, else the stream that was used longest ago.
    fn least_valuable(&self) -> usize {
        let value = |way: &Option<Stream>| way.map(|stream| (stream.run >= MIN_RUN, stream.used));
        (0..WAYS).min_by_key(|at| value(&self.streams[*at])).unwrap_or(0)
    }
}

impl Stream {
    fn takes(&self, read: ByteRange) -> bool {
        let ahead = read.start() >= self.next && read.start() - self.next <= MAX_LEAP;
        // A reader that goes back a little, or whose kernel asks once more, is the same reader.
        let again = self.run >= MIN_RUN && read.start() < self.next && self.next - read.start() <= MAX_LEAP;
        ahead || again
    }

    /// Whether the stream is sequential and has moved.
    fn advance(&mut self, read: ByteRange) -> bool {
        if read.start() > self.next {
            // The oldest gives way.
            self.early.rotate_right(1);
            self.early[0] = Some(read);
            return false;
        }
        let before = self.next;
        let mut read = Some(read);
        while let Some(adjoining) = read {
            if adjoining.end() > self.next {
                self.next = adjoining.end();
                self.run = self.run.saturating_add(1);
            }
            let next = self.next;
            read = self
                .early
                .iter_mut()
                .find(|early| early.is_some_and(|early| early.start() <= next))
                .and_then(Option::take);
        }
        self.next > before && self.run >= MIN_RUN
    }
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("max_window", &self.max_window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{FileVersion, SourceId, SourcePath};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const FILE: u64 = 64 * MIB + 12_345;

    fn streams() -> Streams {
        Streams::new(8 * MIB, PageSize::new(16 * KIB).unwrap(), 4 * MIB)
    }

    fn version(number: u64) -> VersionId {
        FileVersion::new(SourceId::new("memory://s"), SourcePath::root(), number, 0, 0).id()
    }

    fn read(start: u64, len: u64) -> ByteRange {
        ByteRange::clamped(start, len, FILE)
    }

    #[test]
    fn windows_double_adjoin_and_end_with_the_file() {
        let streams = streams();
        let mut at = 0;
        let mut fetched_to = None;
        let mut extents = Vec::new();
        while at < FILE {
            for ahead in streams
                .observe(version(1), FILE, read(at, 128 * KIB))
                .unwrap_or_default()
            {
                assert!(ahead.start() % (16 * KIB) == 0 && ahead.end() <= FILE);
                assert_eq!(ahead.start(), fetched_to.unwrap_or(ahead.start()), "at {at}");
                assert!(ahead.end() - at <= 10 * MIB + 128 * KIB, "too far ahead of {at}");
                fetched_to = Some(ahead.end());
                extents.push(ahead.len());
            }
            at += 128 * KIB;
        }
        assert_eq!(fetched_to, Some(FILE));
        assert_eq!(extents[0], 256 * KIB);
        assert!(extents.iter().all(|len| *len <= 2 * MIB));
        assert!(extents.len() < 50, "{extents:?}");
    }

    #[test]
    fn a_reader_whose_reads_end_inside_of_pages_is_read_ahead_of_at_every_page_size() {
        for page in [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB] {
            for phase in [0, KIB, 48 * KIB] {
                let streams = Streams::new(8 * MIB, PageSize::new(page).unwrap(), 4 * MIB);
                let mut ahead = 0;
                let mut at = phase;
                while at < FILE {
                    let extents = streams.observe(version(1), FILE, read(at, 128 * KIB));
                    ahead += extents.iter().flatten().map(|extent| extent.len()).sum::<u64>();
                    at += 128 * KIB;
                }
                assert!(ahead > FILE - 4 * MIB, "pages of {page}, phase {phase}: {ahead}");
            }
        }
    }

    #[test]
    fn two_reads_are_no_stream_and_neither_are_gaps() {
        let streams = streams();
        for file in 0..50 {
            for at in [0, 1] {
                assert_eq!(
                    streams.observe(version(file), FILE, read(at * 4 * KIB, 4 * KIB)),
                    None
                );
            }
        }
        for stride in 0..200 {
            let skip = read(stride * 8 * KIB, 4 * KIB);
            assert_eq!(streams.observe(version(77), FILE, skip), None);
        }
    }

    #[test]
    fn several_readers_of_one_version_are_told_apart() {
        let streams = streams();
        let mut ahead = [0; 4];
        for step in 0..100 {
            for (reader, ahead) in ahead.iter_mut().enumerate() {
                let at = reader as u64 * 16 * MIB + step * 64 * KIB;
                for extent in streams
                    .observe(version(1), FILE, read(at, 64 * KIB))
                    .unwrap_or_default()
                {
                    *ahead += extent.len();
                }
            }
        }
        assert!(ahead.iter().all(|bytes| *bytes > 4 * MIB), "{ahead:?}");
    }

    #[test]
    fn random_reads_do_not_push_out_a_stream() {
        let streams = streams();
        let mut refills = 0;
        for step in 0..200 {
            let ahead = streams.observe(version(1), FILE, read(step * 64 * KIB, 64 * KIB));
            refills += u32::from(ahead.is_some());
            // Three reads in a row make it a stream that random reads do not displace.
            for jump in (0..20).filter(|_| step >= 2) {
                let far = 20 * MIB + (step * 20 + jump) * 7_919 * KIB % (40 * MIB);
                streams.observe(version(1), FILE, read(far, 4 * KIB));
            }
        }
        assert!(refills >= 5, "{refills} refills");
    }

    #[test]
    fn what_was_announced_is_no_stream_and_what_comes_after_it_may_be_one() {
        let streams = streams();
        let announced = read(MIB, 2 * MIB);
        let scan = |from: u64, to: u64| -> u64 {
            let ahead = (from..to)
                .step_by(128 << 10)
                .filter_map(|at| streams.observe(version(1), FILE, read(at, 128 * KIB)));
            ahead.flatten().map(|extent| extent.len()).sum()
        };
        assert_eq!(streams.announce(version(1), FILE, announced), None);
        assert_eq!(scan(MIB, 3 * MIB), 0);
        assert!(
            scan(MIB, 3 * MIB) > MIB,
            "its last byte has been read, so it is forgotten"
        );
        assert_eq!(streams.announce(version(1), FILE, announced), None);
        streams.forget(version(1));
        assert!(scan(MIB, 3 * MIB) > MIB);
    }

    #[test]
    fn announcements_that_adjoin_are_a_stream() {
        let streams = streams();
        let mut ahead = 0;
        for step in 0..20 {
            let extents = streams.announce(version(1), FILE, read(step * MIB, MIB));
            ahead += extents.iter().flatten().map(|extent| extent.len()).sum::<u64>();
        }
        assert!(ahead > 10 * MIB, "{ahead}");
        for step in 0..20 {
            let random = step * 7_919 % 60 * MIB;
            assert_eq!(streams.announce(version(2), FILE, read(random, MIB)), None);
        }
    }

    #[test]
    fn a_window_of_nothing_reads_nothing_ahead() {
        let streams = Streams::new(0, PageSize::DEFAULT, MIB);
        for step in 0..100 {
            let ahead = streams.observe(version(1), FILE, read(step * 64 * KIB, 64 * KIB));
            assert_eq!(ahead, None);
        }
    }
}
