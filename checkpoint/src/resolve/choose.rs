//! Which of a folder's files are its weights: one of several forms of the same model, and all of
//! several models.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    Error,
    index::Index,
    names::{WeightName, parse_index, standard},
};

use super::{Resolved, Weights, listing::Listing};

/// The weights of one model in a folder.
#[derive(Debug)]
pub(super) struct Choice {
    /// Name common to its files.
    pub(super) stem: String,
    /// The files.
    pub(super) weights: Weights,
}

/// What was chosen in a folder, and what was not.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) choices: Vec<Choice>,
    /// Other forms of a model that was chosen.
    pub(super) unused: Vec<String>,
    /// Files that look like shards of an index that does not name them.
    pub(super) unindexed: Vec<String>,
    /// Optimizers and the like.
    pub(super) training: Vec<String>,
}

/// One form in which the weights of a model lie in a folder.
#[derive(Debug)]
struct Candidate {
    name: WeightName,
    index: Option<PathBuf>,
    /// Base names, with the number each bears.
    files: Vec<(String, PathBuf, Option<u32>)>,
}

impl Candidate {
    /// Ascending from the best: the whole model before a variant of it, safetensors before pickles,
    /// then as the framework that uses the name prefers it.
    fn rank(&self) -> (bool, String, bool, usize, bool, u32) {
        let (place, variant) = standard(&self.name.stem).unwrap_or((0, ""));
        // diffusers takes the index first, transformers the single file.
        let index_first = self.name.stem.starts_with("diffusion_pytorch_model");
        let single = self.index.is_none() && self.name.shard.is_none();
        let count = self.name.shard.map_or(0, |(_, count)| count);
        let last = if self.index.is_none() && !single {
            true
        } else {
            single == index_first
        };
        let pickle = !self.name.safetensors;
        (
            !variant.is_empty(),
            variant.to_owned(),
            pickle,
            place,
            last,
            count,
        )
    }
}

/// Groups files into models and takes one form of each.
pub(super) fn choose(listing: &Listing) -> Result<Chosen, Error> {
    let mut chosen = Chosen::default();
    let mut families = families(listing, &mut chosen.training);
    // An index may name files of any stem: they belong to it and are no models of their own.
    let mut keys: Vec<String> = families.keys().cloned().collect();
    keys.sort_by_key(|key| {
        families
            .get(key)
            .is_none_or(|family| family.iter().all(|form| form.index.is_none()))
    });
    let mut taken = BTreeSet::new();
    for key in keys {
        let Some(mut family) = families.remove(&key) else {
            continue;
        };
        for form in &mut family {
            form.files.retain(|(name, _, _)| !taken.contains(name));
        }
        family.retain(|form| form.index.is_some() || !form.files.is_empty());
        family.sort_by_key(Candidate::rank);
        let mut forms = family.into_iter();
        let Some(best) = forms.next() else { continue };
        let best_name = best.name.clone();
        let weights = match &best.index {
            Some(path) => {
                let index = Index::read(path)?;
                taken.extend(index.shards.keys().map(|shard| plain_name(shard)));
                Weights::Index(index)
            }
            None => {
                taken.extend(best.files.iter().map(|file| file.0.clone()));
                check_complete(&listing.path, &best)?;
                Weights::Files(best.files.iter().map(|file| file.1.clone()).collect())
            }
        };
        let indexed = best.index.is_some();
        for (form, (name, _, _)) in forms.flat_map(|form| {
            let Candidate { name, files, .. } = form;
            files.into_iter().map(move |file| (name.clone(), file))
        }) {
            if taken.contains(&name) {
                continue;
            }
            let same = form.stem == best_name.stem && form.safetensors == best_name.safetensors;
            if indexed && same && form.shard.is_some() {
                chosen.unindexed.push(name);
            } else {
                chosen.unused.push(name);
            }
        }
        chosen.choices.push(Choice {
            stem: best_name.stem,
            weights,
        });
    }
    chosen.choices.sort_by(|a, b| a.stem.cmp(&b.stem));
    Ok(chosen)
}

