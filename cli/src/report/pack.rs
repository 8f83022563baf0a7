//! What a pack holds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Axis, Extent, File, Fit, Rule, Sharing, Source, Tally, Transform};

/// `wpack inspect PACK`.
#[derive(Clone, Debug, Serialize)]
pub struct PackReport {
    /// Version of this format.
    pub schema: u32,
    /// `inspect`.
    pub command: &'static str,
    /// `pack`.
    pub kind: &'static str,
    /// The file, as it was given.
    pub path: String,
    /// Version of the packfile's format.
    pub format: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes in front of the first extent: header, index and padding.
    pub index_bytes: u64,
    /// The root digest, which is the pack's identity: SHA-256, hexadecimal.
    pub digest: String,
    /// Alignment of extents.
    pub extent_align: u64,
    /// The mesh; null for a pack that fits any number of ranks.
    pub mesh: Option<Vec<Axis>>,
    /// Ranks of the mesh; null likewise.
    pub ranks: Option<u32>,
    /// Layout of the pack.
    pub layout: String,
    /// Models.
    pub components: Vec<Component>,
    /// Extents by ascending offset.
    pub extents: Vec<Extent>,
    /// Who holds how much.
    pub sharing: Sharing,
    /// Rules that placed the tensors.
    pub rules: Vec<Rule>,
    /// Globs given to keep tensors whole.
    pub replicate: Vec<String>,
    /// Globs given to cut tensors.
    pub shard: Vec<String>,
    /// The plan file that says all of this, canonical; null in a pack that keeps none.
    pub plan_file: Option<String>,
    /// Files that it was made from.
    pub sources: Vec<Source>,
    /// Small files carried along.
    pub files: Vec<File>,
    /// Free text of the pack's maker.
    pub metadata: BTreeMap<String, String>,
    /// Whether processes fit on the host, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// One rank, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<RankDetail>,
    /// Tensors, where asked for (and no rank was).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<PackTensor>>,
}

/// One model of a pack.
#[derive(Clone, Debug, Serialize)]
pub struct Component {
    /// Name.
    pub name: String,
    /// Its layout.
    pub layout: String,
    /// Its tensors, summed up.
    #[serde(flatten)]
    pub tally: Tally,
    /// Elements of its parameters; the others are of buffers.
    pub parameters: u64,
    /// What was done to its names and values.
    pub transform: Transform,
    /// The checkpoint's own text metadata.
    pub metadata: BTreeMap<String, String>,
}

/// A tensor of a pack.
#[derive(Clone, Debug, Serialize)]
pub struct PackTensor {
    /// Component.
    pub component: String,
    /// Its names; further ones are ties.
    pub names: Vec<String>,
    /// What they were in the checkpoint.
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
    /// The rule that placed it, an index into `rules`.
    pub rule: u32,
    /// Base name of the file that it came from, if one is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What one rank holds.
#[derive(Clone, Debug, Serialize)]
pub struct RankDetail {
    /// The rank.
    pub rank: u32,
    /// Its place on each axis of the mesh.
    pub coordinates: Vec<Axis>,
    /// Bytes of its extents.
    pub bytes: u64,
    /// Its extents.
    pub extents: Vec<u32>,
    /// Its slices.
    pub slice_count: u64,
    /// Its slices one by one, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<RankSlice>>,
}

/// A slice that a rank holds.
#[derive(Clone, Debug, Serialize)]
pub struct RankSlice {
    /// Component.
    pub component: String,
    /// Names of the tensors that it holds elements of, the first name of each.
    pub names: Vec<String>,
    /// Element type.
    pub dtype: &'static str,
    /// Elements per dimension, fill included.
    pub shape: Vec<u64>,
    /// What part it is: `whole`, `box`, `flat`.
    pub content: &'static str,
    /// `value` or `master`.
    pub kind: &'static str,
    /// Elements of fill.
    pub fill: u64,
    /// The extent that holds it.
    pub extent: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}
