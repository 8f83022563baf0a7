//! What keeps a plan from being made.

use std::fmt;

use wpack_format::DType;

/// A request that cannot be planned, or an inventory that cannot be laid out as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text of a mesh is not `name=size,name=size`.
    #[error("mesh `{text}`: {why}")]
    MeshSyntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A mesh, or `--ranks`, of more ranks than a pack can name.
    #[error("{ranks} ranks, a plan takes {max} at most")]
    TooManyRanks {
        /// Ranks asked for.
        ranks: u128,
        /// The limit.
        max: u32,
    },
    /// `--ranks 0`.
    #[error("0 ranks hold nothing")]
    NoRanks,
    /// `--mesh` and `--ranks` were both given and say different things.
    #[error("mesh `{mesh}` has {found} ranks, but {expected} were asked for")]
    RanksDisagree {
        /// The mesh.
        mesh: String,
        /// Its ranks.
        found: u32,
        /// The ranks asked for.
        expected: u32,
    },
    /// A layout that cuts tensors was asked for without saying over how many ranks.
    #[error("layout `{layout}` cuts tensors over ranks, and their number is not given")]
    RanksMissing {
        /// The layout.
        layout: String,
        /// The axis the layout would cut over.
        axis: String,
    },
    /// No layout has this name.
    #[error("unknown layout `{layout}`")]
    UnknownLayout {
        /// The name asked for.
        layout: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// A layout was given for a component that is not there.
    #[error("no component `{component}` to lay out")]
    UnknownComponent {
        /// The name asked for.
        component: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The mesh has several axes, and none is one that the layout cuts over.
    #[error("layout `{layout}` finds no axis {wanted} in mesh `{mesh}`")]
    AxisMissing {
        /// The layout.
        layout: String,
        /// The axes it looks for.
        wanted: String,
        /// The mesh.
        mesh: String,
    },
    /// An axis of the mesh that the layout gives no meaning to.
    #[error("layout `{layout}` does not say how tensors lie on axis `{axis}` of mesh `{mesh}`")]
    AxisUnused {
        /// The layout.
        layout: String,
        /// The axis.
        axis: String,
        /// The mesh.
        mesh: String,
    },
    /// Two parts of a layout want to cut over the same axis.
    #[error("layout `{layout}` cuts twice over axis `{axis}` of mesh `{mesh}`")]
    AxisTaken {
        /// The layout.
        layout: String,
        /// The axis.
        axis: String,
        /// The mesh.
        mesh: String,
    },
    /// Two components have one name.
    #[error("two components are named `{component}`")]
    DuplicateComponent {
        /// The name.
        component: String,
    },
    /// Two tensors of a component have one name.
    #[error("component `{component}`: two tensors are named `{name}`")]
    DuplicateTensor {
        /// The component.
        component: String,
        /// The name.
        name: String,
    },
    /// A tensor has no name.
    #[error("component `{component}`: tensor {index} has no name")]
    Unnamed {
        /// The component.
        component: String,
        /// Its place in the inventory.
        index: usize,
    },
    /// A tensor whose bytes cannot be counted, or are no whole number.
    #[error(
        "component `{component}`, tensor `{tensor}`: {shape:?} of {dtype} is no whole number of bytes below 2^63"
    )]
    TensorSize {
        /// The component.
        component: String,
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A tensor of more dimensions than the format keeps.
    #[error(
        "component `{component}`, tensor `{tensor}`: {dims} dimensions, a pack takes {max} at most"
    )]
    TooManyDims {
        /// The component.
        component: String,
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: usize,
        /// The limit.
        max: u16,
    },
    /// The bytes of a pack overflow.
    #[error("component `{component}`: its bytes exceed 2^63")]
    TotalSize {
        /// The component at which the sum overflowed.
        component: String,
    },
    /// More slices than a plan takes, or more tensors than a component can number.
    #[error("{tensors} tensors over {ranks} ranks are {slices} slices, a plan takes {max} at most")]
    TooManySlices {
        /// Tensors.
        tensors: u64,
        /// Ranks.
        ranks: u64,
        /// Their product.
        slices: u128,
        /// The limit.
        max: u64,
    },
    /// A pattern of `--replicate` or `--shard` that is no glob.
    #[error("{option} `{pattern}`: {why}")]
    Pattern {
        /// The option.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A pattern of `--replicate`, `--shard` or a plan file that no tensor falls under.
    #[error("{option} `{pattern}` matches no tensor {of}")]
    PatternUnused {
        /// The option, or the key of the plan file.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// Of which components.
        of: String,
    },
    /// A tensor is named by both `--replicate` and `--shard`.
    #[error(
        "component `{component}`, tensor `{tensor}`: both --replicate `{replicate}` and --shard `{shard}` match it"
    )]
    PatternsDisagree {
        /// The component.
        component: String,
        /// The tensor.
        tensor: String,
        /// The pattern of `--replicate`.
        replicate: String,
        /// The pattern of `--shard`.
        shard: String,
    },
    /// A tensor was to be cut and cannot be.
    #[error(
        "component `{component}`, tensor `{tensor}` {shape:?} of {dtype}: `{rule}` cannot cut it: {why}"
    )]
    CannotCut {
        /// The component.
        component: String,
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<u64>,
        /// Its element type.
        dtype: DType,
        /// The placement.
        rule: String,
        /// What is in the way.
        why: Fault,
    },
    /// A flat group cannot be laid out without knowing in which order the model registers its parameters.
    #[error("component `{component}`: layout `{layout}` lays parameters one after the other in the order of the model, which is not known{}", .tensor.as_ref().map(|t| format!(" for `{t}`")).unwrap_or_default())]
    OrderUnknown {
        /// The component.
        component: String,
        /// The layout.
        layout: String,
        /// The parameter that a given order does not name.
        tensor: Option<String>,
    },
    /// Tensors of one flat group have different element types; the framework refuses that too.
    #[error(
        "component `{component}`: `{first}` is {expected} and `{tensor}` is {found}, but both lie in {group}"
    )]
    MixedTypes {
        /// The component.
        component: String,
        /// The group.
        group: String,
        /// Its first tensor.
        first: String,
        /// The type of that.
        expected: DType,
        /// The tensor that differs.
        tensor: String,
        /// The type of that.
        found: DType,
    },
    /// No rule says how a tensor lies.
    #[error(
        "component `{component}`, tensor `{tensor}`: no {what} of layout `{layout}` matches it"
    )]
    NoRule {
        /// The component.
        component: String,
        /// The tensor.
        tensor: String,
        /// The layout.
        layout: String,
        /// What there is none of.
        what: &'static str,
    },
    /// A rule cannot be applied as it stands.
    #[error("component `{component}`: layout `{layout}`: {why}")]
    Rules {
        /// The component.
        component: String,
        /// The layout.
        layout: String,
        /// What is wrong.
        why: String,
    },
    /// A plan file that cannot be read.
    #[error("plan file{}: {why}", .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    PlanFile {
        /// The line, where it is known.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// An extent that the plan does not have was asked for.
    #[error("no extent {index} in a plan of {count}")]
    NoExtent {
        /// The index.
        index: usize,
        /// The number of extents.
        count: usize,
    },
}

