//! The block table of an extent.

use alloc::{string::ToString as _, vec::Vec};

use crate::{
    Block, Error,
    align::block_count,
    bytes::{Record, RecordMut, wide},
    error::Table,
    spec::block as at,
};

/// A checked block table: one row for each block of an extent.
#[derive(Clone, Debug)]
pub struct BlockTable<D = Vec<u8>> {
    bytes: D,
}

impl BlockTable {
    /// The bytes of a table.
    #[must_use]
    pub fn encode(blocks: &[Block]) -> Vec<u8> {
        let row = |block: &Block| {
            let mut row = RecordMut::<{ at::SIZE }>::new();
            row.put::<{ at::CRC32C }, 4>(block.crc32c.to_le_bytes())
                .put::<{ at::SHA256 }, 32>(block.sha256);
            row.0
        };
        blocks.iter().flat_map(row).collect()
    }
}

impl<D: AsRef<[u8]>> BlockTable<D> {
    /// Checks that there is one row for each block of an extent of `extent_len` bytes.
    pub fn decode(bytes: D, extent_len: u64) -> Result<Self, Error> {
        let expected = block_count(extent_len).saturating_mul(wide(at::SIZE));
        let found = wide(bytes.as_ref().len());
        if found == expected {
            Ok(Self { bytes })
        } else {
            Err(Error::Length {
                what: Table::Blocks.to_string(),
                expected,
                found,
            })
        }
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.rows().len()
    }

    /// True without blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row of a block.
    pub fn get(&self, index: usize) -> Option<Block> {
        self.rows().get(index).map(read)
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Block> + '_ {
        self.rows().iter().map(read)
    }

    fn rows(&self) -> &[[u8; at::SIZE]] {
        self.bytes.as_ref().as_chunks().0
    }
}

fn read(row: &[u8; at::SIZE]) -> Block {
    let row = Record(row);
    Block {
        crc32c: row.u32::<{ at::CRC32C }>(),
        sha256: row.array::<{ at::SHA256 }, 32>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::BLOCK_LEN;

    #[test]
    fn rows_lead_back() {
        let blocks = [Block::of(b"one"), Block::of(b"two")];
        let bytes = BlockTable::encode(&blocks);
        assert_eq!(bytes.len(), 72);
        let table = BlockTable::decode(&bytes, BLOCK_LEN + 1).unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!(table.iter().collect::<Vec<_>>(), blocks);
        assert_eq!(table.get(1), Some(blocks[1]));
        assert_eq!(table.get(2), None);
    }

    #[test]
    fn every_other_number_of_rows_is_refused() {
        let bytes = BlockTable::encode(&[Block::of(b""), Block::of(b"")]);
        for len in (0..bytes.len()).filter(|len| *len != 36) {
            assert!(BlockTable::decode(&bytes[..len], 1).is_err(), "{len} bytes");
        }
        assert!(BlockTable::decode(&bytes[..36], u64::MAX).is_err());
        assert!(BlockTable::decode(&bytes[..0], 0).unwrap().is_empty());
    }
}
