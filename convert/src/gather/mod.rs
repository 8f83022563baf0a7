//! Gathers the bytes of slices from a checkpoint: in few large reads, cast on the way.

mod pieces;
#[cfg(test)]
mod tests;

use std::ops::Range;

use wpack_format::{DType, Slice, SliceKind};

pub(crate) use pieces::{Misfit, Piece, pieces};

use crate::{Error, cast, model::ModelTensor};

/// Bytes that one read for casting or for scattered pieces takes at most.
const SCRATCH: usize = 1 << 20;
/// Pieces of at least this many bytes are read where they belong, without a copy.
const DIRECT: usize = 16 << 10;
/// Scattered pieces with less than this between them are read together.
const GAP: u64 = 16 << 10;

/// Where the tensors of one component are.
pub(crate) trait Tensors: Sync {
    /// The tensor of an index of the pack; none if the checkpoint lacks it.
    fn get(&self, tensor: u32) -> Option<&ModelTensor>;

    /// The shape of a tensor of the pack.
    fn shape(&self, tensor: u32) -> Option<&[u64]>;

    /// The name of the component, for messages.
    fn component(&self) -> &str;
}

/// Slices of one extent, in the order of their offsets, that overlap a range of it; and the part of
/// each slice that does, in bytes of the extent.
pub(crate) fn overlapping(
    slices: &[Slice],
    range: Range<u64>,
) -> impl Iterator<Item = (usize, &Slice, Range<u64>)> {
    let first = slices
        .partition_point(|slice| slice.offset <= range.start)
        .saturating_sub(1);
    let rest = slices.get(first..).unwrap_or(&[]).iter().enumerate();
    let end = range.end;
    rest.take_while(move |(_, slice)| slice.offset < end)
        .filter_map(move |(at, slice)| {
            let slice_end = slice.offset.saturating_add(slice.len_bytes().unwrap_or(0));
            let part = range.start.max(slice.offset)..range.end.min(slice_end);
            (part.start < part.end).then_some((first + at, slice, part))
        })
}

/// Reads with buffers of its own; one for each thread.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    scratch: Vec<u8>,
    /// Pieces of one tensor to be read together.
    group: Group,
}

#[derive(Debug, Default)]
struct Group {
    tensor: u32,
    /// Element type wanted; none before the first piece.
    to: Option<DType>,
    /// Bytes of the tensor in the source that the pieces span.
    span: Range<u64>,
    /// First byte in the source, and where the bytes go.
    pieces: Vec<(u64, Range<usize>)>,
}

impl Reader {
    /// Fills `out` with a range of an extent, padding included. Parts of tensors that the checkpoint
    /// lacks are left zero.
    pub(crate) fn fill(
        &mut self,
        tensors: &dyn Tensors,
        slices: &[Slice],
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let mut done = 0;
        for (_, slice, part) in overlapping(slices, range.clone()) {
            let start = at(part.start - range.start);
            let end = at(part.end - range.start);
            zero(out, done..start);
            let part = part.start - slice.offset..part.end - slice.offset;
            self.fill_slice(
                tensors,
                slice,
                part,
                out.get_mut(start..end).unwrap_or_default(),
            )?;
            done = end;
        }
        let end = out.len();
        zero(out, done..end);
        Ok(())
    }

    /// Fills `out` with a range of a slice's bytes.
    pub(crate) fn fill_slice(
        &mut self,
        tensors: &dyn Tensors,
        slice: &Slice,
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let mut done = 0usize;
        let shape_of = |tensor| tensors.shape(tensor);
        pieces(slice, shape_of, range, |piece| {
            let (Piece::Data { len, .. } | Piece::Fill { len, .. }) = piece;
            let into = done..done + at(len);
            done = into.end;
            match piece {
                Piece::Fill { value, .. } => {
                    let out = out.get_mut(into).unwrap_or_default();
                    fill_with(slice.dtype, &value.0, out).map_err(Fault::Misfit)
                }
                Piece::Data { tensor, offset, .. } => {
                    let Some(found) = tensors.get(tensor) else {
                        zero(out, into);
                        return Ok(());
                    };
                    // A master copy is the tensor in another type.
                    if slice.kind == SliceKind::Value && found.dtype != slice.dtype {
                        let why = "a slice has another element type than its tensor";
                        return Err(Fault::Misfit(Misfit { tensor, why }));
                    }
                    let wanted = Wanted {
                        index: tensor,
                        tensor: found,
                        to: slice.dtype,
                    };
                    self.data(&wanted, offset, into, tensors, out)
                        .map_err(Fault::Other)
                }
            }
        })
        .and_then(|()| self.flush(tensors, out).map_err(Fault::Other))
        .map_err(|fault| match fault {
            Fault::Other(error) => error,
            Fault::Misfit(Misfit { tensor, why }) => Error::Inconsistent {
                component: tensors.component().to_owned(),
                tensor,
                why,
            },
        })
    }

    fn data(
        &mut self,
        wanted: &Wanted<'_>,
        offset: u64,
        into: Range<usize>,
        tensors: &dyn Tensors,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Wanted { index, tensor, to } = *wanted;
        let offset = source_bytes(tensor, to, offset);
        if is_plain(tensor, to) && into.len() >= DIRECT {
            self.flush(tensors, out)?;
            return Ok(tensor
                .bytes
                .read_at(offset, out.get_mut(into).unwrap_or_default())?);
        }
        let len = source_bytes(tensor, to, into.len() as u64);
        if len <= SCRATCH as u64 {
            return self.push(index, to, offset..offset + len, into, tensors, out);
        }
        // Only casts come here. Whole elements fit, as SCRATCH is a power of two.
        let most = at(SCRATCH as u64 * width(to) / width(tensor.source_dtype));
        let (mut from, mut start) = (offset, into.start);
        while start < into.end {
            let end = into.end.min(start.saturating_add(most));
            let len = source_bytes(tensor, to, (end - start) as u64);
            self.push(index, to, from..from + len, start..end, tensors, out)?;
            (from, start) = (from + len, end);
        }
        Ok(())
    }

