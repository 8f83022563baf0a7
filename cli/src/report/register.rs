//! Registered packs.

use serde::Serialize;

/// `wpack register`.
#[derive(Clone, Debug, Serialize)]
pub struct RegisterReport {
    /// Version of this format.
    pub schema: u32,
    /// `register`.
    pub command: &'static str,
    /// The file that keeps the list.
    pub file: String,
    /// All registered packs, after the command.
    pub packs: Vec<RegisteredPack>,
}

/// A registered pack.
#[derive(Clone, Debug, Serialize)]
pub struct RegisteredPack {
    /// Absolute path.
    pub path: String,
    /// The model that it holds, as programs ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// Its root digest; null where it cannot be opened.
    pub digest: Option<String>,
    /// Why it cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
