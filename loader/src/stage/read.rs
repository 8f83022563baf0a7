//! One read of a transfer, by the path that pays.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use wpack_format::{align_up, spec};

use super::{ReadBytes, Transfer, memory::is_aligned};
use crate::{ByteSource, Error};

/// Which way bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Bytes that are cached come from the cache. Others that no other rank holds are read around
    /// it, if that proves faster here, so that a load does not fill memory with what nobody reads
    /// again; bytes that several ranks hold go through it, so that a node reads them once.
    #[default]
    Auto,
    /// Through the page cache, as files usually are: right when the load is repeated soon.
    Buffered,
    /// Around the page cache wherever the file system allows it.
    Direct,
}

/// After so many bytes of direct reads, as many are read buffered, and the faster way is kept.
const TRIAL: u64 = 256 << 20;

/// Alignment of file offset, length and memory at which every known file system reads directly.
pub(super) const ALIGN: usize = 4096;

/// The reads of one load: what was learnt about the source, shared by its readers.
pub(super) struct Reads<'a> {
    source: &'a dyn ByteSource,
    mode: ReadMode,
    align: Option<u64>,
    direct_failed: AtomicBool,
    direct: Rate,
    buffered: Rate,
    fallbacks: Mutex<Vec<String>>,
}

/// Bytes and time of the misses that took one way.
#[derive(Default)]
struct Rate {
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Rate {
    fn add(&self, bytes: u64, time: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if this one is at least as fast.
    fn beats(&self, other: &Self) -> bool {
        let nanos = |rate: &Self| u128::from(rate.nanos.load(Ordering::Relaxed));
        u128::from(self.bytes()) * nanos(other) >= u128::from(other.bytes()) * nanos(self)
    }
}

impl<'a> Reads<'a> {
    pub(super) fn new(source: &'a dyn ByteSource, mode: ReadMode) -> Self {
        let reads = Self {
            source,
            mode,
            align: source
                .direct_align()
                .map(u64::from)
                .filter(|align| *align <= ALIGN as u64),
            direct_failed: AtomicBool::new(false),
            direct: Rate::default(),
            buffered: Rate::default(),
            fallbacks: Mutex::default(),
        };
        if mode != ReadMode::Buffered && reads.align.is_none() {
            reads.fall_back("the source offers no direct reads".to_owned());
        }
        reads
    }

    /// Reads a transfer into the start of `memory`, which may be longer than it.
    pub(super) fn read(
        &self,
        transfer: &Transfer,
        memory: &mut [u8],
        bytes: &mut ReadBytes,
    ) -> Result<(), Error> {
        bytes.count += 1;
        let len = usize::try_from(transfer.len).unwrap_or(usize::MAX);
        if memory.len() < len {
            return Err(Error::OutOfMemory {
                bytes: transfer.len,
                what: "a slot of the ring",
            });
        }
        let start = Instant::now();
        let mut done = 0;
        if self.mode == ReadMode::Auto {
            done = self.read_cached(transfer.offset, memory.get_mut(..len).unwrap_or_default())?;
            bytes.cached += done as u64;
            if done == len {
                return Ok(());
            }
        }
        let missed = (len - done) as u64;
        if self.wants_direct(transfer) && self.read_direct(transfer, memory)? {
            bytes.cached -= done as u64;
            bytes.direct += transfer.len;
            self.direct.add(transfer.len, start.elapsed());
            return Ok(());
        }
        let rest = memory.get_mut(done..len).unwrap_or_default();
        let at = transfer.offset.saturating_add(done as u64);
        self.source.will_need(at, missed);
        self.source.read_exact_at(at, rest)?;
        bytes.buffered += missed;
        self.buffered.add(missed, start.elapsed());
        Ok(())
    }

    /// What the cache holds, from the start on; the rest is read on another way.
    fn read_cached(&self, offset: u64, memory: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        while let Some(rest) = memory.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.source.read_cached_at(at, rest) {
                Ok(Some(read)) if read > 0 => done += read.min(rest.len()),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io_at(self.source.label(), at, error)),
            }
        }
        Ok(done)
    }

    fn wants_direct(&self, transfer: &Transfer) -> bool {
        if self.align.is_none() || self.direct_failed.load(Ordering::Relaxed) {
            return false;
        }
        match self.mode {
            ReadMode::Buffered => false,
            ReadMode::Direct => true,
            ReadMode::Auto if transfer.shared => false,
            ReadMode::Auto if self.direct.bytes() < TRIAL => true,
            ReadMode::Auto if self.buffered.bytes() < TRIAL => false,
            ReadMode::Auto => self.direct.beats(&self.buffered),
        }
    }

    /// True if the transfer was read; false if it must be read on another way.
    fn read_direct(&self, transfer: &Transfer, memory: &mut [u8]) -> Result<bool, Error> {
        let Some(align) = self.align else {
            return Ok(false);
        };
        // The padding behind an extent reaches to a multiple of 4096, so this stays in the file.
        let padded = align_up(transfer.len, align).and_then(|len| usize::try_from(len).ok());
        let (Some(padded), true) = (padded, transfer.offset.is_multiple_of(align)) else {
            return Ok(false);
        };
        let len = usize::try_from(transfer.len).unwrap_or(usize::MAX);
        if memory.len() < padded || !is_aligned(memory, usize::try_from(align).unwrap_or(ALIGN)) {
            self.fall_back("a slot is not aligned for direct reads".to_owned());
            return Ok(false);
        }
        let mut done = 0;
        while done < len {
            let at = transfer.offset.saturating_add(done as u64);
            let rest = memory.get_mut(done..padded).unwrap_or_default();
            match self.source.read_direct_at(at, rest) {
                Ok(0) => {
                    let missing = (len - done) as u64;
                    return Err(Error::Truncated {
                        path: self.source.label(),
                        offset: at,
                        missing,
                    });
                }
                Ok(read) if done + read >= len => return Ok(true),
                // A short read ends at an aligned place, or the rest is read on another way.
                Ok(read) if (read as u64).is_multiple_of(align) => done += read,
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if refuses_direct(&error) => {
                    self.direct_failed.store(true, Ordering::Relaxed);
                    self.fall_back(format!("the file system refused a direct read: {error}"));
                    return Ok(false);
                }
                Err(error) => return Err(Error::io_at(self.source.label(), at, error)),
            }
        }
        Ok(true)
    }

    fn fall_back(&self, reason: String) {
        let mut reasons = self
            .fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }

    pub(super) fn into_fallbacks(self) -> Vec<String> {
        self.fallbacks
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Errors that say "not this way" and not "not these bytes".
fn refuses_direct(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

/// Length of a slot that holds every transfer, direct reads included.
pub(super) fn slot_len(longest: u64) -> Option<usize> {
    let len = align_up(longest.min(spec::BLOCK_LEN), ALIGN as u64)?;
    usize::try_from(len).ok()
}
