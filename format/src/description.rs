//! What a pack says of itself: canonical JSON, covered by the root digest.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use serde::{Deserialize, Serialize};

/// The description of a pack. Holds no path, time, host or program version, so that equal input and
/// plan give equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Axes of the mesh, the last varies fastest; none for a pack that fits any number of ranks.
    pub mesh: Option<Vec<MeshAxis>>,
    /// Layout preset, e.g. `zero3`.
    pub layout: String,
    /// Components in file order.
    pub components: Vec<ComponentInfo>,
    /// The resolved plan.
    pub plan: ResolvedPlan,
    /// Source files: base names only.
    pub sources: Vec<SourceInfo>,
    /// Small files carried along, such as `config.json`.
    pub files: Vec<EmbeddedFile>,
    /// Free text of the pack's maker.
    pub metadata: BTreeMap<String, String>,
}

/// One axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshAxis {
    /// Name, e.g. `fsdp`.
    pub name: String,
    /// Ranks along it.
    pub size: u32,
}

/// One model inside the pack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentInfo {
    /// Name, e.g. `text_encoder`; `model` when there is only one and nobody named it.
    pub name: String,
    /// Layout of this component.
    pub layout: String,
    /// How its checkpoint was read.
    pub transform: Transform,
    /// The checkpoint's own text metadata (safetensors `__metadata__`).
    pub metadata: BTreeMap<String, String>,
}

/// What was done to a component's names and values before any cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    /// Path of the state dict inside the checkpoint's object; empty for the object itself.
    pub root: String,
    /// Globs of names kept (source names); empty keeps all.
    pub include: Vec<String>,
    /// Globs of names left out (source names).
    pub exclude: Vec<String>,
    /// Prefixes removed, first match only.
    pub strip_prefix: Vec<String>,
    /// Prefix added after stripping.
    pub add_prefix: String,
    /// Regular expressions and replacements, applied in order.
    pub rename: Vec<(String, String)>,
    /// Element type that floating tensors were cast to, by name.
    pub dtype: Option<String>,
}

/// The complete assignment in words: what decided each tensor's placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedPlan {
    /// Rules that at least one tensor fell under; tensors name theirs by index.
    pub rules: Vec<ResolvedRule>,
    /// Globs given to keep tensors whole.
    pub replicate: Vec<String>,
    /// Globs given to cut tensors that would be kept whole.
    pub shard: Vec<String>,
    /// Alignment of extents asked for, bytes; none when chosen by size.
    pub align: Option<u64>,
    /// A plan file's text, canonical, when one was given.
    pub file: Option<String>,
}

/// One rule of the resolved plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedRule {
    /// Component it belongs to.
    pub component: String,
    /// Placements, one text per mesh axis operation in order, e.g. `fsdp: Shard(0, chunk)`.
    pub placements: Vec<String>,
    /// Why: the layout's rule, or the override that matched.
    pub reason: String,
}

/// One source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceInfo {
    /// Base name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in lower-case hexadecimal, if it was asked for.
    pub sha256: Option<String>,
}

/// A small file carried in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedFile {
    /// Component it belongs to; none for the pack.
    pub component: Option<String>,
    /// Relative path with `/`, no `..`.
    pub path: String,
    /// First byte in the packfile.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}
