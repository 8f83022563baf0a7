//! The wpack Rust SDK: open a pack, view a rank's shard, verify, stage to a device.

mod error;
mod file;
mod index;
mod progress;
mod source;

pub use error::Error;
pub use file::FileSource;
pub use index::Index;
pub use progress::{NoProgress, Progress};
pub use source::ByteSource;
