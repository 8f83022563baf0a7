//! What is to be laid out: names, types and shapes.

use wpack_format::DType;

/// All components of a pack, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The components.
    pub components: Vec<ComponentSpec>,
}

/// One component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentSpec {
    /// Name of the component.
    pub name: String,
    /// Its tensors, in the order in which they are to lie in the file.
    pub tensors: Vec<TensorSpec>,
}

/// One tensor in model space: after renames and casts, before any cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its names, at least one; further ones are ties.
    pub names: Vec<String>,
    /// Element type in the pack.
    pub dtype: DType,
    /// Logical elements per dimension.
    pub shape: Vec<u64>,
}
