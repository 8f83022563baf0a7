//! Dimensions, boxes of them, and copying rows of elements.

use std::ops::Range;

/// One dimension of a view that is not trivial: more than one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) size: u64,
    /// Elements from one to the next in the storage.
    pub(super) stride: u64,
    /// Elements from one to the next in the logical order.
    pub(super) step: u64,
}

pub(super) fn to_index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

pub(super) fn copy_row(source: &[u8], target: &mut [u8], row: Dim, width: usize) {
    let (size, stride, step) = (to_index(row.size), to_index(row.stride), to_index(row.step));
    if stride == 1 && step == 1 {
        let len = size
            .saturating_mul(width)
            .min(source.len())
            .min(target.len());
        let (to, _) = target.split_at_mut(len);
        let (from, _) = source.split_at(len);
        to.copy_from_slice(from);
        return;
    }
    match width {
        1 => copy_strided::<1>(source, target, size, stride, step),
        2 => copy_strided::<2>(source, target, size, stride, step),
        4 => copy_strided::<4>(source, target, size, stride, step),
        8 => copy_strided::<8>(source, target, size, stride, step),
        _ => copy_strided::<16>(source, target, size, stride, step),
    }
}

fn copy_strided<const W: usize>(
    source: &[u8],
    target: &mut [u8],
    size: usize,
    stride: usize,
    step: usize,
) {
    let (source, _) = source.as_chunks::<W>();
    let (target, _) = target.as_chunks_mut::<W>();
    if stride == 0 {
        let Some(&value) = source.first() else { return };
        target
            .iter_mut()
            .step_by(step.max(1))
            .take(size)
            .for_each(|to| *to = value);
        return;
    }
    let from = source.iter().step_by(stride);
    let to = target.iter_mut().step_by(step.max(1));
    for (to, from) in to.zip(from).take(size) {
        *to = *from;
    }
}

/// All positions of some dimensions.
pub(super) struct Odometer<'d> {
    dims: &'d [Dim],
    at: Vec<u64>,
}

impl<'d> Odometer<'d> {
    pub(super) fn new(dims: &'d [Dim]) -> Self {
        Self {
            dims,
            at: vec![0; dims.len()],
        }
    }

    /// Element of the storage and logical element of the position.
    pub(super) fn place(&self, from: u64, to: u64) -> (u64, u64) {
        self.dims
            .iter()
            .zip(&self.at)
            .fold((from, to), |(from, to), (dim, &at)| {
                (
                    from.saturating_add(at.saturating_mul(dim.stride)),
                    to.saturating_add(at.saturating_mul(dim.step)),
                )
            })
    }

    /// The next position, the last dimension first; false when all were seen.
    pub(super) fn advance(&mut self) -> bool {
        for (at, dim) in self.at.iter_mut().zip(self.dims).rev() {
            *at += 1;
            if *at < dim.size {
                return true;
            }
            *at = 0;
        }
        false
    }
}

/// A box of a view: whole positions of its dimensions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Its first element in the storage.
    pub(super) from: u64,
    /// Its first element in the logical order, counted from the start of what is read.
    pub(super) to: u64,
    pub(super) dims: Vec<Dim>,
}

/// The boxes that a range of the logical order consists of: at most two per dimension.
pub(super) struct Blocks<'d> {
    dims: &'d [Dim],
    at: u64,
    base: u64,
    end: u64,
}

impl<'d> Blocks<'d> {
    pub(super) fn new(dims: &'d [Dim], range: Range<u64>) -> Self {
        Self {
            dims,
            at: range.start,
            base: range.start,
            end: range.end,
        }
    }
}

impl Iterator for Blocks<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        if self.at >= self.end {
            return None;
        }
        let left = self.end - self.at;
        // The outermost dimension of which whole positions can be taken from here on: those inside
        // of it must stand at their beginning.
        let mut from = 0_u64;
        let mut rest = self.at;
        let mut best = None;
        for (number, dim) in self.dims.iter().enumerate() {
            let index = rest.checked_div(dim.step).unwrap_or(0);
            rest = rest.checked_rem(dim.step).unwrap_or(0);
            from = from.saturating_add(index.saturating_mul(dim.stride));
            if best.is_none() && rest == 0 && dim.step <= left {
                let count = (left / dim.step.max(1)).min(dim.size.saturating_sub(index));
                best = Some((number, count));
            }
        }
        let (number, count) = best?;
        let mut dims = self.dims.get(number..)?.to_vec();
        let first = dims.first_mut()?;
        first.size = count;
        let elements = first.step.checked_mul(count)?;
        let block = Block {
            from,
            to: self.at - self.base,
            dims,
        };
        self.at = self.at.checked_add(elements.max(1))?;
        Some(block)
    }
}
