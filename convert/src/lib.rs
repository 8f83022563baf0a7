//! Checkpoint and plan to packfile: gather, cast, hash, write, rename.

mod against;
pub mod cast;
mod convert;
mod error;
mod gather;
mod join;
mod joined;
mod model;
mod names;
mod options;
mod pipeline;
mod prepare;
pub mod sink;
mod sources;
mod writer;

pub use against::{AgainstReport, Difference, TensorId, Unlike, against};
pub use convert::{Context, Report, WriteOptions, convert, convert_into};
pub use error::Error;
pub use options::{Options, TransformOptions, parse_dtype};
pub use prepare::Prepared;
