//! `wpack convert`.

use std::path::PathBuf;

use clap::Args;

use super::{LayoutArgs, SourceArgs, TransformArgs};

/// Rewrite a checkpoint into a packfile.
#[derive(Args, Clone, Debug)]
pub struct ConvertArgs {
    /// Where tensors come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The packfile to write. It has no name until it is whole.
    #[arg(short, long, value_name = "PACK", required_unless_present = "dry_run")]
    pub output: Option<PathBuf>,
    /// Who gets which part.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// What becomes of names and values.
    #[command(flatten)]
    pub transform: TransformArgs,
    /// Alignment of extents, a power of two: `4K`, `64K`, `2M`. By default 2 MiB, and 64 KiB for
    /// packs below 64 MiB.
    #[arg(long, value_name = "BYTES", value_parser = crate::human::parse_bytes, help_heading = "File")]
    pub align: Option<u64>,
    /// Replace a file that is there already.
    #[arg(long, help_heading = "File")]
    pub overwrite: bool,
    /// Record the SHA-256 of every source file; reads the sources once more.
    #[arg(long, help_heading = "File")]
    pub hash_sources: bool,
    /// Plan, and write nothing.
    #[arg(short = 'n', long, help_heading = "File")]
    pub dry_run: bool,
    /// Worker threads; by default one for each core. The bytes written do not depend on it.
    #[arg(long, value_name = "N", value_parser = super::parse_threads, help_heading = "File")]
    pub threads: Option<usize>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
