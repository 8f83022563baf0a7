//! Blocks of extents through threads: read ahead, gathered and hashed, then written.
//!
//! Workers take blocks in the order of their source bytes, fill a buffer and work on it; a writer writes the
//! buffer while the workers go on; a third kind of thread asks the system for the source bytes of the
//! blocks to come. Memory is a fixed number of buffers.

mod ahead;
mod extent;
mod queue;

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use wpack_format::spec::BLOCK_LEN;
use wpack_loader::PageBuffer;

use ahead::Ahead;
use queue::Queue;

pub(crate) use extent::{Batch, Job, Work};

use crate::{
    Error,
    gather::{Reader, Tensors},
};

/// Most threads that work on blocks; more would only take memory.
const MAX_WORKERS: usize = 24;
/// Buffers beyond one for each thread.
const SPARE: usize = 4;
/// Bytes of a block, as a length in memory.
pub(crate) const BLOCK: usize = 8 << 20;
const _: () = assert!(BLOCK as u64 == BLOCK_LEN);

/// The threads' common sight of whether to go on.
#[derive(Debug)]
pub(crate) struct Stop<'a> {
    interrupt: &'a AtomicBool,
    stopped: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl<'a> Stop<'a> {
    pub(crate) fn new(interrupt: &'a AtomicBool) -> Self {
        Self {
            interrupt,
            stopped: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    /// False once anyone failed or the caller wants no more.
    fn go_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && !self.interrupt.load(Ordering::Relaxed)
    }

    /// The first error is the one that is told.
    fn fail(&self, error: Error) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// What happened so far.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = self
            .error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match error {
            Some(error) => Err(error),
            None if self.interrupt.load(Ordering::Relaxed) => Err(Error::Interrupted),
            None => Ok(()),
        }
    }
}

/// Memory for one block.
#[derive(Debug)]
struct Buffer {
    bytes: PageBuffer,
    filled: usize,
}

impl Buffer {
    fn new() -> Self {
        Self {
            bytes: PageBuffer::new(BLOCK),
            filled: 0,
        }
    }

    fn part(&mut self, len: usize) -> &mut [u8] {
        self.bytes.get_mut(..len.min(BLOCK)).unwrap_or_default()
    }

    fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

/// What is done with a block.
pub(crate) trait Stage: Sync {
    /// Where the tensors of a component are.
    fn tensors(&self, component: u32) -> Option<&dyn Tensors>;

    /// Works on the bytes of a block.
    fn work(&self, job: &Job, bytes: &mut [u8]) -> Result<(), Error>;

    /// Writes the same bytes.
    fn write(&self, job: &Job, bytes: &[u8]) -> Result<(), Error>;
}

/// Threads and buffers, for any number of batches.
#[derive(Debug)]
pub(crate) struct Pipeline {
    workers: usize,
    /// Whether a thread of its own writes. Not more than one: they would spin at the file's lock.
    writes: bool,
    free: Queue<Buffer>,
}

impl Pipeline {
    /// `threads` work on blocks; 0 means one for each processor.
    pub(crate) fn new(threads: usize, jobs: usize, writes: bool) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        let workers = threads.clamp(1, MAX_WORKERS).min(jobs.max(1));
        let buffers = (workers + usize::from(writes) + SPARE).min(jobs.max(1));
        Self {
            workers,
            writes,
            free: Queue::new((0..buffers).map(|_| Buffer::new())),
        }
    }

    /// Takes all jobs of a batch through a stage.
    pub(crate) fn run(
        &self,
        jobs: &[Job],
        stage: &dyn Stage,
        stop: &Stop<'_>,
    ) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let full: Queue<(usize, Buffer)> = Queue::new([]);
        let working = AtomicUsize::new(self.workers);
        let ahead = Ahead::new(jobs, stage);
        std::thread::scope(|scope| {
            scope.spawn(|| ahead.run());
            for _ in 0..self.workers {
                scope.spawn(|| {
                    // Dropped last, also when this thread panics: nobody waits for it then.
                    let _last = OnDrop(|| {
                        if working.fetch_sub(1, Ordering::AcqRel) == 1 {
                            full.close();
                            ahead.close();
                        }
                    });
                    self.work(jobs, stage, stop, &next, &full, &ahead);
                });
            }
            if self.writes {
                scope.spawn(|| {
                    while let Some((index, buffer)) = full.pop() {
                        let buffer = Returned(Some(buffer), &self.free);
                        if let (Some(job), Some(bytes)) = (jobs.get(index), &buffer.0)
                            && stop.go_on()
                            && let Err(error) = stage.write(job, bytes.filled())
                        {
                            stop.fail(error);
                        }
                    }
                });
            }
        });
        stop.check()
    }

    fn work(
        &self,
        jobs: &[Job],
        stage: &dyn Stage,
        stop: &Stop<'_>,
        next: &AtomicUsize,
        full: &Queue<(usize, Buffer)>,
        ahead: &Ahead<'_>,
    ) {
        let mut reader = Reader::default();
        while stop.go_on() {
            let Some(buffer) = self.free.pop() else {
                return;
            };
            let mut buffer = Returned(Some(buffer), &self.free);
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(job), Some(bytes)) = (jobs.get(index), &mut buffer.0) else {
                return;
            };
            ahead.reached(index);
            let range = job.range();
            let len = usize::try_from(range.end - range.start)
                .unwrap_or(BLOCK)
                .min(BLOCK);
            bytes.filled = len;
            match process(job, range, stage, &mut reader, bytes.part(len)) {
                Err(error) => stop.fail(error),
                Ok(()) if self.writes => {
                    if let Some(buffer) = buffer.0.take() {
                        full.push((index, buffer));
                    }
                }
                Ok(()) => {}
            }
        }
    }
}

fn process(
    job: &Job,
    range: Range<u64>,
    stage: &dyn Stage,
    reader: &mut Reader,
    bytes: &mut [u8],
) -> Result<(), Error> {
    if let Some(tensors) = stage.tensors(job.work.component) {
        reader.fill(tensors, &job.work.slices(), range, bytes)?;
    }
    stage.work(job, bytes)
}

/// Puts a buffer back when dropped, unless it was taken out.
struct Returned<'a>(Option<Buffer>, &'a Queue<Buffer>);

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.0.take() {
            self.1.push(buffer);
        }
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
