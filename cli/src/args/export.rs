//! `wpack export`.

use std::path::PathBuf;

use clap::Args;

/// Write whole tensors of a pack back as safetensors.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The packfile.
    pub pack: PathBuf,
    /// A `.safetensors` file to write, or a folder for one file a component.
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// Only this component. May be given several times.
    #[arg(long = "component", value_name = "NAME")]
    pub components: Vec<String>,
    /// Replace files that are there already.
    #[arg(long)]
    pub overwrite: bool,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