/// Why a rule does not apply to a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The dimension does not divide.
    NotDivisible {
        /// Elements along the dimension.
        len: u64,
        /// Parts.
        parts: u64,
    },
    /// Bounds or block sizes do not describe the dimension.
    Mismatch {
        /// Elements along the dimension.
        len: u64,
        /// Elements that the rule speaks of.
        expected: u64,
    },
    /// The number of bounds does not fit the axis.
    Bounds {
        /// Parts that the bounds describe.
        found: u64,
        /// Parts of the axis.
        expected: u64,
    },
    /// Bounds descend.
    Descending,
    /// The tensor has no such dimension.
    NoDimension {
        /// The dimension asked for.
        dim: u32,
        /// Dimensions of the tensor.
        dims: usize,
    },
    /// A cut falls inside a byte.
    PartialByte {
        /// The first rank that would hold part of a byte.
        rank: u32,
    },
    /// Two dimensions each fall into several pieces.
    TwoDimensions,
    /// The rule cuts what an earlier rule has cut, and no test has shown that a framework does this.
    NotProven,
    /// The elements of a flat group exceed 64 bits.
    TooLong,
    /// A factor of the rule is zero or too large.
    Factor {
        /// The factor.
        factor: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDivisible { len, parts } => {
                write!(f, "{len} elements do not divide into {parts} parts")
            }
            Self::Mismatch { len, expected } => {
                write!(
                    f,
                    "the rule speaks of {expected} elements, the dimension has {len}"
                )
            }
            Self::Bounds { found, expected } => {
                write!(f, "the rule names {found} parts, the axis has {expected}")
            }
            Self::Descending => f.write_str("the rule's bounds descend"),
            Self::NoDimension { dims: 0, .. } => f.write_str("it has no dimension"),
            Self::NoDimension { dim, dims } => {
                write!(f, "there is no dimension {dim} among {dims}")
            }
            Self::PartialByte { rank } => {
                write!(f, "rank {rank} would hold part of a byte")
            }
            Self::TwoDimensions => {
                f.write_str("two dimensions would each fall into several pieces")
            }
            Self::NotProven => {
                f.write_str("an earlier rule has cut it, and no framework is shown to cut on")
            }
            Self::TooLong => f.write_str("the group has more than 2^64 elements"),
            Self::Factor { factor } => write!(f, "factor {factor} is not between 1 and 65536"),
        }
    }
}

