//! What `convert` did.

use serde::Serialize;

use super::WarningText;

/// `wpack convert`.
#[derive(Clone, Debug, Serialize)]
pub struct ConvertReport {
    /// Version of this format.
    pub schema: u32,
    /// `convert`.
    pub command: &'static str,
    /// The pack that was written.
    pub output: Output,
    /// Things noticed in the checkpoint.
    pub warnings: Vec<WarningText>,
    /// Values that are no tensors and were left out, by component and path.
    pub skipped: Vec<super::SkippedValue>,
}

/// The pack that was written.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// The file, as it was given.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// The root digest: SHA-256, hexadecimal.
    pub digest: String,
    /// Tensors in it.
    pub tensors: u64,
    /// Ranks of the mesh; null for a pack that fits any number of ranks.
    pub ranks: Option<u32>,
    /// Layout of the pack.
    pub layout: String,
    /// Wall time, seconds.
    pub seconds: f64,
}
