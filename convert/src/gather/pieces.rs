//! From a slice's geometry to the byte ranges of tensors that make it up.

use std::ops::Range;

use wpack_format::{BoxPart, Content, DType, Fill, FlatPart, Slice};

/// A contiguous part of a slice's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes of a tensor, in the element type of the slice.
    Data {
        /// Index of the tensor.
        tensor: u32,
        /// First byte in the tensor.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Fill elements.
    Fill {
        /// The value of each.
        value: Fill,
        /// Bytes.
        len: u64,
    },
}

/// The slice does not fit its tensor: the plan, or the pack, is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The tensor.
    pub(crate) tensor: u32,
    /// What does not fit.
    pub(crate) why: &'static str,
}

/// The pieces of a range of a slice's bytes, in order; neighbours that are one range of a tensor are one
/// piece. `shape_of` gives the shape of a tensor.
pub(crate) fn pieces<'a, E: From<Misfit>>(
    slice: &Slice,
    shape_of: impl Fn(u32) -> Option<&'a [u64]>,
    range: Range<u64>,
    emit: impl FnMut(Piece) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = Joined {
        pending: None,
        emit,
    };
    match &slice.content {
        Content::Whole { tensor } => {
            out.data(*tensor, range.start, range.end.saturating_sub(range.start))?;
        }
        Content::Flat { parts } => flat(slice.dtype, parts, &range, &mut out)?,
        Content::Boxes { tensor, dim, parts } => {
            let misfit = |why| Misfit {
                tensor: *tensor,
                why,
            };
            let shape = shape_of(*tensor).ok_or_else(|| misfit("there is no such tensor"))?;
            Boxes::new(slice, shape, *dim, parts)
                .ok_or_else(|| misfit("its boxes do not fit it"))?
                .emit(*tensor, &range, &mut out)?;
        }
    }
    out.finish()
}

/// Joins data pieces that follow each other in the tensor too.
struct Joined<F> {
    pending: Option<Piece>,
    emit: F,
}

impl<E, F: FnMut(Piece) -> Result<(), E>> Joined<F> {
    fn data(&mut self, tensor: u32, offset: u64, len: u64) -> Result<(), E> {
        if let Some(Piece::Data {
            tensor: last,
            offset: start,
            len: so_far,
        }) = &mut self.pending
            && *last == tensor
            && *start + *so_far == offset
        {
            *so_far += len;
            return Ok(());
        }
        self.push(Piece::Data {
            tensor,
            offset,
            len,
        })
    }

