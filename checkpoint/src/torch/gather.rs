//! A view of a storage as logical bytes: row-major, little-endian, conj and neg resolved.

use std::{ops::Range, sync::Arc};

use super::{
    blocks::{Block, Blocks, Dim, Odometer, copy_row, to_index},
    record::Storage,
};
use crate::{Bytes, Error};

/// Most bytes of a storage that are read at once to pick elements from.
const WINDOW: u64 = 4 << 20;
/// Bytes that are rather read and thrown away than passed over with another read.
const GAP: u64 = 16 << 10;

/// How bytes are changed after they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Change {
    /// Bytes of a unit whose order is turned around; 0 or 1 for none.
    pub(super) swap: usize,
    /// Bytes of a unit whose sign is changed; 0 for none.
    pub(super) sign: usize,
    /// Whether only every second unit's sign is: the imaginary parts.
    pub(super) imaginary: bool,
    /// Whether the real parts' sign is changed and the imaginary parts' is not (conj and neg).
    pub(super) real: bool,
}

/// The logical bytes of one view.
#[derive(Debug)]
pub(super) struct View {
    storage: Arc<Storage>,
    /// Byte of the first element in the storage.
    start: u64,
    /// Bytes of an element.
    width: u64,
    len: u64,
    /// Outermost first, neighbours merged; empty for a scalar.
    dims: Vec<Dim>,
    change: Change,
}

impl View {
    /// A view that is known to lie inside of the storage and whose bytes are countable.
    pub(super) fn new(
        storage: Arc<Storage>,
        start: u64,
        width: u64,
        shape: &[u64],
        strides: &[u64],
        change: Change,
    ) -> Self {
        let mut dims: Vec<Dim> = Vec::with_capacity(shape.len());
        let mut elements = 1_u64;
        for (&size, &stride) in shape.iter().zip(strides).rev() {
            if size != 1 {
                match dims.last_mut() {
                    // One run over both.
                    Some(inner) if stride == inner.stride.saturating_mul(inner.size) => {
                        inner.size = inner.size.saturating_mul(size);
                    }
                    _ => dims.push(Dim {
                        size,
                        stride,
                        step: elements,
                    }),
                }
            }
            elements = elements.saturating_mul(size);
        }
        dims.reverse();
        let len = elements.saturating_mul(width);
        Self {
            storage,
            start,
            width,
            len,
            dims,
            change,
        }
    }

    /// Whether the elements lie in the storage as they should be read.
    fn contiguous(&self) -> bool {
        match self.dims.as_slice() {
            [] => true,
            [dim] => dim.stride == 1,
            _ => self.len == 0,
        }
    }

    fn unchanged(&self) -> bool {
        self.change.swap <= 1 && self.change.sign == 0
    }

    /// Elements `range` into `out`, which has exactly their bytes.
    fn read_elements(&self, range: Range<u64>, out: &mut [u8]) -> Result<(), Error> {
        if self.contiguous() {
            let at = self
                .start
                .saturating_add(range.start.saturating_mul(self.width));
            self.storage.read_at(at, out)?;
        } else {
            let mut scratch = Vec::new();
            for block in Blocks::new(&self.dims, range) {
                self.gather(&block, out, &mut scratch)?;
            }
        }
        self.change.apply(out);
        Ok(())
    }

