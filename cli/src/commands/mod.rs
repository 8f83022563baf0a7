//! The commands: functions over a context, each giving a report.

mod completions;
mod convert;
mod export;
mod fit;
mod glob;
mod inspect;
mod options;
mod plan;
mod plan_file;
mod register;
mod summary;
mod verify;

use crate::{Context, Error, ExitStatus, args::Command};

/// Runs a command.
pub(crate) fn run(command: Command, context: &Context) -> Result<ExitStatus, Error> {
    match command {
        Command::Convert(args) => convert::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Register(args) => register::run(&args, context),
        Command::Completions { shell } => Ok(completions::run(shell, context)),
    }
}