    fn push(&mut self, piece: Piece) -> Result<(), E> {
        let (Piece::Data { len, .. } | Piece::Fill { len, .. }) = piece;
        if len == 0 {
            return Ok(());
        }
        match self.pending.replace(piece) {
            Some(before) => (self.emit)(before),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), E> {
        match self.pending.take() {
            Some(last) => (self.emit)(last),
            None => Ok(()),
        }
    }
}

/// Bytes of a number of elements; none when they are no whole number.
fn bytes(dtype: DType, elements: u64) -> Option<u64> {
    dtype.bytes(elements)
}

/// What of `at..at + len` lies in `range`: bytes to skip, and bytes.
fn clip(range: &Range<u64>, at: u64, len: u64) -> (u64, u64) {
    let start = range.start.clamp(at, at + len);
    let end = range.end.clamp(start, at + len);
    (start - at, end - start)
}

fn flat<E: From<Misfit>, F: FnMut(Piece) -> Result<(), E>>(
    dtype: DType,
    parts: &[FlatPart],
    range: &Range<u64>,
    out: &mut Joined<F>,
) -> Result<(), E> {
    let mut at = 0;
    for part in parts {
        let (tensor, elements) = match part {
            FlatPart::Range { tensor, len, .. } => (*tensor, *len),
            FlatPart::Fill { len, .. } => (0, *len),
        };
        let misfit = Misfit {
            tensor,
            why: "a flat range is no whole number of bytes",
        };
        let len = bytes(dtype, elements).ok_or(misfit)?;
        let (skip, take) = clip(range, at, len);
        match part {
            FlatPart::Range { tensor, start, .. } => {
                let start = bytes(dtype, *start).ok_or(misfit)?;
                if take > 0 {
                    out.data(*tensor, start + skip, take)?;
                }
            }
            FlatPart::Fill { value, .. } => out.push(Piece::Fill {
                value: *value,
                len: take,
            })?,
        }
        at += len;
        if at >= range.end {
            break;
        }
    }
    Ok(())
}

/// The parts of a slice of boxes. For each index of the dimensions before the part dimension (the
/// outer ones) the parts follow each other; each is a number of equally long rows of the tensor.
struct Boxes {
    outer: Vec<u64>,
    /// Bytes of all parts of one outer index.
    chunk: u64,
    parts: Vec<Part>,
    /// Bytes from one index of a dimension to the next, in the tensor; of a row's first dimension the
    /// value is unused.
    strides: Vec<u64>,
}

struct Part {
    /// Bytes within a chunk.
    len: u64,
    kind: Kind,
}

enum Kind {
    Fill(Fill),
    Rows {
        /// Byte of the tensor where the box starts.
        start: u64,
        /// Bytes of a row.
        row: u64,
        /// Sizes of the dimensions over which rows are counted, from the part dimension on.
        counts: Vec<u64>,
    },
}

impl Boxes {
    fn new(slice: &Slice, shape: &[u64], dim: u32, parts: &[BoxPart]) -> Option<Self> {
        let dtype = slice.dtype;
        let dim = usize::try_from(dim).ok()?;
        if slice.shape.len() != shape.len() || (dim >= shape.len() && !shape.is_empty()) {
            return None;
        }
        let mut elements = vec![1u64; shape.len()];
        for at in (0..shape.len().saturating_sub(1)).rev() {
            elements[at] = elements[at + 1].checked_mul(shape[at + 1])?;
        }
        let inner = slice.shape.get(dim + 1..).unwrap_or(&[]);
        let inner = inner
            .iter()
            .try_fold(1u64, |product, size| product.checked_mul(*size))?;
        let mut built = Vec::with_capacity(parts.len());
        // Dimensions from here on are never stepped over, whatever the part.
        let mut stepped = dim;
        for part in parts {
            built.push(match part {
                BoxPart::Fill { size, value } => Part {
                    len: bytes(dtype, size.checked_mul(inner)?)?,
                    kind: Kind::Fill(*value),
                },
                BoxPart::Box { start, size } => {
                    let fits =
                        |at: usize| Some(start.get(at)?.checked_add(*size.get(at)?)? <= shape[at]);
                    if start.len() != shape.len()
                        || !(0..shape.len()).all(|at| fits(at) == Some(true))
                    {
                        return None;
                    }
                    // The first dimension from which on everything behind is whole.
                    let whole = |at: &usize| size[*at] == shape[*at];
                    let first = (1..shape.len())
                        .rev()
                        .find(|at| !whole(at))
                        .unwrap_or(0)
                        .max(dim);
                    stepped = stepped.max(first);
                    let row = size.get(first..).unwrap_or(&[]);
                    let row = row
                        .iter()
                        .try_fold(1u64, |product, size| product.checked_mul(*size))?;
                    let along = size.get(dim).copied().unwrap_or(1).checked_mul(inner)?;
                    let start = start
                        .iter()
                        .zip(&elements)
                        .try_fold(0u64, |sum, (at, step)| {
                            sum.checked_add(at.checked_mul(*step)?)
                        })?;
                    Part {
                        len: bytes(dtype, along)?,
                        kind: Kind::Rows {
                            start: bytes(dtype, start)?,
                            row: bytes(dtype, row)?,
                            counts: size.get(dim..first).unwrap_or(&[]).to_vec(),
                        },
                    }
                }
            });
        }
        let strides: Option<Vec<u64>> = elements
            .iter()
            .take(stepped)
            .map(|step| bytes(dtype, *step))
            .collect();
        Some(Self {
            outer: slice.shape.get(..dim)?.to_vec(),
            chunk: built
                .iter()
                .try_fold(0u64, |sum, part| sum.checked_add(part.len))?,
            parts: built,
            strides: strides?,
        })
    }

    fn emit<E, F: FnMut(Piece) -> Result<(), E>>(
        &self,
        tensor: u32,
        range: &Range<u64>,
        out: &mut Joined<F>,
    ) -> Result<(), E> {
        if self.chunk == 0 {
            return Ok(());
        }
        let outer_strides = self
            .strides
            .get(..self.outer.len())
            .unwrap_or(&self.strides);
        let inner_strides = self.strides.get(self.outer.len()..).unwrap_or(&[]);
        let mut index = range.start / self.chunk;
        while index * self.chunk < range.end {
            let base = offset_of(index, &self.outer, outer_strides);
            let mut at = index * self.chunk;
            for part in &self.parts {
                let (skip, take) = clip(range, at, part.len);
                at += part.len;
                match &part.kind {
                    Kind::Fill(value) => out.push(Piece::Fill {
                        value: *value,
                        len: take,
                    })?,
                    Kind::Rows { start, row, counts } => {
                        let (mut done, mut number) = (0, if *row == 0 { 0 } else { skip / row });
                        let mut into = if *row == 0 { 0 } else { skip % row };
                        while done < take {
                            let len = (row - into).min(take - done);
                            let offset = start + base + offset_of(number, counts, inner_strides);
                            out.data(tensor, offset + into, len)?;
                            done += len;
                            number += 1;
                            into = 0;
                        }
                    }
                }
            }
            index += 1;
        }
        Ok(())
    }
}

/// Bytes from a box's start to the `index`th combination of these dimensions, the last fastest.
fn offset_of(mut index: u64, sizes: &[u64], strides: &[u64]) -> u64 {
    let mut offset = 0;
    for (size, stride) in sizes.iter().zip(strides).rev() {
        offset += index % size * stride;
        index /= size;
    }
    offset
}
