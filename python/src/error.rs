//! Errors of the Rust crates as exceptions of `wpack.errors`.

use std::fmt::Write as _;

use pyo3::{prelude::*, sync::PyOnceLock};

/// Raises the class of a code, with the error's text and those of its causes.
pub(crate) fn raise(py: Python<'_>, code: &str, message: &str, hint: Option<String>) -> PyErr {
    static FROM_CODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = FROM_CODE
        .import(py, "wpack.errors", "from_code")
        .and_then(|from_code| from_code.call1((code, message, hint)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The text of an error and of everything that led to it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// An error of the loader as an exception; a flaw of the file under the code that names it.
pub(crate) fn loader(py: Python<'_>, error: &wpack_loader::Error) -> PyErr {
    if matches!(error, wpack_loader::Error::Interrupted) {
        return pyo3::exceptions::PyKeyboardInterrupt::new_err(());
    }
    let hint = match error {
        wpack_loader::Error::Map { .. } => Some(
            "wpack.open(path, read_only=True) maps without reserving anything, but a write to a tensor then ends \
             the process; state_dict(eager=True) reads into memory instead"
                .to_owned(),
        ),
        _ => error.hint(),
    };
    raise(py, error.code(), &chain(error), hint)
}

/// An error of a mesh or a plan file as an exception.
pub(crate) fn plan(py: Python<'_>, error: &wpack_plan::Error) -> PyErr {
    raise(py, error.code(), &chain(error), error.hint())
}

/// An error of a load; one that Python's side of the sink raised comes out as it is.
pub(crate) fn staged(py: Python<'_>, error: wpack_loader::Error) -> PyErr {
    match error {
        wpack_loader::Error::Sink { doing, source } => match source.downcast::<PyErr>() {
            Ok(raised) => *raised,
            Err(source) => loader(py, &wpack_loader::Error::Sink { doing, source }),
        },
        error => loader(py, &error),
    }
}
