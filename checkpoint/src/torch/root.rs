//! Which part of an object is the state dict.
//!
//! A single known wrapper key is unwrapped, once, when nothing but training state stands beside it;
//! otherwise the whole object is converted and names are paths. Two wrapped copies of a model are a
//! question for the user.

use super::{
    names::{Part, Place, Places, TOP, key_name},
    object::{Role, View},
    survey::Survey,
};
use crate::{
    Error,
    file::SourceReader,
    pickle::{Id, Node},
};

/// Keys under which programs put a whole state dict or model.
const WRAPPERS: &[&str] = &[
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "network",
    "net",
    "generator",
    "params",
    "params_ema",
    "model_ema",
    "ema",
    "ema_model",
    "ema_state_dict",
    "state_dict_ema",
    "model_ema_state_dict",
    "g_ema",
];

/// Keys under which programs put what only training needs.
const TRAINING: &[&str] = &[
    "amp_scaler",
    "callbacks",
    "cuda_rng_state",
    "cuda_rng_state_all",
    "frozen_param_fragments",
    "grad_scaler",
    "hparams",
    "hyper_parameters",
    "loops",
    "lr_scheduler",
    "lr_schedulers",
    "lr_scheduler_state_dict",
    "native_amp_scaling_state",
    "np_rng_state",
    "optim",
    "optimizer",
    "optimizer_state",
    "optimizer_state_dict",
    "optimizer_states",
    "optimizers",
    "random_rng_state",
    "rng_state",
    "rng_states",
    "scaler",
    "scheduler",
    "scheduler_state_dict",
    "schedulers",
    "torch_rng_state",
];

/// The part of an object that is converted.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) id: Id,
    /// Containers on the way to it, each with the value that was chosen in it.
    pub(super) way: Vec<Way>,
    /// Its path.
    pub(super) name: String,
}

/// One step on the way to the root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The container.
    pub(super) container: Id,
    /// The chosen value in it.
    pub(super) value: Id,
    /// The container's place.
    pub(super) place: Place,
}

/// The values of a container by their part of a path.
pub(super) fn members(view: View<'_>, id: Id) -> Vec<(Part, Id)> {
    match view.role(id) {
        Role::Mapping(mapping) => view
            .entries(mapping)
            .map(|(key, value)| (Part::Key(key), value))
            .collect(),
        Role::Sequence(values) => values
            .iter()
            .enumerate()
            .map(|(at, &value)| (Part::Index(at), value))
            .collect(),
        Role::Module(state) => ["_parameters", "_buffers", "_modules"]
            .iter()
            .filter_map(|part| view.lookup(state, part))
            .flat_map(|part| members_of_mapping(view, part))
            .collect(),
        _ => Vec::new(),
    }
}

fn members_of_mapping(view: View<'_>, id: Id) -> Vec<(Part, Id)> {
    match view.role(id) {
        Role::Mapping(mapping) => view
            .entries(mapping)
            .map(|(key, value)| (Part::Key(key), value))
            .collect(),
        _ => Vec::new(),
    }
}

/// The root that the user asked for.
pub(super) fn asked(
    file: &SourceReader,
    view: View<'_>,
    survey: &Survey,
    places: &mut Places<'_>,
    top: Id,
    path: &str,
) -> Result<Root, Error> {
    /// More than enough for any path: keys that are prefixes of each other branch.
    const MOST_STEPS: usize = 100_000;
    let mut stack = vec![(top, TOP, path, Vec::<Way>::new())];
    if path.is_empty() {
        return Ok(Root {
            id: top,
            way: Vec::new(),
            name: String::new(),
        });
    }
    let mut steps = 0_usize;
    while let Some((id, place, rest, way)) = stack.pop() {
        for (part, value) in members(view, id) {
            steps += 1;
            let text = match part {
                Part::Index(at) => at.to_string(),
                Part::Key(key) => match key_name(view.graph, key) {
                    Some(text) => text,
                    None => continue,
                },
            };
            let Some(rest) = rest.strip_prefix(text.as_str()) else {
                continue;
            };
            let step = Way {
                container: id,
                value,
                place,
            };
            let longer = || way.iter().copied().chain([step]).collect();
            if rest.is_empty() {
                let holds = survey.holds(value) && !matches!(view.role(value), Role::Other);
                if holds {
                    return Ok(Root {
                        id: value,
                        way: longer(),
                        name: path.to_owned(),
                    });
                }
            } else if let Some(rest) = rest.strip_prefix('.')
                && steps < MOST_STEPS
                && let Some(inner) = places.add(place, part)
            {
                stack.push((value, inner, rest, longer()));
            }
        }
    }
    let roots = members(view, top)
        .into_iter()
        .filter(|&(_, value)| survey.holds(value) && is_container(view, value))
        .map(|(part, _)| places.text(part))
        .collect();
    Err(Error::NoSuchRoot {
        path: file.path().to_owned(),
        root: path.to_owned(),
        roots,
    })
}

/// The root by the rules.
pub(super) fn find(
    file: &SourceReader,
    view: View<'_>,
    survey: &Survey,
    top: Id,
) -> Result<Root, Error> {
    let whole = Root {
        id: top,
        way: Vec::new(),
        name: String::new(),
    };
    let Role::Mapping(mapping) = view.role(top) else {
        return Ok(whole);
    };
    let mut known = Vec::new();
    for (key, value) in view
        .entries(mapping)
        .filter(|&(_, value)| survey.holds(value))
    {
        let name = match view.graph.node(key) {
            Node::Text(name) => name,
            _ => return Ok(whole),
        };
        if WRAPPERS.contains(&name) && is_container(view, value) {
            known.push((name, value));
        } else if !TRAINING.contains(&name) && !is_counter(view, value) {
            return Ok(whole);
        }
    }
    match known.as_slice() {
        [] => Ok(whole),
        &[(name, value)] => Ok(Root {
            id: value,
            way: vec![Way {
                container: top,
                value,
                place: TOP,
            }],
            name: name.to_owned(),
        }),
        several => Err(Error::AmbiguousRoot {
            path: file.path().to_owned(),
            roots: several.iter().map(|&(name, _)| name.to_owned()).collect(),
        }),
    }
}

fn is_container(view: View<'_>, id: Id) -> bool {
    matches!(
        view.role(id),
        Role::Mapping(_) | Role::Module(_) | Role::Sequence(_)
    )
}

/// A tensor without dimensions, such as a step count or a best score.
fn is_counter(view: View<'_>, id: Id) -> bool {
    let Node::Object(object) = view.graph.node(id) else {
        return false;
    };
    let Some(&size) = view.args(object).get(2) else {
        return false;
    };
    matches!(view.role(size), Role::Sequence([]))
}

/// Whether the object is what an optimizer saves.
pub(super) fn is_optimizer(view: View<'_>, top: Id) -> bool {
    let Role::Mapping(mapping) = view.role(top) else {
        return false;
    };
    let has = |name: &str| view.member(top, name).is_some();
    view.entries(mapping).count() == 2 && has("state") && has("param_groups")
}
