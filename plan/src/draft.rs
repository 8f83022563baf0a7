//! A component while layouts place its tensors.

use std::collections::HashMap;

use wpack_format::{Role, SliceKind};

use crate::index::{index, index32};
use crate::mesh::{Axes, Mesh};
use crate::options::{Options, Order};
use crate::paths::Patterns;
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

/// A parameter and its place in the order of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    place: usize,
    pub(crate) index: u32,
    pub(crate) tensor: &'a TensorSpec,
}

/// A pattern of a plan file, where it stands, and whether a tensor fell under it.
pub(crate) type Noted = (&'static str, String, bool);

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
    /// Patterns that were looked at.
    pub(crate) noted: Vec<Noted>,
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
            noted: Vec::new(),
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

    /// Whether a tensor may be cut.
    pub(crate) fn is_parameter(&self, tensor: u32) -> bool {
        self.verdict(tensor)
            .is_some_and(|verdict| verdict.role == Role::Parameter)
    }

    /// Whether somebody asked to keep a tensor whole.
    pub(crate) fn is_kept(&self, tensor: u32) -> bool {
        self.verdict(tensor).is_some_and(|verdict| verdict.kept)
    }

    fn verdict(&self, tensor: u32) -> Option<&'a Verdict> {
        self.verdicts.get(index(tensor))
    }

    /// Remembers which patterns of a plan file were of use.
    pub(crate) fn note(&mut self, option: &'static str, patterns: &Patterns) {
        self.note_all(option, patterns.used());
    }

    /// The same of patterns that are looked at in another way.
    pub(crate) fn note_all<'p>(
        &mut self,
        option: &'static str,
        patterns: impl Iterator<Item = (&'p str, bool)>,
    ) {
        let patterns = patterns.map(|(text, used)| (option, text.to_owned(), used));
        self.placed.noted.extend(patterns);
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

    /// Whether a step has cut a tensor over an axis of this name.
    pub(crate) fn lies_on(&self, tensor: u32, name: &str) -> bool {
        let list = self.placed.list_of.get(index(tensor));
        let list = list.and_then(|&list| self.placed.lists.get(index(list)));
        let axis = self.mesh.axis(name);
        list.into_iter()
            .flatten()
            .any(|step| axis.is_some_and(|axis| step.axes().has(axis)))
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
        self.take(&found)?;
        Ok(Axes::new(found))
    }

    /// Takes the axes of these names, all of which the mesh must have.
    pub(crate) fn take_named<'n>(
        &mut self,
        layout: &str,
        names: impl Iterator<Item = &'n String>,
    ) -> Result<(), Error> {
        let mut found = Vec::new();
        for name in names {
            let at = self.mesh.axis(name);
            let at = at.ok_or_else(|| self.axis_missing(layout, &[name]))?;
            if !found.contains(&at) {
                found.push(at);
            }
        }
        self.take(&found)
    }

    /// The axes of these names, in this order.
    pub(crate) fn named(&self, names: &[String]) -> Axes {
        Axes::new(
            names
                .iter()
                .filter_map(|name| self.mesh.axis(name))
                .collect(),
        )
    }

    fn take(&mut self, found: &[usize]) -> Result<(), Error> {
        for &at in found {
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
        Ok(())
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
    pub(crate) fn ordered(&self) -> Result<Vec<Member<'a>>, Error> {
        let mut members: Vec<Member<'a>> = match &self.options.order {
            Order::Unknown => return Err(self.order_unknown(None)),
            Order::Checkpoint => {
                let parameters = self.parameters().enumerate();
                parameters
                    .map(|(place, (index, tensor))| Member {
                        place,
                        index,
                        tensor,
                    })
                    .collect()
            }
            Order::Names(names) => {
                // A name that stands in full goes before a glob.
                let mut places = HashMap::new();
                let (mut globs, mut glob_at) = (Vec::new(), Vec::new());
                for (at, name) in names.iter().enumerate() {
                    if name.contains('*') {
                        globs.push(name);
                        glob_at.push(at);
                    } else {
                        places.entry(name.as_str()).or_insert(at);
                    }
                }
                let mut globs = Patterns::globs(globs).map_err(|why| self.rules(why))?;
                let mut place = |tensor: &TensorSpec| {
                    let names = tensor.names.iter();
                    let full = names.filter_map(|name| places.get(name.as_str()).copied());
                    full.min()
                        .or_else(|| glob_at.get(globs.find(&tensor.names)?).copied())
                };
                let parameters = self.parameters();
                parameters
                    .map(|(index, tensor)| {
                        let place = place(tensor);
                        let place = place.ok_or_else(|| self.order_unknown(Some(tensor)))?;
                        Ok(Member {
                            place,
                            index,
                            tensor,
                        })
                    })
                    .collect::<Result<_, Error>>()?
            }
        };
        members.sort_by_key(|member| member.place);
        Ok(members)
    }

    /// Refuses a group of which two tensors have one place: a glob of `order` stands for both.
    pub(crate) fn check_order(&self, members: &[Member<'_>]) -> Result<(), Error> {
        let same = members
            .windows(2)
            .find(|pair| matches!(pair, [a, b] if a.place == b.place));
        match same {
            Some([_, second]) => Err(self.order_unknown(Some(second.tensor))),
            _ => Ok(()),
        }
    }

    fn order_unknown(&self, tensor: Option<&TensorSpec>) -> Error {
        Error::OrderUnknown {
            component: self.spec.name.clone(),
            layout: self.layout.to_owned(),
            tensor: tensor.and_then(|tensor| tensor.names.first().cloned()),
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