/// Forms by model. All names that a framework gives the one model of a folder are one model.
fn families(listing: &Listing, training: &mut Vec<String>) -> BTreeMap<String, Vec<Candidate>> {
    let mut forms = BTreeMap::<(String, bool, bool, Option<u32>), Candidate>::new();
    for (file, path) in &listing.files {
        if WeightName::is_training_state(file) {
            if WeightName::parse(file).is_some() {
                training.push(file.clone());
            }
        } else if let Some(name) = parse_index(file) {
            let key = (name.stem.clone(), name.safetensors, true, None);
            let form = Candidate {
                name,
                index: Some(path.clone()),
                files: Vec::new(),
            };
            forms.insert(key, form);
        } else if let Some(name) = WeightName::parse(file) {
            let count = name.shard.map(|(_, count)| count);
            let number = name.shard.map(|(number, _)| number);
            let key = (name.stem.clone(), name.safetensors, false, count);
            let form = forms.entry(key).or_insert_with(|| Candidate {
                name,
                index: None,
                files: Vec::new(),
            });
            form.files.push((file.clone(), path.clone(), number));
        }
    }
    let mut families = BTreeMap::<String, Vec<Candidate>>::new();
    for form in forms.into_values() {
        let family = match standard(&form.name.stem) {
            Some(_) => String::new(),
            None => form.name.stem.clone(),
        };
        families.entry(family).or_default().push(form);
    }
    families
}

/// Refuses a numbered set with a gap.
fn check_complete(folder: &Path, form: &Candidate) -> Result<(), Error> {
    let Some((_, count)) = form.name.shard else {
        return Ok(());
    };
    let numbers: BTreeSet<u32> = form.files.iter().filter_map(|file| file.2).collect();
    let first = u32::from(!numbers.contains(&0));
    let last = count.saturating_add(first);
    // At most one step more than there are files.
    let Some(missing) = (first..last).find(|number| !numbers.contains(number)) else {
        return Ok(());
    };
    Err(Error::MissingShard {
        path: folder.to_owned(),
        shard: form
            .files
            .first()
            .and_then(|file| renumber(&file.0, missing))
            .unwrap_or_default(),
        what: format!("{} of {count} are there", numbers.len()),
    })
}

/// The name with another number.
fn renumber(name: &str, number: u32) -> Option<String> {
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, digits) = rest.rsplit_once('-')?;
    Some(format!(
        "{stem}-{number:0width$}-of-{count}",
        width = digits.len()
    ))
}

/// Checks the numbered sets among files that a pattern found.
pub(super) fn check_sets(paths: &[PathBuf]) -> Result<(), Error> {
    let mut folders = BTreeMap::<PathBuf, Listing>::new();
    for path in paths {
        let folder = super::listing::parent(path);
        let listing = folders.entry(folder.clone()).or_insert_with(|| Listing {
            path: folder,
            ..Listing::default()
        });
        listing
            .files
            .push((crate::file::base_name(path), path.clone()));
    }
    for listing in folders.values() {
        for form in families(listing, &mut Vec::new()).into_values().flatten() {
            check_complete(&listing.path, &form)?;
        }
    }
    Ok(())
}

/// Files of weights beside an index that it does not name.
pub(super) fn unindexed(index: &Index, listing: &Listing) -> Vec<String> {
    let named: BTreeSet<String> = index.shards.keys().map(|shard| plain_name(shard)).collect();
    let is_weights =
        |name: &String| WeightName::parse(name).is_some() && !WeightName::is_training_state(name);
    let names = listing.files.iter().map(|file| &file.0);
    names
        .filter(|name| is_weights(name) && !named.contains(*name))
        .cloned()
        .collect()
}

/// A shard's text without a leading `./`.
fn plain_name(shard: &str) -> String {
    shard.trim_start_matches("./").to_owned()
}

/// One warning for files of one kind; none if there are none.
pub(super) fn warn_of_files(
    resolved: &mut Resolved,
    code: &'static str,
    what: &str,
    names: &[String],
) {
    if names.is_empty() {
        return;
    }
    let mut message = format!("{what} {}", crate::error::list(names));
    if names.len() == 1 {
        message.push_str(": it is left out");
    } else {
        message.push_str(": they are left out");
    }
    resolved.warn(code, message);
}
