//! Reading a shard into plain memory: one copy, every checksum checked on the way.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use wpack_format::crc32c_append;

use super::{Check, Part, StageStats, Transfer, Transfers, check};
use crate::{ByteSource, Error, PageBuffer, Progress};

/// How [`read_into`] runs.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Threads; 0 for one per core, at most 8.
    pub threads: usize,
}

impl ReadOptions {
    /// Sets the number of threads.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// Bytes that are read and checked at a time, while they are in a core's own cache.
const PIECE: usize = 256 << 10;
/// Parts from here on are read straight to their place; smaller ones share a read.
const STRAIGHT: usize = 64 << 10;

/// A transfer with the memory its parts go to.
struct Job<'a, 'd> {
    transfer: &'a Transfer,
    places: VecDeque<Place<'a, 'd>>,
}

/// Where a part goes.
struct Place<'a, 'd> {
    part: &'a Part,
    memory: &'d mut [u8],
}

/// Reads the destinations of `transfers` into memory; `memory` holds the place of each, by number
/// and of its length.
///
/// After an error the memory holds anything. At the end the source is checked not to have changed
/// meanwhile.
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use wpack_loader::{FileSource, Index, NoProgress, ReadOptions, read_into};
///
/// let file = FileSource::open("../fixtures/golden/v1-owners.wpack")?;
/// let index = Index::read(&file)?;
/// let shard = index.shard(&file, 0)?;
/// let transfers = shard.transfers(&index, &file, true, |slice| slice.component() == "dit")?;
/// let mut memory: Vec<Vec<u8>> =
///     transfers.destinations().iter().map(|slice| vec![0; slice.len as usize]).collect();
/// let places = memory.iter_mut().map(Vec::as_mut_slice).collect();
/// let (options, interrupt) = (ReadOptions::default(), AtomicBool::new(false));
/// let stats = read_into(&file, &transfers, places, &options, &NoProgress, &interrupt)?;
/// assert_eq!(stats.checked, transfers.read_bytes());
/// # Ok::<(), wpack_loader::Error>(())
/// ```
pub fn read_into(
    source: &dyn ByteSource,
    transfers: &Transfers,
    memory: Vec<&mut [u8]>,
    options: &ReadOptions,
    progress: &dyn Progress,
    interrupt: &AtomicBool,
) -> Result<StageStats, Error> {
    let start = Instant::now();
    let jobs = jobs(transfers, memory)?;
    let threads = match options.threads {
        0 => std::thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(8),
        threads => threads,
    };
    let threads = threads.min(jobs.len()).max(1);
    progress.begin("load", transfers.read_bytes());
    let run = Run {
        source,
        progress,
        interrupt,
        jobs: Mutex::new(jobs.into_iter()),
        stop: AtomicBool::new(false),
    };
    let outcomes: Vec<Result<Counts, Error>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| run.work())).collect();
        let own = run.work();
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or(Err(Error::ReaderLost)));
        std::iter::once(own).chain(others).collect()
    });
    progress.finish();
    let mut stats = StageStats {
        readers: threads,
        ..StageStats::default()
    };
    for counts in outcomes {
        let counts = counts?;
        stats.reads.count += counts.reads;
        stats.reads.buffered += counts.bytes;
        stats.read += counts.read;
        stats.checked += counts.checked;
        stats.check += counts.check;
    }
    stats.copied = transfers.wanted_bytes();
    source.revalidate()?;
    stats.wall = start.elapsed();
    Ok(stats)
}

/// Gives every part the memory it goes to.
fn jobs<'a, 'd>(
    transfers: &'a Transfers,
    memory: Vec<&'d mut [u8]>,
) -> Result<Vec<Job<'a, 'd>>, Error> {
    let wanted = transfers.destinations();
    let fits =
        |(memory, wanted): (&&mut [u8], &super::Destination)| memory.len() as u64 == wanted.len;
    if memory.len() != wanted.len() || !memory.iter().zip(wanted).all(fits) {
        return Err(Error::WrongMemory {
            expected: wanted.len(),
            found: memory.len(),
        });
    }
    // Parts of a destination ascend, so each takes its memory from the front.
    let mut memory = memory;
    let jobs = transfers.transfers().iter().map(|transfer| {
        let parts = transfers.parts(transfer).iter();
        let places = parts.filter_map(|part| {
            let rest = memory.get_mut(part.destination as usize)?;
            let len = usize::try_from(part.len).ok()?;
            let (memory, behind) = std::mem::take(rest).split_at_mut_checked(len)?;
            *rest = behind;
            Some(Place { part, memory })
        });
        Job {
            transfer,
            places: places.collect(),
        }
    });
    Ok(jobs.collect())
}

#[derive(Default)]
struct Counts {
    reads: u64,
    bytes: u64,
    read: Duration,
    checked: u64,
    check: Duration,
}

struct Run<'a, 'd, I: Iterator<Item = Job<'a, 'd>>> {
    source: &'a dyn ByteSource,
    progress: &'a dyn Progress,
    interrupt: &'a AtomicBool,
    jobs: Mutex<I>,
    stop: AtomicBool,
}

