//! What `convert` would do.

use serde::Serialize;

use super::{
    Axis, CheckpointComponent, Extent, Fit, Rule, Sharing, Source, Transform, WarningText,
};

/// `wpack plan`, and `wpack convert --dry-run`.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// Version of this format.
    pub schema: u32,
    /// `plan`, or `convert` of a dry run.
    pub command: &'static str,
    /// Files that tensors come from.
    pub sources: Vec<Source>,
    /// The mesh; null where the pack would fit any number of ranks.
    pub mesh: Option<Vec<Axis>>,
    /// Ranks of the mesh; null likewise.
    pub ranks: Option<u32>,
    /// Layout of the pack.
    pub layout: String,
    /// Models, as they would be in the pack.
    pub components: Vec<PlanComponent>,
    /// Bytes of the packfile.
    pub bytes: u64,
    /// Alignment of extents.
    pub extent_align: u64,
    /// Extents in file order.
    pub extents: Vec<Extent>,
    /// Who would hold how much.
    pub sharing: Sharing,
    /// What decided the placements.
    pub rules: Vec<Rule>,
    /// Whether processes fit on the host, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Things noticed.
    pub warnings: Vec<WarningText>,
    /// Tensors, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<PlanTensor>>,
}

/// A model as it would be in the pack.
#[derive(Clone, Debug, Serialize)]
pub struct PlanComponent {
    /// What the checkpoint has; its sums are of the pack's tensors, after filters and casts.
    #[serde(flatten)]
    pub model: CheckpointComponent,
    /// Its layout.
    pub layout: String,
    /// Elements of its parameters; the others are of buffers.
    pub parameters: u64,
    /// Tensors that filters left out.
    pub left_out: u64,
    /// What would be done to names and values.
    pub transform: Transform,
}

/// A tensor as it would be in the pack.
#[derive(Clone, Debug, Serialize)]
pub struct PlanTensor {
    /// Component.
    pub component: String,
    /// Its names; further ones are ties.
    pub names: Vec<String>,
    /// What they are in the checkpoint.
    pub source_names: Vec<String>,
    /// Element type in the pack.
    pub dtype: &'static str,
    /// Element type in the checkpoint.
    pub source_dtype: &'static str,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
    /// `parameter` or `buffer`.
    pub role: &'static str,
    /// The rule that places it, an index into `rules`.
    pub rule: u32,
}
