//! What a layout must be told of a model beyond its tensors' names and shapes.

use std::collections::BTreeMap;

use wpack_format::DType;

use crate::layouts::Style;
use crate::step::Step;

/// Facts of a model and of how its framework is set up. A checkpoint holds none of them; a layout that
/// needs one that is not given refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// In which order the model registers its parameters.
    pub order: Order,
    /// Globs of parameters that are not trained.
    pub frozen: Vec<String>,
    /// How tensors of some names lie; the first rule that matches counts.
    pub rules: Vec<NameRule>,
    /// The style of parameters that no rule matches; none refuses them.
    pub default_style: Option<Style>,
    /// The steps of parameters that no rule of layout `rules` matches; none refuses them.
    pub default_place: Option<Vec<Step>>,
    /// FSDP1's units.
    pub fsdp1: Fsdp1,
    /// ZeRO-1 and ZeRO-2's master shards.
    pub zero: Zero,
    /// Pipeline stages.
    pub stages: Stages,
    /// Options that take the place of all of these in one component.
    pub components: BTreeMap<String, Options>,
}

impl Options {
    /// The options that count for a component.
    #[must_use]
    pub fn of(&self, component: &str) -> &Self {
        self.components.get(component).unwrap_or(self)
    }
}

/// Which names a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A glob; `*` also stands for dots.
    Glob(String),
    /// A regular expression, of the whole name.
    Regex(String),
}

impl Pattern {
    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Glob(text) | Self::Regex(text) => text,
        }
    }
}

/// How tensors of some names lie: a style for `tp` and `ep`, or steps for `rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRule {
    /// The names.
    pub pattern: Pattern,
    /// Their style.
    pub style: Option<Style>,
    /// Their steps, in order.
    pub place: Vec<Step>,
}

/// In which order a model registers its parameters: that of `module.named_parameters()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nobody said; a flat group of tensors cannot be laid out.
    #[default]
    Unknown,
    /// That of the checkpoint.
    Checkpoint,
    /// That of these names; a name with `*` is a glob, which may stand for one tensor of each flat group.
    Names(Vec<String>),
}

/// How a model is wrapped in `FullyShardedDataParallel`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fsdp1 {
    /// The wrapped modules below the root; `*` stands for one part of a path: `blocks.*`.
    pub units: Vec<String>,
    /// The flag of the same name. PyTorch's default is false, accelerate's true.
    pub use_orig_params: bool,
    /// `MixedPrecision.param_dtype`, on which the alignment inside a unit depends.
    pub param_dtype: Option<DType>,
}

/// How DeepSpeed's optimizer lays out the fp32 master weights of ZeRO-1 and ZeRO-2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zero {
    /// Whether the pack holds master shards at all.
    pub master: bool,
    /// Globs of each optimizer group; a parameter falls into the first that matches. None is one group
    /// of all.
    pub groups: Vec<Vec<String>>,
    /// `round_robin_gradients` of DeepSpeed's configuration.
    pub round_robin_gradients: bool,
    /// `parameter_alignment` of DeepSpeed's configuration.
    pub parameter_alignment: bool,
}

/// Which stage of a pipeline holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The path of the list of layers: `model.layers`. Its layers are spread over the stages, the longer
    /// stages first.
    pub layers: String,
    /// How many layers each stage holds, where they are not spread evenly.
    pub counts: Vec<u64>,
    /// Globs of what the first stage holds besides.
    pub first: Vec<String>,
    /// Globs of what the last stage holds besides; what is in both lists is held by both.
    pub last: Vec<String>,
}
