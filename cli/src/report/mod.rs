//! What the commands report, as JSON and for people. These structs are the public format: nothing
//! here is derived from a library's own types, and `docs/report.schema.json` describes each.

mod checkpoint;
mod common;
mod convert;
mod error;
mod export;
mod fit;
mod pack;
mod plan;
mod register;
mod verify;

pub use checkpoint::{CheckpointComponent, CheckpointReport, CheckpointTensor, SkippedValue};
pub use common::{
    Axis, DTypeTally, Extent, File, Memory, Owners, Rank, RankRun, Rule, Sharing, Source, Tally,
    Transform, WarningText, elements, placements_of,
};
pub use convert::{ConvertReport, Output};
pub use error::{ErrorBody, ErrorReport};
pub use export::{ExportReport, ExportedFile};
pub use fit::{Fit, FitMode, Need, Weights};
pub use pack::{Component, PackReport, PackTensor, RankDetail, RankSlice};
pub use plan::{PlanComponent, PlanReport, PlanTensor};
pub use register::{RegisterReport, RegisteredPack};
pub use verify::{Against, Damage, Difference, TensorRef, VerifyReport};

/// Version of the JSON that the commands print. It grows when a field changes its meaning or goes;
/// new fields alone do not change it.
pub const SCHEMA: u32 = 1;
