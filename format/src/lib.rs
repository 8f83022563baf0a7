//! The wpack packfile: bytes to structs and back. No I/O and no `unsafe`; what this crate reads, it
//! has in memory.
//!
//! `docs/format.md` is the normative text; [`spec`] holds its numbers.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod description;
mod dtype;
mod error;
mod extent;
mod header;
mod slice;
mod slice_table;
pub mod spec;
mod tensor;
mod tensor_table;

pub use description::{
    ComponentInfo, Description, EmbeddedFile, MeshAxis, ResolvedPlan, ResolvedRule, SourceInfo,
    Transform,
};
pub use dtype::DType;
pub use error::Error;
pub use extent::{Block, Extent, Owners, RankRun};
pub use header::{Header, Root, TableRef};
pub use slice::{BoxPart, Content, Fill, FlatPart, Slice, SliceKind};
pub use slice_table::{BlockTable, SliceTable};
pub use tensor::{Role, Tensor, TensorName};
pub use tensor_table::TensorTable;

pub use header::ComponentRecord;
