//! `wpack verify`.

use std::path::PathBuf;

use clap::Args;
use wpack_checkpoint::Input;

/// Check every byte of a pack.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The packfile.
    pub pack: PathBuf,
    /// Only header, index and what this rank holds.
    #[arg(long, value_name = "R")]
    pub rank: Option<u32>,
    /// Compare every tensor with the checkpoint that the pack was made from.
    #[arg(long, value_name = "CHECKPOINT", num_args = 1.., value_parser = super::input::parse_input)]
    pub against: Vec<Input>,
    /// Path of the state dict inside that checkpoint's object; by default the one that the pack
    /// records.
    #[arg(long, value_name = "PATH", requires = "against")]
    pub root: Option<String>,
    /// Worker threads; by default one for each core.
    #[arg(long, value_name = "N", value_parser = super::parse_threads)]
    pub threads: Option<usize>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
