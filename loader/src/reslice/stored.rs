//! Where the elements of a tensor lie in the file.

use std::{cmp::Reverse, ops::ControlFlow};

use wpack_format::{BoxPart, Content, DType, FlatPart, Slice};

use super::ranges;

/// Elements of one tensor that lie together in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First element.
    pub(super) start: u64,
    /// Elements.
    pub(super) len: u64,
    /// First byte in the file.
    pub(super) at: u64,
}

impl Run {
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// All places of one tensor's elements, ascending, without overlap.
#[derive(Debug)]
pub(super) struct Stored {
    dtype: DType,
    runs: Vec<Run>,
}

impl Stored {
    /// Of all runs of elements of this type, in any order.
    pub(super) fn new(dtype: DType, mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| (run.start, Reverse(run.len)));
        let mut end = 0;
        runs.retain_mut(|run| {
            // Elements that several slices hold are taken from the first.
            let covered = end.max(run.start) - run.start;
            let Some(left) = run.len.checked_sub(covered).filter(|left| *left > 0) else {
                return false;
            };
            let Some(skip) = dtype.bytes(covered) else {
                return false;
            };
            *run = Run {
                start: run.start + covered,
                len: left,
                at: run.at.saturating_add(skip),
            };
            end = run.end();
            true
        });
        Self { dtype, runs }
    }

    /// Element type of the bytes.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the file holds `len` elements from `start`, at whole bytes.
    pub(super) fn holds(&self, start: u64, len: u64) -> bool {
        self.visit(start, len, &mut |_, _| ControlFlow::Continue(()))
            .is_some()
    }

    /// Visits the byte ranges of the file that hold `len` elements from `start`, in order. None if
    /// the file does not hold them all, or if they do not start and end at whole bytes.
    pub(super) fn visit(
        &self,
        start: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let (mut at, end) = (start, start.checked_add(len)?);
        let first = self.runs.partition_point(|run| run.end() <= at);
        for run in self.runs.get(first..)? {
            if at >= end {
                break;
            }
            let skip = at.checked_sub(run.start)?;
            let take = run.end().min(end).checked_sub(at)?;
            let offset = run.at.checked_add(self.dtype.bytes(skip)?)?;
            let flow = visit(offset, self.dtype.bytes(take)?);
            if flow.is_break() {
                return Some(flow);
            }
            at = at.checked_add(take)?;
        }
        (at >= end).then_some(ControlFlow::Continue(()))
    }
}

/// The least range of each tensor that covers all elements that a slice holds of it: enough to see
/// which stored slices a rank can need, without looking at every row.
pub(super) fn bounds(
    slice: &Slice,
    shape_of: impl Fn(u32) -> Option<Vec<u64>>,
    mut visit: impl FnMut(u32, u64, u64),
) {
    match &slice.content {
        Content::Whole { tensor } => visit(*tensor, 0, u64::MAX),
        Content::Boxes { tensor, parts, .. } => {
            let Some(whole) = shape_of(*tensor) else {
                return;
            };
            for part in parts {
                if let BoxPart::Box { start, size } = part
                    && let Some((from, to)) = ranges::bounds(start, size, &whole)
                {
                    visit(*tensor, from, to);
                }
            }
        }
        Content::Flat { parts } => {
            for part in parts {
                if let FlatPart::Range { tensor, start, len } = *part {
                    visit(tensor, start, start.saturating_add(len));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_taken_once_and_holes_are_noticed() {
        let run = |start, len, at| Run { start, len, at };
        let runs = vec![run(20, 2, 132), run(3, 6, 1000), run(0, 5, 112)];
        let stored = Stored::new(DType::F32, runs);
        let mut seen = Vec::new();
        let mut look = |start, len| {
            seen.clear();
            let whole = stored.visit(start, len, &mut |at, bytes| {
                seen.push((at, bytes));
                ControlFlow::Continue(())
            });
            assert_eq!(whole.is_some(), stored.holds(start, len));
            whole.map(|_| seen.clone())
        };
        assert_eq!(look(0, 9), Some(vec![(112, 20), (1008, 16)]));
        assert_eq!(look(6, 2), Some(vec![(1012, 8)]));
        assert_eq!(look(20, 2), Some(vec![(132, 8)]));
        assert_eq!(look(8, 3), None);
        assert_eq!(look(21, 2), None);
        assert_eq!(look(5, 0), Some(vec![]));
    }
}
