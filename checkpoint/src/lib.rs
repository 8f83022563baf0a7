//! Reads source models without running a byte of them.

mod detect;
mod error;
mod file;
mod input;
mod model;
mod open;
mod opened;
mod safetensors;
mod torch;

pub use error::{Error, Foreign};
pub use model::{
    Bytes, Checkpoint, Component, Input, OpenOptions, Skipped, SmallFile, SourceFile, Tensor,
    Warning,
};
pub use open::open;
