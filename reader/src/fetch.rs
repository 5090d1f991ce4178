//! Runs the extents of a plan, with bounded parallelism, over the mounts.
//!
//! Owns the reading threads and the deadline of a fetch: a read that hangs holds a thread, never the
//! caller, unless there is no deadline and reads come out of memory (`pace`), or the kernel has all of it. Refuses unbounded queues: a request has at most as many reads under way as there are threads.
//! Called by [`crate::table`]; what it returns is decoded by [`crate::decode`].

mod pace;

use std::ops::Range;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::cancel::{CANCEL_SEEN_WITHIN, CancelToken};
use crate::error::{ReadError, Result};
use crate::mounts::MountedFile;
use pace::Pace;

/// Until when a request may take, and who may end it before.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    started: Instant,
    allowed: Option<Duration>,
    cancel: Option<CancelToken>,
}

impl Deadline {
    /// From now on.
    pub(crate) fn starting_now(allowed: Option<Duration>, cancel: Option<CancelToken>) -> Deadline {
        Deadline {
            started: Instant::now(),
            allowed,
            cancel,
        }
    }

    /// Whether there is anything to wait for beside the reads themselves.
    fn is_endless(&self) -> bool {
        self.allowed.is_none() && self.cancel.is_none()
    }

    /// What is left; `None` if there is no deadline.
    fn left(&self) -> Option<Duration> {
        self.allowed
            .map(|allowed| allowed.saturating_sub(self.started.elapsed()))
    }

    fn passed(&self, doing: &'static str) -> ReadError {
        let seconds = self.allowed.unwrap_or_default().as_secs_f64();
        ReadError::Deadline { seconds, doing }
    }

    /// Fails once it has passed, or the request was cancelled.
    pub(crate) fn check(&self, doing: &'static str) -> Result<()> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(ReadError::Cancelled { doing });
        }
        match self.left() {
            Some(left) if left.is_zero() => Err(self.passed(doing)),
            _ => Ok(()),
        }
    }

    /// What comes next out of `receive`, or the end of the request.
    fn wait<T>(&self, receive: &mpsc::Receiver<T>, doing: &'static str) -> Result<T> {
        loop {
            self.check(doing)?;
            let left = self.left();
            let patience = match (&self.cancel, left) {
                (Some(_), left) => left.unwrap_or(CANCEL_SEEN_WITHIN).min(CANCEL_SEEN_WITHIN),
                (None, Some(left)) => left,
                (None, None) => return receive.recv().map_err(|_| self.passed(doing)),
            };
            match receive.recv_timeout(patience) {
                Ok(value) => return Ok(value),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.passed(doing)),
            }
        }
    }
}

/// The bytes that were fetched of one file.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    extents: Vec<(Range<u64>, Bytes)>,
}

impl Fetched {
    /// From sorted, disjoint extents with their bytes.
    pub fn new(extents: Vec<(Range<u64>, Bytes)>) -> Fetched {
        debug_assert!(extents.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start));
        Fetched { extents }
    }

    /// The bytes of `range`, shared and not copied, if all of it was fetched.
    pub fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let bytes = self.from(range.start)?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        (len <= bytes.len()).then(|| bytes.slice(..len))
    }

    /// What was fetched from `start` on without a gap.
    pub fn from(&self, start: u64) -> Option<Bytes> {
        let after = self.extents.partition_point(|(extent, _)| extent.start <= start);
        let (extent, bytes) = self.extents.get(after.checked_sub(1)?)?;
        (start <= extent.end).then(|| bytes.slice((start - extent.start) as usize..))
    }
}

/// A job, and where its bytes belong: file and extent.
type Planned = ((usize, usize), Job);

/// One extent of one file.
#[derive(Debug, Clone)]
struct Job {
    file: Arc<MountedFile>,
    mount: usize,
    extent: Range<u64>,
}

impl Job {
    fn run(&self, pace: &Pace) -> Result<Bytes> {
        let started = Instant::now();
        let read = self.file.read(self.mount, self.extent.clone());
        pace.note(self.length(), started.elapsed());
        read
    }

