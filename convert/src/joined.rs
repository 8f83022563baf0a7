//! Bytes of several tensors that take turns: stacked, concatenated and padded tensors, never in memory.

use std::{ops::ControlFlow, sync::Arc};

use wpack_checkpoint::{Bytes, Error};

/// A part: its bytes, none for zeros, and how many come at each turn.
pub(crate) type Turn = (Option<Arc<dyn Bytes>>, u64);

/// Parts that take turns: `run` bytes of each, and again from the first.
pub(crate) struct Joined {
    parts: Vec<Part>,
    /// Bytes of a round.
    round: u64,
    len: u64,
}

struct Part {
    bytes: Option<Arc<dyn Bytes>>,
    /// Where it starts in a round, and where it ends.
    start: u64,
    end: u64,
}

impl Joined {
    /// So many rounds of these parts. None if their bytes exceed 64 bits.
    pub(crate) fn new(turns: Vec<Turn>, rounds: u64) -> Option<Self> {
        let mut round = 0u64;
        let mut parts = Vec::with_capacity(turns.len());
        for (bytes, run) in turns {
            let start = round;
            round = round.checked_add(run)?;
            parts.push(Part {
                bytes,
                start,
                end: round,
            });
        }
        let len = round.checked_mul(rounds)?;
        Some(Self { parts, round, len })
    }

    /// Visits the ranges of parts that make up a range, in order: part, first byte in it, length.
    fn visit(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(&Part, u64, u64) -> ControlFlow<()>,
    ) {
        let (mut at, end) = (offset, offset.saturating_add(len).min(self.len));
        while at < end {
            let (round, within) = (at / self.round, at % self.round);
            let first = self.parts.partition_point(|part| part.end <= within);
            let Some(part) = self.parts.get(first) else {
                return;
            };
            let take = (part.end - within).min(end - at);
            let from = round * (part.end - part.start) + (within - part.start);
            if visit(part, from, take).is_break() {
                return;
            }
            at += take;
        }
    }
}

impl Bytes for Joined {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let mut rest = out;
        let mut outcome = Ok(());
        let len = rest.len() as u64;
        self.visit(offset, len, &mut |part, from, take| {
            let take = usize::try_from(take).unwrap_or(usize::MAX);
            let Some((now, later)) = std::mem::take(&mut rest).split_at_mut_checked(take) else {
                return ControlFlow::Break(());
            };
            rest = later;
            match &part.bytes {
                Some(bytes) => outcome = bytes.read_at(from, now),
                None => now.fill(0),
            }
            if outcome.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        outcome
    }

    fn place(&self) -> Option<u64> {
        None
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.visit(offset, len, &mut |part, from, take| {
            if let Some(bytes) = &part.bytes {
                bytes.will_need(from, take);
            }
            ControlFlow::Continue(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u8>);

    impl Bytes for Memory {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
            let at = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.0[at..at + out.len()]);
            Ok(())
        }

        fn place(&self) -> Option<u64> {
            None
        }

        fn will_need(&self, _: u64, _: u64) {}
    }

    #[test]
    fn any_range_of_any_turns() {
        let part =
            |bytes: &[u8]| -> Option<Arc<dyn Bytes>> { Some(Arc::new(Memory(bytes.to_vec()))) };
        let turns = vec![
            (part(b"abcdef"), 2),
            (None, 1),
            (part(b""), 0),
            (part(b"xyz"), 1),
        ];
        let joined = Joined::new(turns, 3).unwrap();
        let whole = b"ab\0xcd\0yef\0z";
        assert_eq!(joined.len(), whole.len() as u64);
        for from in 0..whole.len() {
            for to in from..=whole.len() {
                let mut out = vec![9; to - from];
                joined.read_at(from as u64, &mut out).unwrap();
                assert_eq!(out, whole[from..to]);
                joined.will_need(from as u64, (to - from) as u64);
            }
        }
        assert!(Joined::new(vec![(None, u64::MAX), (None, 1)], 1).is_none());
        assert!(Joined::new(vec![(None, 1 << 40)], 1 << 40).is_none());
        assert_eq!(Joined::new(vec![], 5).unwrap().len(), 0);
    }
}
