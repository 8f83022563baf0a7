//! What `export` wrote.

use serde::Serialize;

/// `wpack export`.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// Version of this format.
    pub schema: u32,
    /// `export`.
    pub command: &'static str,
    /// The files.
    pub files: Vec<ExportedFile>,
}

/// A file that was written.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedFile {
    /// Component.
    pub component: String,
    /// Where.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// Tensors in it, ties under each of their names.
    pub tensors: u64,
}
