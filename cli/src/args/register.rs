//! `wpack register`.

use std::path::PathBuf;

use clap::Args;

/// Name the packs that stand for checkpoint files.
#[derive(Args, Clone, Debug)]
pub struct RegisterArgs {
    /// Packs to register; without any, the registered ones are listed.
    #[arg(value_name = "PACK")]
    pub packs: Vec<PathBuf>,
    /// The model that they hold, as programs ask for it, such as `Wan-AI/Wan2.2-TI2V-5B`: they then
    /// also stand for files of that model that are not on this machine.
    #[arg(long, value_name = "ID", requires = "packs")]
    pub model_id: Option<String>,
    /// Forget them instead.
    #[arg(long, requires = "packs", conflicts_with = "model_id")]
    pub remove: bool,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
