//! Tensors as the pack knows them, whole and before any cut.

use alloc::{string::String, vec::Vec};

use crate::DType;

/// One tensor of a component; stored once, whatever the number of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its names in the pack, at least one; further ones are ties.
    pub names: Vec<TensorName>,
    /// Element type in the pack.
    pub dtype: DType,
    /// Element type in the checkpoint.
    pub source_dtype: DType,
    /// Logical elements per dimension.
    pub shape: Vec<u64>,
    /// Shape as a program sees it whose elements are whole bytes; differs from `shape` only for
    /// packed sub-byte types.
    pub stored_shape: Vec<u64>,
    /// Parameter or buffer, as the plan decided.
    pub role: Role,
    /// Index into the resolved plan's rules: the one that placed this tensor.
    pub rule: u32,
    /// Index into the description's source files, if it comes from one.
    pub source: Option<u32>,
}

/// A name and what it was called in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorName {
    /// In the pack.
    pub name: String,
    /// In the checkpoint; equal where nothing was renamed.
    pub source: String,
}

/// Whether a framework would cut the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// Cut by layouts that cut parameters.
    Parameter = 0,
    /// Replicated by every layout.
    Buffer = 1,
}

impl Role {
    /// The role of a code in a file, if this version knows it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Parameter, Self::Buffer]
            .into_iter()
            .find(|role| *role as u8 == code)
    }
}
