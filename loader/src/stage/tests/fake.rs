//! A device that copies late, and a source that fails on order.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    ByteSource, Destination, DeviceSink, Error, HostSlot, SinkError, TransferPart as Part,
};

/// What a slot is filled with when its copy is done: bytes that arrive so were copied too late.
const POISON: u8 = 0xa5;

/// Memory handed out and not yet freed.
#[derive(Default)]
pub(super) struct Budget {
    pub(super) live: AtomicU64,
    pub(super) peak: AtomicU64,
}

/// A slot that counts in the budget while it lives.
pub(super) struct Slot {
    bytes: HostSlot,
    budget: Arc<Budget>,
    len: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.budget.live.fetch_sub(self.len, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }
}

/// One destination: its bytes, and the ranges that were written.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    pub(super) writes: Vec<(u64, u64)>,
}

impl Arrived {
    /// True if every byte was written once.
    pub(super) fn is_covered(&self) -> bool {
        let mut writes = self.writes.clone();
        writes.sort_unstable();
        let mut end = 0;
        writes
            .iter()
            .all(|(to, len)| *to == std::mem::replace(&mut end, to + len))
            && end == self.bytes.len() as u64
    }
}

/// The step at which the device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    Never,
    Allocate(usize),
    Begin,
    Submit(usize),
    Reclaim(usize),
    Finish,
}

/// Copies on threads of its own, after a while and out of order.
pub(super) struct LateSink {
    pub(super) budget: Arc<Budget>,
    pub(super) arrived: Arc<Mutex<Vec<Arrived>>>,
    pub(super) flying: usize,
    pub(super) drained: bool,
    pub(super) finished: bool,
    fails: Fails,
    calls: usize,
    began: bool,
    limit: u64,
    work: Vec<Sender<(Slot, Vec<Part>)>>,
    done: Receiver<Slot>,
    threads: Vec<JoinHandle<()>>,
}

impl LateSink {
    /// A device that refuses to hand out more than `limit` bytes, with some delay per copy.
    pub(super) fn new(limit: u64, delay: Duration, fails: Fails) -> Self {
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let (finished, done) = channel();
        let (mut work, mut threads) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let (sender, receiver) = channel::<(Slot, Vec<Part>)>();
            let (arrived, finished) = (Arc::clone(&arrived), finished.clone());
            threads.push(std::thread::spawn(move || {
                while let Ok((mut slot, parts)) = receiver.recv() {
                    std::thread::sleep(delay * (1 + number));
                    copy(&slot, &parts, &mut arrived.lock().unwrap());
                    slot.as_mut().fill(POISON);
                    let _ = finished.send(slot);
                }
            }));
            work.push(sender);
        }
        Self {
            budget: Arc::default(),
            arrived,
            flying: 0,
            drained: false,
            finished: false,
            fails,
            calls: 0,
            began: false,
            limit,
            work,
            done,
            threads,
        }
    }

    fn fail(&self, at: Fails) -> Result<(), SinkError> {
        if self.fails == at {
            Err(format!("{at:?}").into())
        } else {
            Ok(())
        }
    }
}

fn copy(slot: &Slot, parts: &[Part], arrived: &mut [Arrived]) {
    for part in parts {
        let arrived = &mut arrived[usize::try_from(part.destination).unwrap()];
        let range = usize::try_from(part.to).unwrap()..usize::try_from(part.to + part.len).unwrap();
        arrived.bytes[range].copy_from_slice(part.of(slot.as_ref()));
        arrived.writes.push((part.to, part.len));
    }
}

impl DeviceSink for LateSink {
    type Slot = Slot;

    fn allocate(&mut self, len: usize, align: usize) -> Result<Slot, SinkError> {
        assert!(!self.began, "the ring is made before anything moves");
        self.fail(Fails::Allocate(self.calls))?;
        self.calls += 1;
        let len_bytes = len as u64;
        let live = self.budget.live.fetch_add(len_bytes, Ordering::SeqCst) + len_bytes;
        self.budget.peak.fetch_max(live, Ordering::SeqCst);
        let slot = HostSlot::new(len, align).ok_or("no memory")?;
        let slot = Slot {
            bytes: slot,
            budget: Arc::clone(&self.budget),
            len: len_bytes,
        };
        if live > self.limit {
            Err("over the budget".into())
        } else {
            Ok(slot)
        }
    }

