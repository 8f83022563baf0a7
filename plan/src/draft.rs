//! A component while layouts place its tensors.

use std::collections::HashMap;

use wpack_format::{Role, SliceKind};

use crate::index::{index, index32};
use crate::mesh::{Axes, Mesh};
use crate::options::{Options, Order};
use crate::placement::Placement;
use crate::roles::Verdict;
use crate::stream::Stream;
use crate::{ComponentSpec, Error, Fault, TensorSpec};

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
    spec: &'a ComponentSpec,
    options: &'a Options,
    verdicts: &'a [Verdict],
    taken: Vec<bool>,
    next: HashMap<(u32, Placement), u32>,
    placed: Placed,
}

/// Where every tensor of a component lies.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Lists of placements; equal lists have one index.
    pub(crate) lists: Vec<Vec<Placement>>,
    /// The list of every tensor.
    pub(crate) list_of: Vec<u32>,
    /// The list of every tensor's master copy, where there is one.
    pub(crate) master_of: Vec<Option<u32>>,
    /// Flat groups.
    pub(crate) streams: Vec<Group>,
}

/// A flat group and its place.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) stream: Stream,
    pub(crate) list: u32,
    /// Its tensors.
    pub(crate) members: Vec<u32>,
}

impl Placed {
    /// All tensors whole on every rank.
    pub(crate) fn whole(tensors: usize) -> Self {
        Self {
            lists: vec![Vec::new()],
            list_of: vec![0; tensors],
            master_of: vec![None; tensors],
            streams: Vec::new(),
        }
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        layout: &'a str,
        mesh: &'a Mesh,
        spec: &'a ComponentSpec,
        options: &'a Options,
        verdicts: &'a [Verdict],
    ) -> Self {
        Self {
            layout,
            mesh,
            spec,
            options,
            verdicts,
            taken: vec![false; mesh.axes().len()],
            next: HashMap::new(),
            placed: Placed::whole(spec.tensors.len()),
        }
    }

