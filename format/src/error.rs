//! What can be wrong with the bytes of a pack.

use alloc::string::String;

/// A packfile that cannot be read; every variant names what was expected and found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not start with the magic: it is no packfile.
    #[error("no packfile: it starts with {found:02x?}, not with the magic")]
    Magic {
        /// First bytes of the file.
        found: [u8; 8],
    },
    /// Placeholder of the skeleton.
    #[error("{0}")]
    Other(String),
}
