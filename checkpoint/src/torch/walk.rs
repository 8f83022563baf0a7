//! From an object to named tensors. Nothing is left out unsaid: a value becomes a tensor, an entry
//! in the list of what was skipped, or an error.

use std::collections::{BTreeSet, HashMap};

use super::{
    dense::Dense,
    names::{Part, Place, Places, key_name},
    object::{Role, View},
    root::members,
    survey::Survey,
    tensor::{Found, Tensors},
};
use crate::{
    Error, Skipped,
    pickle::{Id, MAX_DEPTH, Node},
};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Harvest {
    /// Views in the order of the object, each with all its names.
    pub(super) tensors: Vec<(Dense, Vec<String>)>,
    pub(super) skipped: Vec<Skipped>,
    /// Classes of pickled modules.
    pub(super) modules: BTreeSet<String>,
    /// Classes that are dicts with another name.
    pub(super) subclasses: BTreeSet<String>,
    /// Storages that are values by themselves.
    pub(super) bare_storages: usize,
    /// Values that contain themselves.
    pub(super) recursive: bool,
}

/// Walks objects.
pub(super) struct Walk<'g> {
    pub(super) tensors: Tensors<'g>,
    pub(super) survey: &'g Survey,
    pub(super) places: Places<'g>,
    harvest: Harvest,
    views: HashMap<Dense, usize>,
    names: HashMap<String, Place>,
    /// Attributes of modules that hold tensors: they must be names for what is found elsewhere.
    attributes: Vec<(Id, Place, String)>,
    /// Bytes that names may still take.
    left: usize,
}

/// What is inside of a node, in order.
type Inner = Result<Vec<(Part, Id)>, Error>;

enum Step {
    Visit(Id, Place, u16),
    Leave(Id),
}

impl<'g> Walk<'g> {
    /// A walk whose names may take `name_bytes` in all.
    pub(super) fn new(
        tensors: Tensors<'g>,
        survey: &'g Survey,
        places: Places<'g>,
        name_bytes: usize,
    ) -> Self {
        Self {
            tensors,
            survey,
            places,
            harvest: Harvest::default(),
            views: HashMap::new(),
            names: HashMap::new(),
            attributes: Vec::new(),
            left: name_bytes,
        }
    }

    /// Takes every tensor below `root`, whose names begin behind `place`.
    pub(super) fn take(&mut self, root: Id, place: Place) -> Result<(), Error> {
        self.each(root, place, Self::visit)?;
        for (id, place, class) in std::mem::take(&mut self.attributes) {
            self.attribute(id, place, class)?;
        }
        Ok(())
    }

    /// Lists what stands beside the root.
    pub(super) fn leave_out(&mut self, id: Id, place: Place) -> Result<(), Error> {
        self.each(id, place, Self::list)
    }

    /// What was found.
    pub(super) fn finish(self) -> Harvest {
        self.harvest
    }

    /// Calls `visit` for a node and, in order, for what it gives; not for a node inside of itself.
    fn each(
        &mut self,
        top: Id,
        place: Place,
        visit: fn(&mut Self, Id, Place) -> Inner,
    ) -> Result<(), Error> {
        let mut open = BTreeSet::new();
        let mut stack = vec![Step::Visit(top, place, 0)];
        while let Some(step) = stack.pop() {
            let (id, place, depth) = match step {
                Step::Visit(id, place, depth) => (id, place, depth),
                Step::Leave(id) => {
                    open.remove(&id);
                    continue;
                }
            };
            if open.contains(&id) {
                self.harvest.recursive = true;
                self.skip(id, place)?;
                continue;
            }
            if depth > MAX_DEPTH {
                return Err(self.limit("nesting depth", depth.into(), MAX_DEPTH.into()));
            }
            let inner = visit(self, id, place)?;
            if inner.is_empty() {
                continue;
            }
            open.insert(id);
            stack.push(Step::Leave(id));
            let start = stack.len();
            for (part, value) in inner {
                let Some(inside) = self.places.add(place, part) else {
                    let most = u64::try_from(self.places.most()).unwrap_or(u64::MAX);
                    return Err(self.limit("number of values", u128::from(most) + 1, most));
                };
                stack.push(Step::Visit(value, inside, depth + 1));
            }
            if let Some(new) = stack.get_mut(start..) {
                new.reverse();
            }
        }
        Ok(())
    }

