//! Which bytes of which tensor each rank holds. Pure: tensors, a mesh and a layout go in, a plan
//! comes out, and no byte moves.

mod inventory;

pub use inventory::{ComponentSpec, Inventory, TensorSpec};
