//! Which tensors a layout may cut: what a checkpoint does not say, and overrides do.

use std::collections::HashSet;

use globset::{Glob, GlobMatcher};
use wpack_format::{Role, spec};

use crate::{ComponentSpec, Error, Inventory, TensorSpec};

/// What was decided on one tensor, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) role: Role,
    pub(crate) reason: String,
    /// Somebody asked for it to be whole.
    pub(crate) kept: bool,
}

/// The patterns of `--replicate` and `--shard`.
pub(crate) struct Overrides {
    replicate: Patterns,
    shard: Patterns,
}

struct Patterns {
    option: &'static str,
    globs: Vec<(String, GlobMatcher)>,
    used: Vec<bool>,
}

impl Patterns {
    fn new(option: &'static str, texts: &[String]) -> Result<Self, Error> {
        let globs = texts
            .iter()
            .map(|text| match Glob::new(text) {
                Ok(glob) => Ok((text.clone(), glob.compile_matcher())),
                Err(why) => Err(Error::Pattern {
                    option,
                    pattern: text.clone(),
                    why: why.kind().to_string(),
                }),
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            option,
            used: vec![false; globs.len()],
            globs,
        })
    }

    /// The first pattern that a name of the tensor falls under. Marks all that match as used.
    fn find(&mut self, tensor: &TensorSpec) -> Option<String> {
        let mut found = None;
        for ((text, glob), used) in self.globs.iter().zip(&mut self.used) {
            if tensor.names.iter().any(|name| glob.is_match(name)) {
                *used = true;
                found = found.or_else(|| Some(text.clone()));
            }
        }
        found
    }

    fn check_used(&self, of: &str) -> Result<(), Error> {
        match self.globs.iter().zip(&self.used).find(|(_, used)| !**used) {
            Some(((pattern, _), _)) => Err(Error::PatternUnused {
                option: self.option,
                pattern: pattern.clone(),
                of: of.to_owned(),
            }),
            None => Ok(()),
        }
    }
}

impl Overrides {
    pub(crate) fn new(replicate: &[String], shard: &[String]) -> Result<Self, Error> {
        Ok(Self {
            replicate: Patterns::new("--replicate", replicate)?,
            shard: Patterns::new("--shard", shard)?,
        })
    }

    /// Decides on every tensor of a component. `cuts` is false for layouts that keep all whole, where
    /// `--shard` says nothing.
    pub(crate) fn decide(
        &mut self,
        component: &ComponentSpec,
        cuts: bool,
    ) -> Result<Vec<Verdict>, Error> {
        component
            .tensors
            .iter()
            .map(|tensor| self.verdict(component, tensor, cuts))
            .collect()
    }

    fn verdict(
        &mut self,
        component: &ComponentSpec,
        tensor: &TensorSpec,
        cuts: bool,
    ) -> Result<Verdict, Error> {
        let shard = if cuts { self.shard.find(tensor) } else { None };
        let replicate = self.replicate.find(tensor);
        let kept = replicate.is_some();
        let (role, reason) = match (replicate, shard) {
            (Some(replicate), Some(shard)) => {
                return Err(Error::PatternsDisagree {
                    component: component.name.clone(),
                    tensor: tensor.names.first().cloned().unwrap_or_default(),
                    replicate,
                    shard,
                });
            }
            (Some(pattern), None) => (Role::Buffer, format!("--replicate {pattern}")),
            (None, Some(pattern)) => (Role::Parameter, format!("--shard {pattern}")),
            (None, None) if tensor.shape.is_empty() => (Role::Buffer, "no dimension".into()),
            (None, None) if !tensor.dtype.is_floating() => (
                Role::Buffer,
                format!("{} is not floating point", tensor.dtype),
            ),
            (None, None) => (Role::Parameter, "parameter".into()),
        };
        Ok(Verdict { role, reason, kept })
    }

    /// Refuses patterns that no tensor fell under: a misspelt one would be obeyed in silence.
    pub(crate) fn check_used(&self, some_cut: bool) -> Result<(), Error> {
        self.replicate.check_used("of the checkpoint")?;
        self.shard.check_used(if some_cut {
            "of a component whose layout cuts"
        } else {
            "that is cut: the layout keeps all whole"
        })
    }
}

/// Refuses an inventory that no layout could place.
pub(crate) fn check(inventory: &Inventory) -> Result<(), Error> {
    let mut components = HashSet::new();
    for component in &inventory.components {
        let name = &component.name;
        if !components.insert(name.as_str()) {
            return Err(Error::DuplicateComponent {
                component: name.clone(),
            });
        }
        let mut names = HashSet::new();
        let mut total: u64 = 0;
        for (index, tensor) in component.tensors.iter().enumerate() {
            let Some(first) = tensor.names.first() else {
                return Err(Error::Unnamed {
                    component: name.clone(),
                    index,
                });
            };
            for tensor_name in &tensor.names {
                if !names.insert(tensor_name.as_str()) {
                    return Err(Error::DuplicateTensor {
                        component: name.clone(),
                        name: tensor_name.clone(),
                    });
                }
            }
            let dims = tensor.shape.len();
            if dims > usize::from(spec::MAX_DIMS) {
                return Err(Error::TooManyDims {
                    component: name.clone(),
                    tensor: first.clone(),
                    dims,
                    max: spec::MAX_DIMS,
                });
            }
            // The format wants the product without zeros to fit, so that no reader can overflow.
            let count = |zeros: bool| {
                let sizes = tensor.shape.iter().filter(|&&size| zeros || size > 0);
                sizes.copied().try_fold(1u64, u64::checked_mul)
            };
            let bytes = count(false)
                .and(count(true))
                .and_then(|count| tensor.dtype.bytes(count))
                .filter(|&bytes| i64::try_from(bytes).is_ok());
            let Some(bytes) = bytes else {
                return Err(Error::TensorSize {
                    component: name.clone(),
                    tensor: first.clone(),
                    dtype: tensor.dtype,
                    shape: tensor.shape.clone(),
                });
            };
            total = total
                .checked_add(bytes)
                .filter(|&total| i64::try_from(total).is_ok())
                .ok_or_else(|| Error::TotalSize {
                    component: name.clone(),
                })?;
        }
    }
    Ok(())
}
