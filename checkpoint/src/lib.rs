//! Reads source models without running a byte of them.

mod detect;
mod error;
mod file;
mod index;
mod input;
mod merge;
mod model;
mod names;
mod open;
mod opened;
mod pickle;
mod resolve;
mod safetensors;
mod torch;
mod values;

pub use error::{Error, Foreign};
pub use model::{
    Bytes, Checkpoint, Component, Input, OpenOptions, Skipped, SmallFile, SourceFile, Tensor,
    Warning,
};
pub use open::open;
pub use values::BOOL_SCAN_LIMIT;
