//! One slice of a rank's shard.

use wpack_format::{ContentRef, DType, FlatPart, SliceKind, SliceRef, TensorRef};

use super::HeldExtent;

/// One slice: what it is and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    held: &'a HeldExtent,
    index: u32,
    slice: SliceRef<'a>,
}

/// A range of a tensor within a flat slice.
#[derive(Clone, Copy, Debug)]
pub struct FlatPiece<'a> {
    /// The tensor.
    pub tensor: TensorRef<'a>,
    /// First element of the range in the row-major tensor.
    pub start: u64,
    /// Elements of the range.
    pub elements: u64,
    /// First byte of the range in the slice.
    pub offset: u64,
    /// Bytes of the range.
    pub len: u64,
}

impl<'a> Entry<'a> {
    pub(crate) fn of(held: &'a HeldExtent, index: u32) -> Option<Self> {
        Some(Self {
            held,
            index,
            slice: held.slices.get_ref(index)?,
        })
    }

    /// The extent it lies in.
    #[must_use]
    pub fn held(&self) -> &'a HeldExtent {
        self.held
    }

    /// Index of the slice in its extent.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Name of its component.
    #[must_use]
    pub fn component(&self) -> &'a str {
        &self.held.component
    }

    /// Bytes from the extent's start.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.slice.offset
    }

    /// First byte in the packfile.
    #[must_use]
    pub fn file_offset(&self) -> u64 {
        self.held.extent.offset.saturating_add(self.slice.offset)
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.slice.len
    }

    /// True without bytes, as for a rank behind the last row of a small tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slice.len == 0
    }

    /// Element type of the bytes.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.slice.dtype
    }

    /// Logical elements per dimension as the rank holds them, fill included.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.slice.shape.to_vec()
    }

    /// The shape in units of whole bytes that programs use: differs from [`Entry::shape`] only for
    /// packed sub-byte types, where a byte holds more than one element.
    #[must_use]
    pub fn stored_shape(&self) -> Vec<u64> {
        stored_shape(
            self.slice.dtype,
            self.shape(),
            self.slice.len,
            self.tensor(),
        )
    }

    /// What the values are for.
    #[must_use]
    pub fn kind(&self) -> SliceKind {
        self.slice.kind
    }

    /// The record of the slice: where its bytes come from, and all else without a copy.
    #[must_use]
    pub fn slice(&self) -> SliceRef<'a> {
        self.slice
    }

    /// CRC-32C of the bytes, if the slice has one of its own.
    #[must_use]
    pub fn crc32c(&self) -> Option<u32> {
        self.slice.crc32c
    }

    /// Index of its only tensor; none for a flat stream of several.
    #[must_use]
    pub fn tensor_index(&self) -> Option<u32> {
        let mut tensors = self.slice.tensors();
        let first = tensors.next()?;
        tensors.all(|tensor| tensor == first).then_some(first)
    }

    /// Its only tensor; none for a flat stream of several.
    #[must_use]
    pub fn tensor(&self) -> Option<TensorRef<'a>> {
        self.held.tensors.get_ref(self.tensor_index()?)
    }

    /// First name of its only tensor.
    #[must_use]
    pub fn name(&self) -> Option<&'a str> {
        self.tensor().map(|tensor| tensor.name())
    }

    /// All names of its only tensor; the ones behind the first are ties.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.tensor()
            .into_iter()
            .flat_map(|tensor| tensor.names())
            .map(|name| name.name)
    }

    /// The ranges of tensors in a flat slice, in order; fill is left out. Nothing for other slices.
    pub fn pieces(&self) -> impl Iterator<Item = FlatPiece<'a>> + use<'a> {
        let parts = match self.slice.content {
            ContentRef::Flat { parts } => Some(parts),
            _ => None,
        };
        let (dtype, held) = (self.slice.dtype, self.held);
        let mut element = 0_u64;
        parts.into_iter().flatten().filter_map(move |part| {
            let offset = dtype.bytes(element)?;
            match part {
                FlatPart::Fill { len, .. } => {
                    element = element.saturating_add(len);
                    None
                }
                FlatPart::Range { tensor, start, len } => {
                    element = element.saturating_add(len);
                    let tensor = held.tensors.get_ref(tensor)?;
                    let bytes = dtype.bytes(len)?;
                    Some(FlatPiece {
                        tensor,
                        start,
                        elements: len,
                        offset,
                        len: bytes,
                    })
                }
            }
        })
    }
}

/// The shape of a slice in units of whole bytes. A packed sub-byte type is cut along the dimension
/// that its tensor packs; flat content becomes bytes in a row.
pub(crate) fn stored_shape(
    dtype: DType,
    shape: Vec<u64>,
    len: u64,
    tensor: Option<TensorRef<'_>>,
) -> Vec<u64> {
    if dtype.bits() >= 8 {
        return shape;
    }
    let flat = || vec![len];
    let Some(tensor) = tensor else { return flat() };
    if tensor.shape.len() != shape.len() || tensor.stored_shape.len() != shape.len() {
        return flat();
    }
    let pairs = tensor.shape.iter().zip(tensor.stored_shape.iter());
    let stored = shape.iter().zip(pairs).map(|(size, (whole, stored))| {
        if whole == stored {
            Some(*size)
        } else {
            size.checked_mul(stored)?.checked_div(whole)
        }
    });
    stored.collect::<Option<Vec<u64>>>().unwrap_or_else(flat)
}