    fn length(&self) -> u64 {
        self.extent.end - self.extent.start
    }
}

/// Threads that read, started when they are first needed; those of clones are the same. What they know of the pace of reads is
/// shared too, so that a file that is opened for one lookup is read as those before it were.
#[derive(Debug, Clone, Default)]
pub struct ReadThreads(Arc<OnceLock<Fetcher>>);

impl ReadThreads {
    /// With at most `parallel` of them, as whoever asks first says.
    pub(crate) fn of(&self, parallel: usize) -> Fetcher {
        self.0.get_or_init(|| Fetcher::new(parallel)).clone()
    }
}

/// Reads extents. Cheap to clone; clones share the threads.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    pool: Arc<Pool>,
    pace: Arc<Pace>,
    parallel: usize,
}

impl Fetcher {
    /// With at most `parallel` reading threads, started when they are first needed.
    pub(crate) fn new(parallel: usize) -> Fetcher {
        let parallel = parallel.max(1);
        Fetcher {
            pool: Arc::new(Pool::new(parallel)),
            pace: Arc::default(),
            parallel,
        }
    }

    /// Reads the extents of all files, in order. What `before` holds already is not read again.
    pub(crate) fn fetch(
        &self,
        wanted: &[(Arc<MountedFile>, &[Range<u64>])],
        before: &[Fetched],
        deadline: &Deadline,
    ) -> Result<Vec<Fetched>> {
        let mut bytes: Vec<Vec<Option<Bytes>>> = Vec::new();
        let mut jobs = Vec::new();
        for (file_number, (file, extents)) in wanted.iter().enumerate() {
            let kept = before.get(file_number);
            bytes.push(extents.iter().map(|extent| kept?.get(extent)).collect());
            for (number, extent) in extents.iter().enumerate() {
                if bytes[file_number][number].is_none() {
                    let mount = file.mount_for(extent.start);
                    let job = Job {
                        file: file.clone(),
                        mount,
                        extent: extent.clone(),
                    };
                    jobs.push(((file_number, number), job));
                }
            }
        }
        self.run(jobs, deadline, |(file, number), read| {
            bytes[file][number] = Some(read)
        })?;
        Ok(wanted
            .iter()
            .zip(bytes)
            .map(|((_, extents), bytes)| {
                Fetched::new(extents.iter().cloned().zip(bytes.into_iter().flatten()).collect())
            })
            .collect())
    }

    /// One range of one file: what opening a file needs.
    pub(crate) fn read(
        &self,
        file: &Arc<MountedFile>,
        range: Range<u64>,
        deadline: &Deadline,
    ) -> Result<Bytes> {
        let job = Job {
            file: file.clone(),
            mount: file.mount_for(range.start),
            extent: range,
        };
        let mut answer = Bytes::new();
        self.run(vec![((0, 0), job)], deadline, |_, bytes| answer = bytes)?;
        Ok(answer)
    }