    /// Reads one box: for each position of its outer dimensions, what its inner ones span.
    fn gather(&self, block: &Block, out: &mut [u8], scratch: &mut Vec<u8>) -> Result<(), Error> {
        // In the order of the storage, so that what lies together is read together.
        let mut dims = block.dims.clone();
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride));
        let (outer, inner, piece) = self.cut(&dims);
        let mut outer_at = Odometer::new(outer);
        loop {
            let (from, to) = outer_at.place(block.from, block.to);
            let mut done = 0;
            while done < piece.total {
                let count = piece.count.min(piece.total - done);
                let at = from.saturating_add(done.saturating_mul(piece.stride));
                let to = to.saturating_add(done.saturating_mul(piece.step));
                let first = Dim {
                    size: count,
                    stride: piece.stride,
                    step: piece.step,
                };
                self.read_piece(at, to, first, inner, out, scratch)?;
                done = done.saturating_add(count);
            }
            if !outer_at.advance() {
                return Ok(());
            }
        }
    }

    /// Cuts dimensions, largest stride first, into those that are walked, the one that is read in
    /// pieces, and those that a piece spans as a whole.
    fn cut<'d>(&self, dims: &'d [Dim]) -> (&'d [Dim], &'d [Dim], Piece) {
        let mut span = self.width;
        let mut at = dims.len();
        while let Some((dim, rest)) = dims.get(..at).and_then(<[Dim]>::split_last) {
            let distance = dim.stride.saturating_mul(self.width);
            let whole = distance
                .saturating_mul(dim.size.saturating_sub(1))
                .saturating_add(span);
            // The next element is far away: more would be thrown away than used.
            if distance.saturating_sub(span) > GAP {
                break;
            }
            if whole > WINDOW {
                let fits = WINDOW
                    .saturating_sub(span)
                    .checked_div(distance)
                    .unwrap_or(0);
                let count = fits.saturating_add(1).min(dim.size);
                let piece = Piece {
                    total: dim.size,
                    count,
                    stride: dim.stride,
                    step: dim.step,
                };
                return (rest, dims.get(at..).unwrap_or_default(), piece);
            }
            span = whole;
            at -= 1;
        }
        let piece = Piece {
            total: 1,
            count: 1,
            stride: 0,
            step: 0,
        };
        (
            dims.get(..at).unwrap_or_default(),
            dims.get(at..).unwrap_or_default(),
            piece,
        )
    }

    /// Reads what `first` and `inner` span from element `at` on, and puts it to element `to` on.
    fn read_piece(
        &self,
        at: u64,
        to: u64,
        first: Dim,
        inner: &[Dim],
        out: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let dims = || std::iter::once(&first).chain(inner);
        let last = dims().fold(0_u64, |last, dim| {
            last.saturating_add(dim.stride.saturating_mul(dim.size.saturating_sub(1)))
        });
        let span = last.saturating_add(1).saturating_mul(self.width);
        let offset = self.start.saturating_add(at.saturating_mul(self.width));
        let elements = dims().fold(1_u64, |all, dim| all.saturating_mul(dim.size));
        let run = dims().all(|dim| dim.size == 1 || dim.stride == dim.step);
        if run && elements.saturating_mul(self.width) == span {
            let from = to_index(to.saturating_mul(self.width));
            let part = out.get_mut(from..from.saturating_add(to_index(span)));
            return self.storage.read_at(offset, part.unwrap_or_default());
        }
        scratch.resize(to_index(span), 0);
        self.storage.read_at(offset, scratch)?;

        // The dimension that is innermost in the logical order is copied in the inner loop.
        let mut order: Vec<Dim> = dims().filter(|dim| dim.size > 1).copied().collect();
        order.sort_by_key(|dim| std::cmp::Reverse(dim.step));
        let row = order.pop().unwrap_or(Dim {
            size: 1,
            stride: 1,
            step: 1,
        });
        let mut rows = Odometer::new(&order);
        loop {
            let (from, to) = rows.place(0, to);
            let source = scratch.get(to_index(from.saturating_mul(self.width))..);
            let target = out.get_mut(to_index(to.saturating_mul(self.width))..);
            if let (Some(source), Some(target)) = (source, target) {
                copy_row(source, target, row, to_index(self.width));
            }
            if !rows.advance() {
                return Ok(());
            }
        }
    }
}

/// A dimension that is read in pieces of `count` positions.
struct Piece {
    total: u64,
    count: u64,
    stride: u64,
    step: u64,
}

