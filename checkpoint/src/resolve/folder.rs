//! Folders: Hugging Face models, diffusers pipelines, and folders that hold several models.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    Error, Input,
    file::{SourceReader, base_name},
    names::{WeightName, component_of, parse_index, plain, standard},
};

use super::{
    Resolved, Unit,
    choose::{Chosen, choose, warn_of_files},
    listing::Listing,
    small::{self, Budget},
};

/// Sub-folders that hold the same model in another form, or the state of a trainer.
const OTHER_FORMS: [&str; 7] = [
    "original",
    "onnx",
    "openvino",
    "coreml",
    "flax",
    "tensorflow",
    "gguf",
];

/// Finds the models in a folder and gives each a component.
pub(super) fn resolve(path: &Path, input: &Input, budget: &mut Budget) -> Result<Resolved, Error> {
    let listing = Listing::read(path)?;
    let mut resolved = models(&listing, budget)?;
    if resolved.units.is_empty()
        && let Some(snapshot) = cached_snapshot(&listing)?
    {
        resolved = models(&Listing::read(&snapshot)?, budget)?;
    }
    if resolved.units.is_empty() {
        return Err(Error::NoInput {
            input: input.to_string(),
            what: "the folder holds no weights (*.safetensors, *.pth, *.pt, *.bin, *.ckpt)"
                .to_owned(),
        });
    }
    if let Some(component) = &input.component {
        name_the_only(&mut resolved, component, input)?;
    }
    Ok(resolved)
}

fn models(listing: &Listing, budget: &mut Budget) -> Result<Resolved, Error> {
    match listing.file("model_index.json") {
        Some(index) => pipeline(listing, index, budget),
        None => folder(listing, budget),
    }
}

/// A name given on the command line can be that of one component only.
fn name_the_only(resolved: &mut Resolved, component: &str, input: &Input) -> Result<(), Error> {
    let names: Vec<String> = resolved
        .units
        .iter()
        .filter_map(|unit| unit.component.clone())
        .collect();
    match resolved.units.as_mut_slice() {
        [only] => only.component = Some(component.to_owned()),
        _ => {
            return Err(Error::SeveralComponents {
                input: input.to_string(),
                names,
            });
        }
    }
    Ok(())
}

/// A folder without a pipeline's index: models in it, and models in its sub-folders.
fn folder(listing: &Listing, budget: &mut Budget) -> Result<Resolved, Error> {
    refuse_parts(listing)?;
    let chosen = choose(listing)?;
    let mut resolved = Resolved::default();
    warn(&mut resolved, &chosen);

    // transformers names the one model of a folder so: what lies below is something else.
    let complete = chosen
        .choices
        .iter()
        .any(|choice| standard(&choice.stem).is_some() && component_of(&choice.stem) == "model");
    let main = chosen
        .choices
        .iter()
        .position(|choice| standard(&choice.stem).is_some());
    let mut named = Vec::new();
    for choice in chosen.choices {
        named.push((component_of(&choice.stem), plain(&choice.stem)));
        resolved.units.push(Unit {
            component: None,
            weights: choice.weights,
            files: Vec::new(),
        });
    }

    let mut left_out = Vec::new();
    let mut without_weights = Vec::new();
    for (name, path) in &listing.folders {
        let inner = Listing::read(path)?;
        if !holds_weights(&inner) {
            without_weights.push((name.clone(), path.as_path()));
        } else if complete || is_other_form(name) {
            left_out.push(format!("{name}/"));
        } else {
            let inner = sub_folder(&inner, budget)?;
            let several = inner.units.len() > 1;
            for unit in &inner.units {
                let base = component_of(name);
                let within = unit.component.clone().unwrap_or_default();
                let long = if several {
                    format!("{}.{within}", plain(name))
                } else {
                    plain(name)
                };
                named.push((if several { long.clone() } else { base }, long));
            }
            resolved.append(inner);
        }
    }
    warn_of_files(
        &mut resolved,
        "unused-folders",
        "other models lie in",
        &left_out,
    );
    name_units(&mut resolved.units, &named)?;

    let top = small::beside(listing, budget, &mut resolved.warnings)?;
    let below = small::below(
        &listing.path,
        &without_weights,
        budget,
        &mut resolved.warnings,
    )?;
    if let [only] = resolved.units.as_mut_slice() {
        only.files.splice(0..0, top.into_iter().chain(below));
    } else {
        match main.and_then(|main| resolved.units.get_mut(main)) {
            Some(unit) => unit.files.extend(top),
            None => resolved.files.extend(top),
        }
        resolved.files.extend(below);
    }
    resolved.units.sort_by(|a, b| a.component.cmp(&b.component));
    Ok(resolved)
}

