//! Runs transfers: readers fill slots, the calling thread moves them through the sink.

use std::{
    num::NonZero,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Check, DeviceSink, ReadBytes, ReadMode, SinkError, StageStats, Transfer, Transfers, check,
    pool::{Closing, Pool},
    read::{ALIGN, Reads, slot_len},
};
use crate::{ByteSource, Error, Progress};

/// How a staged load runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StageOptions {
    /// The most bytes of host memory for the ring.
    pub budget: u64,
    /// Readers; 0 for half of the cores, at least 2 and at most 8.
    pub readers: usize,
    /// Which way bytes are read.
    pub mode: ReadMode,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            budget: 128 << 20,
            readers: 0,
            mode: ReadMode::Auto,
        }
    }
}

impl StageOptions {
    /// Sets the most bytes of the ring: fewer slots save memory, more of them hide slow reads.
    #[must_use]
    pub fn with_budget(mut self, budget: u64) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the number of readers.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets the way of reading.
    #[must_use]
    pub fn with_mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }
}

/// How long the calling thread waits at most before it looks at the interrupt flag again.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long it waits for readers while copies run, before it looks for slots that came back.
const GLANCE: Duration = Duration::from_micros(500);

/// Loads the destinations of `transfers` into `sink`.
///
/// Every byte is checked in the slot, before it is handed to the sink, as far as the transfers say.
/// When this returns, no copy runs and no reader lives, whatever happened; after an error the
/// destinations hold anything. At the end the source is checked not to have changed meanwhile.
pub fn stage<S: DeviceSink>(
    source: &dyn ByteSource,
    transfers: &Transfers,
    sink: &mut S,
    options: &StageOptions,
    progress: &dyn Progress,
    interrupt: &AtomicBool,
) -> Result<StageStats, Error> {
    let start = Instant::now();
    let mut stats = StageStats::default();
    progress.begin("load", transfers.read_bytes());
    let outcome = Run {
        source,
        transfers,
        options,
        progress,
        interrupt,
    }
    .run(sink, &mut stats);
    // On every way out, before slots and destinations may be freed.
    let drained = sink.drain().map_err(|source| Error::Sink {
        doing: "waiting for copies",
        source,
    });
    progress.finish();
    outcome.and(drained)?;
    source.revalidate()?;
    stats.wall = start.elapsed();
    Ok(stats)
}

struct Run<'a> {
    source: &'a dyn ByteSource,
    transfers: &'a Transfers,
    options: &'a StageOptions,
    progress: &'a dyn Progress,
    interrupt: &'a AtomicBool,
}

/// A slot with the bytes of a transfer.
struct Filled<S> {
    slot: S,
    transfer: usize,
}

/// What one reader did.
#[derive(Default)]
struct Reader {
    reads: ReadBytes,
    read: Duration,
    checked: u64,
    check: Duration,
}

