//! `wpack inspect`.

use clap::Args;
use wpack_checkpoint::Input;

use super::FitArgs;

/// Show what a pack or a checkpoint holds.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// A packfile, or any checkpoint that `convert` takes.
    #[arg(required = true, value_name = "PACK", value_parser = super::input::parse_input)]
    pub inputs: Vec<Input>,
    /// Only what this rank holds.
    #[arg(long, value_name = "R")]
    pub rank: Option<u32>,
    /// List tensors, all or those whose name matches; with --rank the rank's slices of them.
    #[arg(long, value_name = "GLOB", num_args = 0..=1, default_missing_value = "*", help_heading = "Output")]
    pub tensors: Option<String>,
    /// Print the plan file that the pack was made by, and nothing else.
    #[arg(long, help_heading = "Output", conflicts_with_all = ["rank", "tensors", "json"])]
    pub plan: bool,
    /// Path of the state dict inside a pickled object, for checkpoints.
    #[arg(long, value_name = "PATH")]
    pub root: Option<String>,
    /// Most bytes that views and compression may expand to, for checkpoints.
    #[arg(long, value_name = "BYTES", value_parser = crate::human::parse_bytes)]
    pub output_limit: Option<u64>,
    /// Whether processes fit on the host.
    #[command(flatten)]
    pub fit: FitArgs,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
