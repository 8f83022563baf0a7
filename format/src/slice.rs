//! Slices: one rank's part of one tensor, or of one flat stream of tensors.

use alloc::vec::Vec;

use crate::DType;

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
