//! What the nodes of a pickle are to a reader of weights.

use std::collections::HashMap;

use super::{dtype::Class, storages::Referent};
use crate::pickle::{Build, Global, Graph, Id, Meaning, Node, Object};

/// A node by its role.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role<'g> {
    /// A tensor, or what stands in for one.
    Tensor,
    /// A storage that is a value by itself.
    Storage(Class),
    /// A dict or what behaves like one.
    Mapping(Mapping<'g>),
    /// A list or tuple.
    Sequence(&'g [Id]),
    /// A pickled `nn.Module`, by its state.
    Module(&'g [(Id, Id)]),
    /// Anything else.
    Other,
}

/// A dict or what behaves like one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping<'g> {
    /// Its entries: from its arguments, then those that were set.
    parts: [Entries<'g>; 2],
    /// Whether it is of a class that is not known.
    pub(super) subclass: bool,
}

#[derive(Clone, Copy, Debug)]
enum Entries<'g> {
    Pairs(&'g [(Id, Id)]),
    /// A list of two-element sequences.
    List(&'g [Id]),
}

/// A pickle with its references.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'g> {
    pub(super) graph: &'g Graph,
    pub(super) referents: &'g HashMap<Id, Referent>,
}

impl<'g> View<'g> {
    /// What a node is.
    pub(super) fn role(self, id: Id) -> Role<'g> {
        match self.graph.node(id) {
            Node::Dict(entries) => Role::Mapping(Mapping {
                parts: [Entries::Pairs(entries), Entries::Pairs(&[])],
                subclass: false,
            }),
            Node::List(values) | Node::Tuple(values) => Role::Sequence(values),
            Node::Object(object) => self.object_role(object),
            Node::Persistent(_) => match self.referents.get(&id) {
                Some(Referent::Tensor(_)) => Role::Tensor,
                Some(Referent::Storage(storage)) => Role::Storage(storage.class),
                _ => Role::Other,
            },
            _ => Role::Other,
        }
    }

    fn object_role(self, object: &'g Object) -> Role<'g> {
        match self.meaning(object.callee) {
            Meaning::Build(_) | Meaning::Tensor | Meaning::Partitioned => Role::Tensor,
            Meaning::Mapping => Role::Mapping(self.mapping(object, false)),
            Meaning::Sequence | Meaning::Tuple => match self.first_sequence(object) {
                Some(values) if object.list().is_empty() => Role::Sequence(values),
                None | Some([]) => Role::Sequence(object.list()),
                // Some from the call, some added: no one list to show.
                Some(_) => Role::Other,
            },
            Meaning::Unknown | Meaning::Opaque | Meaning::NewObject => {
                if let Some(state) = self.module_state(object) {
                    return Role::Module(state);
                }
                if self.is_dict(object) {
                    return Role::Mapping(self.mapping(object, true));
                }
                Role::Other
            }
            _ => Role::Other,
        }
    }

    /// `copyreg._reconstructor(class, dict, value)`, or an object whose items were set.
    fn is_dict(self, object: &'g Object) -> bool {
        if !object.items().is_empty() {
            return true;
        }
        let Node::Tuple(&[_, base, _]) = self.graph.node(object.args) else {
            return false;
        };
        self.meaning(object.callee) == Meaning::NewObject && self.meaning(base) == Meaning::Mapping
    }

    fn mapping(self, object: &'g Object, subclass: bool) -> Mapping<'g> {
        let args = self.args(object);
        let given = args
            .iter()
            .map(|&id| self.graph.node(id))
            .find_map(|node| match node {
                Node::Dict(entries) => Some(Entries::Pairs(entries)),
                Node::List(values) => Some(Entries::List(values)),
                _ => None,
            });
        let given = given.unwrap_or(Entries::Pairs(&[]));
        Mapping {
            parts: [given, Entries::Pairs(object.items())],
            subclass,
        }
    }

    fn first_sequence(self, object: &'g Object) -> Option<&'g [Id]> {
        match self.graph.node(*self.args(object).first()?) {
            Node::List(values) | Node::Tuple(values) => Some(values),
            _ => None,
        }
    }

    /// What an object holds beside the values that its role shows: nothing that may be passed over
    /// if there are tensors in it.
    pub(super) fn beside(self, id: Id, out: &mut Vec<Id>) {
        let Node::Object(object) = self.graph.node(id) else {
            return;
        };
        out.extend(object.kwargs());
        let args = self.args(object);
        match self.role(id) {
            Role::Mapping(mapping) => {
                out.extend(object.states());
                out.extend(object.list());
                let used = args.iter().position(|&id| self.is_pairs(id));
                let others = args.iter().enumerate().filter(|&(at, _)| Some(at) != used);
                out.extend(others.map(|(_, &id)| id));
                for part in mapping.parts {
                    if let Entries::List(list) = part {
                        out.extend(list.iter().filter(|&&id| self.pair(id).is_none()));
                    }
                }
            }
            Role::Sequence(_) => {
                out.extend(object.states());
                out.extend(object.items().iter().flat_map(|&(key, value)| [key, value]));
                let used = usize::from(object.list().is_empty());
                out.extend(args.iter().skip(used));
            }
            Role::Module(_) => {
                out.extend(args);
                out.extend(object.list());
                out.extend(object.items().iter().flat_map(|&(key, value)| [key, value]));
                if let Some((&last, before)) = object.states().split_last() {
                    out.extend(before);
                    // State and slots.
                    if let Node::Tuple(&[_, slots]) = self.graph.node(last) {
                        out.push(slots);
                    }
                }
            }
            _ => {}
        }
    }

    fn is_pairs(self, id: Id) -> bool {
        matches!(self.graph.node(id), Node::Dict(_) | Node::List(_))
    }

    fn pair(self, id: Id) -> Option<(Id, Id)> {
        match self.graph.node(id) {
            Node::Tuple(&[key, value]) | Node::List(&[key, value]) => Some((key, value)),
            _ => None,
        }
    }

    /// The entries of a mapping, in its order. What is no pair is beside it.
    pub(super) fn entries(self, mapping: Mapping<'g>) -> impl Iterator<Item = (Id, Id)> + 'g {
        mapping.parts.into_iter().flat_map(move |part| {
            let (pairs, list) = match part {
                Entries::Pairs(pairs) => (pairs, &[][..]),
                Entries::List(list) => (&[][..], list),
            };
            let listed = list.iter().filter_map(move |&id| self.pair(id));
            pairs.iter().copied().chain(listed)
        })
    }

    /// The state of an `nn.Module`: a dict that has the three dicts of one.
    fn module_state(self, object: &'g Object) -> Option<&'g [(Id, Id)]> {
        let &state = object.states().last()?;
        let state = match self.graph.node(state) {
            Node::Dict(entries) => entries,
            // State and slots.
            Node::Tuple(&[state, _]) => match self.graph.node(state) {
                Node::Dict(entries) => entries,
                _ => return None,
            },
            _ => return None,
        };
        let has = |name: &str| self.lookup(state, name).is_some();
        (has("_parameters") && has("_modules")).then_some(state)
    }

    /// The value of a text key; the last one counts.
    pub(super) fn lookup(self, entries: &[(Id, Id)], name: &str) -> Option<Id> {
        let found = entries
            .iter()
            .rev()
            .find(|(key, _)| matches!(self.graph.node(*key), Node::Text(text) if text == name));
        found.map(|&(_, value)| value)
    }

    /// The value of a text key of a mapping node; the last one counts.
    pub(super) fn member(self, id: Id, name: &str) -> Option<Id> {
        let Role::Mapping(mapping) = self.role(id) else {
            return None;
        };
        let is = |key: Id| matches!(self.graph.node(key), Node::Text(text) if text == name);
        self.entries(mapping)
            .filter(|&(key, _)| is(key))
            .last()
            .map(|(_, value)| value)
    }

    /// What a class or function means.
    pub(super) fn meaning(self, id: Id) -> Meaning {
        self.global(id)
            .map_or(Meaning::Unknown, |global| global.meaning)
    }

    /// A class or function, also one whose source was saved with it.
    pub(super) fn global(self, id: Id) -> Option<&'g Global> {
        match self.graph.node(id) {
            Node::Global(global) => Some(global),
            Node::Persistent(_) => match self.referents.get(&id)? {
                Referent::Class(class) => match self.graph.node(*class) {
                    Node::Global(global) => Some(global),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// The arguments of a call.
    pub(super) fn args(self, object: &Object) -> &'g [Id] {
        match self.graph.node(object.args) {
            Node::Tuple(args) => args,
            _ => &[],
        }
    }

    /// Module and name of an object's class.
    pub(super) fn class(self, object: &Object) -> String {
        let global = self.global(object.callee);
        let made_of = |global: &Global| {
            let numpy = global.module.starts_with("numpy") && global.name == "_reconstruct";
            numpy || global.meaning == Meaning::NewObject
        };
        let class = match global {
            Some(global) if made_of(global) => self
                .args(object)
                .first()
                .and_then(|&class| self.global(class))
                .or(Some(global)),
            other => other,
        };
        class.map_or_else(|| "an object".to_owned(), Global::path)
    }

    /// A value's type as Python names it.
    pub(super) fn kind(self, id: Id) -> String {
        let text = match self.graph.node(id) {
            Node::None => "None",
            Node::Bool(_) => "bool",
            Node::Int(_) | Node::Wide(_) | Node::Huge => "int",
            Node::Float => "float",
            Node::Text(_) | Node::LongText => "str",
            Node::Bytes(_) | Node::LongBytes => "bytes",
            Node::ByteArray => "bytearray",
            Node::Tuple(_) => "tuple",
            Node::List(_) => "list",
            Node::Dict(_) => "dict",
            Node::Set(_) => "set",
            Node::FrozenSet(_) => "frozenset",
            Node::Global(global) if global.meaning == Meaning::DType => "torch.dtype",
            Node::Global(_) => "type",
            Node::Persistent(_) => match self.role(id) {
                Role::Tensor => "torch.Tensor",
                Role::Storage(Class::Untyped) => "torch.storage.UntypedStorage",
                Role::Storage(_) => "torch.storage.TypedStorage",
                _ => "type",
            },
            Node::Object(object) => return self.object_kind(object),
        };
        text.to_owned()
    }

    fn object_kind(self, object: &Object) -> String {
        let class = self.class(object);
        let short = ["builtins.", "__builtin__."]
            .iter()
            .find_map(|&m| class.strip_prefix(m));
        match class.as_str() {
            "_codecs.encode" => "bytes".to_owned(),
            "torch.serialization._get_layout" => "torch.layout".to_owned(),
            "numpy.core.multiarray.scalar" | "numpy._core.multiarray.scalar" => {
                "numpy.generic".to_owned()
            }
            _ => short.map_or(class.clone(), str::to_owned),
        }
    }

    /// Whether a value is a numpy array or scalar.
    pub(super) fn is_numpy(self, id: Id) -> bool {
        let Node::Object(object) = self.graph.node(id) else {
            return false;
        };
        self.global(object.callee).is_some_and(|global| {
            global.module.starts_with("numpy")
                && matches!(
                    global.name.as_str(),
                    "_reconstruct" | "scalar" | "_frombuffer"
                )
        })
    }

    /// The values inside of a node, whatever they are. Of a tensor, only what is attached to it.
    pub(super) fn children(self, id: Id, out: &mut Vec<Id>) {
        match self.graph.node(id) {
            Node::Tuple(values)
            | Node::List(values)
            | Node::Set(values)
            | Node::FrozenSet(values) => out.extend(values),
            Node::Dict(entries) => {
                out.extend(entries.iter().flat_map(|&(key, value)| [key, value]));
            }
            Node::Object(object) => {
                match self.meaning(object.callee) {
                    Meaning::Build(Build::FromType | Build::Parameter) => {
                        out.extend(self.args(object).get(3));
                    }
                    Meaning::Build(_) | Meaning::Tensor => {}
                    _ => {
                        out.push(object.args);
                        // A class can be the result of a call.
                        out.push(object.callee);
                    }
                }
                out.extend(object.kwargs());
                out.extend(object.states());
                out.extend(object.items().iter().flat_map(|&(key, value)| [key, value]));
                out.extend(object.list());
            }
            _ => {}
        }
    }
}
