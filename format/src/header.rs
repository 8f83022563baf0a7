//! Header and root: what a reader checks first.

use alloc::{string::String, vec::Vec};

use crate::{Description, Error, Extent};

/// Where a table lies, and its digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRef {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl TableRef {
    /// The reference of a table whose bytes lie at `offset`.
    #[must_use]
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        let _ = (offset, bytes);
        todo!()
    }

    /// Checks the CRC-32C of the table's bytes.
    pub fn check(&self, what: &str, bytes: &[u8]) -> Result<(), Error> {
        let _ = (what, bytes);
        todo!()
    }
}

/// The first page of a packfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the format the file was written in.
    pub version: u32,
    /// Exact length of the file, bytes.
    pub file_len: u64,
    /// Alignment of extents, bytes.
    pub extent_align: u64,
    /// Where the index lies: right behind the header; everything before the first extent but padding.
    pub index_len: u64,
    /// The root: description, component records and extent table. `sha256` is the root digest, the
    /// pack's identity.
    pub root: TableRef,
}

impl Header {
    /// The page, its digest included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }

    /// Reads the first [`crate::spec::HEADER_LEN`] bytes of a file of `file_len` bytes. Every
    /// field is checked, the file's true length too.
    pub fn decode(bytes: &[u8], file_len: u64) -> Result<Self, Error> {
        let _ = (bytes, file_len);
        todo!()
    }
}

/// One component in the root: its tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentRecord {
    /// Name; equal to the description's of the same index.
    pub name: String,
    /// Number of tensors.
    pub tensor_count: u32,
    /// Where its tensor table lies.
    pub tensors: TableRef,
}

/// What the root digest covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What the pack says of itself.
    pub description: Description,
    /// Components, in the order of the description.
    pub components: Vec<ComponentRecord>,
    /// Extents by ascending offset.
    pub extents: Vec<Extent>,
}

impl Root {
    /// The root's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }

    /// Reads the root; checks it against the header (CRC, ranges, order, overlaps, alignments).
    pub fn decode(bytes: &[u8], header: &Header) -> Result<Self, Error> {
        let _ = (bytes, header);
        todo!()
    }
}
