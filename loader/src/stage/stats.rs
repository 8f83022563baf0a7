//! What a load really did.

use std::time::Duration;

/// What a staged load or a read into memory did: the paths taken, bytes and seconds per stage.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StageStats {
    /// Wall time of all of it.
    pub wall: Duration,
    /// Reads, and bytes by the path that they really took.
    pub reads: ReadBytes,
    /// Time in reads, summed over readers.
    pub read: Duration,
    /// Bytes whose checksum was checked.
    pub checked: u64,
    /// Time in checksums, summed over readers.
    pub check: Duration,
    /// Bytes handed to the sink or copied out.
    pub copied: u64,
    /// Time the calling thread spent in the sink's submit.
    pub submit: Duration,
    /// Time the calling thread waited for the device with nothing else to do.
    pub device_wait: Duration,
    /// Time the calling thread waited for readers.
    pub reader_wait: Duration,
    /// Readers.
    pub readers: usize,
    /// Slots of the ring; none when reading into memory.
    pub slots: usize,
    /// Bytes of the ring: the most that was allocated.
    pub ring_bytes: u64,
    /// Why a faster path was not taken, each reason once.
    pub fallbacks: Vec<String>,
}

/// Reads by path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBytes {
    /// Reads issued as one piece.
    pub count: u64,
    /// Bytes that were in the page cache already.
    pub cached: u64,
    /// Bytes read around the page cache.
    pub direct: u64,
    /// Bytes read through the page cache.
    pub buffered: u64,
}

impl ReadBytes {
    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cached
            .saturating_add(self.direct)
            .saturating_add(self.buffered)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cached += other.cached;
        self.direct += other.direct;
        self.buffered += other.buffered;
    }
}

impl StageStats {
    /// The path that most bytes took: `cached`, `direct` or `buffered`.
    #[must_use]
    pub fn path(&self) -> &'static str {
        let ReadBytes {
            cached,
            direct,
            buffered,
            ..
        } = self.reads;
        if direct > cached && direct >= buffered {
            "direct"
        } else if cached >= buffered {
            "cached"
        } else {
            "buffered"
        }
    }
}
