//! The wpack Rust SDK: open a pack, view a rank's shard, verify, stage to a device.

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
pub use progress::{NoProgress, Progress};
pub use reslice::{Explanation, Reslice, ResliceEntry, ResliceOptions, Share};
pub use shard::{Entry, FlatPiece, HeldExtent, ShardIndex};
pub use source::ByteSource;
pub use stage::{
    Check, Destination, DeviceSink, HostSlot, Part as TransferPart, ReadBytes, ReadMode,
    ReadOptions, SinkError, StageOptions, StageStats, Transfer, Transfers, read_into, stage,
};
pub use verify::{Damage, Fault, Part, VerifyOptions, VerifyReport, verify};