impl Error {
    /// A stable name of the kind of error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::MeshSyntax { .. } => "mesh-syntax",
            Self::TooManyRanks { .. } => "too-many-ranks",
            Self::NoRanks => "no-ranks",
            Self::RanksDisagree { .. } => "ranks-disagree",
            Self::RanksMissing { .. } => "ranks-missing",
            Self::UnknownLayout { .. } => "unknown-layout",
            Self::UnknownComponent { .. } => "unknown-component",
            Self::AxisMissing { .. } => "axis-missing",
            Self::AxisUnused { .. } => "axis-unused",
            Self::AxisTaken { .. } => "axis-taken",
            Self::DuplicateComponent { .. } => "duplicate-component",
            Self::DuplicateTensor { .. } => "duplicate-tensor",
            Self::Unnamed { .. } => "unnamed-tensor",
            Self::TensorSize { .. } => "tensor-size",
            Self::TooManyDims { .. } => "too-many-dims",
            Self::TotalSize { .. } => "total-size",
            Self::TooManySlices { .. } => "too-many-slices",
            Self::Pattern { .. } => "pattern",
            Self::PatternUnused { .. } => "pattern-unused",
            Self::PatternsDisagree { .. } => "patterns-disagree",
            Self::CannotCut { .. } => "cannot-cut",
            Self::OrderUnknown { .. } => "order-unknown",
            Self::MixedTypes { .. } => "mixed-types",
            Self::NoRule { .. } => "no-rule",
            Self::Rules { .. } => "rules",
            Self::PlanFile { .. } => "plan-file",
            Self::NoExtent { .. } => "no-extent",
        }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::MeshSyntax { .. } => {
                Some("write axes as name=size, the last varies fastest: --mesh dp=2,fsdp=4".into())
            }
            Self::TooManyRanks { .. } | Self::NoRanks => {
                Some("give the number of processes that will load the pack: --ranks 8".into())
            }
            Self::RanksDisagree { found, .. } => {
                Some(format!("leave out --ranks, or give --ranks {found}"))
            }
            Self::RanksMissing { axis, .. } => Some(format!(
                "add --ranks N (or --mesh {axis}=N); --layout replicate needs neither"
            )),
            Self::UnknownLayout { known, .. } => Some(format!(
                "layouts: {}; joined with `+` where several act",
                known.join(", ")
            )),
            Self::UnknownComponent { known, .. } => {
                Some(format!("components: {}", known.join(", ")))
            }
            Self::AxisMissing { wanted, .. } => Some(format!("name an axis of the mesh {wanted}")),
            Self::AxisUnused { axis, .. } => Some(format!(
                "leave `{axis}` out of the mesh, or name it `dp_replicate` if all of it holds the same"
            )),
            Self::AxisTaken { .. } => {
                Some("give each part an axis of its own: --mesh fsdp=4,tp=2".into())
            }
            Self::PatternsDisagree { tensor, .. } => Some(format!(
                "narrow one of the patterns so that `{tensor}` falls under one"
            )),
            Self::PatternUnused { option, .. } if !option.starts_with("--") => Some(
                "names are those in the pack; `wpack plan --tensors` lists them".into(),
            ),
            Self::PatternUnused { option, .. } => Some(format!(
                "patterns are globs of names in the pack; `wpack plan` lists them ({option} is given once per pattern)"
            )),
            Self::CannotCut { tensor, why, .. } => Some(match why {
                Fault::NoDimension { .. } => {
                    format!("leave it whole: narrow --shard, or give --replicate '{tensor}'")
                }
                _ => format!("keep it whole on every rank: --replicate '{tensor}'"),
            }),
            Self::OrderUnknown { .. } => Some(
                "give --order, or `order` in the plan file: the names of `model.named_parameters()`, or \
                 \"checkpoint\" if the checkpoint keeps that order"
                    .into(),
            ),
            Self::MixedTypes { .. } => {
                Some("cast the component to one type (--dtype), or put the tensors into different groups".into())
            }
            Self::PlanFile { .. } | Self::Rules { .. } => {
                Some("docs/plan.md lists what a plan file may say".into())
            }
            Self::NoRule { what: "rule", tensor, .. } => Some(format!(
                "give a rule for `{tensor}` in the plan file, or `default_place = [\"Replicate\"]`"
            )),
            Self::NoRule { what: "style", tensor, .. } => Some(format!(
                "give a style for `{tensor}` in the plan file, or `default_style = \"replicate\"`"
            )),
            Self::NoRule { tensor, .. } => {
                Some(format!("let a pattern of the plan file match `{tensor}`"))
            }
            _ => None,
        }
    }
}