    /// One node below the root; gives what is inside of it.
    fn visit(&mut self, id: Id, place: Place) -> Inner {
        let view = self.tensors.objects;
        let role = view.role(id);
        if let Role::Tensor = role {
            self.tensor(id, place)?;
            return Ok(Vec::new());
        }
        if !self.survey.holds(id) {
            self.skip(id, place)?;
            return Ok(Vec::new());
        }
        self.check_beside(id, place)?;
        match role {
            Role::Mapping(mapping) => {
                if mapping.subclass {
                    self.harvest.subclasses.insert(view.kind(id));
                }
                self.check_keys(view.entries(mapping), place)?;
                Ok(members(view, id))
            }
            Role::Sequence(_) => Ok(members(view, id)),
            Role::Module(state) => self.module(id, state, place),
            _ => Err(self.unsupported(place, view.kind(id))),
        }
    }

    /// No tensor may be in what an object holds beside the values that are walked.
    fn check_beside(&self, id: Id, place: Place) -> Result<(), Error> {
        let view = self.tensors.objects;
        let mut beside = Vec::new();
        view.beside(id, &mut beside);
        match beside.iter().any(|&id| self.survey.holds(id)) {
            true => Err(self.unsupported(place, view.kind(id))),
            false => Ok(()),
        }
    }

    /// A tensor needs a name, so the key that leads to it must be text or a whole number.
    fn check_keys(
        &self,
        mut entries: impl Iterator<Item = (Id, Id)>,
        place: Place,
    ) -> Result<(), Error> {
        let view = self.tensors.objects;
        let odd = entries.find(|&(key, value)| {
            let nameless = key_name(view.graph, key).is_none();
            self.survey.holds(key) || (nameless && self.survey.holds(value))
        });
        match odd {
            None => Ok(()),
            Some((key, _)) => Err(self.unsupported(
                place,
                format!("a dict with a key of type {}", view.kind(key)),
            )),
        }
    }

    /// Parameters, buffers that are saved, modules; in the order of `Module.state_dict`.
    fn module(
        &mut self,
        id: Id,
        state: &'g [(Id, Id)],
        place: Place,
    ) -> Result<Vec<(Part, Id)>, Error> {
        let view = self.tensors.objects;
        let class = view.kind(id);
        let volatile = view.lookup(state, "_non_persistent_buffers_set");
        let volatile: BTreeSet<&str> = volatile
            .into_iter()
            .flat_map(|id| texts(view, id))
            .collect();
        let mut inner = Vec::new();
        for (key, value) in state.iter().copied() {
            let name = match view.graph.node(key) {
                Node::Text(name) => name,
                _ => "",
            };
            if !matches!(name, "_parameters" | "_buffers" | "_modules") && self.survey.holds(value)
            {
                let place = self.inside(place, Part::Key(key))?;
                self.attributes.push((value, place, class.clone()));
            }
        }
        for part in ["_parameters", "_buffers", "_modules"] {
            let Some(part_id) = view.lookup(state, part) else {
                continue;
            };
            let Role::Mapping(mapping) = view.role(part_id) else {
                return Err(self.unsupported(place, class));
            };
            self.check_beside(part_id, place)?;
            for (key, value) in view.entries(mapping) {
                // A module that does without one has None in its place.
                if matches!(view.graph.node(value), Node::None) {
                    continue;
                }
                let dropped = part == "_buffers"
                    && matches!(view.graph.node(key), Node::Text(name) if volatile.contains(name));
                if dropped {
                    let place = self.inside(place, Part::Key(key))?;
                    self.note(place, "non-persistent buffer".to_owned())?;
                } else {
                    inner.push((Part::Key(key), value));
                }
            }
            self.check_keys(view.entries(mapping), place)?;
        }
        self.harvest.modules.insert(class);
        Ok(inner)
    }

