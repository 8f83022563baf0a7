//! Reads source models without running a byte of them.
//!
//! [`open`] takes files, folders, index files and globs, reads and checks every header, and gives
//! each model as a [`Component`] whose tensors are read where and when they are needed. What is
//! read, and how folders become components, is written in `docs/checkpoints.md`.
//!
//! ```
//! use wpack_checkpoint::{Input, OpenOptions, open};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/checkpoints/llama-tiny");
//! let checkpoint = open(&[Input::parse(folder)], &OpenOptions::default())?;
//! let model = &checkpoint.components[0];
//! let tensor = &model.tensors[0];
//! let mut bytes = [0; 2];
//! tensor.bytes.read_at(0, &mut bytes)?;
//! println!("{} has {} tensors, first {:?}", model.name, model.tensors.len(), tensor.names);
//! # assert_eq!(model.tensors.len(), 21);
//! # Ok::<(), wpack_checkpoint::Error>(())
//! ```

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