impl Change {
    /// Changes whole elements in place.
    fn apply(self, bytes: &mut [u8]) {
        match self.swap {
            2 => bytes
                .as_chunks_mut::<2>()
                .0
                .iter_mut()
                .for_each(|unit| unit.reverse()),
            4 => bytes
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .for_each(|unit| unit.reverse()),
            8 => bytes
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .for_each(|unit| unit.reverse()),
            _ => {}
        }
        if self.sign == 0 {
            return;
        }
        let (skip, every) = match (self.imaginary, self.real) {
            (true, false) => (1, 2),
            (false, true) => (0, 2),
            _ => (0, 1),
        };
        for unit in bytes.chunks_exact_mut(self.sign).skip(skip).step_by(every) {
            if let Some(top) = unit.last_mut() {
                *top ^= 0x80;
            }
        }
    }
}

impl Bytes for View {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let wanted = u64::try_from(out.len()).unwrap_or(u64::MAX);
        let end = offset.checked_add(wanted).filter(|&end| end <= self.len);
        let Some(end) = end else {
            return Err(Error::OutOfBounds {
                path: self.storage.file().path().to_owned(),
                tensor: self.storage.what().to_owned(),
                what: format!("{wanted} bytes at {offset} of {}", self.len),
            });
        };
        if out.is_empty() {
            return Ok(());
        }
        if self.contiguous() && self.unchanged() {
            return self.storage.read_at(self.start.saturating_add(offset), out);
        }
        // Whole elements go straight to their place, the cut ones at both ends through a small one.
        let width = self.width.max(1);
        let (first, last) = (offset.div_ceil(width), end / width);
        if first > last || first.saturating_mul(width) > end {
            return self.read_cut(offset / width, offset % width, out);
        }
        let head = to_index(first.saturating_mul(width).saturating_sub(offset));
        let tail = to_index(end.saturating_sub(last.saturating_mul(width)));
        let whole = out.len().saturating_sub(head).saturating_sub(tail);
        let (front, rest) = out.split_at_mut(head.min(out.len()));
        let (middle, back) = rest.split_at_mut(whole.min(rest.len()));
        if !front.is_empty() {
            self.read_cut(first.saturating_sub(1), offset % width, front)?;
        }
        if !middle.is_empty() {
            self.read_elements(first..last, middle)?;
        }
        if !back.is_empty() {
            self.read_cut(last, 0, back)?;
        }
        Ok(())
    }

    fn place(&self) -> Option<u64> {
        if !self.contiguous() || !self.unchanged() {
            return None;
        }
        Some(self.storage.place()?.saturating_add(self.start))
    }

    fn will_need(&self, offset: u64, len: u64) {
        if self.contiguous() {
            self.storage
                .will_need(self.start.saturating_add(offset), len);
            return;
        }
        // The part of the outermost dimension that the range touches, as a whole.
        let Some(dim) = self.dims.first() else { return };
        let first = (offset / self.width.max(1))
            .checked_div(dim.step)
            .unwrap_or(0);
        let end = offset.saturating_add(len).div_ceil(self.width.max(1));
        let count = end.div_ceil(dim.step.max(1)).saturating_sub(first);
        let from = first.saturating_mul(dim.stride).saturating_mul(self.width);
        let span = count.saturating_mul(dim.stride).saturating_mul(self.width);
        if span <= len.saturating_mul(4) {
            self.storage
                .will_need(self.start.saturating_add(from), span);
        }
    }
}

impl View {
    /// Part of one element, from byte `skip` of it on.
    fn read_cut(&self, element: u64, skip: u64, out: &mut [u8]) -> Result<(), Error> {
        let mut whole = [0; 16];
        let whole = whole.get_mut(..to_index(self.width)).unwrap_or_default();
        self.read_elements(element..element.saturating_add(1), whole)?;
        let from = to_index(skip);
        if let Some(part) = whole.get(from..from.saturating_add(out.len())) {
            out.copy_from_slice(part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