    /// An attribute of a module may only hold what its parameters hold too, as the flat list of
    /// weights of an LSTM does.
    fn attribute(&mut self, id: Id, place: Place, class: String) -> Result<(), Error> {
        let view = self.tensors.objects;
        let mut seen = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if !self.survey.holds(id) || !seen.insert(id) {
                continue;
            }
            if let Role::Tensor = view.role(id) {
                let name = self.places.name(place);
                let known = match self.tensors.find(id, &name, &mut stack)? {
                    Found::Dense(dense) => self.views.contains_key(&dense),
                    _ => false,
                };
                if !known {
                    return Err(self.unsupported(place, class));
                }
            } else {
                view.children(id, &mut stack);
            }
        }
        self.note(place, view.kind(id))
    }

    fn tensor(&mut self, id: Id, place: Place) -> Result<(), Error> {
        let name = self.places.name(place);
        let path = || self.tensors.file.path().to_owned();
        let mut attached = Vec::new();
        let dense = match self.tensors.find(id, &name, &mut attached)? {
            Found::Dense(dense) => dense,
            Found::Layout(layout) => {
                return Err(Error::UnsupportedLayout {
                    path: path(),
                    tensor: name,
                    layout,
                });
            }
            Found::Partitioned(class) => {
                return Err(Error::Partitioned {
                    path: path(),
                    what: format!("{} is a {class}", crate::error::Name(&name)),
                    remedy: crate::torch::SHARDED_REMEDY.to_owned(),
                });
            }
            Found::Subclass(class) => return Err(self.unsupported(place, class)),
        };
        if attached.iter().any(|&id| self.survey.holds(id)) {
            let class = "torch.Tensor with tensors in its attributes".to_owned();
            return Err(self.unsupported(place, class));
        }
        self.spend(name.len())?;
        if let Some(&other) = self.names.get(&name) {
            return Err(Error::NameCollision {
                name,
                a: self.places.expression(other),
                b: self.places.expression(place),
            });
        }
        self.names.insert(name.clone(), place);
        match self
            .views
            .get(&dense)
            .and_then(|&at| self.harvest.tensors.get_mut(at))
        {
            Some((_, names)) => names.push(name),
            None => {
                self.views.insert(dense.clone(), self.harvest.tensors.len());
                self.harvest.tensors.push((dense, vec![name]));
            }
        }
        Ok(())
    }

    /// One node beside the root; gives what is inside of it if there are tensors.
    fn list(&mut self, id: Id, place: Place) -> Inner {
        let view = self.tensors.objects;
        match view.role(id) {
            Role::Tensor => {
                let name = self.places.name(place);
                let kind = match self.tensors.find(id, &name, &mut Vec::new()) {
                    Ok(Found::Layout(layout)) => layout,
                    Ok(Found::Partitioned(class) | Found::Subclass(class)) => class,
                    Ok(Found::Dense(_)) | Err(_) => "torch.Tensor".to_owned(),
                };
                self.note(place, kind)?;
            }
            Role::Mapping(_) | Role::Sequence(_) if self.survey.holds(id) => {
                return Ok(members(view, id));
            }
            _ => self.skip(id, place)?,
        }
        Ok(Vec::new())
    }

    fn skip(&mut self, id: Id, place: Place) -> Result<(), Error> {
        let view = self.tensors.objects;
        if let Role::Storage(_) = view.role(id) {
            self.harvest.bare_storages += 1;
        }
        self.note(place, view.kind(id))
    }

    fn note(&mut self, place: Place, kind: String) -> Result<(), Error> {
        let path = self.places.name(place);
        self.spend(path.len().saturating_add(kind.len()))?;
        self.harvest.skipped.push(Skipped { path, kind });
        Ok(())
    }

    fn inside(&mut self, place: Place, part: Part) -> Result<Place, Error> {
        self.places.add(place, part).ok_or_else(|| {
            let most = u64::try_from(self.places.most()).unwrap_or(u64::MAX);
            self.limit("number of values", u128::from(most) + 1, most)
        })
    }

    /// Names that are paths can take far more than the pickle: the same dict may stand in many
    /// places.
    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        const EACH: usize = 64;
        match self.left.checked_sub(bytes.saturating_add(EACH)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let found = u128::try_from(self.names.len()).unwrap_or(u128::MAX);
                Err(self.limit("names of tensors in one object, by their length", found, 0))
            }
        }
    }

    fn limit(&self, what: &str, found: u128, limit: u64) -> Error {
        let path = self.tensors.file.path().to_owned();
        Error::ResourceLimit {
            path,
            what: what.to_owned(),
            found,
            limit,
        }
    }

    fn unsupported(&self, place: Place, class: String) -> Error {
        Error::UnsupportedObject {
            path: self.tensors.file.path().to_owned(),
            object: self.places.name(place),
            class,
        }
    }
}

/// The texts in a set or list.
fn texts(view: View<'_>, id: Id) -> Vec<&str> {
    let mut inside = Vec::new();
    view.children(id, &mut inside);
    let mut more = Vec::new();
    for &id in &inside {
        // `set([...])`: the arguments, and the list in them.
        view.children(id, &mut more);
    }
    let mut deepest = Vec::new();
    for &id in &more {
        view.children(id, &mut deepest);
    }
    let all = inside.into_iter().chain(more).chain(deepest);
    all.filter_map(|id| match view.graph.node(id) {
        Node::Text(text) => Some(text),
        _ => None,
    })
    .collect()
}