    fn begin(&mut self, destinations: &[Destination]) -> Result<(), SinkError> {
        self.fail(Fails::Begin)?;
        (self.began, self.calls) = (true, 0);
        let arrived = destinations.iter().map(|destination| {
            let len = usize::try_from(destination.len).unwrap();
            Arrived {
                bytes: vec![0; len],
                writes: Vec::new(),
            }
        });
        *self.arrived.lock().unwrap() = arrived.collect();
        Ok(())
    }

    fn submit(&mut self, slot: Slot, parts: &[Part]) -> Result<(), SinkError> {
        assert!(self.began);
        self.fail(Fails::Submit(self.calls))?;
        self.work[self.calls % 2].send((slot, parts.to_vec()))?;
        self.calls += 1;
        self.flying += 1;
        Ok(())
    }

    fn reclaim(&mut self, wait: Duration) -> Result<Option<Slot>, SinkError> {
        if let Fails::Reclaim(call) = self.fails
            && self.calls > call
        {
            return Err("Reclaim".into());
        }
        match self.done.recv_timeout(wait) {
            Ok(slot) => {
                self.flying -= 1;
                Ok(Some(slot))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        assert_eq!(self.flying, 0, "finished with copies running");
        self.fail(Fails::Finish)?;
        self.finished = true;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), SinkError> {
        while self.flying > 0 {
            drop(self.done.recv()?);
            self.flying -= 1;
        }
        self.drained = true;
        Ok(())
    }
}

impl Drop for LateSink {
    fn drop(&mut self) {
        self.work.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a source does to its readers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quirks {
    /// Reads give at most so many bytes; 0 for no limit.
    pub(super) short: usize,
    /// Every second call is interrupted.
    pub(super) interrupts: bool,
    /// Reads of this byte fail.
    pub(super) broken: Option<u64>,
    /// The source ends here.
    pub(super) cut: Option<u64>,
    /// This byte is wrong.
    pub(super) flipped: Option<u64>,
    /// Bytes below this place are in the cache.
    pub(super) cached: u64,
    /// Direct reads are offered, and work below this place.
    pub(super) direct: Option<u64>,
    /// The source says at the end that it changed.
    pub(super) changed: bool,
}

/// Bytes with quirks.
pub(super) struct FakeSource<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) quirks: Quirks,
    pub(super) calls: AtomicUsize,
}

impl<'a> FakeSource<'a> {
    pub(super) fn new(bytes: &'a [u8], quirks: Quirks) -> Self {
        Self {
            bytes,
            quirks,
            calls: AtomicUsize::new(0),
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.quirks.interrupts && call.is_multiple_of(2) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = match self.quirks.short {
            0 => into.len(),
            short => into.len().min(short),
        };
        let into = &mut into[..len];
        let range = offset..offset + len as u64;
        if self.quirks.broken.is_some_and(|at| range.contains(&at)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let end = self
            .quirks
            .cut
            .map_or(self.bytes.len(), |cut| usize::try_from(cut).unwrap());
        let there = &self.bytes[..end.min(self.bytes.len())];
        let read = there.read_at(offset, into)?;
        if let Some(at) = self.quirks.flipped.filter(|at| range.contains(at)) {
            into[usize::try_from(at - offset).unwrap()] ^= 0x10;
        }
        Ok(read)
    }
}

impl ByteSource for FakeSource<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read(offset, into)
    }

    fn label(&self) -> String {
        "fake.wpack".into()
    }

    fn read_cached_at(&self, offset: u64, into: &mut [u8]) -> io::Result<Option<usize>> {
        let here = self.quirks.cached.saturating_sub(offset);
        match usize::try_from(here).unwrap().min(into.len()) {
            0 => Ok(None),
            len => self.read(offset, &mut into[..len]).map(Some),
        }
    }

    fn direct_align(&self) -> Option<u32> {
        self.quirks.direct.map(|_| 512)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        assert!(offset.is_multiple_of(512) && into.len().is_multiple_of(512));
        assert!(into.as_ptr().addr().is_multiple_of(512));
        if self.quirks.direct.is_some_and(|limit| offset >= limit) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.read(offset, into)
    }

    fn revalidate(&self) -> Result<(), Error> {
        if !self.quirks.changed {
            return Ok(());
        }
        Err(Error::Changed {
            path: self.label(),
            expected: self.len(),
            found: self.len(),
        })
    }
}
