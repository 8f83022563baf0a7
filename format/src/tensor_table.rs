//! The tensor table of a component.

mod check;
mod encode;
mod entry;

use alloc::vec::Vec;
use core::str;

pub(crate) use self::entry::Parts;
pub use self::entry::{NameRef, TensorRef};
use crate::{
    Error, Tensor,
    bytes::{Record, count32, index, wide},
    error::Table,
    spec::name as nam,
};

/// A checked tensor table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct TensorTable<D = Vec<u8>> {
    bytes: D,
    max_rule: Option<u32>,
    max_source: Option<u32>,
}

impl<D: AsRef<[u8]>> TensorTable<D> {
    /// Checks all of the table's structure; in time proportional to its bytes, nothing allocated per
    /// tensor. (The CRC is [`crate::TableRef::check`].)
    pub fn decode(bytes: D, tensor_count: u32) -> Result<Self, Error> {
        let parts = Parts::split(bytes.as_ref())?;
        if wide(parts.tensors.len()) != u64::from(tensor_count) {
            return Err(Error::Count {
                table: Table::Tensors,
                field: "TENSOR_COUNT",
                expected: tensor_count.into(),
                found: wide(parts.tensors.len()),
            });
        }
        parts.check_names()?;
        let (max_rule, max_source) = parts.check_tensors()?;
        Ok(Self {
            bytes,
            max_rule,
            max_source,
        })
    }

    /// Checks that the description has every rule and source file that a tensor names.
    pub fn check_references(&self, description: &crate::Description) -> Result<(), Error> {
        let counts = [
            ("RULE", self.max_rule, description.plan.rules.len()),
            ("SOURCE", self.max_source, description.sources.len()),
        ];
        for (field, max, limit) in counts {
            if let Some(found) = max.filter(|max| index(*max) >= limit) {
                let at_fault = |entry: &TensorRef<'_>| {
                    let value = if field == "RULE" {
                        Some(entry.rule)
                    } else {
                        entry.source
                    };
                    value == Some(found)
                };
                let entry = self
                    .iter()
                    .position(|entry| at_fault(&entry))
                    .unwrap_or_default();
                return Err(Error::Range {
                    table: Table::Tensors,
                    field,
                    entry: wide(entry),
                    found: found.into(),
                    limit: wide(limit),
                });
            }
        }
        Ok(())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.parts().tensors.len()
    }

    /// True without tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensor of an index below [`TensorTable::len`].
    pub fn get(&self, index: u32) -> Option<Tensor> {
        self.get_ref(index).map(|tensor| tensor.to_tensor())
    }

    /// The tensor of an index, without allocating.
    pub fn get_ref(&self, index: u32) -> Option<TensorRef<'_>> {
        self.parts().tensor(index)
    }

    /// All tensors in order, without allocating.
    pub fn iter(&self) -> impl Iterator<Item = TensorRef<'_>> {
        let parts = self.parts();
        (0..count32(parts.tensors.len())).map_while(move |index| parts.tensor(index))
    }

    /// Index of the tensor of a name, by binary search.
    pub fn find(&self, name: &str) -> Option<u32> {
        let parts = self.parts();
        let key = name.as_bytes();
        let found = parts
            .names
            .binary_search_by(|record| {
                parts
                    .text_of(record)
                    .map_or(&[][..], |(name, _)| name)
                    .cmp(key)
            })
            .ok()?;
        Some(Record(parts.names.get(found)?).u32::<{ nam::TENSOR }>())
    }

    /// All names in ascending order of their bytes, each with the index of its tensor.
    pub fn sorted_names(&self) -> impl Iterator<Item = (&str, u32)> {
        let parts = self.parts();
        parts.names.iter().map_while(move |record| {
            let (name, _) = parts.text_of(record)?;
            Some((
                str::from_utf8(name).ok()?,
                Record(record).u32::<{ nam::TENSOR }>(),
            ))
        })
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        // Split without fault in `decode`.
        Parts::split(self.bytes.as_ref()).unwrap_or_default()
    }
}
