//! Reads source models without running a byte of them.

mod error;
mod model;

pub use error::Error;
pub use model::{
    Bytes, Checkpoint, Component, Input, OpenOptions, Skipped, SmallFile, SourceFile, Tensor, Warning,
};