/// The models of a sub-folder; what lies deeper is not looked at.
fn sub_folder(listing: &Listing, budget: &mut Budget) -> Result<Resolved, Error> {
    let flat = Listing {
        path: listing.path.clone(),
        files: listing.files.clone(),
        folders: Vec::new(),
    };
    let mut resolved = folder(&flat, budget)?;
    let prefix = base_name(&listing.path);
    for warning in &mut resolved.warnings {
        warning.message = format!("{prefix}/: {}", warning.message);
    }
    for file in &mut resolved.files {
        file.path = format!("{prefix}/{}", file.path);
    }
    Ok(resolved)
}

/// Gives each of several units the first of its two names, or the second where the first is not
/// its alone.
fn name_units(units: &mut [Unit], named: &[(String, String)]) -> Result<(), Error> {
    if units.len() < 2 {
        return Ok(());
    }
    let mut uses = BTreeMap::<&str, u32>::new();
    for (short, _) in named {
        *uses.entry(short).or_default() += 1;
    }
    let mut taken = BTreeSet::new();
    for (unit, (short, long)) in units.iter_mut().zip(named) {
        let alone = uses.get(short.as_str()) == Some(&1);
        let name = if alone { short } else { long };
        if !taken.insert(name.clone()) {
            return Err(Error::NameCollision {
                name: name.clone(),
                a: "a component of this folder".to_owned(),
                b: "another of its files".to_owned(),
            });
        }
        unit.component = Some(name.clone());
    }
    Ok(())
}

/// A diffusers pipeline: its index names the sub-folders.
fn pipeline(listing: &Listing, index: &Path, budget: &mut Budget) -> Result<Resolved, Error> {
    let parts = read_pipeline(index)?;
    let mut resolved = Resolved::default();
    let mut without_weights = Vec::new();
    let mut absent = Vec::new();
    for name in &parts {
        let Some(path) = listing.folder(name) else {
            absent.push(format!("{name}/"));
            continue;
        };
        let inner = Listing::read(path)?;
        if !holds_weights(&inner) {
            without_weights.push((name.clone(), path));
            continue;
        }
        let mut inner = sub_folder(&inner, budget)?;
        let several = inner.units.len() > 1;
        for unit in &mut inner.units {
            let within = unit.component.take().filter(|_| several);
            unit.component = Some(match within {
                Some(within) => format!("{}.{within}", plain(name)),
                None => plain(name),
            });
        }
        resolved.append(inner);
    }
    let is_part = |name: &String| parts.contains(name);
    let mut left_out: Vec<String> = Vec::new();
    for (name, path) in listing.folders.iter().filter(|(name, _)| !is_part(name)) {
        if holds_weights(&Listing::read(path)?) {
            left_out.push(format!("{name}/"));
        }
    }
    warn_of_files(
        &mut resolved,
        "missing-folders",
        "the pipeline names, but there is no",
        &absent,
    );
    warn_of_files(
        &mut resolved,
        "unused-folders",
        "the pipeline does not name",
        &left_out,
    );
    let loose: Vec<String> = listing
        .files
        .iter()
        .map(|file| file.0.clone())
        .filter(|name| WeightName::parse(name).is_some())
        .collect();
    warn_of_files(
        &mut resolved,
        "unused-files",
        "the pipeline does not name",
        &loose,
    );

    let top = small::beside(listing, budget, &mut resolved.warnings)?;
    let below = small::below(
        &listing.path,
        &without_weights,
        budget,
        &mut resolved.warnings,
    )?;
    resolved.files.extend(top);
    resolved.files.extend(below);
    Ok(resolved)
}

