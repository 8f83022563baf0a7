//! What a plan file says, as its text has it.

use serde::{Deserialize, Serialize};

use super::merged::Merged;

/// What a plan file says of one component, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Section {
    /// The layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// `"checkpoint"`, or the names of the parameters in the order of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderText>,
    /// Globs of parameters that are not trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// The style of parameters that no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_style: Option<String>,
    /// The steps of parameters that no rule matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_place: Vec<String>,
    /// What happens to names and values before any cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformText>,
    /// FSDP1's units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp1: Option<Fsdp1Text>,
    /// ZeRO's master shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ZeroText>,
    /// Pipeline stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<StagesText>,
    /// Rules in order; the first that matches a tensor counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<RuleText>,
}

/// An order of parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OrderText {
    /// `"checkpoint"`.
    Word(String),
    /// Names.
    Names(Vec<String>),
}

/// What happens to a component's names and values before any cut; see the flags of the same names.
/// Names and prefixes first, then merges, then padding, then the cast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformText {
    /// Globs of names taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs of names left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Prefixes removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strip_prefix: Vec<String>,
    /// Prefix added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_prefix: Option<String>,
    /// Regular expressions and replacements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rename: Vec<(String, String)>,
    /// Element type that floating tensors are cast to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Tensors put together, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merge: Vec<MergeText>,
    /// Tensors made longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pad: Vec<PadText>,
}

/// Several tensors become one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeText {
    /// A regular expression of names in the pack, with a group `part`. Tensors whose names become one
    /// by `into` are put together.
    #[serde(rename = "match")]
    pub matches: String,
    /// The name of the whole; `$1` and `${name}` stand for what groups matched.
    pub into: String,
    /// The order of the texts of group `part`; without it they are numbers from 0 on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Laid one after the other along a new dimension, this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
    /// Laid one after the other along this dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concat: Option<u32>,
    /// With `concat`: each part is cut into so many equal groups along the dimension first, and the
    /// groups of all parts take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
}

/// Tensors get zeros behind their last row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadText {
    /// A glob of names in the pack.
    #[serde(rename = "match")]
    pub matches: String,
    /// Along this dimension.
    #[serde(default)]
    pub dim: u32,
    /// Up to a multiple of this.
    pub multiple: u64,
}

/// See [`crate::Fsdp1`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fsdp1Text {
    /// The wrapped modules below the root.
    pub units: Vec<String>,
    /// The flag of the same name.
    pub use_orig_params: bool,
    /// `MixedPrecision.param_dtype`, by its name in safetensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param_dtype: Option<String>,
}

/// See [`crate::Zero`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZeroText {
    /// Whether the pack holds master shards.
    pub master: bool,
    /// Globs of each optimizer group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<String>>,
    /// The setting of the same name.
    pub round_robin_gradients: bool,
    /// The setting of the same name.
    pub parameter_alignment: bool,
}

/// See [`crate::Stages`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagesText {
    /// The path of the list of layers.
    pub layers: String,
    /// Layers of each stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// Globs of what the first stage holds besides.
    pub first: Vec<String>,
    /// Globs of what the last stage holds besides.
    pub last: Vec<String>,
}

/// How tensors of some names lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleText {
    /// A glob of names; this or `regex`.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// A regular expression that a whole name matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Their style, for layouts `tp` and `ep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
    /// Their steps in order, for layout `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub place: Vec<String>,
}

impl Section {
    /// This section, and what it does not say from `base`.
    pub(super) fn over(&self, base: &Self) -> Self {
        Self {
            layout: self.layout.over(&base.layout),
            order: self.order.over(&base.order),
            frozen: self.frozen.over(&base.frozen),
            default_style: self.default_style.over(&base.default_style),
            default_place: self.default_place.over(&base.default_place),
            transform: match (&self.transform, &base.transform) {
                (Some(own), Some(base)) => Some(own.over(base)),
                (own, base) => own.over(base),
            },
            fsdp1: self.fsdp1.over(&base.fsdp1),
            zero: self.zero.over(&base.zero),
            stages: self.stages.over(&base.stages),
            rule: self.rule.over(&base.rule),
        }
    }
}

impl TransformText {
    /// This transform, and what it does not say from `base`.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            include: self.include.over(&base.include),
            exclude: self.exclude.over(&base.exclude),
            strip_prefix: self.strip_prefix.over(&base.strip_prefix),
            add_prefix: self.add_prefix.over(&base.add_prefix),
            rename: self.rename.over(&base.rename),
            dtype: self.dtype.over(&base.dtype),
            merge: self.merge.over(&base.merge),
            pad: self.pad.over(&base.pad),
        }
    }
}
