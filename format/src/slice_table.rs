//! Slice table and block table of an extent.

use alloc::vec::Vec;

use crate::{Block, Error, Slice};

/// A checked slice table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct SliceTable<D = Vec<u8>> {
    bytes: D,
}

impl SliceTable {
    /// The bytes of a table. Their number does not depend on offsets or checksums, so it is known
    /// before any data is written.
    #[must_use]
    pub fn encode(slices: &[Slice]) -> Vec<u8> {
        let _ = slices;
        todo!()
    }
}

impl<D: AsRef<[u8]>> SliceTable<D> {
    /// Checks the table's structure: counts, ascending offsets without overlap, all within
    /// `extent_len`, tensors below `tensor_count`, shapes against parts; nothing allocated per slice.
    pub fn decode(bytes: D, slice_count: u32, extent_len: u64, tensor_count: u32) -> Result<Self, Error> {
        let _ = (slice_count, extent_len, tensor_count);
        Ok(Self { bytes })
    }

    /// Number of slices.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().len()
    }

    /// True without slices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice of an index.
    pub fn get(&self, index: u32) -> Option<Slice> {
        let _ = index;
        todo!()
    }
}

/// A checked block table: one row for each block of an extent.
#[derive(Clone, Debug)]
pub struct BlockTable<D = Vec<u8>> {
    bytes: D,
}

impl BlockTable {
    /// The bytes of a table.
    #[must_use]
    pub fn encode(blocks: &[Block]) -> Vec<u8> {
        let _ = blocks;
        todo!()
    }
}

impl<D: AsRef<[u8]>> BlockTable<D> {
    /// Checks that there is one row for each block of an extent of `extent_len` bytes.
    pub fn decode(bytes: D, extent_len: u64) -> Result<Self, Error> {
        let _ = extent_len;
        Ok(Self { bytes })
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().len() / 36
    }

    /// True without blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row of a block.
    pub fn get(&self, index: usize) -> Option<Block> {
        let _ = index;
        todo!()
    }
}
