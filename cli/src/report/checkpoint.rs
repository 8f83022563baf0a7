//! What a checkpoint holds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{File, Fit, Source, Tally, WarningText};

/// `wpack inspect CHECKPOINT`.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointReport {
    /// Version of this format.
    pub schema: u32,
    /// `inspect`.
    pub command: &'static str,
    /// `checkpoint`.
    pub kind: &'static str,
    /// Files that tensors come from.
    pub sources: Vec<Source>,
    /// Models.
    pub components: Vec<CheckpointComponent>,
    /// Whether processes fit on the host, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Things noticed.
    pub warnings: Vec<WarningText>,
    /// Tensors, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<CheckpointTensor>>,
}

/// One model.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointComponent {
    /// Name.
    pub name: String,
    /// Kind of container.
    pub container: String,
    /// Path of the state dict inside the object; empty for the object itself.
    pub root: String,
    /// Its tensors, summed up.
    #[serde(flatten)]
    pub tally: Tally,
    /// Text metadata of the container.
    pub metadata: BTreeMap<String, String>,
    /// Small files beside it.
    pub files: Vec<File>,
    /// Values that are no tensors.
    pub skipped: Vec<SkippedValue>,
}

/// A value that is no tensor.
#[derive(Clone, Debug, Serialize)]
pub struct SkippedValue {
    /// Path inside the object.
    pub path: String,
    /// Its type, as Python names it.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointTensor {
    /// Component.
    pub component: String,
    /// Its names; further ones are ties.
    pub names: Vec<String>,
    /// Element type.
    pub dtype: &'static str,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Base name of the file that holds it.
    pub source: String,
}
