//! From inputs to files: which files there are, and which component each belongs to.

mod choose;
mod folder;
mod glob;
mod listing;
mod small;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Error, Input, SmallFile, Warning, file::base_name, index::Index, input::is_component_name,
    names::WeightName,
};

use small::Budget;

/// Weights of one component, or a part of them.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The component; none leaves it to the default.
    pub(crate) component: Option<String>,
    /// The files.
    pub(crate) weights: Weights,
    /// Small files that belong to it.
    pub(crate) files: Vec<SmallFile>,
}

/// Files, or an index that says what to take from which file.
#[derive(Debug)]
pub(crate) enum Weights {
    /// All tensors of these.
    Files(Vec<PathBuf>),
    /// What it says.
    Index(Index),
}

/// What an input stands for.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// At least one.
    pub(crate) units: Vec<Unit>,
    /// Small files that belong to no unit alone.
    pub(crate) files: Vec<SmallFile>,
    /// Things noticed.
    pub(crate) warnings: Vec<Warning>,
}

impl Resolved {
    fn warn(&mut self, code: &'static str, message: String) {
        self.warnings.push(Warning { code, message });
    }

    fn append(&mut self, other: Self) {
        self.units.extend(other.units);
        self.files.extend(other.files);
        self.warnings.extend(other.warnings);
    }
}

/// Finds the files of all inputs.
pub(crate) fn resolve(inputs: &[Input]) -> Result<Resolved, Error> {
    let mut resolved = Resolved::default();
    let mut budget = Budget::default();
    let mut given = Given::default();
    for input in inputs {
        resolved.append(one(input, &mut budget, &mut given)?);
    }
    given.warn_of_gaps(&mut resolved);
    Ok(resolved)
}

fn one(input: &Input, budget: &mut Budget, given: &mut Given) -> Result<Resolved, Error> {
    let component = &input.component;
    if let Some(name) = component
        && !is_component_name(name)
    {
        return Err(Error::NoInput {
            input: input.to_string(),
            what: format!("{name:?} is no component name: letters, digits, `_`, `-`, `.`"),
        });
    }
    let path = Path::new(&input.path);
    if path.is_dir() {
        return folder::resolve(path, input, budget);
    }
    let single = |weights, files| Resolved {
        units: vec![Unit {
            component: component.clone(),
            weights,
            files,
        }],
        ..Resolved::default()
    };
    if !path.exists() && glob::is_pattern(&input.path) {
        return Ok(single(
            Weights::Files(glob::expand(&input.path)?),
            Vec::new(),
        ));
    }
    if path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
    {
        let index = Index::read(path)?;
        let folder = listing::Listing::read(&listing::parent(path))?;
        let unindexed = choose::unindexed(&index, &folder);
        let mut warnings = Vec::new();
        let files = small::beside(&folder, budget, &mut warnings)?;
        let mut resolved = single(Weights::Index(index), files);
        resolved.warnings = warnings;
        choose::warn_of_files(
            &mut resolved,
            "unindexed-files",
            "the index does not name",
            &unindexed,
        );
        return Ok(resolved);
    }
    given.note(component.as_deref(), path);
    Ok(single(Weights::Files(vec![path.to_owned()]), Vec::new()))
}

/// Numbered files that were given one by one. That some are not given may be meant.
#[derive(Default)]
struct Given {
    sets: BTreeMap<(Option<String>, PathBuf, String, u32), Vec<u32>>,
}

impl Given {
    fn note(&mut self, component: Option<&str>, path: &Path) {
        let Some(name) = WeightName::parse(&base_name(path)) else {
            return;
        };
        let Some((number, count)) = name.shard else {
            return;
        };
        let key = (
            component.map(str::to_owned),
            listing::parent(path),
            name.stem,
            count,
        );
        self.sets.entry(key).or_default().push(number);
    }

    fn warn_of_gaps(&self, resolved: &mut Resolved) {
        for ((_, _, stem, count), numbers) in &self.sets {
            if u32::try_from(numbers.len()).is_ok_and(|given| given < *count) {
                let given = numbers.len();
                let what = format!("{given} of the {count} files of {stem:?} are given");
                resolved.warn("incomplete-shards", what);
            }
        }
    }
}
