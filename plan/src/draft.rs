//! A component while layouts place its tensors.

use std::collections::HashMap;

use wpack_format::Role;

use crate::mesh::{Axes, Mesh};
use crate::placement::Placement;
use crate::roles::Verdict;
use crate::{ComponentSpec, Error};

/// Axes that hold the same at every coordinate unless a layout cuts over them: data parallel replicas,
/// and sequence parallel ranks, which share weights.
const REPLICATING: [&str; 9] = [
    "dp",
    "ddp",
    "dp_replicate",
    "replicate",
    "rep",
    "sp",
    "cp",
    "ulysses",
    "ring",
];

/// What layouts add placements to.
pub(crate) struct Draft<'a> {
    layout: &'a str,
    mesh: &'a Mesh,
    verdicts: &'a [Verdict],
    taken: Vec<bool>,
    lists: Vec<Vec<Placement>>,
    next: HashMap<(u32, Placement), u32>,
    list_of: Vec<u32>,
}

/// Where every tensor of a component lies: an index into lists of placements.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) lists: Vec<Vec<Placement>>,
    pub(crate) list_of: Vec<u32>,
}

impl Placed {
    /// All tensors whole on every rank.
    pub(crate) fn whole(tensors: usize) -> Self {
        Self {
            lists: vec![Vec::new()],
            list_of: vec![0; tensors],
        }
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        layout: &'a str,
        mesh: &'a Mesh,
        component: &ComponentSpec,
        verdicts: &'a [Verdict],
    ) -> Self {
        let Placed { lists, list_of } = Placed::whole(component.tensors.len());
        let taken = vec![false; mesh.axes().len()];
        Self {
            layout,
            mesh,
            verdicts,
            taken,
            lists,
            next: HashMap::new(),
            list_of,
        }
    }

    /// The axes that a layout cuts over: the mesh's only one, else those of these names.
    pub(crate) fn take_axes(&mut self, layout: &str, wanted: &[&str]) -> Result<Axes, Error> {
        let found: Vec<usize> = match self.mesh.axes() {
            [_] => vec![0],
            axes => (0..axes.len())
                .filter(|&index| {
                    axes.get(index)
                        .is_some_and(|a| wanted.contains(&a.name.as_str()))
                })
                .collect(),
        };
        if found.is_empty() {
            let quoted: Vec<String> = wanted.iter().map(|name| format!("`{name}`")).collect();
            return Err(Error::AxisMissing {
                layout: layout.to_owned(),
                wanted: quoted.join(" or "),
                mesh: self.mesh.to_string(),
            });
        }
        for &index in &found {
            if let Some(taken) = self.taken.get_mut(index)
                && std::mem::replace(taken, true)
            {
                return Err(Error::AxisTaken {
                    layout: self.layout.to_owned(),
                    axis: self
                        .mesh
                        .axes()
                        .get(index)
                        .map(|a| a.name.clone())
                        .unwrap_or_default(),
                    mesh: self.mesh.to_string(),
                });
            }
        }
        Ok(Axes::new(found))
    }

    /// Adds a step to every tensor that may be cut.
    pub(crate) fn place_parameters(&mut self, placement: &Placement) {
        for (list, verdict) in self.list_of.iter_mut().zip(self.verdicts) {
            if verdict.role == Role::Parameter {
                *list = append(&mut self.lists, &mut self.next, *list, placement);
            }
        }
    }

    /// The placements, once every axis of the mesh has a meaning.
    pub(crate) fn finish(self) -> Result<Placed, Error> {
        let unused = self
            .mesh
            .axes()
            .iter()
            .zip(&self.taken)
            .find(|(axis, taken)| !**taken && !REPLICATING.contains(&axis.name.as_str()));
        if let Some((axis, _)) = unused {
            return Err(Error::AxisUnused {
                layout: self.layout.to_owned(),
                axis: axis.name.clone(),
                mesh: self.mesh.to_string(),
            });
        }
        Ok(Placed {
            lists: self.lists,
            list_of: self.list_of,
        })
    }
}

/// The list that is list `from` and one step more; equal lists have one index.
fn append(
    lists: &mut Vec<Vec<Placement>>,
    next: &mut HashMap<(u32, Placement), u32>,
    from: u32,
    placement: &Placement,
) -> u32 {
    if let Some(&index) = next.get(&(from, placement.clone())) {
        return index;
    }
    let mut list = usize::try_from(from)
        .ok()
        .and_then(|at| lists.get(at))
        .cloned()
        .unwrap_or_default();
    list.push(placement.clone());
    // There are no more lists than tensors, whose number was checked.
    let index = u32::try_from(lists.len()).unwrap_or(u32::MAX);
    lists.push(list);
    next.insert((from, placement.clone()), index);
    index
}
