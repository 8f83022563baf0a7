//! `wpack plan`.

use std::path::PathBuf;

use clap::Args;

use super::{FitArgs, LayoutArgs, SourceArgs, TransformArgs};

/// Say what `convert` would do.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Where tensors come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Who gets which part.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// What becomes of names and values.
    #[command(flatten)]
    pub transform: TransformArgs,
    /// Alignment of extents, as for `convert`.
    #[arg(long, value_name = "BYTES", value_parser = crate::human::parse_bytes, help_heading = "File")]
    pub align: Option<u64>,
    /// Whether processes fit on the host.
    #[command(flatten)]
    pub fit: FitArgs,
    /// Also write the plan as a plan file. Converting with it gives the same bytes as converting with
    /// these flags.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub emit: Option<PathBuf>,
    /// List tensors, all or those whose name matches.
    #[arg(long, value_name = "GLOB", num_args = 0..=1, default_missing_value = "*", help_heading = "Output")]
    pub tensors: Option<String>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
