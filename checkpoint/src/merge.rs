//! From files to components: reads each file, keeps what its index says, refuses names that occur
//! twice.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    Checkpoint, Component, Error, OpenOptions, SmallFile, SourceFile, Warning, error,
    file::{SourceReader, base_name},
    index::Index,
    opened::{Opened, open_file},
    resolve::{Unit, Weights},
};

/// Name of the component that nobody named.
const DEFAULT_COMPONENT: &str = "model";

/// A checkpoint in the making.
#[derive(Default)]
pub(crate) struct Merge {
    checkpoint: Checkpoint,
    /// Per component, the source of each tensor name.
    names: Vec<HashMap<String, usize>>,
}

impl Merge {
    /// Starts with what was noticed before.
    pub(crate) fn new(warnings: Vec<Warning>) -> Self {
        Self {
            checkpoint: Checkpoint {
                warnings,
                ..Checkpoint::default()
            },
            names: Vec::new(),
        }
    }

    /// Reads the files of a unit into its component.
    pub(crate) fn add(&mut self, unit: Unit, options: &OpenOptions) -> Result<(), Error> {
        let Unit {
            component,
            weights,
            files,
        } = unit;
        let place = self.place(component.as_deref().unwrap_or(DEFAULT_COMPONENT));
        match weights {
            Weights::Files(paths) => {
                for path in paths {
                    let file = SourceReader::open(&path)?;
                    let opened = open_file(&file, self.checkpoint.sources.len(), options)?;
                    self.take(place, &file, opened)?;
                }
            }
            Weights::Index(index) => self.add_index(place, index, options)?,
        }
        let Some(component) = self.checkpoint.components.get_mut(place) else {
            return Ok(());
        };
        merge_files(&mut component.files, files, &mut self.checkpoint.warnings);
        Ok(())
    }

    /// Small files that belong to no component alone.
    pub(crate) fn add_files(&mut self, files: Vec<SmallFile>) {
        let Checkpoint {
            files: known,
            warnings,
            ..
        } = &mut self.checkpoint;
        merge_files(known, files, warnings);
    }

    /// The checkpoint.
    pub(crate) fn finish(self) -> Checkpoint {
        self.checkpoint
    }

    /// The component of this name, made if need be.
    fn place(&mut self, name: &str) -> usize {
        let components = &mut self.checkpoint.components;
        if let Some(place) = components
            .iter()
            .position(|component| component.name == name)
        {
            return place;
        }
        components.push(Component {
            name: name.to_owned(),
            ..Component::default()
        });
        self.names.push(HashMap::new());
        components.len() - 1
    }

    /// The index decides per tensor: what it gives to a shard is taken from there, nothing else is.
    fn add_index(
        &mut self,
        place: usize,
        mut index: Index,
        options: &OpenOptions,
    ) -> Result<(), Error> {
        let files = index.open_shards()?;
        let mut bytes = Sizes::default();
        let mut unindexed = Vec::new();
        for (file, (shard, wanted)) in files.iter().zip(std::mem::take(&mut index.shards)) {
            let mut opened = open_file(file, self.checkpoint.sources.len(), options)?;
            let mut wanted: HashSet<String> = wanted.into_iter().collect();
            opened.tensors.retain_mut(|tensor| {
                tensor.names.retain(|name| {
                    let kept = wanted.remove(name);
                    if !kept {
                        unindexed.push(name.clone());
                    }
                    kept
                });
                bytes.add(tensor.bytes.len(), tensor.names.len());
                !tensor.names.is_empty()
            });
            if let Some(tensor) = wanted.into_iter().min() {
                return Err(Error::MissingTensor {
                    path: index.path,
                    tensor,
                    shard: base_name(shard.as_ref()),
                });
            }
            opened.container = "index";
            // A shard may well be empty of what the index wants; others are not.
            opened
                .warnings
                .retain(|warning| warning.code != "no-tensors");
            self.take(place, file, opened)?;
        }
        let name = base_name(&index.path);
        if !unindexed.is_empty() {
            let list = error::list(&unindexed);
            self.warn(
                "unindexed-tensors",
                format!("{name} does not place {list} there: left out"),
            );
        }
        if let Some(total) = index.total_size
            && !bytes.may_be(total)
        {
            let sum = bytes.once;
            self.warn(
                "index-total-size",
                format!("{name} states {total} bytes, found {sum}"),
            );
        }
        Ok(())
    }

    /// Adds one file's tensors to a component.
    fn take(
        &mut self,
        place: usize,
        file: &Arc<SourceReader>,
        opened: Opened,
    ) -> Result<(), Error> {
        let Checkpoint {
            components,
            sources,
            warnings,
            ..
        } = &mut self.checkpoint;
        let (Some(component), Some(names)) = (components.get_mut(place), self.names.get_mut(place))
        else {
            return Ok(());
        };
        let source = sources.len();
        sources.push(SourceFile {
            path: file.path().to_owned(),
            size: file.size(),
        });
        for name in opened.tensors.iter().flat_map(|tensor| &tensor.names) {
            if let Some(other) = names.insert(name.clone(), source) {
                let other = sources.get(other).map(|source| base_name(&source.path));
                return Err(Error::NameCollision {
                    name: name.clone(),
                    a: other.unwrap_or_default(),
                    b: file.base_name(),
                });
            }
        }
        let first = component.container.is_empty();
        if first {
            component.container = opened.container.to_owned();
            component.root = opened.root;
        } else {
            if component.container != opened.container {
                component.container = "mixed".to_owned();
            }
            if component.root != opened.root {
                component.root = String::new();
            }
        }
        component.tensors.extend(opened.tensors);
        component.skipped.extend(opened.skipped);
        warnings.extend(opened.warnings);
        for (key, value) in opened.metadata {
            let known = component.metadata.get(&key);
            if known.is_some_and(|known| *known != value) {
                warnings.push(Warning {
                    code: "metadata-conflict",
                    message: format!(
                        "{} has another value of the metadata key {}: the first is kept",
                        file.base_name(),
                        error::Name(&key)
                    ),
                });
            } else {
                component.metadata.insert(key, value);
            }
        }
        Ok(())
    }

    fn warn(&mut self, code: &'static str, message: String) {
        self.checkpoint.warnings.push(Warning { code, message });
    }
}

/// Adds files; the first of two with the same path stays.
fn merge_files(known: &mut Vec<SmallFile>, files: Vec<SmallFile>, warnings: &mut Vec<Warning>) {
    for file in files {
        match known.iter().find(|other| other.path == file.path) {
            None => known.push(file),
            Some(other) if other.bytes == file.bytes => {}
            Some(_) => warnings.push(Warning {
                code: "small-file-left-out",
                message: format!("{} is there twice: the first is carried along", file.path),
            }),
        }
    }
}

/// What the bytes of a model may sum to: writers count a tied tensor once or once per name.
#[derive(Default)]
struct Sizes {
    once: u64,
    per_name: u64,
}

impl Sizes {
    fn add(&mut self, bytes: u64, names: usize) {
        let names = u64::try_from(names).unwrap_or(u64::MAX);
        self.once = self.once.saturating_add(if names == 0 { 0 } else { bytes });
        self.per_name = self.per_name.saturating_add(bytes.saturating_mul(names));
    }

    fn may_be(&self, total: u64) -> bool {
        total == self.once || total == self.per_name
    }
}
