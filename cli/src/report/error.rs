//! A failure, as JSON.

use serde::Serialize;

/// The object that `--json` prints when a command fails.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorReport {
    /// Version of this format.
    pub schema: u32,
    /// The command; absent when the arguments name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<&'static str>,
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorBody {
    /// Stable kebab-case name.
    pub code: String,
    /// What, where, expected and found.
    pub message: String,
    /// What led to it, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
