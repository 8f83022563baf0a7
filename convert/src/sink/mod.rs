//! Where a pack is written to: a trait small enough that a test can cut it at every call, and the file
//! behind it in real runs.

mod file;
mod litter;
#[cfg(test)]
mod tests;

use std::{io, path::Path};

pub use file::{FileSink, Overwrite};
pub use litter::sweep;

/// The writer's view of its target.
///
/// Calls come in this order: [`Sink::reserve`] once; [`Sink::write_at`] from any thread, the ranges
/// never overlapping; [`Sink::sync`]; [`Sink::stage`]; [`Sink::publish`]; [`Sink::sync_folder`]. Until
/// `publish` has returned, nothing bears the target's name but what did before; dropping the sink
/// earlier leaves nothing behind.
pub trait Sink: Send + Sync {
    /// Makes room for all `len` bytes, which read as zero until written.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when every byte written is on stable storage.
    fn sync(&self) -> io::Result<()>;

    /// Gives the file a temporary name where publishing needs one.
    fn stage(&mut self) -> io::Result<()>;

    /// Gives the file its name, in one step; the file that bore it is gone.
    fn publish(&mut self) -> io::Result<()>;

    /// Returns when the name is on stable storage.
    fn sync_folder(&self) -> io::Result<()>;
}

/// The folder that a path's file lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
