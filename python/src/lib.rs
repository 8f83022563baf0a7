//! The native module behind `import wpack`: a translation of the Rust crates for Python.
//!
//! What needs torch lives in the Python files beside `Cargo.toml`; this crate finds tensors, hands out
//! their memory, reads, verifies, and runs the command line.

mod commands;
mod dlpack;
mod error;
mod pack;
mod prefetch;
mod shard;
mod stage;
mod tensors;
mod view;
mod watch;

/// Native parts of wpack.
#[pyo3::pymodule]
mod _wpack {
    #[pymodule_export]
    use super::commands::{run_command, run_json};
    #[pymodule_export]
    use super::pack::NativePack;
    #[pymodule_export]
    use super::shard::NativeShard;
    #[pymodule_export]
    use super::view::View;

    /// Version of the package.
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
