//! References from a pickle to storages, and the storages themselves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{dtype::Class, record::Storage};
use crate::{
    Error,
    error::Name,
    file::SourceReader,
    pickle::{Graph, Id, Meaning, Node, Pickle},
};

/// What a persistent id of a pickle stands for.
#[derive(Clone, Debug)]
pub(super) enum Referent {
    /// A storage, or part of one.
    Storage(StorageRef),
    /// A class whose source text was saved with it.
    Class(Id),
    /// A tensor that stands outside of the pickle.
    Tensor(OutsideTensor),
}

/// Part of a storage under a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageRef {
    /// Index into the storages.
    pub(super) index: usize,
    /// What it holds.
    pub(super) class: Class,
    /// First byte of it.
    pub(super) start: u64,
    /// Bytes of it.
    pub(super) len: u64,
}

/// A tensor of a tar file.
#[derive(Clone, Debug)]
pub(super) struct OutsideTensor {
    pub(super) storage: StorageRef,
    pub(super) offset: i64,
    pub(super) shape: Vec<i64>,
    pub(super) strides: Vec<i64>,
}

/// A storage as the pickle declares it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    /// Its class, the typed one if it is named with two.
    pub(super) class: Class,
    /// Bytes.
    pub(super) len: u64,
}

/// One persistent id of the kind `('storage', class, key, location, numel, view)`.
#[derive(Clone, Debug)]
struct Reference {
    node: Id,
    key: String,
    class: Class,
    /// Of the whole storage.
    len: u64,
    /// First byte and bytes of the part meant (PyTorch 0.1.10 to 0.3).
    view: Option<(u64, u64)>,
}

/// All references of a pickle, checked against each other.
#[derive(Debug, Default)]
pub(super) struct References {
    list: Vec<Reference>,
    classes: Vec<(Id, Id)>,
    /// Each storage once, by key.
    pub(super) declared: BTreeMap<String, Declared>,
}

/// Reads the persistent ids. `modules` says whether classes may be among them.
pub(super) fn references(
    file: &SourceReader,
    record: &str,
    pickle: &Pickle,
    modules: bool,
) -> Result<References, Error> {
    let mut out = References::default();
    for &(node, at) in &pickle.persistents {
        let malformed = |what: &str| Error::MalformedPickle {
            path: file.path().to_owned(),
            record: record.to_owned(),
            at,
            what: format!("persistent id: {what}"),
        };
        let Node::Persistent(id) = pickle.graph.node(node) else {
            continue;
        };
        let Node::Tuple(parts) = pickle.graph.node(id) else {
            return Err(malformed("not a tuple"));
        };
        let kind = parts.first().map(|&id| pickle.graph.node(id));
        match (kind, parts) {
            (Some(Node::Text("module")), &[_, class, ..]) if modules => {
                out.classes.push((node, class));
            }
            (Some(Node::Text("storage")), &[_, class, key, _, numel, ref rest @ ..]) => {
                let class = storage_class(file, &pickle.graph, class)
                    .ok_or_else(|| malformed("no storage class"))?;
                let class = class?;
                let key = key_text(pickle.graph.node(key))
                    .ok_or_else(|| malformed("the key is no text"))?;
                let bytes = |node: Node<'_>| match node {
                    Node::Int(count) => u64::try_from(count).ok()?.checked_mul(class.width()),
                    _ => None,
                };
                let len = bytes(pickle.graph.node(numel))
                    .ok_or_else(|| malformed("bad number of elements"))?;
                let view = match rest.first().map(|&id| pickle.graph.node(id)) {
                    None | Some(Node::None) => None,
                    Some(Node::Tuple(&[_, offset, size])) => {
                        let offset = bytes(pickle.graph.node(offset));
                        let size = bytes(pickle.graph.node(size));
                        Some(offset.zip(size).ok_or_else(|| malformed("bad view"))?)
                    }
                    Some(_) => return Err(malformed("bad view")),
                };
                out.add(
                    file,
                    Reference {
                        node,
                        key,
                        class,
                        len,
                        view,
                    },
                )?;
            }
            _ => return Err(malformed("neither a storage nor a module")),
        }
    }
    Ok(out)
}

/// None if it is no storage class at all, an error if it is one of an unknown type.
pub(super) fn storage_class(
    file: &SourceReader,
    graph: &Graph,
    id: Id,
) -> Option<Result<Class, Error>> {
    let Node::Global(global) = graph.node(id) else {
        return None;
    };
    if global.meaning != Meaning::Storage {
        return None;
    }
    Some(
        Class::from_name(&global.name).ok_or_else(|| Error::UnsupportedDtype {
            path: file.path().to_owned(),
            tensor: "a storage".to_owned(),
            dtype: global.path(),
        }),
    )
}

/// Keys are texts, or numbers in old files.
pub(super) fn key_text(node: Node<'_>) -> Option<String> {
    match node {
        Node::Text(text) => Some(text.to_owned()),
        Node::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

impl References {
    fn add(&mut self, file: &SourceReader, reference: Reference) -> Result<(), Error> {
        let Reference {
            key,
            class,
            len,
            view,
            ..
        } = &reference;
        if let Some((start, part)) = view
            && start.checked_add(*part).is_none_or(|end| end > *len)
        {
            return Err(Error::OutOfBounds {
                path: file.path().to_owned(),
                tensor: format!("a view of storage {key}"),
                what: format!("{part} bytes at byte {start} of {len}"),
            });
        }
        let new = Declared {
            class: *class,
            len: *len,
        };
        let known = self.declared.entry(key.clone()).or_insert(new);
        if known.len != *len {
            return Err(Error::SizeMismatch {
                path: file.path().to_owned(),
                what: format!("storage {}, which is named with two sizes,", Name(key)),
                expected: known.len,
                found: *len,
            });
        }
        match (known.class, *class) {
            (a, b) if a == b => {}
            (_, Class::Untyped) => {}
            (Class::Untyped, b) => known.class = b,
            (a, b) => {
                return Err(Error::Corrupt {
                    path: file.path().to_owned(),
                    what: format!(
                        "storage {} is named with two element types, {a:?} and {b:?}",
                        Name(key)
                    ),
                });
            }
        }
        self.list.push(reference);
        Ok(())
    }

    /// What each persistent id stands for, once the storages are found. `at` gives the index of a
    /// key.
    pub(super) fn referents(&self, at: &BTreeMap<String, usize>) -> HashMap<Id, Referent> {
        let storages = self.list.iter().filter_map(|reference| {
            let &index = at.get(&reference.key)?;
            let (start, len) = reference.view.unwrap_or((0, reference.len));
            let storage = StorageRef {
                index,
                class: reference.class,
                start,
                len,
            };
            Some((reference.node, Referent::Storage(storage)))
        });
        let classes = self
            .classes
            .iter()
            .map(|&(node, class)| (node, Referent::Class(class)));
        storages.chain(classes).collect()
    }
}

/// A pickle with all that it refers to.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) pickle: Pickle,
    /// Name of the pickle for messages.
    pub(super) record: String,
    /// Bytes of the pickle.
    pub(super) pickle_len: u64,
    pub(super) referents: HashMap<Id, Referent>,
    pub(super) storages: Vec<Arc<Storage>>,
    pub(super) big_endian: bool,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) warnings: Vec<crate::Warning>,
}
