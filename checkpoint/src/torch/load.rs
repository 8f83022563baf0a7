//! From a pickle with its storages to what the reader of a file gives.

use std::collections::HashMap;

use super::{
    names::{Places, TOP},
    object::View,
    output_limit,
    partition::{refuse_optimizer_shard, refuse_placeholders},
    root::{self, Root, members},
    storages::Loaded,
    survey::Survey,
    tensor::Tensors,
    walk::{Harvest, Walk},
};
use crate::{
    Error, OpenOptions, Warning,
    detect::Container,
    error::list,
    file::SourceReader,
    opened::Opened,
    pickle::{Id, Meaning, Node},
};

/// Finds the state dict in the object and all tensors in it.
pub(super) fn finish(
    file: &SourceReader,
    kind: Container,
    mut loaded: Loaded,
    source: usize,
    options: &OpenOptions,
) -> Result<Opened, Error> {
    let mut warnings = std::mem::take(&mut loaded.warnings);
    let view = View {
        graph: &loaded.pickle.graph,
        referents: &loaded.referents,
    };
    let top = loaded.pickle.root;
    let survey = Survey::new(view, top);

    // What one node is walked at several places for is bounded by the size of the pickle.
    let nodes = view.graph.len();
    let mut places = Places::new(view.graph, nodes.saturating_mul(8).saturating_add(1 << 12));
    let root = match options.root.as_deref() {
        Some(path) => root::asked(file, view, &survey, &mut places, top, path)?,
        None => {
            refuse_optimizer_shard(file, view, top)?;
            root::find(file, view, &survey, top)?
        }
    };
    let bytes = usize::try_from(loaded.pickle_len).unwrap_or(usize::MAX);
    let name_bytes = bytes.saturating_mul(64).saturating_add(1 << 20);
    let tensors = Tensors {
        file,
        objects: view,
        loaded: &loaded,
        at: 0,
    };
    let mut walk = Walk::new(tensors, &survey, places, name_bytes);
    walk.take(root.id, TOP)?;
    leave_out(&mut walk, view, &root)?;
    let harvest = walk.finish();

    let empty: HashMap<&str, bool> = harvest
        .tensors
        .iter()
        .flat_map(|(dense, names)| names.iter().map(|name| (name.as_str(), dense.is_empty())))
        .collect();
    refuse_placeholders(file, view, top, &empty)?;
    if harvest.tensors.is_empty() {
        warnings.push(without_tensors(file, view, &survey, top)?);
    }
    warn(view, &survey, top, &root, &harvest, &mut warnings);
    let tensors = self::tensors(file, &loaded, harvest.tensors, source, options)?;
    Ok(Opened {
        container: kind.name(),
        root: root.name,
        tensors,
        metadata: loaded.metadata,
        skipped: harvest.skipped,
        warnings,
    })
}

/// Lists what stands beside the root, at every level above it.
fn leave_out(walk: &mut Walk<'_>, view: View<'_>, root: &Root) -> Result<(), Error> {
    for step in &root.way {
        let mut chosen = false;
        for (part, value) in members(view, step.container) {
            if value == step.value && !chosen {
                chosen = true;
                continue;
            }
            if let Some(place) = walk.places.add(step.place, part) {
                walk.leave_out(value, place)?;
            }
        }
    }
    Ok(())
}

/// An empty object has no tensors to lose; any other without tensors is no checkpoint.
fn without_tensors(
    file: &SourceReader,
    view: View<'_>,
    survey: &Survey,
    top: Id,
) -> Result<Warning, Error> {
    if members(view, top).is_empty() && !matches!(view.graph.node(top), Node::Object(_)) {
        let message = "the object is empty".to_owned();
        return Ok(Warning {
            code: "no-tensors",
            message,
        });
    }
    let what = match survey.numpy {
        0 => format!("the object is a {} of other values", view.kind(top)),
        count => format!("{count} numpy values found: the values are numpy, not torch tensors"),
    };
    Err(Error::NoTensors {
        path: file.path().to_owned(),
        what,
    })
}

fn tensors(
    file: &SourceReader,
    loaded: &Loaded,
    found: Vec<(super::dense::Dense, Vec<String>)>,
    source: usize,
    options: &OpenOptions,
) -> Result<Vec<crate::Tensor>, Error> {
    let limit = output_limit(file, options);
    let mut total = 0_u128;
    let mut tensors = Vec::with_capacity(found.len());
    for (dense, names) in found {
        let len = dense.len();
        total = total.saturating_add(len.map_or(u128::MAX, u128::from));
        if total > u128::from(limit) {
            return Err(Error::ResourceLimit {
                path: file.path().to_owned(),
                what: "bytes of all tensors".to_owned(),
                found: total,
                limit,
            });
        }
        let name = names.first().cloned().unwrap_or_default();
        let tensor = dense.tensor(names, loaded, source);
        tensors.push(tensor.ok_or_else(|| Error::UnsupportedLayout {
            path: file.path().to_owned(),
            tensor: name,
            layout: "packed pairs without a dimension".to_owned(),
        })?);
    }
    Ok(tensors)
}

fn warn(
    view: View<'_>,
    survey: &Survey,
    top: Id,
    root: &Root,
    harvest: &Harvest,
    warnings: &mut Vec<Warning>,
) {
    let mut add = |code, message: String| warnings.push(Warning { code, message });
    let texts =
        |set: &std::collections::BTreeSet<String>| list(&set.iter().cloned().collect::<Vec<_>>());
    if root.way.is_empty() {
        match view.role(top) {
            super::object::Role::Tensor => add(
                "root-is-tensor",
                "the object is one tensor, which has no name; give it one with --rename".to_owned(),
            ),
            super::object::Role::Sequence(_) => {
                add(
                    "root-is-list",
                    "the object is a list: names are places in it".to_owned(),
                );
            }
            _ => {}
        }
        if root::is_optimizer(view, top) {
            add(
                "looks-like-optimizer-state",
                "the object has the keys of an optimizer's state, not of a model".to_owned(),
            );
        }
    }
    if !harvest.modules.is_empty() {
        add(
            "pickled-module",
            format!(
                "parameters and buffers of pickled modules were taken, their code was not: {}",
                texts(&harvest.modules)
            ),
        );
    }
    if !harvest.subclasses.is_empty() {
        let classes = texts(&harvest.subclasses);
        add("dict-subclass", format!("taken for dicts: {classes}"));
    }
    if harvest.bare_storages > 0 {
        let count = harvest.bare_storages;
        add(
            "bare-storage",
            format!("{count} storages that are no tensors were left out"),
        );
    }
    if survey.recursive || harvest.recursive {
        add("recursive-object", "a value contains itself".to_owned());
    }
    let flat = harvest.tensors.iter().flat_map(|(_, names)| names);
    let flat: Vec<String> = flat
        .filter(|name| name.contains("flat_param"))
        .take(8)
        .cloned()
        .collect();
    if !flat.is_empty() {
        add(
            "fsdp-flat-param",
            format!(
                "flat parameters of FSDP, not weights by their own names: {}",
                list(&flat)
            ),
        );
    }
    let opaque: Vec<String> = view
        .graph
        .globals()
        .filter(|global| matches!(global.meaning, Meaning::Opaque | Meaning::Unknown))
        .map(crate::pickle::Global::path)
        .filter(|path| !harvest.modules.contains(path) && !harvest.subclasses.contains(path))
        .collect();
    if !opaque.is_empty() {
        let classes = list(&opaque);
        add(
            "opaque-objects",
            format!("objects of these classes were left out: {classes}"),
        );
    }
}