    /// What is known of the model.
    pub(crate) fn options(&self) -> &'a Options {
        self.options
    }

    /// The tensors by index.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (u32, &'a TensorSpec)> + use<'a> {
        self.spec
            .tensors
            .iter()
            .enumerate()
            .map(|(at, tensor)| (index32(at), tensor))
    }

    /// The tensors that may be cut, by index.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (u32, &'a TensorSpec)> + use<'a> {
        let verdicts = self.verdicts;
        self.tensors().filter(move |(at, _)| {
            verdicts
                .get(index(*at))
                .is_some_and(|verdict| verdict.role == Role::Parameter)
        })
    }

    /// The ranks along axes.
    pub(crate) fn size(&self, axes: &Axes) -> u64 {
        axes.size(self.mesh)
    }

    /// Whether the mesh has an axis.
    pub(crate) fn has_axis(&self, name: &str) -> bool {
        self.mesh.axis(name).is_some()
    }

    /// The axes of these names, in the order of the mesh.
    pub(crate) fn axes(&self, names: &[&str]) -> Axes {
        let axes = self.mesh.axes().iter().enumerate();
        Axes::new(
            axes.filter(|(_, a)| names.contains(&a.name.as_str()))
                .map(|(at, _)| at)
                .collect(),
        )
    }

    /// Whether a step has placed a tensor.
    pub(crate) fn is_placed(&self, tensor: u32) -> bool {
        self.placed
            .list_of
            .get(index(tensor))
            .is_some_and(|&list| list != 0)
    }

    /// The axes that a layout cuts over: the mesh's only one, else those of these names.
    pub(crate) fn take_axes(&mut self, layout: &str, wanted: &[&str]) -> Result<Axes, Error> {
        let found: Vec<usize> = match self.mesh.axes() {
            [_] => vec![0],
            axes => axes
                .iter()
                .enumerate()
                .filter(|(_, axis)| wanted.contains(&axis.name.as_str()))
                .map(|(at, _)| at)
                .collect(),
        };
        if found.is_empty() {
            return Err(self.axis_missing(layout, wanted));
        }
        for &at in &found {
            if let Some(taken) = self.taken.get_mut(at)
                && std::mem::replace(taken, true)
            {
                return Err(Error::AxisTaken {
                    layout: self.layout.to_owned(),
                    axis: self
                        .mesh
                        .axes()
                        .get(at)
                        .map(|a| a.name.clone())
                        .unwrap_or_default(),
                    mesh: self.mesh.to_string(),
                });
            }
        }
        Ok(Axes::new(found))
    }

    /// Adds a step to a tensor.
    pub(crate) fn place(&mut self, tensor: u32, placement: &Placement) {
        let Some(&from) = self.placed.list_of.get(index(tensor)) else {
            return;
        };
        let list = self.append(from, placement);
        if let Some(slot) = self.placed.list_of.get_mut(index(tensor)) {
            *slot = list;
        }
    }

    /// Adds a step to every tensor that may be cut.
    pub(crate) fn place_parameters(&mut self, placement: &Placement) {
        for (tensor, _) in self.parameters() {
            self.place(tensor, placement);
        }
    }

    /// The list that is list `from` and one step more.
    fn append(&mut self, from: u32, placement: &Placement) -> u32 {
        if let Some(&known) = self.next.get(&(from, placement.clone())) {
            return known;
        }
        let mut list = self
            .placed
            .lists
            .get(index(from))
            .cloned()
            .unwrap_or_default();
        list.push(placement.clone());
        let at = index32(self.placed.lists.len());
        self.placed.lists.push(list);
        self.next.insert((from, placement.clone()), at);
        at
    }

    /// Lays tensors one after the other. A stream of values takes the place of its tensors' own slices.
    pub(crate) fn group(&mut self, stream: Stream, members: Vec<u32>, placement: &Placement) {
        let master = stream.kind == SliceKind::Master;
        let list = self.append(0, placement);
        for &member in &members {
            if master {
                if let Some(slot) = self.placed.master_of.get_mut(index(member)) {
                    *slot = Some(list);
                }
            } else {
                // A step before or after this one is refused when the stream is cut.
                self.place(member, placement);
            }
        }
        let list = match members
            .first()
            .and_then(|&first| self.placed.list_of.get(index(first)))
        {
            Some(&own) if !master => own,
            _ => list,
        };
        self.placed.streams.push(Group {
            stream,
            list,
            members,
        });
    }

    /// The tensors that may be cut, in the order in which the model registers them.
    pub(crate) fn ordered(&self) -> Result<Vec<(u32, &'a TensorSpec)>, Error> {
        let unknown = |tensor: Option<&TensorSpec>| Error::OrderUnknown {
            component: self.spec.name.clone(),
            layout: self.layout.to_owned(),
            tensor: tensor.and_then(|tensor| tensor.names.first().cloned()),
        };
        match &self.options.order {
            Order::Unknown => Err(unknown(None)),
            Order::Checkpoint => Ok(self.parameters().collect()),
            Order::Names(names) => {
                let mut places = HashMap::new();
                for (at, name) in names.iter().enumerate() {
                    places.entry(name.as_str()).or_insert(at);
                }
                let mut ordered = Vec::new();
                for (tensor, spec) in self.parameters() {
                    let place = spec
                        .names
                        .iter()
                        .filter_map(|name| places.get(name.as_str()))
                        .min();
                    ordered.push((*place.ok_or_else(|| unknown(Some(spec)))?, tensor, spec));
                }
                ordered.sort_by_key(|(place, ..)| *place);
                Ok(ordered
                    .into_iter()
                    .map(|(_, tensor, spec)| (tensor, spec))
                    .collect())
            }
        }
    }

    /// The error of a mesh without an axis of these names.
    pub(crate) fn axis_missing(&self, layout: &str, wanted: &[&str]) -> Error {
        let quoted: Vec<String> = wanted.iter().map(|name| format!("`{name}`")).collect();
        Error::AxisMissing {
            layout: layout.to_owned(),
            wanted: quoted.join(" or "),
            mesh: self.mesh.to_string(),
        }
    }

    /// The error of a rule that cannot be applied.
    pub(crate) fn rules(&self, why: String) -> Error {
        Error::Rules {
            component: self.spec.name.clone(),
            layout: self.layout.to_owned(),
            why,
        }
    }

    /// The error of a tensor that no rule speaks of.
    pub(crate) fn no_rule(&self, tensor: &TensorSpec, what: &'static str) -> Error {
        Error::NoRule {
            component: self.spec.name.clone(),
            tensor: tensor.names.first().cloned().unwrap_or_default(),
            layout: self.layout.to_owned(),
            what,
        }
    }

    /// The error of two types in one flat group.
    pub(crate) fn mixed(&self, group: &str, first: &TensorSpec, tensor: &TensorSpec) -> Error {
        let name = |tensor: &TensorSpec| tensor.names.first().cloned().unwrap_or_default();
        Error::MixedTypes {
            component: self.spec.name.clone(),
            group: group.to_owned(),
            first: name(first),
            expected: first.dtype,
            tensor: name(tensor),
            found: tensor.dtype,
        }
    }

    /// The error of a tensor that a rule cannot cut.
    pub(crate) fn cannot_cut(
        &self,
        tensor: &TensorSpec,
        placement: &Placement,
        why: Fault,
    ) -> Error {
        Error::CannotCut {
            component: self.spec.name.clone(),
            tensor: tensor.names.first().cloned().unwrap_or_default(),
            shape: tensor.shape.clone(),
            dtype: tensor.dtype,
            rule: placement.text(self.mesh),
            why,
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
        Ok(self.placed)
    }
}