    fn push(
        &mut self,
        tensor: u32,
        to: DType,
        from: Range<u64>,
        into: Range<usize>,
        tensors: &dyn Tensors,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let group = &self.group;
        let joins = !group.pieces.is_empty()
            && (group.tensor, group.to) == (tensor, Some(to))
            && from.start >= group.span.end
            && from.start - group.span.end <= GAP
            && from.end - group.span.start <= SCRATCH as u64;
        if !joins {
            self.flush(tensors, out)?;
            self.group.tensor = tensor;
            self.group.to = Some(to);
            self.group.span.start = from.start;
        }
        self.group.span.end = from.end;
        self.group.pieces.push((from.start, into));
        Ok(())
    }

    fn flush(&mut self, tensors: &dyn Tensors, out: &mut [u8]) -> Result<(), Error> {
        let span = self.group.span.clone();
        let Some(tensor) = tensors.get(self.group.tensor) else {
            return Ok(());
        };
        if self.group.pieces.is_empty() {
            return Ok(());
        }
        let to = self.group.to.unwrap_or(tensor.dtype);
        if let [(start, into)] = self.group.pieces.as_slice()
            && is_plain(tensor, to)
        {
            tensor
                .bytes
                .read_at(*start, out.get_mut(into.clone()).unwrap_or_default())?;
            self.group.pieces.clear();
            return Ok(());
        }
        self.scratch.resize(SCRATCH, 0);
        let scratch = self
            .scratch
            .get_mut(..at(span.end - span.start))
            .unwrap_or_default();
        tensor.bytes.read_at(span.start, scratch)?;
        for (start, into) in self.group.pieces.drain(..) {
            let start = at(start - span.start);
            let len = at(source_bytes(tensor, to, into.len() as u64));
            let source = scratch.get(start..start + len).unwrap_or_default();
            let out = out.get_mut(into).unwrap_or_default();
            cast_or_copy(tensor, to, source, out)?;
        }
        Ok(())
    }
}

/// Tells the source that a range of an extent will be read soon.
pub(crate) fn source_ranges(
    tensors: &dyn Tensors,
    slices: &[Slice],
    range: Range<u64>,
    mut each: impl FnMut(u32, Range<u64>),
) {
    for (_, slice, part) in overlapping(slices, range) {
        let part = part.start - slice.offset..part.end - slice.offset;
        // A fault is reported by the read that follows.
        let _ = pieces(
            slice,
            |tensor| tensors.shape(tensor),
            part,
            |piece| {
                if let Piece::Data {
                    tensor,
                    offset,
                    len,
                } = piece
                    && let Some(found) = tensors.get(tensor)
                {
                    let start = source_bytes(found, slice.dtype, offset);
                    each(tensor, start..start + source_bytes(found, slice.dtype, len));
                }
                Ok::<(), Misfit>(())
            },
        );
    }
}

enum Fault {
    Misfit(Misfit),
    Other(Error),
}

impl From<Misfit> for Fault {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

/// A tensor, and the element type that it is wanted in.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    index: u32,
    tensor: &'a ModelTensor,
    to: DType,
}

/// Whether the source's bytes are those wanted.
fn is_plain(tensor: &ModelTensor, to: DType) -> bool {
    tensor.source_dtype == tensor.dtype && tensor.dtype == to
}

/// The values of the tensor in the pack, in type `to`: a value that was rounded on its way into the pack
/// is rounded here too.
fn cast_or_copy(
    tensor: &ModelTensor,
    to: DType,
    source: &[u8],
    out: &mut [u8],
) -> Result<(), Error> {
    let (from, pack) = (tensor.source_dtype, tensor.dtype);
    if is_plain(tensor, to) {
        // Equal lengths: both come from one piece.
        out.copy_from_slice(source);
        return Ok(());
    }
    if from == pack || pack == to {
        return cast::convert_elements(from, to, source, out);
    }
    let elements = source.len() / at(width(from));
    let mut rounded = vec![0; elements * at(width(pack))];
    cast::convert_elements(from, pack, source, &mut rounded)?;
    cast::convert_elements(pack, to, &rounded, out)
}

/// Bytes in the source of bytes in type `to`.
fn source_bytes(tensor: &ModelTensor, to: DType, bytes: u64) -> u64 {
    if tensor.source_dtype == to {
        bytes
    } else {
        bytes / width(to) * width(tensor.source_dtype)
    }
}

/// Bytes of an element; only asked of types that are cast.
fn width(dtype: DType) -> u64 {
    u64::from(dtype.bits() / 8).max(1)
}

fn zero(out: &mut [u8], range: Range<usize>) {
    out.get_mut(range).unwrap_or_default().fill(0);
}

fn fill_with(dtype: DType, value: &[u8; 16], out: &mut [u8]) -> Result<(), Misfit> {
    if *value == [0; 16] {
        out.fill(0);
        return Ok(());
    }
    let width = at(width(dtype));
    let element = value
        .get(..width)
        .filter(|_| dtype.bits().is_multiple_of(8));
    let misfit = Misfit {
        tensor: 0,
        why: "a fill that is not zero needs elements of whole bytes",
    };
    for to in out.chunks_exact_mut(width) {
        to.copy_from_slice(element.ok_or(misfit)?);
    }
    Ok(())
}

/// A length within a buffer; buffers are smaller than the address space.
fn at(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
