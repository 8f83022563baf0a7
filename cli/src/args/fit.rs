//! Whether processes fit on a host.

use clap::Args;

/// Whether processes fit on a host.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Host memory")]
pub struct FitArgs {
    /// Say whether this many processes that load the model fit on the host, with the pack and without.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub processes: Option<u32>,
    /// Parameters that are trained, by name; without it none of the pack's are, as with LoRA.
    #[arg(long, value_name = "GLOB", requires = "processes")]
    pub trainable: Vec<String>,
    /// Memory of the host; without it, what this machine has left.
    #[arg(long, value_name = "BYTES", requires = "processes", value_parser = crate::human::parse_bytes)]
    pub host_memory: Option<u64>,
}
