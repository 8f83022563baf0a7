//! Plan files: a request in TOML, which can say what flags cannot.

mod merged;
mod request;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Error;

pub use text::{
    Fsdp1Text, MergeText, OrderText, PadText, RuleText, Section, StagesText, TransformText,
    ZeroText,
};

/// A plan file.
///
/// ```
/// let file = wpack_plan::PlanFile::parse(
///     r#"
///     mesh = "tp=2"
///     layout = "tp"
///     default_style = "replicate"
///
///     [[rule]]
///     match = "*.q_proj.*"
///     style = "colwise"
///     "#,
/// )?;
/// assert_eq!(file.request()?.options.rules.len(), 1);
/// # Ok::<(), wpack_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// The mesh, as `--mesh` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// The number of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Components that are taken; all if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub take: Vec<String>,
    /// Path of the state dict inside a pickled object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Alignment of extents in bytes; chosen by the size of the pack if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<u64>,
    /// Whether the pack records the SHA-256 of its sources.
    #[serde(skip_serializing_if = "is_false")]
    pub hash_sources: bool,
    /// Globs of tensors that are kept whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicate: Vec<String>,
    /// Globs of tensors that are cut though a checkpoint does not show them to be parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shard: Vec<String>,
    /// What counts for every component, as far as its own section says nothing else.
    #[serde(flatten)]
    pub all: Section,
    /// Sections by component.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub component: BTreeMap<String, Section>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl PlanFile {
    /// Reads a plan file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|why| {
            // A fault of the file as a whole has its start as its place.
            let span = why.span().filter(|span| span.start > 0);
            let before = span.and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            Error::PlanFile {
                line,
                why: why.message().to_owned(),
            }
        })
    }

    /// The text that says the same and is stored in the pack: sections and keys in one order, no
    /// comments.
    pub fn canonical(&self) -> Result<String, Error> {
        let fail = |why: toml::ser::Error| Error::PlanFile {
            line: None,
            why: why.to_string(),
        };
        toml::to_string(self).map_err(fail)
    }

    /// What counts for a component: its own section, and for what that does not say the keys in front
    /// of all sections.
    #[must_use]
    pub fn section(&self, component: &str) -> Section {
        match self.component.get(component) {
            Some(own) => own.over(&self.all),
            None => self.all.clone(),
        }
    }
}
