//! The `wpack` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(wpack_cli::run(std::env::args_os()).code())
}
