//! Extents: contiguous byte ranges that a set of ranks holds in common.

use alloc::vec::Vec;

use crate::TableRef;

/// One row of the extent table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the component.
    pub component: u32,
    /// Who holds it.
    pub owners: Owners,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, without the padding behind.
    pub len: u64,
    /// Number of slices.
    pub slice_count: u32,
    /// Where its slice table lies, and its digests.
    pub slices: TableRef,
    /// Where its block table lies, and its digests.
    pub blocks: TableRef,
}

/// The ranks that hold an extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owners {
    /// Every rank of any world size.
    All,
    /// The ranks of these runs: ascending, without overlap, not empty.
    Ranks(Vec<RankRun>),
}

/// `count` ranks from `first`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RankRun {
    /// The lowest rank.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Distance between two; 1 when `count` is 1.
    pub step: u32,
}

/// Digests of one block of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}
