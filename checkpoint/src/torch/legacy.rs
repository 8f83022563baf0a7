//! The stream of PyTorch 0.1.10 to 1.5, still written with `_use_new_zipfile_serialization=False`.
//!
//! Five pickles: magic number, protocol number, facts about the host, the object, the keys of the
//! storages; then, in the order of the keys, a number of elements and the elements of each.
//! Storages are little-endian whatever the host was: its C++ writer swaps
//! (`torch/csrc/serialization.cpp`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    memory_for,
    record::{Storage, Stream},
    storages::{Loaded, key_text, references},
};
use crate::{
    Error, Warning,
    error::Name,
    file::SourceReader,
    pickle::{Graph, Id, Input, Node, Pickle, run},
};

const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;
const PROTOCOL: i64 = 1001;

/// Reads the pickles and finds the storages.
pub(super) fn load(file: &Arc<SourceReader>) -> Result<Loaded, Error> {
    let path = || file.path().to_owned();
    let stream = Stream::new(Arc::clone(file), "the pickles".to_owned(), 0, file.size());
    let mut input = Input::new(stream);
    let mut warnings = Vec::new();

    let magic = next(file, &mut input, "magic number")?;
    if !matches!(magic.graph.node(magic.root), Node::Wide(MAGIC)) {
        return Err(Error::UnsupportedFormat {
            path: path(),
            what: "plain pickle, not torch.save".to_owned(),
            remedy: Some("load it where it was made and save a state dict of tensors".to_owned()),
        });
    }
    let protocol = next(file, &mut input, "protocol number")?;
    match protocol.graph.node(protocol.root) {
        Node::Int(PROTOCOL) => {}
        Node::Int(other) => {
            return Err(Error::UnsupportedFormat {
                path: path(),
                what: format!("protocol {other} of the torch stream, {PROTOCOL} is known"),
                remedy: None,
            });
        }
        _ => {
            let what = "the protocol of the torch stream is no number".to_owned();
            return Err(Error::Corrupt { path: path(), what });
        }
    }
    let host = next(file, &mut input, "sys_info")?;
    if big_endian_host(&host.graph, host.root) {
        warnings.push(Warning {
            code: "legacy-big-endian-host",
            message: "saved on a big-endian host; the storages are little-endian all the same"
                .to_owned(),
        });
    }
    let start = input.position();
    let pickle = next(file, &mut input, "object")?;
    let pickle_len = input.position().saturating_sub(start);
    let references = references(file, "object", &pickle, true)?;
    let keys = next(file, &mut input, "storage keys")?;
    let keys = key_list(file, &keys)?;

    let mut storages = Vec::with_capacity(keys.len());
    let mut at = BTreeMap::new();
    for key in keys {
        let Some(declared) = references.declared.get(&key) else {
            return Err(Error::Corrupt {
                path: path(),
                what: format!(
                    "storage {} is listed but no tensor names its type",
                    Name(&key)
                ),
            });
        };
        let what = format!("storage data of key {key}");
        let offset = input.position();
        let count = match input.array::<8>() {
            Ok(Some(count)) => i64::from_le_bytes(count),
            Ok(None) => {
                return Err(Error::Truncated {
                    path: path(),
                    what,
                    need: offset.saturating_add(8),
                    have: file.size(),
                });
            }
            Err(fault) => return Err(fault.into_error(file.path(), &what, true)),
        };
        let found = u64::try_from(count).ok();
        let found = found.and_then(|count| count.checked_mul(declared.class.width()));
        if found != Some(declared.len) {
            return Err(Error::SizeMismatch {
                path: path(),
                what: format!("storage {key}, which counts {count} elements,"),
                expected: declared.len,
                found: found.unwrap_or(u64::MAX),
            });
        }
        let offset = input.position();
        file.check(offset, declared.len, &what)?;
        input
            .skip(declared.len)
            .map_err(|fault| fault.into_error(file.path(), &what, true))?;
        at.insert(key, storages.len());
        let storage = Storage::stored(Arc::clone(file), what, offset, declared.len, None);
        storages.push(Arc::new(storage));
    }
    if let Some(missing) = references
        .declared
        .keys()
        .find(|key| !at.contains_key(*key))
    {
        return Err(Error::MissingStorage {
            path: path(),
            storage: missing.clone(),
            what: "a tensor uses it, and the list of storages lacks it".to_owned(),
        });
    }
    let end = input.position();
    if end < file.size() {
        warnings.push(Warning {
            code: "trailing-bytes",
            message: format!("{} bytes after the last storage", file.size() - end),
        });
    }
    Ok(Loaded {
        referents: references.referents(&at),
        pickle,
        record: "object".to_owned(),
        pickle_len,
        storages,
        big_endian: false,
        metadata: BTreeMap::new(),
        warnings,
    })
}

/// The next pickle of a stream whose end is the end of the file.
pub(super) fn next(
    file: &SourceReader,
    input: &mut Input<Stream>,
    record: &str,
) -> Result<Pickle, Error> {
    run(input, memory_for(file)).map_err(|fault| {
        match fault.into_error(file.path(), record, true) {
            Error::Truncated {
                path, what, need, ..
            } => Error::Truncated {
                path,
                what,
                need,
                have: file.size(),
            },
            error => error,
        }
    })
}

fn big_endian_host(graph: &Graph, root: Id) -> bool {
    let Node::Dict(entries) = graph.node(root) else {
        return false;
    };
    entries.iter().any(|&(key, value)| {
        matches!(graph.node(key), Node::Text("little_endian"))
            && matches!(graph.node(value), Node::Bool(false))
    })
}

fn key_list(file: &SourceReader, pickle: &Pickle) -> Result<Vec<String>, Error> {
    let corrupt = |what: String| Error::Corrupt {
        path: file.path().to_owned(),
        what,
    };
    let Node::List(ids) = pickle.graph.node(pickle.root) else {
        return Err(corrupt("the keys of the storages are no list".to_owned()));
    };
    let mut seen = BTreeSet::new();
    ids.iter()
        .map(|&id| {
            let key = key_text(pickle.graph.node(id))
                .ok_or_else(|| corrupt("a key of a storage is no text".to_owned()))?;
            if !seen.insert(key.clone()) {
                return Err(corrupt(format!("storage {} is listed twice", Name(&key))));
            }
            Ok(key)
        })
        .collect()
}
