//! The `wpack` command: functions over a [`Context`], a [`Printer`] that owns every print, and
//! reports that are the public JSON.
//!
//! The binary is one call of [`run`]. This crate is the only one that serializes for users.

pub mod args;
mod capture;
mod commands;
mod context;
mod error;
mod exit;
mod host;
pub mod human;
mod interrupt;
mod printer;
mod progress;
mod reference;
mod registry;
pub mod report;
mod view;

use std::{
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
};

use clap::Parser as _;

pub use args::Cli;
pub use capture::{Captured, capture};
pub use context::Context;
pub use error::Error;
pub use exit::ExitStatus;
pub use printer::Printer;
pub use progress::Bar;
pub use reference::reference;

/// Runs a command line, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&args, &error),
    };
    let (command, json) = (cli.command.name(), cli.command.json());
    let printer = Printer::new(cli.output);
    match interrupt::install() {
        Ok(interrupt) => execute(cli, &Context { printer, interrupt }),
        Err(error) => fail(&printer, Some(command), json, &Error::Signals(error)),
    }
}

/// Runs a command and prints what becomes of it.
fn execute(cli: Cli, context: &Context) -> ExitStatus {
    let (command, json) = (cli.command.name(), cli.command.json());
    let result = catch_unwind(AssertUnwindSafe(|| commands::run(cli.command, context)));
    let printer = &context.printer;
    let status = match result {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => fail(printer, Some(command), json, &error),
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref().copied())
                .unwrap_or("no message")
                .to_owned();
            fail(printer, Some(command), json, &Error::Internal { what })
        }
    };
    match printer.finish() {
        Ok(()) => status,
        Err(error) => fail(printer, Some(command), false, &Error::Output(error)),
    }
}

fn fail(printer: &Printer, command: Option<&'static str>, json: bool, error: &Error) -> ExitStatus {
    if json {
        printer.json(&error.report(command));
    } else {
        printer.error(&error.chain(), error.hint().as_deref());
    }
    error.status()
}

/// What clap says: help and version are data, all else is an error.
fn refuse(args: &[OsString], error: &clap::Error) -> ExitStatus {
    let printer = Printer::new(args::OutputArgs::default());
    let json = args.iter().any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let status = fail(&printer, None, true, &usage(error));
        return printer.finish().map_or(ExitStatus::Unexpected, |()| status);
    }
    printer.clap(error);
    if error.use_stderr() {
        ExitStatus::Unexpected
    } else {
        ExitStatus::Done
    }
}

/// What clap says, as an error of ours.
fn usage(error: &clap::Error) -> Error {
    Error::Usage {
        what: reference::one_line(error),
        hint: "`wpack help COMMAND` shows every option".to_owned(),
    }
}
