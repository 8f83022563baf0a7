//! Commands for programs: the report as text, and nothing on the standard streams.

use std::{
    ffi::OsString,
    io,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use clap::Parser as _;
use wpack_loader::Progress;

use crate::{Cli, Context, ExitStatus, Printer, execute, fail, usage};

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// As the process would have ended.
    pub status: ExitStatus,
    /// What would have been on standard output.
    pub output: String,
}

/// Runs a command line, the program's name first, for a program that has signal handlers and a
/// display of its own. Give it `--json`: the output is one JSON object then, also on failure.
#[must_use]
pub fn capture(
    args: impl IntoIterator<Item = OsString>,
    interrupt: Arc<AtomicBool>,
    progress: Arc<dyn Progress + Send>,
) -> Captured {
    let output = Shared::default();
    let printer = Printer::captured(output.clone(), progress);
    let status = match Cli::try_parse_from(args) {
        Ok(cli) => execute(cli, &Context { printer, interrupt }),
        Err(error) => fail(&printer, None, true, &usage(&error)),
    };
    let bytes = std::mem::take(&mut *output.lock());
    Captured {
        status,
        output: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Bytes that outlive the printer that writes them.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Captured {
        let args = args.iter().map(OsString::from);
        capture(args, Arc::default(), Arc::new(wpack_loader::NoProgress))
    }

    #[test]
    fn failures_are_reports_too() {
        let found = run(&["wpack", "inspect", "no such file", "--json"]);
        assert_eq!(found.status, ExitStatus::Fault, "{}", found.output);
        assert!(found.output.contains("\"error\""), "{}", found.output);
        let found = run(&["wpack", "inspect", "--no-such-option", "--json"]);
        assert_eq!(found.status, ExitStatus::Unexpected, "{}", found.output);
        assert!(found.output.contains("usage"), "{}", found.output);
    }
}
