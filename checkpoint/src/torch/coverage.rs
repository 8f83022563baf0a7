//! The checksum of a record that is read piece by piece, in any order, by several threads.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use flate2::Crc;

/// Most pieces that do not touch each other. A reader that leaves more holes than that is not
/// reading the whole record, and its reading is no longer followed.
const MAX_PIECES: usize = 4096;

/// Which bytes of a record were read, and their CRC-32.
#[derive(Debug)]
pub(super) struct Coverage {
    len: u64,
    expected: u32,
    /// Nothing is left to do: the record was read whole, or reading it is no longer followed.
    done: AtomicBool,
    /// Start to end and CRC; pieces neither overlap nor touch.
    pieces: Mutex<BTreeMap<u64, (u64, Crc)>>,
}

/// The checksum that a record has, when it is not the one it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// As the archive states it.
    pub(super) expected: u32,
    /// Of the bytes.
    pub(super) found: u32,
}

impl Coverage {
    /// For a record of `len` bytes.
    pub(super) fn new(len: u64, expected: u32) -> Self {
        Self {
            len,
            expected,
            done: AtomicBool::new(len == 0),
            pieces: Mutex::new(BTreeMap::new()),
        }
    }

    /// Notes that `data` stands at `offset`. The read that makes the record whole finds the
    /// mismatch, and so does every later one.
    pub(super) fn saw(&self, offset: u64, data: &[u8]) -> Result<(), Mismatch> {
        if self.done.load(Ordering::Relaxed) || data.is_empty() {
            return Ok(());
        }
        for (start, end) in self.gaps(offset, data) {
            let from = usize::try_from(start.saturating_sub(offset)).unwrap_or(usize::MAX);
            let to = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let Some(part) = data.get(from..to) else {
                continue;
            };
            // Outside of the lock: this is the work.
            let mut crc = Crc::new();
            crc.update(part);
            self.add(start, end, crc)?;
        }
        self.judge()
    }

    /// The parts of a read that were not read before.
    fn gaps(&self, offset: u64, data: &[u8]) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        let end = end.min(self.len);
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset;
        if let Some((_, &(before, _))) = pieces.range(..=offset).next_back() {
            at = at.max(before);
        }
        let mut gaps = Vec::new();
        for (&start, &(stop, _)) in pieces.range(offset.saturating_add(1)..end.max(offset + 1)) {
            if start > at {
                gaps.push((at, start));
            }
            at = at.max(stop);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    fn add(&self, start: u64, end: u64, crc: Crc) -> Result<(), Mismatch> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read the same in the meantime.
        let taken = pieces
            .range(..end)
            .next_back()
            .is_some_and(|(_, &(stop, _))| stop > start);
        if taken {
            return Ok(());
        }
        let (mut start, mut end, mut crc) = (start, end, crc);
        let before = pieces
            .range(..start)
            .next_back()
            .map(|(&at, &(stop, _))| (at, stop));
        if let Some((at, stop)) = before
            && stop == start
            && let Some((_, mut front)) = pieces.remove(&at)
        {
            front.combine(&crc);
            (start, crc) = (at, front);
        }
        if let Some((stop, back)) = pieces.remove(&end) {
            crc.combine(&back);
            end = stop;
        }
        pieces.insert(start, (end, crc));
        if pieces.len() > MAX_PIECES {
            pieces.clear();
            self.done.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), Mismatch> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&(end, ref crc)) = pieces.get(&0) else {
            return Ok(());
        };
        if end < self.len {
            return Ok(());
        }
        let found = crc.sum();
        if found != self.expected {
            return Err(Mismatch {
                expected: self.expected,
                found,
            });
        }
        self.done.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(data: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(data);
        crc.sum()
    }

    #[test]
    fn any_order_and_any_overlap_give_the_same_sum() {
        let data: Vec<u8> = (0..=255).collect();
        for reads in [
            &[(0, 256)][..],
            &[(128, 256), (0, 128)],
            &[(10, 20), (200, 256), (5, 230), (0, 6)],
            &[(0, 100), (50, 150), (100, 256)],
            &[(255, 256), (0, 1), (0, 256)],
            &[(1, 2), (3, 4), (5, 6), (0, 256)],
        ] {
            let good = Coverage::new(256, crc(&data));
            let bad = Coverage::new(256, crc(&data) ^ 1);
            let (&(from, to), before) = reads.split_last().expect("a read");
            for &(from, to) in before {
                let start = u64::try_from(from).expect("small");
                assert_eq!(bad.saw(start, &data[from..to]), Ok(()));
                assert_eq!(good.saw(start, &data[from..to]), Ok(()));
            }
            let start = u64::try_from(from).expect("small");
            assert_eq!(good.saw(start, &data[from..to]), Ok(()));
            assert!(good.done.load(Ordering::Relaxed));
            bad.saw(start, &data[from..to]).expect_err("read whole");
            bad.saw(7, &data[7..8]).expect_err("still wrong");
        }
    }

    #[test]
    fn holes_do_not_pile_up() {
        let coverage = Coverage::new(1 << 20, 7);
        for at in 0..5000_u64 {
            assert_eq!(coverage.saw(at * 2, b"x"), Ok(()));
        }
        assert!(coverage.pieces.lock().expect("no panic").is_empty());
    }
}
