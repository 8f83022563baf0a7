//! Slices: one rank's part of one tensor, or of one flat stream of tensors.

use alloc::vec::Vec;

use crate::{DType, Error, SliceTable, TensorShapes, bytes::element_count};

/// One entry of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What the bytes are.
    pub content: Content,
    /// What the values are for.
    pub kind: SliceKind,
    /// Element type of the bytes; may differ from the tensor's for [`SliceKind::Master`].
    pub dtype: DType,
    /// Elements per dimension as the rank holds them, fill included. One dimension for flat content.
    pub shape: Vec<u64>,
    /// Bytes from the extent's start.
    pub offset: u64,
    /// Checksum of the slice's bytes; present exactly when they are fewer than a block (and not none).
    pub crc32c: Option<u32>,
}

/// What the values of a slice are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SliceKind {
    /// The tensor's own value.
    Value = 0,
    /// The optimizer's master copy of it, as a rule in another dtype.
    Master = 1,
}

/// Where the bytes of a slice come from. Tensors are indices into the component's tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of one tensor, unchanged.
    Whole {
        /// Index of the tensor.
        tensor: u32,
    },
    /// Boxes of one tensor, and fill, laid one after the other along dimension `dim`.
    Boxes {
        /// Index of the tensor.
        tensor: u32,
        /// The dimension along which parts follow each other; 0 for a single part.
        dim: u32,
        /// The parts in order.
        parts: Vec<BoxPart>,
    },
    /// Row-major ranges of tensors, and fill, one after the other in one dimension.
    Flat {
        /// The parts in order.
        parts: Vec<FlatPart>,
    },
}

/// A part of [`Content::Boxes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoxPart {
    /// A box of the tensor: start and size per dimension, elements.
    Box {
        /// First element per dimension.
        start: Vec<u64>,
        /// Elements per dimension.
        size: Vec<u64>,
    },
    /// Fill: `size` elements along the part dimension, all of the slice's other dimensions.
    Fill {
        /// Elements along the part dimension.
        size: u64,
        /// The value of each.
        value: Fill,
    },
}

/// A part of [`Content::Flat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatPart {
    /// `len` elements of a tensor from its row-major element `start`.
    Range {
        /// Index of the tensor.
        tensor: u32,
        /// First element.
        start: u64,
        /// Elements.
        len: u64,
    },
    /// Fill.
    Fill {
        /// Elements.
        len: u64,
        /// The value of each.
        value: Fill,
    },
}

/// The bits of one fill element: little-endian, in the slice's dtype, the rest zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fill(pub [u8; 16]);

impl Fill {
    /// All bits zero.
    pub const ZERO: Self = Self([0; 16]);
}

impl Fill {
    /// True if the value has no bits beyond one element of `dtype`.
    #[must_use]
    pub fn fits(self, dtype: DType) -> bool {
        u128::from_le_bytes(self.0)
            .checked_shr(dtype.bits())
            .is_none_or(|beyond| beyond == 0)
    }
}

impl SliceKind {
    /// The kind of a code in a file, if this version knows it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Value, Self::Master]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

impl Slice {
    /// Number of its elements, fill included; `None` if they do not fit 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        element_count(self.shape.iter().copied())
    }

    /// Number of its bytes; `None` if they are no whole number or do not fit 64 bits.
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        self.dtype.bytes(self.elements()?)
    }

    /// Number of its elements that are fill; `None` if they do not fit 64 bits.
    #[must_use]
    pub fn fill_elements(&self) -> Option<u64> {
        match &self.content {
            Content::Whole { .. } => Some(0),
            Content::Boxes { dim, parts, .. } => {
                let along = parts.iter().try_fold(0_u64, |sum, part| match part {
                    BoxPart::Box { .. } => Some(sum),
                    BoxPart::Fill { size, .. } => sum.checked_add(*size),
                })?;
                let across = self.shape.iter().zip(0_u32..).filter(|(_, i)| i != dim);
                across
                    .into_iter()
                    .try_fold(along, |product, (size, _)| product.checked_mul(*size))
            }
            Content::Flat { parts } => parts.iter().try_fold(0_u64, |sum, part| match part {
                FlatPart::Range { .. } => Some(sum),
                FlatPart::Fill { len, .. } => sum.checked_add(*len),
            }),
        }
    }

    /// Number of its elements that come from tensors; `None` if counts do not fit 64 bits.
    #[must_use]
    pub fn real_elements(&self) -> Option<u64> {
        self.elements()?.checked_sub(self.fill_elements()?)
    }

    /// Indices of the tensors it holds elements of, in order; a tensor of several flat ranges comes
    /// several times.
    pub fn tensors(&self) -> impl Iterator<Item = u32> + '_ {
        let (one, flat) = match &self.content {
            Content::Whole { tensor } | Content::Boxes { tensor, .. } => (Some(*tensor), &[][..]),
            Content::Flat { parts } => (None, parts.as_slice()),
        };
        let of = |part: &FlatPart| match part {
            FlatPart::Range { tensor, .. } => Some(*tensor),
            FlatPart::Fill { .. } => None,
        };
        one.into_iter().chain(flat.iter().filter_map(of))
    }

    /// Checks the slice alone and against the tensors it holds: what a reader checks of a pack, but
    /// for its place in the extent.
    pub fn check(&self, tensors: &(impl TensorShapes + ?Sized)) -> Result<(), Error> {
        let mut alone = self.clone();
        alone.offset = 0;
        let table = SliceTable::encode(&[alone]);
        let len = self.len_bytes().unwrap_or(u64::MAX);
        let table = SliceTable::decode(table, 1, len, u32::MAX)?;
        table.iter().try_for_each(|slice| slice.check(0, tensors))
    }
}
