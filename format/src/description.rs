//! What a pack says of itself: canonical JSON, covered by the root digest.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::{String, ToString as _},
    vec::Vec,
};

use serde::{Deserialize, Serialize};

use crate::{Error, bytes::wide, error::DescriptionFault as Fault};

/// The description of a pack. Holds no path, time, host or program version, so that equal input and
/// plan give equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Axes of the mesh, the last varies fastest; none for a pack that fits any number of ranks.
    pub mesh: Option<Vec<MeshAxis>>,
    /// Layout preset, e.g. `zero3`.
    pub layout: String,
    /// Components in file order.
    pub components: Vec<ComponentInfo>,
    /// The resolved plan.
    pub plan: ResolvedPlan,
    /// Source files: base names only.
    pub sources: Vec<SourceInfo>,
    /// Small files carried along, such as `config.json`.
    pub files: Vec<EmbeddedFile>,
    /// Free text of the pack's maker.
    pub metadata: BTreeMap<String, String>,
}

/// One axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshAxis {
    /// Name, e.g. `fsdp`.
    pub name: String,
    /// Ranks along it.
    pub size: u32,
}

/// One model inside the pack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentInfo {
    /// Name, e.g. `text_encoder`; `model` when there is only one and nobody named it.
    pub name: String,
    /// Layout of this component.
    pub layout: String,
    /// How its checkpoint was read.
    pub transform: Transform,
    /// The checkpoint's own text metadata (safetensors `__metadata__`).
    pub metadata: BTreeMap<String, String>,
}

/// What was done to a component's names and values before any cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    /// Path of the state dict inside the checkpoint's object; empty for the object itself.
    pub root: String,
    /// Globs of names kept (source names); empty keeps all.
    pub include: Vec<String>,
    /// Globs of names left out (source names).
    pub exclude: Vec<String>,
    /// Prefixes removed, first match only.
    pub strip_prefix: Vec<String>,
    /// Prefix added after stripping.
    pub add_prefix: String,
    /// Regular expressions and replacements, applied in order.
    pub rename: Vec<(String, String)>,
    /// Element type that floating tensors were cast to, by name.
    pub dtype: Option<String>,
}

/// The complete assignment in words: what decided each tensor's placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedPlan {
    /// Rules that at least one tensor fell under; tensors name theirs by index.
    pub rules: Vec<ResolvedRule>,
    /// Globs given to keep tensors whole.
    pub replicate: Vec<String>,
    /// Globs given to cut tensors that would be kept whole.
    pub shard: Vec<String>,
    /// Alignment of extents asked for, bytes; none when chosen by size.
    pub align: Option<u64>,
    /// A plan file's text, canonical, when one was given.
    pub file: Option<String>,
}

/// One rule of the resolved plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedRule {
    /// Component it belongs to.
    pub component: String,
    /// Placements, one text per mesh axis operation in order, e.g. `fsdp: Shard(0, chunk)`.
    pub placements: Vec<String>,
    /// Why: the layout's rule, or the override that matched.
    pub reason: String,
}

/// One source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceInfo {
    /// Base name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in lower-case hexadecimal, if it was asked for.
    pub sha256: Option<String>,
}

/// A small file carried in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedFile {
    /// Component it belongs to; none for the pack.
    pub component: Option<String>,
    /// Relative path with `/`, no `..`.
    pub path: String,
    /// First byte in the packfile. It follows from the lengths before it, so the JSON leaves it out
    /// and [`crate::Root`] fills it in.
    #[serde(skip)]
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

impl Description {
    /// The canonical JSON: no space, fields in the order of the structs, maps by key.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Cannot fail: text keys, no floats. An empty description would be refused by a reader.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads canonical JSON and refuses any other form of it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let description: Self =
            serde_json::from_slice(bytes).map_err(|error| Error::Description {
                reason: error.to_string(),
            })?;
        let canonical = description.to_json();
        if canonical == bytes {
            return Ok(description);
        }
        let same = canonical
            .iter()
            .zip(bytes)
            .take_while(|(a, b)| a == b)
            .count();
        Err(Error::NotCanonical { at: wide(same) })
    }

    /// Number of ranks of the mesh; `None` without mesh, or if they are too many or none.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        let axes = self.mesh.as_ref()?;
        let ranks = axes
            .iter()
            .try_fold(1_u32, |ranks, axis| ranks.checked_mul(axis.size))?;
        if ranks == 0 || axes.is_empty() {
            None
        } else {
            Some(ranks)
        }
    }

    /// Checks what its parts say of each other, and gives the number of ranks.
    pub(crate) fn check(&self) -> Result<Option<u32>, Error> {
        self.find_fault()
            .map_err(|fault| Error::Inconsistent { fault })
    }

    fn find_fault(&self) -> Result<Option<u32>, Fault> {
        if let Some(axes) = &self.mesh {
            distinct("mesh axis", axes.iter().map(|axis| axis.name.as_str()))?;
            if self.ranks().is_none() {
                return Err(Fault::Mesh);
            }
        }
        distinct(
            "component",
            self.components.iter().map(|info| info.name.as_str()),
        )?;
        let names: BTreeSet<_> = self
            .components
            .iter()
            .map(|info| info.name.as_str())
            .collect();
        let known = |what, name: &str| {
            if names.contains(name) {
                Ok(())
            } else {
                Err(Fault::Component {
                    what,
                    name: name.to_string(),
                })
            }
        };
        for rule in &self.plan.rules {
            known("a rule", &rule.component)?;
        }
        for source in &self.sources {
            if source.name.is_empty() {
                return Err(Fault::Unnamed("source file"));
            }
            if source.name.contains(['/', '\0']) || matches!(&*source.name, "." | "..") {
                return Err(Fault::Path(source.name.clone()));
            }
            source
                .sha256
                .iter()
                .try_for_each(|digest| check_sha256(digest))?;
        }
        let mut paths = BTreeSet::new();
        for file in &self.files {
            if let Some(component) = &file.component {
                known("an embedded file", component)?;
            }
            check_path(&file.path)?;
            check_sha256(&file.sha256)?;
            if !paths.insert((&file.component, &file.path)) {
                return Err(Fault::Duplicate {
                    what: "embedded file",
                    name: file.path.clone(),
                });
            }
        }
        Ok(self.ranks())
    }
}

fn distinct<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(Fault::Unnamed(what));
        }
        if !seen.insert(name) {
            return Err(Fault::Duplicate {
                what,
                name: name.to_string(),
            });
        }
    }
    Ok(())
}

/// A path that stays inside whatever folder it is unpacked in, on any system.
fn check_path(path: &str) -> Result<(), Fault> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', ':', '\0']);
    if path.split('/').all(plain) {
        Ok(())
    } else {
        Err(Fault::Path(path.to_string()))
    }
}

fn check_sha256(digest: &str) -> Result<(), Fault> {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digest.len() == 64 && digest.bytes().all(hex) {
        Ok(())
    } else {
        Err(Fault::Sha256(digest.to_string()))
    }
}
