//! The command line: what clap parses, and nothing that acts.

mod convert;
mod export;
mod fit;
mod input;
mod inspect;
mod plan;
mod register;
mod verify;

pub use convert::ConvertArgs;
pub use export::ExportArgs;
pub use fit::FitArgs;
pub use input::{LayoutArgs, Rename, Scoped, SourceArgs, TransformArgs};
pub use inspect::InspectArgs;
pub use plan::PlanArgs;
pub use register::RegisterArgs;
pub use verify::VerifyArgs;

use clap::{Args, Parser, Subcommand};

/// Rewrites a checkpoint once into a file in which every rank's bytes already lie contiguous,
/// aligned, in the right dtype and checksummed.
///
/// At run time a rank maps its own part of the file and is done: no unpickling, no slicing, no
/// private copy.
///
/// Exit status: 0 done; 1 the input is at fault; 2 usage or unexpected; 130 interrupted.
#[derive(Debug, Parser)]
#[command(
    name = "wpack",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What goes to standard error.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What goes to standard error. Data goes to standard output, always.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Only errors on standard error: no notes, no warnings, no progress.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// More notes on standard error, such as every value that was skipped.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// No progress bar. There is none either where standard error is no terminal.
    #[arg(long, global = true)]
    pub no_progress: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rewrite a checkpoint into a packfile.
    Convert(Box<ConvertArgs>),
    /// Say what `convert` would do, from the headers alone.
    ///
    /// No tensor data is read: a checkpoint of any size takes a moment.
    Plan(Box<PlanArgs>),
    /// Show what a pack or a checkpoint holds.
    Inspect(InspectArgs),
    /// Check every byte of a pack, and compare it with the checkpoint it came from.
    Verify(VerifyArgs),
    /// Write whole tensors of a pack back as safetensors.
    Export(ExportArgs),
    /// Name the packs that stand for checkpoint files.
    ///
    /// A training program that `wpack.integrations` is installed in asks for the files of a checkpoint as
    /// ever; where a registered pack was made from those files, it loads the pack. The list is
    /// `wpack/packs.json` in the user's data folder (`$XDG_DATA_HOME`, else `~/.local/share`).
    Register(RegisterArgs),
    /// Print a shell's completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The command's name, as reports give it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Convert(_) => "convert",
            Self::Plan(_) => "plan",
            Self::Inspect(_) => "inspect",
            Self::Verify(_) => "verify",
            Self::Export(_) => "export",
            Self::Register(_) => "register",
            Self::Completions { .. } => "completions",
        }
    }

    /// Whether standard output carries one JSON object.
    #[must_use]
    pub fn json(&self) -> bool {
        match self {
            Self::Convert(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Export(args) => args.json,
            Self::Register(args) => args.json,
            Self::Completions { .. } => false,
        }
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
    }
}