/// Sub-folders that a pipeline's index names, in ascending order.
fn read_pipeline(path: &Path) -> Result<Vec<String>, Error> {
    const LIMIT: u64 = 1 << 20;
    let bad = |what: String| Error::BadIndex {
        path: path.to_owned(),
        what,
    };
    let file = SourceReader::open(path)?;
    if file.size() > LIMIT {
        return Err(bad(format!(
            "{} bytes are over the limit of {LIMIT}",
            file.size()
        )));
    }
    let text = file.head(LIMIT)?;
    let map: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&text)
        .map_err(|error| bad(crate::error::shown(&error.to_string())))?;
    // `"vae": ["diffusers", "AutoencoderKL"]`; two nulls for a part that this pipeline lacks.
    let is_part = |value: &serde_json::Value| match value.as_array().map(Vec::as_slice) {
        Some([library, class]) => library.is_string() && class.is_string(),
        _ => false,
    };
    let parts = map
        .iter()
        .filter(|(name, value)| !name.starts_with('_') && is_part(value));
    Ok(parts.map(|(name, _)| name.clone()).collect())
}

fn warn(resolved: &mut Resolved, chosen: &Chosen) {
    let Chosen {
        unused,
        unindexed,
        training,
        ..
    } = chosen;
    warn_of_files(
        resolved,
        "unindexed-files",
        "the index does not name",
        unindexed,
    );
    warn_of_files(
        resolved,
        "unused-files",
        "other forms of the same weights are",
        unused,
    );
    warn_of_files(
        resolved,
        "training-state",
        "the state of a trainer is in",
        training,
    );
}

fn holds_weights(listing: &Listing) -> bool {
    listing.files.iter().any(|(name, _)| {
        let weights = WeightName::parse(name).is_some() || parse_index(name).is_some();
        weights && !WeightName::is_training_state(name) || name.ends_with(".distcp")
    })
}

fn is_other_form(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    OTHER_FORMS.contains(&lower.as_str())
        || lower.starts_with("checkpoint-")
        || lower.starts_with("global_step")
}

/// Refuses folders in which every file is one rank's part.
fn refuse_parts(listing: &Listing) -> Result<(), Error> {
    let count =
        |test: &dyn Fn(&str) -> bool| listing.files.iter().filter(|(name, _)| test(name)).count();
    let distcp = count(&|name| name.ends_with(".distcp"));
    let folder = listing.path.display();
    if distcp > 0 {
        return Err(Error::UnsupportedFormat {
            path: listing.path.clone(),
            what: format!(
                "a PyTorch distributed checkpoint ({distcp} .distcp files beside .metadata)"
            ),
            remedy: Some(format!(
                "merge it first: python -m torch.distributed.checkpoint.format_utils \
                 dcp_to_torch {folder} model.pt (the function is dcp_to_torch_save)"
            )),
        });
    }
    let zero = count(&|name| name.contains("zero_pp_rank_"));
    if zero > 0 {
        return Err(Error::Partitioned {
            path: listing.path.clone(),
            what: format!("{zero} DeepSpeed files zero_pp_rank_*"),
            remedy: format!(
                "merge them first: python zero_to_fp32.py {folder} OUT; the weights of ZeRO-1 \
                 and ZeRO-2 are whole in mp_rank_*_model_states.pt, give that file"
            ),
        });
    }
    Ok(())
}

/// The snapshot that the folder of one model in a Hugging Face cache stands for.
fn cached_snapshot(listing: &Listing) -> Result<Option<PathBuf>, Error> {
    let Some(snapshots) = listing.folder("snapshots") else {
        return Ok(None);
    };
    let snapshots = Listing::read(snapshots)?;
    let main = listing.path.join("refs").join("main");
    if let Ok(file) = SourceReader::open(&main)
        && let Ok(name) = String::from_utf8(file.head(256)?)
        && let Some(path) = snapshots.folder(name.trim())
    {
        return Ok(Some(path.to_owned()));
    }
    match snapshots.folders.as_slice() {
        [(_, only)] => Ok(Some(only.clone())),
        _ => Ok(None),
    }
}