impl<'a, 'd, I: Iterator<Item = Job<'a, 'd>> + Send> Run<'a, 'd, I> {
    fn work(&self) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let mut scratch = PageBuffer::new(PIECE);
        loop {
            let job = self
                .jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next();
            let Some(job) = job else { return Ok(counts) };
            if self.stop.load(Ordering::Relaxed) {
                return Ok(counts);
            }
            let transfer = job.transfer;
            let done = self.one(job, &mut scratch, &mut counts);
            if done.is_err() {
                self.stop.store(true, Ordering::Relaxed);
            }
            done?;
            self.progress.advance(transfer.len);
        }
    }

    fn one(&self, job: Job<'_, '_>, scratch: &mut [u8], counts: &mut Counts) -> Result<(), Error> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let Job {
            transfer,
            mut places,
        } = job;
        self.source.will_need(transfer.offset, transfer.len);
        let mut reading = Reading {
            source: self.source,
            transfer,
            counts,
            at: 0,
            crc32c: 0,
        };
        while reading.at < transfer.len {
            let at = reading.at;
            let fits = |place: &Place<'_, '_>| {
                place.memory.len() < STRAIGHT
                    && place.part.from.saturating_add(place.part.len) - at <= scratch.len() as u64
            };
            let group = places.iter().take_while(|place| fits(place)).count();
            if group > 0 {
                let group: Vec<_> = places.drain(..group).collect();
                reading.group(group, scratch)?;
            } else {
                let next = places.front().map_or(transfer.len, |place| place.part.from);
                if at < next {
                    reading.skip(next, scratch)?;
                } else if let Some(place) = places.pop_front() {
                    reading.straight(place)?;
                }
            }
        }
        reading.finish()
    }
}

/// The bytes of one transfer, from front to back.
struct Reading<'r> {
    source: &'r dyn ByteSource,
    transfer: &'r Transfer,
    counts: &'r mut Counts,
    /// Position in the transfer.
    at: u64,
    /// Of all bytes before.
    crc32c: u32,
}

impl Reading<'_> {
    /// Reads on into `memory`.
    fn read(&mut self, memory: &mut [u8]) -> Result<(), Error> {
        let start = Instant::now();
        let offset = self.transfer.offset.saturating_add(self.at);
        self.source.read_exact_at(offset, memory)?;
        self.at = self.at.saturating_add(memory.len() as u64);
        let read = Instant::now();
        self.counts.read += read - start;
        self.counts.reads += 1;
        self.counts.bytes += memory.len() as u64;
        if let Check::Block { .. } = self.transfer.check {
            self.crc32c = crc32c_append(self.crc32c, memory);
            self.counts.check += read.elapsed();
        }
        Ok(())
    }

    /// A large part, read straight to its place.
    fn straight(&mut self, place: Place<'_, '_>) -> Result<(), Error> {
        let mut crc32c = 0;
        for piece in place.memory.chunks_mut(PIECE) {
            self.read(piece)?;
            if self.transfer.check == Check::Parts {
                crc32c = crc32c_append(crc32c, piece);
            }
        }
        self.check_part(place.part, crc32c)
    }

    /// Small parts, read together.
    fn group(&mut self, group: Vec<Place<'_, '_>>, scratch: &mut [u8]) -> Result<(), Error> {
        let start = self.at;
        let end = group.last().map_or(start, |place| {
            place.part.from.saturating_add(place.part.len)
        });
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        let bytes = scratch.get_mut(..len).unwrap_or_default();
        self.read(bytes)?;
        for place in group {
            let from = usize::try_from(place.part.from - start).unwrap_or(usize::MAX);
            let bytes = bytes
                .get(from..)
                .and_then(|bytes| bytes.get(..place.memory.len()));
            let bytes = bytes.unwrap_or_default();
            place.memory.copy_from_slice(bytes);
            if self.transfer.check == Check::Parts {
                self.check_part(place.part, crc32c_append(0, bytes))?;
            }
        }
        Ok(())
    }

    /// Bytes that nobody wants but the checksum.
    fn skip(&mut self, to: u64, scratch: &mut [u8]) -> Result<(), Error> {
        if self.transfer.check == Check::Parts {
            self.at = to;
            return Ok(());
        }
        while self.at < to {
            let len = usize::try_from(to - self.at)
                .unwrap_or(usize::MAX)
                .min(scratch.len());
            self.read(scratch.get_mut(..len).unwrap_or_default())?;
        }
        Ok(())
    }

    fn check_part(&mut self, part: &Part, found: u32) -> Result<(), Error> {
        if self.transfer.check != Check::Parts {
            return Ok(());
        }
        self.counts.checked += part.len;
        check::part(self.source, self.transfer, part, found)
    }

    fn finish(self) -> Result<(), Error> {
        if let Check::Block { .. } = self.transfer.check {
            self.counts.checked += self.transfer.len;
        }
        check::block(self.source, self.transfer, self.crc32c)
    }
}