impl Run<'_> {
    fn run<S: DeviceSink>(&self, sink: &mut S, stats: &mut StageStats) -> Result<(), Error> {
        let fail = |doing: &'static str| move |source: SinkError| Error::Sink { doing, source };
        let total = self.transfers.transfers().len();
        let slots = self.slots(sink, stats)?;
        sink.begin(self.transfers.destinations())
            .map_err(fail("preparing destinations"))?;
        let reads = Reads::new(self.source, self.options.mode);
        let pool = Pool::new(slots);
        let next = AtomicUsize::new(0);
        let (sender, filled) = channel();
        let outcome = thread::scope(|scope| {
            let closing = Closing(&pool);
            let mut readers = Vec::new();
            for number in 0..stats.readers {
                let (sender, reads, pool, next) = (sender.clone(), &reads, &pool, &next);
                let builder = thread::Builder::new().name(format!("read-{number}"));
                let reader = builder
                    .spawn_scoped(scope, move || self.reader(reads, pool, next, &sender))
                    .map_err(|source| Error::Threads {
                        threads: stats.readers,
                        source: source.into(),
                    })?;
                readers.push(reader);
            }
            drop(sender);
            let outcome = self.submit(sink, &filled, &pool, total, stats);
            drop(closing);
            for reader in readers {
                let Ok(reader) = reader.join() else { continue };
                stats.reads.add(&reader.reads);
                stats.read += reader.read;
                stats.checked += reader.checked;
                stats.check += reader.check;
            }
            outcome
        });
        stats.fallbacks = reads.into_fallbacks();
        outcome?;
        sink.finish().map_err(fail("finishing"))
    }

    /// Makes the ring.
    fn slots<S: DeviceSink>(
        &self,
        sink: &mut S,
        stats: &mut StageStats,
    ) -> Result<Vec<S::Slot>, Error> {
        let total = self.transfers.transfers().len();
        let longest = self.transfers.longest();
        let len = slot_len(longest).ok_or(Error::OutOfMemory {
            bytes: longest,
            what: "a slot of the ring",
        })?;
        if total == 0 {
            return Ok(Vec::new());
        }
        let fitting = self.options.budget / len as u64;
        if fitting == 0 {
            return Err(Error::Budget {
                needed: len as u64,
                budget: self.options.budget,
            });
        }
        let readers = match self.options.readers {
            0 => (thread::available_parallelism().map_or(2, NonZero::get) / 2).clamp(2, 8),
            readers => readers,
        };
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        let count = readers.saturating_add(4).min(fitting).min(total);
        stats.readers = readers.min(count);
        stats.slots = count;
        stats.ring_bytes = (count as u64).saturating_mul(len as u64);
        let slot = |_| {
            let slot = sink.allocate(len, ALIGN);
            slot.map_err(|source| Error::Sink {
                doing: "allocating the ring",
                source,
            })
        };
        (0..count).map(slot).collect()
    }

    /// One reader: until no transfer or no pool is left, or something fails.
    fn reader<T: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        reads: &Reads<'_>,
        pool: &Pool<T>,
        next: &AtomicUsize,
        sender: &Sender<Result<Filled<T>, Error>>,
    ) -> Reader {
        let mut reader = Reader::default();
        // The slot first, the transfer second: a transfer that somebody has taken is never without a
        // slot, so even a ring of one slot moves on.
        while let Some(mut slot) = pool.take() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(transfer) = self.transfers.transfers().get(number) else {
                pool.give(slot);
                break;
            };
            if self.interrupt.load(Ordering::Relaxed) {
                let _ = sender.send(Err(Error::Interrupted));
                break;
            }
            let filled = self.fill(reads, transfer, slot.as_mut(), &mut reader);
            let failed = filled.is_err();
            let message = filled.map(|()| Filled {
                slot,
                transfer: number,
            });
            if sender.send(message).is_err() || failed {
                break;
            }
        }
        reader
    }

    fn fill(
        &self,
        reads: &Reads<'_>,
        transfer: &Transfer,
        memory: &mut [u8],
        reader: &mut Reader,
    ) -> Result<(), Error> {
        let start = Instant::now();
        reads.read(transfer, memory, &mut reader.reads)?;
        let read = Instant::now();
        reader.read += read - start;
        let len = usize::try_from(transfer.len).unwrap_or(usize::MAX);
        let bytes = memory.get(..len).unwrap_or_default();
        reader.checked += self.check(transfer, bytes)?;
        reader.check += read.elapsed();
        Ok(())
    }

    /// Checks what can be checked; gives the bytes that were.
    fn check(&self, transfer: &Transfer, bytes: &[u8]) -> Result<u64, Error> {
        match transfer.check {
            Check::None => Ok(0),
            Check::Block { .. } => {
                check::block(self.source, transfer, wpack_format::crc32c(bytes))?;
                Ok(transfer.len)
            }
            Check::Parts => {
                let mut checked = 0;
                for part in self.transfers.parts(transfer) {
                    let slice = part.of(bytes);
                    check::part(self.source, transfer, part, wpack_format::crc32c(slice))?;
                    checked += part.len;
                }
                Ok(checked)
            }
        }
    }

    /// The calling thread's side.
    fn submit<S: DeviceSink>(
        &self,
        sink: &mut S,
        filled: &Receiver<Result<Filled<S::Slot>, Error>>,
        pool: &Pool<S::Slot>,
        total: usize,
        stats: &mut StageStats,
    ) -> Result<(), Error> {
        let fail = |doing: &'static str| move |source: SinkError| Error::Sink { doing, source };
        let (mut submitted, mut flying) = (0, 0);
        while submitted < total || flying > 0 {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let start = Instant::now();
            if submitted == total || flying == stats.slots {
                // Only the device can move on.
                let slot = sink.reclaim(PATIENCE).map_err(fail("waiting for a copy"))?;
                stats.device_wait += start.elapsed();
                if let Some(slot) = slot {
                    flying -= 1;
                    pool.give(slot);
                }
                continue;
            }
            let wait = if flying == 0 { PATIENCE } else { GLANCE };
            let message = filled.recv_timeout(wait);
            stats.reader_wait += start.elapsed();
            match message {
                Ok(message) => {
                    let Filled { slot, transfer } = message?;
                    let Some(transfer) = self.transfers.transfers().get(transfer) else {
                        continue;
                    };
                    let parts = self.transfers.parts(transfer);
                    let start = Instant::now();
                    sink.submit(slot, parts).map_err(fail("copying"))?;
                    stats.submit += start.elapsed();
                    stats.copied += parts.iter().map(|part| part.len).sum::<u64>();
                    submitted += 1;
                    flying += 1;
                    self.progress.advance(transfer.len);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Every reader is gone and something is missing: one of them panicked.
                Err(RecvTimeoutError::Disconnected) => return Err(Error::ReaderLost),
            }
            while flying > 0 {
                let Some(slot) = sink
                    .reclaim(Duration::ZERO)
                    .map_err(fail("waiting for a copy"))?
                else {
                    break;
                };
                flying -= 1;
                pool.give(slot);
            }
        }
        Ok(())
    }
}
