//! `wpack completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{Cli, Context, ExitStatus};

pub(super) fn run(shell: Shell, context: &Context) -> ExitStatus {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wpack", &mut script);
    context.printer.data(&String::from_utf8_lossy(&script));
    ExitStatus::Done
}
