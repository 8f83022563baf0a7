//! Where the elements of a tensor lie in the file.

use std::ops::ControlFlow;

use wpack_format::{BoxPart, Content, DType, FlatPart, Slice};

use super::{
    ComponentTable,
    ranges::{self, Range, ranges},
};

/// Elements of one tensor that lie together in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// First element.
    start: u64,
    /// Elements.
    len: u64,
    /// First byte in the file.
    at: u64,
}

impl Run {
    fn end(&self) -> u64 {
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
    /// Of the slices that hold parts of `tensor`, each with the place of its first byte in the file.
    pub(super) fn new<'s>(
        tensor: u32,
        dtype: DType,
        shape_of: impl Fn(u32) -> Option<Vec<u64>>,
        slices: impl Iterator<Item = (&'s Slice, u64)>,
    ) -> Self {
        let mut runs = Vec::new();
        for (slice, offset) in slices {
            let mut element = 0_u64;
            let _ = ranges(slice, &shape_of, &mut |range| {
                let (len, start) = match range {
                    Range::Tensor {
                        tensor: of,
                        start,
                        len,
                    } => (len, (of == tensor).then_some(start)),
                    Range::Fill { len, .. } => (len, None),
                };
                if let (Some(start), Some(inside)) = (start, dtype.bytes(element)) {
                    runs.push(Run {
                        start,
                        len,
                        at: offset.saturating_add(inside),
                    });
                }
                element = element.saturating_add(len);
                ControlFlow::Continue(())
            });
        }
        runs.sort_by_key(|run| (run.start, std::cmp::Reverse(run.len)));
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

    /// Visits the byte ranges of the file that hold `len` elements from `start`, in order. False if
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

/// A piece of a slice's bytes.
pub(super) enum Piece {
    /// Bytes of the file.
    Bytes { at: u64, len: u64 },
    /// Fill.
    Fill { len: u64, value: [u8; 16] },
}

/// The places of the tensor looked up last: slices of one tensor mostly come together.
#[derive(Default)]
pub(super) struct Finder {
    last: Option<((usize, u32), Stored)>,
}

impl Finder {
    pub(super) fn find(
        &mut self,
        number: usize,
        component: &ComponentTable,
        tensor: u32,
    ) -> Option<&Stored> {
        let key = (number, tensor);
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            let slices = component
                .stored
                .get(&tensor)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let slices = slices.iter().map(|(slice, offset)| (slice, *offset));
            let dtype = component.dtype(tensor)?;
            let stored = Stored::new(tensor, dtype, |tensor| component.shape(tensor), slices);
            self.last = Some((key, stored));
        }
        self.last.as_ref().map(|(_, stored)| stored)
    }
}

#[cfg(test)]
mod tests {
    use wpack_format::{Fill, SliceKind};

    use super::*;

    fn flat(parts: Vec<FlatPart>) -> Slice {
        Slice {
            content: Content::Flat { parts },
            kind: SliceKind::Value,
            dtype: DType::F32,
            shape: vec![0],
            offset: 0,
            crc32c: None,
        }
    }

    #[test]
    fn overlaps_are_taken_once_and_holes_are_noticed() {
        let of = |start, len| FlatPart::Range {
            tensor: 1,
            start,
            len,
        };
        let a = flat(vec![
            FlatPart::Fill {
                len: 3,
                value: Fill::ZERO,
            },
            of(0, 5),
            of(20, 2),
        ]);
        let b = flat(vec![of(3, 6)]);
        let stored = Stored::new(1, DType::F32, |_| None, [(&a, 100), (&b, 1000)].into_iter());
        let mut seen = Vec::new();
        let mut look = |start, len| {
            seen.clear();
            let whole = stored.visit(start, len, &mut |at, bytes| {
                seen.push((at, bytes));
                ControlFlow::Continue(())
            });
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
