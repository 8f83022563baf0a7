//! The wpack packfile: bytes to structs and back. No I/O and no `unsafe`; what this crate reads, it
//! has in memory.
//!
//! `docs/format.md` is the normative text; [`spec`] holds its numbers.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod align;
mod block_table;
mod bytes;
mod check;
mod description;
mod digest;
mod dtype;
mod error;
mod extent;
mod header;
mod root;
mod slice;
mod slice_check;
mod slice_ref;
mod slice_table;
pub mod spec;
mod table_ref;
mod tensor;
mod tensor_table;

pub use align::{align_up, block_count, default_extent_align, place_slice, slice_align};
pub use block_table::BlockTable;
pub use bytes::Words;
pub use description::{
    ComponentInfo, Description, EmbeddedFile, MeshAxis, ResolvedPlan, ResolvedRule, SourceInfo,
    Transform,
};
pub use digest::{BlockDigest, Hex, crc32c, crc32c_append, sha256};
pub use dtype::DType;
pub use error::{DescriptionFault, Error, OwnersFault, PartFault, Table};
pub use extent::{Block, Extent, Owners, RankRun};
pub use header::Header;
pub use root::{ComponentRecord, Root};
pub use slice::{BoxPart, Content, Fill, FlatPart, Slice, SliceKind};
pub use slice_check::{TensorShape, TensorShapes};
pub use slice_ref::{BoxPartRef, BoxParts, ContentRef, FlatParts, SliceRef};
pub use slice_table::SliceTable;
pub use table_ref::TableRef;
pub use tensor::{Role, Tensor, TensorName};
pub use tensor_table::{NameRef, TensorRef, TensorTable};
