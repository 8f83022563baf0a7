//! The structure of a slice table.

use crate::{
    DType, Error, FlatPart, SliceKind,
    align::slice_align,
    bytes::{Record, Words, element_count, index, wide},
    check::value,
    error::{PartFault, Table},
    slice_ref::{BoxPartRef, ContentRef, SliceRef, has_crc},
    spec::{self, slice as at},
};

/// The record's codes are known, what must be zero is, and its length is that of its shape.
#[inline]
pub(super) fn record<'a>(
    i: usize,
    record: Record<'_, { at::SIZE }>,
    pool: Words<'a>,
) -> Result<SliceRef<'a>, Error> {
    let (table, entry) = (Table::Slices, wide(i));
    let code = |field, found| Error::Code {
        table,
        field,
        entry,
        found,
    };
    let range = |field, found, limit| Error::Range {
        table,
        field,
        entry,
        found,
        limit,
    };
    let dtype = record.u16::<{ at::DTYPE }>();
    let dtype = DType::from_code(dtype).ok_or_else(|| code("DTYPE", dtype.into()))?;
    let kind = record.u8::<{ at::KIND }>();
    if SliceKind::from_code(kind).is_none() {
        return Err(code("KIND", kind.into()));
    }
    let dims = record.u16::<{ at::DIMS }>();
    if dims > spec::MAX_DIMS {
        return Err(range("DIMS", dims.into(), spec::MAX_DIMS.into()));
    }
    let content = record.u8::<{ at::CONTENT }>();
    let part_dim = record.u16::<{ at::PART_DIM }>();
    let parts = record.u32::<{ at::PART_COUNT }>();
    let tensor = record.u32::<{ at::TENSOR }>();
    match content {
        spec::CONTENT_WHOLE => {
            value(table, "PART_DIM", i, 0, part_dim.into())?;
            value(table, "PART_COUNT", i, 0, parts.into())?;
        }
        spec::CONTENT_BOXES => {
            if part_dim >= dims {
                return Err(range("PART_DIM", part_dim.into(), dims.into()));
            }
        }
        spec::CONTENT_FLAT => {
            value(table, "PART_DIM", i, 0, part_dim.into())?;
            value(table, "TENSOR", i, 0, tensor.into())?;
            value(table, "DIMS", i, 1, dims.into())?;
        }
        _ => return Err(code("CONTENT", content.into())),
    }
    let slice =
        SliceRef::read(record, pool).ok_or_else(|| range("DIMS", dims.into(), wide(pool.len())))?;
    let bytes = element_count(slice.shape.iter()).and_then(|elements| dtype.bytes(elements));
    let Some(bytes) = bytes else {
        return Err(Error::Shape { table, entry });
    };
    value(table, "LEN", i, bytes, slice.len)?;
    if !has_crc(bytes) {
        value(table, "CRC32C", i, 0, record.u32::<{ at::CRC32C }>().into())?;
    }
    Ok(slice)
}

/// The parts are well-formed and make up the slice's shape; gives the words behind them.
#[inline]
pub(super) fn content<'a>(
    i: usize,
    slice: &SliceRef<'a>,
    tensor_count: u32,
) -> Result<Words<'a>, Error> {
    let entry = wide(i);
    let tensor_known = |tensor: u32| {
        if tensor < tensor_count {
            return Ok(());
        }
        let (found, limit) = (tensor.into(), tensor_count.into());
        Err(Error::Range {
            table: Table::Slices,
            field: "TENSOR",
            entry,
            found,
            limit,
        })
    };
    match slice.content {
        ContentRef::Whole { tensor } => {
            tensor_known(tensor)?;
            Ok(slice.behind_shape)
        }
        ContentRef::Boxes {
            tensor,
            dim,
            mut parts,
        } => {
            tensor_known(tensor)?;
            let (mut sum, mut part) = (0_u64, 0);
            let along = slice.shape.get(index(dim)).unwrap_or(0);
            while let Some(next) = parts.try_next() {
                let fail = |fault| Error::Part {
                    slice: entry,
                    part,
                    fault,
                };
                let size = check_box(next.map_err(fail)?, slice, dim).map_err(fail)?;
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| fail(PartFault::Overflow))?;
                part += 1;
            }
            check_sum(entry, part, along, sum)?;
            Ok(parts.rest())
        }
        ContentRef::Flat { mut parts } => {
            let (mut sum, mut part) = (0_u64, 0);
            let along = slice.shape.get(0).unwrap_or(0);
            while let Some(next) = parts.try_next() {
                let fail = |fault| Error::Part {
                    slice: entry,
                    part,
                    fault,
                };
                let size = match next.map_err(fail)? {
                    FlatPart::Range { tensor, .. } if tensor >= tensor_count => {
                        return Err(fail(PartFault::Tensor(tensor)));
                    }
                    FlatPart::Range { start, len, .. } => {
                        start
                            .checked_add(len)
                            .ok_or_else(|| fail(PartFault::Overflow))?;
                        len
                    }
                    FlatPart::Fill { len, value } => {
                        if !value.fits(slice.dtype) {
                            return Err(fail(PartFault::Fill));
                        }
                        len
                    }
                };
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| fail(PartFault::Overflow))?;
                part += 1;
            }
            check_sum(entry, part, along, sum)?;
            Ok(parts.rest())
        }
    }
}

/// A box is as wide as the slice but along `dim`; gives its size there.
fn check_box(part: BoxPartRef<'_>, slice: &SliceRef<'_>, dim: u32) -> Result<u64, PartFault> {
    match part {
        BoxPartRef::Box { start, size } => {
            let mut along = 0;
            for (((start, found), expected), i) in start
                .iter()
                .zip(size.iter())
                .zip(slice.shape.iter())
                .zip(0_u32..)
            {
                start.checked_add(found).ok_or(PartFault::Overflow)?;
                if i == dim {
                    along = found;
                } else if found != expected {
                    return Err(PartFault::Cross {
                        dim: i.into(),
                        expected,
                        found,
                    });
                }
            }
            Ok(along)
        }
        BoxPartRef::Fill { value, .. } if !value.fits(slice.dtype) => Err(PartFault::Fill),
        BoxPartRef::Fill { size, .. } => Ok(size),
    }
}

fn check_sum(slice: u64, part: u64, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let fault = PartFault::Sum { expected, found };
    Err(Error::Part {
        slice,
        part: part.saturating_sub(1),
        fault,
    })
}

/// The slice is aligned, behind the one before it and inside the extent; gives its end.
#[inline]
pub(super) fn place(
    i: usize,
    slice: &SliceRef<'_>,
    before: u64,
    extent_len: u64,
) -> Result<u64, Error> {
    let (entry, found, len) = (wide(i), slice.offset, slice.len);
    let align = slice_align(len);
    if found % align != 0 {
        return Err(Error::SliceAlign {
            slice: entry,
            len,
            found,
            align,
        });
    }
    if found < before {
        return Err(Error::SliceOverlap {
            slice: entry,
            expected: before,
            found,
        });
    }
    found
        .checked_add(len)
        .filter(|end| *end <= extent_len)
        .ok_or_else(|| Error::Range {
            table: Table::Slices,
            field: "OFFSET",
            entry,
            found,
            limit: extent_len.saturating_sub(len),
        })
}
