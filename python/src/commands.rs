//! The command line, whole and as functions.

use std::{
    ffi::OsString,
    sync::{Arc, atomic::AtomicBool},
};

use pyo3::prelude::*;

use crate::watch::watched_shared;

/// Runs the command line as the `wpack` binary does; the first argument is the program's name. Returns
/// the exit status.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| wpack_cli::run(args).code())
}

/// Runs a command and returns its exit status and its JSON report; nothing is printed.
#[pyfunction]
#[pyo3(signature = (args, progress=None))]
pub(crate) fn run_json(
    py: Python<'_>,
    args: Vec<OsString>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u8, String)> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let captured = watched_shared(py, progress, &interrupt, |counters| {
        wpack_cli::capture(args, Arc::clone(&interrupt), counters)
    })?;
    Ok((captured.status.code(), captured.output))
}
