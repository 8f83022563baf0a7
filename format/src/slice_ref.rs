//! Slices read from their table without allocating.

use alloc::vec::Vec;

use crate::{
    BoxPart, Content, DType, Fill, FlatPart, Slice, SliceKind,
    bytes::{Record, Words, index},
    error::PartFault,
    spec::{self, slice as at},
};

/// A slice in its table.
#[derive(Clone, Copy, Debug)]
pub struct SliceRef<'a> {
    /// What the values are for.
    pub kind: SliceKind,
    /// Element type of the bytes.
    pub dtype: DType,
    /// Elements per dimension as the rank holds them, fill included.
    pub shape: Words<'a>,
    /// Bytes from the extent's start.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Checksum of the bytes; present exactly when they are fewer than a block (and not none).
    pub crc32c: Option<u32>,
    /// Where the bytes come from.
    pub content: ContentRef<'a>,
    /// Words behind the shape: the parts and what follows them.
    pub(crate) behind_shape: Words<'a>,
}

/// Where the bytes of a slice come from.
#[derive(Clone, Copy, Debug)]
pub enum ContentRef<'a> {
    /// All of one tensor, unchanged.
    Whole {
        /// Index of the tensor.
        tensor: u32,
    },
    /// Boxes of one tensor, and fill, laid one after the other along dimension `dim`.
    Boxes {
        /// Index of the tensor.
        tensor: u32,
        /// The dimension along which parts follow each other.
        dim: u32,
        /// The parts in order.
        parts: BoxParts<'a>,
    },
    /// Row-major ranges of tensors, and fill, one after the other.
    Flat {
        /// The parts in order.
        parts: FlatParts<'a>,
    },
}

/// A part of [`ContentRef::Boxes`].
#[derive(Clone, Copy, Debug)]
pub enum BoxPartRef<'a> {
    /// A box of the tensor.
    Box {
        /// First element per dimension.
        start: Words<'a>,
        /// Elements per dimension.
        size: Words<'a>,
    },
    /// Fill.
    Fill {
        /// Elements along the part dimension.
        size: u64,
        /// The value of each.
        value: Fill,
    },
}

/// Iterates the parts of [`ContentRef::Boxes`].
#[derive(Clone, Copy, Debug)]
pub struct BoxParts<'a> {
    words: Words<'a>,
    left: u32,
    dims: usize,
}

/// Iterates the parts of [`ContentRef::Flat`].
#[derive(Clone, Copy, Debug)]
pub struct FlatParts<'a> {
    words: Words<'a>,
    left: u32,
}

impl<'a> BoxParts<'a> {
    /// Number of parts left.
    #[must_use]
    pub fn count_left(&self) -> u32 {
        self.left
    }

    /// The next part, or what is wrong with it.
    pub(crate) fn try_next(&mut self) -> Option<Result<BoxPartRef<'a>, PartFault>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }

    fn read(&mut self) -> Result<BoxPartRef<'a>, PartFault> {
        let code = self.words.next().ok_or(PartFault::Missing)?;
        if code == u64::from(spec::PART_DATA) {
            let start = self.words.take(self.dims).ok_or(PartFault::Missing)?;
            let size = self.words.take(self.dims).ok_or(PartFault::Missing)?;
            Ok(BoxPartRef::Box { start, size })
        } else if code == u64::from(spec::PART_FILL) {
            let size = self.words.next().ok_or(PartFault::Missing)?;
            let value = read_fill(&mut self.words).ok_or(PartFault::Missing)?;
            Ok(BoxPartRef::Fill { size, value })
        } else {
            Err(PartFault::Code(code))
        }
    }

    /// Words behind the parts read so far.
    pub(crate) fn rest(&self) -> Words<'a> {
        self.words
    }
}

impl<'a> Iterator for BoxParts<'a> {
    type Item = BoxPartRef<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next()?.ok()
    }
}

impl<'a> FlatParts<'a> {
    /// The next part, or what is wrong with it.
    pub(crate) fn try_next(&mut self) -> Option<Result<FlatPart, PartFault>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }

    fn read(&mut self) -> Result<FlatPart, PartFault> {
        let word = self.words.next().ok_or(PartFault::Missing)?;
        // The low half is the code, the high half the tensor.
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let code = u32::from_le_bytes([a, b, c, d]);
        let tensor = u32::from_le_bytes([e, f, g, h]);
        if code == spec::PART_DATA {
            let start = self.words.next().ok_or(PartFault::Missing)?;
            let len = self.words.next().ok_or(PartFault::Missing)?;
            Ok(FlatPart::Range { tensor, start, len })
        } else if code == spec::PART_FILL && tensor == 0 {
            let len = self.words.next().ok_or(PartFault::Missing)?;
            let value = read_fill(&mut self.words).ok_or(PartFault::Missing)?;
            Ok(FlatPart::Fill { len, value })
        } else {
            Err(PartFault::Code(word))
        }
    }

    /// Words behind the parts read so far.
    pub(crate) fn rest(&self) -> Words<'a> {
        self.words
    }
}