    /// What `call` gives, on a reading thread if the request has an end: what hangs there does not hold the caller.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        deadline: &Deadline,
        doing: &'static str,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if deadline.is_endless() {
            return call();
        }
        deadline.check(doing)?;
        let (send, receive) = mpsc::sync_channel(1);
        self.pool.submit(Box::new(move || drop(send.send(call()))))?;
        deadline.wait(&receive, doing)?
    }

    fn run(
        &self,
        jobs: Vec<Planned>,
        deadline: &Deadline,
        mut done: impl FnMut((usize, usize), Bytes),
    ) -> Result<()> {
        let mut jobs = jobs.into_iter();
        // A single read without a deadline gains nothing from another thread.
        if deadline.is_endless() && (jobs.len() == 1 || self.parallel == 1) {
            for (place, job) in jobs {
                done(place, job.run(&self.pace)?);
            }
            return Ok(());
        }
        // Nor do reads out of memory. The first that is not sends those after it to the other threads.
        let lengths = jobs.as_slice().iter().map(|(_, job)| job.length());
        if deadline.is_endless() && self.pace.is_fast(lengths) {
            while self.pace.is_fast([]) {
                let Some((place, job)) = jobs.next() else {
                    return Ok(());
                };
                done(place, job.run(&self.pace)?);
            }
        }
        // Nor do those that have an end, as long as all of it is in memory: these cannot hang.
        let mut jobs = match deadline.is_endless() {
            true => jobs.collect(),
            false => self.run_in_memory(jobs, deadline, &mut done)?,
        }
        .into_iter();
        // Room for every read under way, so that no reading thread waits to answer.
        let (send, receive) = mpsc::sync_channel(self.parallel);
        let mut under_way = 0;
        loop {
            while under_way < self.parallel {
                let Some((place, job)) = jobs.next() else {
                    break;
                };
                let (send, deadline) = (send.clone(), deadline.clone());
                let pace = self.pace.clone();
                // The caller may have given up, and then nobody wants the answer: what queued up behind reads that hung
                // is not read for nobody once they go on.
                self.pool.submit(Box::new(move || {
                    if deadline.check("reading").is_ok() {
                        drop(send.send((place, job.run(&pace))));
                    }
                }))?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(());
            }
            let (place, read) = deadline.wait(&receive, "reading")?;
            under_way -= 1;
            done(place, read?);
        }
    }

    /// Makes the reads that find their bytes in memory, which cost less than the way to another thread. Gives the others.
    fn run_in_memory(
        &self,
        jobs: impl Iterator<Item = Planned>,
        deadline: &Deadline,
        done: &mut impl FnMut((usize, usize), Bytes),
    ) -> Result<Vec<Planned>> {
        let mut others = Vec::new();
        for (place, job) in jobs {
            if job.file.is_in_memory(job.mount, &job.extent) {
                deadline.check("reading")?;
                done(place, job.run(&self.pace)?);
            } else {
                others.push((place, job));
            }
        }
        Ok(others)
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Threads that read. They end when the last [`Fetcher`] is dropped.
#[derive(Debug)]
struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

#[derive(Default)]
struct State {
    tasks: std::collections::VecDeque<Task>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    fn new(threads_max: usize) -> Pool {
        Pool {
            shared: Arc::default(),
            threads_max,
        }
    }

    fn submit(&self, task: Task) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.tasks.push_back(task);
        if state.idle < state.tasks.len() && state.threads < self.threads_max {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new()
                .name("lookup-fetch".into())
                .spawn(move || work(&shared));
            match started {
                Ok(_) => state.threads += 1,
                // The threads that there are will come to it; without any, nobody would.
                Err(e) if state.threads == 0 => {
                    state.tasks.pop_back();
                    return Err(ReadError::Invalid(format!("cannot start a thread: {e}")));
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        if let Some(task) = state.tasks.pop_front() {
            drop(state);
            task();
            state = shared.state.lock();
        } else if state.closed {
            return;
        } else {
            state.idle += 1;
            shared.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{OpenFiles, Opener, Spread, Target};
    use crate::read_at::{CountingReadAt, FileIdentity, MemoryFile, ReadAt, ReadCounts};
    use std::io;

    fn bytes() -> Bytes {
        (0..100u8).collect::<Vec<_>>().into()
    }

    fn file(opener: Opener) -> Arc<MountedFile> {
        let target = Target::on_mounts((0..3).map(|m| format!("/m{m}").into()), "f");
        Arc::new(MountedFile::open(&target, Spread::RoundRobin, opener, OpenFiles::default()).unwrap())
    }

    #[test]
    fn extents_come_back_in_order_and_what_is_there_is_not_read_again() {
        let counts = ReadCounts::default();
        let count = counts.clone();
        let file = file(Opener::new(move |_| {
            Ok(Box::new(CountingReadAt::new(MemoryFile(bytes()), count.clone())) as Box<_>)
        }));
        let fetcher = Fetcher::new(2);
        let deadline = Deadline::starting_now(None, None);
        let extents = [0..10, 20..30, 50..51, 90..100];
        let first = fetcher
            .fetch(&[(file.clone(), &extents)], &[], &deadline)
            .unwrap();
        assert_eq!(counts.reads(), 4);
        for extent in &extents {
            assert_eq!(
                first[0].get(extent).unwrap(),
                bytes()[extent.start as usize..extent.end as usize]
            );
        }
        assert_eq!(first[0].get(&(5..11)), None);
        assert_eq!(first[0].get(&(12..13)), None);
        let again = [22..25, 40..41];
        let second = fetcher.fetch(&[(file, &again)], &first, &deadline).unwrap();
        assert_eq!((counts.reads(), counts.bytes()), (5, 32));
        assert_eq!(second[0].get(&(23..25)).unwrap(), [23, 24][..]);
    }

    /// Remembers the names of the threads that read.
    #[derive(Debug)]
    struct Named(Arc<Mutex<Vec<Option<String>>>>);

    impl ReadAt for Named {
        fn len(&self) -> u64 {
            100
        }
        fn identity(&self) -> FileIdentity {
            FileIdentity::Version([0; 16])
        }
        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.0
                .lock()
                .push(std::thread::current().name().map(str::to_owned));
            MemoryFile(bytes()).read_at(offset, len)
        }
        fn is_in_memory(&self, offset: u64, _: usize) -> bool {
            offset == 20
        }
        fn identity_now(&self) -> io::Result<FileIdentity> {
            Ok(self.identity())
        }
    }

    #[test]
    fn reads_out_of_memory_stay_on_the_thread_that_wants_them() {
        let names = Arc::new(Mutex::new(Vec::new()));
        let shared = names.clone();
        let file = file(Opener::new(
            move |_| Ok(Box::new(Named(shared.clone())) as Box<_>),
        ));
        let fetcher = Fetcher::new(2);
        let extents = [0..10, 20..30, 50..51];
        let on_pool = |deadline| {
            names.lock().clear();
            let read = fetcher
                .fetch(&[(file.clone(), &extents)], &[], &deadline)
                .unwrap();
            assert_eq!(read[0].get(&extents[1]).unwrap(), bytes()[20..30]);
            let here = |name: &Option<String>| name.as_deref() == Some("lookup-fetch");
            names.lock().iter().filter(|name| here(name)).count()
        };
        let (none, some) = (None, Some(Duration::from_secs(60)));
        assert_eq!(on_pool(Deadline::starting_now(none, None)), 3, "nobody knows yet");
        for _ in 0..100 {
            fetcher.pace.note(1, Duration::ZERO);
        }
        // A read that seems slow on a busy machine sends those after it away.
        assert!(on_pool(Deadline::starting_now(none, None)) < 3);
        for _ in 0..100 {
            fetcher.pace.note(1, Duration::ZERO);
        }
        assert_eq!(
            on_pool(Deadline::starting_now(some, None)),
            2,
            "a hanging read must not hold its caller, and one out of memory cannot hang"
        );
    }

    /// Hangs in every read until it is dropped from outside.
    #[derive(Debug)]
    struct Hanging(Arc<Mutex<()>>);

    impl ReadAt for Hanging {
        fn len(&self) -> u64 {
            100
        }
        fn identity(&self) -> FileIdentity {
            FileIdentity::Version([0; 16])
        }
        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            drop(self.0.lock());
            MemoryFile(bytes()).read_at(offset, len)
        }
        fn identity_now(&self) -> io::Result<FileIdentity> {
            Ok(self.identity())
        }
    }

    #[test]
    fn a_read_that_hangs_ends_at_the_deadline() {
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock();
        let hang = gate.clone();
        let file = file(Opener::new(
            move |_| Ok(Box::new(Hanging(hang.clone())) as Box<_>),
        ));
        let fetcher = Fetcher::new(2);
        let soon = Deadline::starting_now(Some(Duration::from_millis(20)), None);
        let error = fetcher
            .fetch(&[(file.clone(), &[0..1, 2..3, 4..5])], &[], &soon)
            .unwrap_err();
        assert!(matches!(error, ReadError::Deadline { .. }), "{error}");
        drop(held);
        let later = Deadline::starting_now(Some(Duration::from_secs(60)), None);
        assert!(fetcher.fetch(&[(file, &[0..1, 2..3])], &[], &later).is_ok());
    }
}
