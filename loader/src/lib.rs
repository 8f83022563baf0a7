//! The wpack Rust SDK: open a pack, view a rank's shard, verify, stage to a device.
//!
//! A pack holds the bytes of every rank together, aligned, in the right type and with checksums. So a
//! rank opens the file, maps it, and has its tensors: nothing is parsed, cut, cast or copied.
//!
//! ```
//! use wpack_loader::Pack;
//!
//! # fn main() -> Result<(), wpack_loader::Error> {
//! // Header and index only; the exact length of the file is checked before it is mapped.
//! let pack = Pack::open("../fixtures/golden/v1-owners.wpack")?;
//! assert_eq!(pack.index().ranks(), Some(8));
//!
//! // What one rank holds: costs that rank's own tables, whatever the number of ranks.
//! let shard = pack.shard(1)?;
//! for slice in shard.iter() {
//!     println!("{:?} {} {:?}", slice.name(), slice.dtype(), slice.shape());
//! }
//! let weight = shard.get("blocks.0.w")?;
//! assert_eq!(weight.shape(), [2, 3]);
//! assert_eq!(weight.as_slice::<f32>()?.len(), 6);
//! # Ok(())
//! # }
//! ```
//!
//! | to | use | what is checked |
//! | --- | --- | --- |
//! | view tensors in place | [`Pack::open`], [`Pack::shard`] | header, the rank's own tables |
//! | know that no bit changed | [`verify`] | every byte, by SHA-256 and CRC-32C |
//! | load onto a device | [`ShardIndex::transfers`], [`stage`] | each block's CRC-32C, on its way |
//! | read into memory | [`ShardIndex::transfers`], [`read_into`] | the same |
//! | have another world size or layout | [`Pack::reslice`], [`Reslice::explain`] | header and tables; blocks by [`Reslice::check`] |
//! | give addresses to another language | [`Index::shard`], [`ExtentMap`] | header, the rank's own tables |
//!
//! Every path reads the same [`Index`]: header, root and tables, read once, checked, and owned. All
//! but the maps read through a [`ByteSource`], where a file that fails or shrinks is an error; what a
//! map promises is written at [`Map`].

#[cfg(test)]
#[path = "../tests/builder/mod.rs"]
mod builder;
mod element;
mod error;
mod file;
mod index;
mod map;
mod pack;
#[cfg(test)]
mod pack_tests;
mod page_buffer;
mod progress;
mod reslice;
mod shard;
mod source;
mod span;
mod stage;
mod verify;

pub use element::Element;
pub use error::Error;
pub use file::FileSource;
pub use index::Index;
pub use map::{ExtentMap, Map, MapMode};
pub use pack::{Pack, RankShard, View};
pub use page_buffer::PageBuffer;
pub use progress::{NoProgress, Progress};
pub use reslice::{Checked, Explanation, Reslice, ResliceEntry, ResliceOptions, Share};
pub use shard::{Entry, FlatPiece, HeldExtent, ShardIndex};
pub use source::ByteSource;
pub use stage::{
    Check, Destination, DeviceSink, HostSlot, Part as TransferPart, ReadBytes, ReadMode,
    ReadOptions, SinkError, StageOptions, StageStats, Transfer, Transfers, read_into, stage,
};
pub use verify::{Damage, Fault, Part, VerifyOptions, VerifyReport, verify};
