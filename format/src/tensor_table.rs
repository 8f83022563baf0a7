//! The tensor table of a component.

use alloc::vec::Vec;

use crate::{Error, Tensor};

/// A checked tensor table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct TensorTable<D = Vec<u8>> {
    bytes: D,
}

impl TensorTable {
    /// The bytes of a table.
    #[must_use]
    pub fn encode(tensors: &[Tensor]) -> Vec<u8> {
        let _ = tensors;
        todo!()
    }
}

impl<D: AsRef<[u8]>> TensorTable<D> {
    /// Checks all of the table's structure; in time proportional to its bytes, nothing allocated per
    /// tensor. (The CRC is [`crate::TableRef::check`].)
    pub fn decode(bytes: D, tensor_count: u32) -> Result<Self, Error> {
        let _ = tensor_count;
        Ok(Self { bytes })
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().len()
    }

    /// True without tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensor of an index below [`TensorTable::len`].
    pub fn get(&self, index: u32) -> Option<Tensor> {
        let _ = index;
        todo!()
    }

    /// Index of the tensor of a name, by binary search.
    pub fn find(&self, name: &str) -> Option<u32> {
        let _ = name;
        todo!()
    }
}