impl Iterator for FlatParts<'_> {
    type Item = FlatPart;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next()?.ok()
    }
}

fn read_fill(words: &mut Words<'_>) -> Option<Fill> {
    let (low, high) = (words.next()?, words.next()?);
    Some(Fill(
        (u128::from(low) | u128::from(high) << 64).to_le_bytes(),
    ))
}

impl<'a> SliceRef<'a> {
    /// Reads a record whose codes are known; `None` if they are not or words are missing.
    #[inline]
    pub(crate) fn read(record: Record<'_, { at::SIZE }>, pool: Words<'a>) -> Option<Self> {
        let mut words = Words(pool.0.get(index(record.u32::<{ at::FIRST_WORD }>())..)?);
        let shape = words.take(record.u16::<{ at::DIMS }>().into())?;
        let tensor = record.u32::<{ at::TENSOR }>();
        let left = record.u32::<{ at::PART_COUNT }>();
        let content = match record.u8::<{ at::CONTENT }>() {
            spec::CONTENT_WHOLE => ContentRef::Whole { tensor },
            spec::CONTENT_BOXES => ContentRef::Boxes {
                tensor,
                dim: record.u16::<{ at::PART_DIM }>().into(),
                parts: BoxParts {
                    words,
                    left,
                    dims: shape.len(),
                },
            },
            spec::CONTENT_FLAT => ContentRef::Flat {
                parts: FlatParts { words, left },
            },
            _ => return None,
        };
        let len = record.u64::<{ at::LEN }>();
        Some(Self {
            kind: SliceKind::from_code(record.u8::<{ at::KIND }>())?,
            dtype: DType::from_code(record.u16::<{ at::DTYPE }>())?,
            shape,
            offset: record.u64::<{ at::OFFSET }>(),
            len,
            crc32c: has_crc(len).then(|| record.u32::<{ at::CRC32C }>()),
            content,
            behind_shape: words,
        })
    }

    /// Number of its elements, fill included.
    #[must_use]
    pub fn elements(&self) -> u64 {
        // The table's decoder refused shapes whose product overflows.
        crate::bytes::element_count(self.shape.iter()).unwrap_or(0)
    }

    /// Number of its elements that are fill.
    #[must_use]
    pub fn fill_elements(&self) -> u64 {
        match self.content {
            ContentRef::Whole { .. } => 0,
            ContentRef::Boxes { dim, parts, .. } => {
                let along = parts.fold(0_u64, |sum, part| match part {
                    BoxPartRef::Box { .. } => sum,
                    BoxPartRef::Fill { size, .. } => sum.saturating_add(size),
                });
                let across = self.shape.iter().zip(0_u32..).filter(|(_, i)| *i != dim);
                across.fold(along, |product, (size, _)| product.saturating_mul(size))
            }
            ContentRef::Flat { parts } => parts.fold(0_u64, |sum, part| match part {
                FlatPart::Range { .. } => sum,
                FlatPart::Fill { len, .. } => sum.saturating_add(len),
            }),
        }
    }

    /// Number of its elements that come from tensors.
    #[must_use]
    pub fn real_elements(&self) -> u64 {
        self.elements().saturating_sub(self.fill_elements())
    }

    /// Indices of the tensors it holds elements of, in order; a tensor of several flat ranges comes
    /// several times.
    pub fn tensors(&self) -> impl Iterator<Item = u32> + 'a {
        let (one, flat) = match self.content {
            ContentRef::Whole { tensor } | ContentRef::Boxes { tensor, .. } => (Some(tensor), None),
            ContentRef::Flat { parts } => (None, Some(parts)),
        };
        let of = |part| match part {
            FlatPart::Range { tensor, .. } => Some(tensor),
            FlatPart::Fill { .. } => None,
        };
        one.into_iter()
            .chain(flat.into_iter().flatten().filter_map(of))
    }

    /// The slice, owned.
    #[must_use]
    pub fn to_slice(&self) -> Slice {
        let content = match self.content {
            ContentRef::Whole { tensor } => Content::Whole { tensor },
            ContentRef::Boxes { tensor, dim, parts } => Content::Boxes {
                tensor,
                dim,
                parts: parts.map(BoxPartRef::to_part).collect(),
            },
            ContentRef::Flat { parts } => Content::Flat {
                parts: parts.collect::<Vec<_>>(),
            },
        };
        Slice {
            content,
            kind: self.kind,
            dtype: self.dtype,
            shape: self.shape.to_vec(),
            offset: self.offset,
            crc32c: self.crc32c,
        }
    }
}

impl BoxPartRef<'_> {
    fn to_part(self) -> BoxPart {
        match self {
            Self::Box { start, size } => BoxPart::Box {
                start: start.to_vec(),
                size: size.to_vec(),
            },
            Self::Fill { size, value } => BoxPart::Fill { size, value },
        }
    }
}

/// True if a slice of `len` bytes has a checksum of its own: a larger one has its blocks'.
pub(crate) fn has_crc(len: u64) -> bool {
    len != 0 && len < spec::BLOCK_LEN
}
