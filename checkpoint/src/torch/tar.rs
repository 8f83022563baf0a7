//! The tar archive of PyTorch before 0.1.10.
//!
//! Members: `storages` (a number; for each a pickle of key, location and class, a number of
//! elements, the elements; then a list of views), `tensors` (a number; for each a pickle of key,
//! storage and class, then dimensions, sizes, strides and offset), `pickle` (the object, in which a
//! persistent id is the key of a storage or tensor). Nothing is unpacked: members are read where
//! they lie.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use super::{
    memory_for,
    record::{Storage, Stream},
    storages::{Loaded, OutsideTensor, Referent, StorageRef, storage_class},
};
use crate::{
    Error,
    error::{Foreign, Name},
    file::SourceReader,
    pickle::{Graph, Id, Input, Node, Pickle, run},
};

const BLOCK: u64 = 512;
/// Most dimensions of a tensor.
const MAX_RANK: u64 = 64;

/// Reads the members and finds the storages.
pub(super) fn load(file: &Arc<SourceReader>) -> Result<Loaded, Error> {
    let members = Members::read(file)?;
    let (Some(storages), Some(tensors), Some(object)) = (
        members.get("storages")?,
        members.get("tensors")?,
        members.get("pickle")?,
    ) else {
        return Err(Error::NotACheckpoint {
            path: file.path().to_owned(),
            found: Foreign::TarOfFiles,
        });
    };
    let mut objects = Objects::default();
    objects.read_storages(&mut Member::new(file, "storages", storages))?;
    objects.read_tensors(&mut Member::new(file, "tensors", tensors))?;

    let mut member = Member::new(file, "pickle", object);
    let pickle = member.next()?;
    let pickle_len = member.input.position();
    let referents = objects.referents(file, &pickle)?;
    Ok(Loaded {
        pickle,
        record: "pickle".to_owned(),
        pickle_len,
        referents,
        storages: objects.storages,
        big_endian: false,
        metadata: BTreeMap::new(),
        warnings: Vec::new(),
    })
}

/// Where the members lie.
struct Members<'a> {
    file: &'a SourceReader,
    list: HashMap<String, (Range<u64>, bool)>,
}

impl<'a> Members<'a> {
    fn read(file: &'a SourceReader) -> Result<Self, Error> {
        let corrupt = |at: u64, what: &str| Error::Corrupt {
            path: file.path().to_owned(),
            what: format!("tar header at byte {at}: {what}"),
        };
        let mut list = HashMap::new();
        let mut at = 0_u64;
        while at.checked_add(BLOCK).is_some_and(|end| end <= file.size()) {
            let mut header = [0; 512];
            file.read_exact_at(at, &mut header, "tar header")?;
            if header.iter().all(|&byte| byte == 0) {
                break;
            }
            let field = |range: Range<usize>| header.get(range).unwrap_or_default();
            let sum = octal(field(148..156)).ok_or_else(|| corrupt(at, "bad checksum field"))?;
            let spaces = 8 * u64::from(b' ');
            let outside = header
                .iter()
                .enumerate()
                .filter(|(at, _)| !(148..156).contains(at));
            if outside.map(|(_, &byte)| u64::from(byte)).sum::<u64>() + spaces != sum {
                return Err(corrupt(at, "checksum mismatch"));
            }
            let size = octal(field(124..136)).ok_or_else(|| corrupt(at, "bad size field"))?;
            let name = field(0..100)
                .split(|&byte| byte == 0)
                .next()
                .unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
            let regular = matches!(header.get(156), Some(0 | b'0' | b'7'));
            let start = at.saturating_add(BLOCK);
            let end = start
                .checked_add(size)
                .ok_or_else(|| corrupt(at, "size past 2^64"))?;
            file.check(start, size, &format!("tar member {name}"))?;
            if list.insert(name.clone(), (start..end, regular)).is_some() {
                return Err(Error::AmbiguousArchive {
                    path: file.path().to_owned(),
                    what: format!("duplicate member {}", Name(&name)),
                });
            }
            at = end
                .checked_next_multiple_of(BLOCK)
                .ok_or_else(|| corrupt(at, "bad size"))?;
        }
        Ok(Self { file, list })
    }

    fn get(&self, name: &str) -> Result<Option<Range<u64>>, Error> {
        match self.list.get(name) {
            None => Ok(None),
            Some((range, true)) => Ok(Some(range.clone())),
            Some((_, false)) => Err(Error::Corrupt {
                path: self.file.path().to_owned(),
                what: format!("tar member {name} is not a regular file"),
            }),
        }
    }
}

/// Octal digits with spaces or zero bytes around.
fn octal(field: &[u8]) -> Option<u64> {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    let text = std::str::from_utf8(field.get(..end)?).ok()?.trim();
    if text.is_empty() {
        Some(0)
    } else {
        u64::from_str_radix(text, 8).ok()
    }
}

/// A member as a stream of pickles and numbers.
struct Member {
    file: Arc<SourceReader>,
    name: &'static str,
    start: u64,
    input: Input<Stream>,
}

impl Member {
    fn new(file: &Arc<SourceReader>, name: &'static str, range: Range<u64>) -> Self {
        let stream = Stream::new(Arc::clone(file), name.to_owned(), range.start, range.end);
        Self {
            file: Arc::clone(file),
            name,
            start: range.start,
            input: Input::new(stream),
        }
    }

    fn next(&mut self) -> Result<Pickle, Error> {
        run(&mut self.input, memory_for(&self.file))
            .map_err(|fault| fault.into_error(self.file.path(), self.name, false))
    }

    /// A number of 64 bits.
    fn number(&mut self) -> Result<i64, Error> {
        match self.input.array::<8>() {
            Ok(Some(bytes)) => Ok(i64::from_le_bytes(bytes)),
            Ok(None) => Err(self.corrupt("it ends inside of a number")),
            Err(fault) => Err(fault.into_error(self.file.path(), self.name, false)),
        }
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt {
            path: self.file.path().to_owned(),
            what: format!(
                "tar member {} at byte {}: {what}",
                self.name,
                self.input.position()
            ),
        }
    }
}

/// Storages and tensors by key.
#[derive(Default)]
struct Objects {
    storages: Vec<Arc<Storage>>,
    refs: HashMap<i64, StorageRef>,
    tensors: HashMap<i64, OutsideTensor>,
}

impl Objects {
    fn read_storages(&mut self, member: &mut Member) -> Result<(), Error> {
        for _ in 0..count(member)? {
            let pickle = member.next()?;
            let graph = &pickle.graph;
            let Node::Tuple(&[key, _, class]) = graph.node(pickle.root) else {
                return Err(member.corrupt("a storage is not described by three values"));
            };
            let key = key_number(graph, key).ok_or_else(|| member.corrupt("bad key"))?;
            let class = storage_class(&member.file, graph, class)
                .ok_or_else(|| member.corrupt("no storage class"))??;
            let number = member.number()?;
            let len = u64::try_from(number)
                .ok()
                .and_then(|n| n.checked_mul(class.width()));
            let len = len.ok_or_else(|| member.corrupt("bad number of elements"))?;
            let what = format!("storage {key}");
            let offset = member.start.saturating_add(member.input.position());
            member.file.check(offset, len, &what)?;
            let passed = member.input.skip(len);
            if passed.map_err(|fault| fault.into_error(member.file.path(), member.name, false))?
                < len
            {
                return Err(member.corrupt("a storage is cut"));
            }
            let index = self.storages.len();
            let storage = Storage::stored(Arc::clone(&member.file), what, offset, len, None);
            self.storages.push(Arc::new(storage));
            let new = StorageRef {
                index,
                class,
                start: 0,
                len,
            };
            if self.refs.insert(key, new).is_some() {
                return Err(member.corrupt("two storages have the same key"));
            }
        }
        let views = member.next()?;
        let graph = &views.graph;
        let (Node::List(list) | Node::Tuple(list)) = graph.node(views.root) else {
            return Err(member.corrupt("the views are no list"));
        };
        for &view in list {
            let Node::Tuple(&[target, root, offset, size]) = graph.node(view) else {
                return Err(member.corrupt("a view is not described by four values"));
            };
            let keys = key_number(graph, target).zip(key_number(graph, root));
            let (target, root) = keys.ok_or_else(|| member.corrupt("bad key of a view"))?;
            let Some(&root) = self.refs.get(&root) else {
                return Err(Error::MissingStorage {
                    path: member.file.path().to_owned(),
                    storage: root.to_string(),
                    what: format!("view {target} needs it"),
                });
            };
            let bytes = |id: Id| match graph.node(id) {
                Node::Int(n) => u64::try_from(n).ok()?.checked_mul(root.class.width()),
                _ => None,
            };
            let part = bytes(offset).zip(bytes(size));
            let inside = part
                .filter(|&(start, len)| start.checked_add(len).is_some_and(|end| end <= root.len));
            let Some((start, len)) = inside else {
                return Err(Error::OutOfBounds {
                    path: member.file.path().to_owned(),
                    tensor: format!("view {target}"),
                    what: format!("{part:?} of {} bytes", root.len),
                });
            };
            let start = root.start.saturating_add(start);
            self.refs.insert(target, StorageRef { start, len, ..root });
        }
        Ok(())
    }

    fn read_tensors(&mut self, member: &mut Member) -> Result<(), Error> {
        for _ in 0..count(member)? {
            let pickle = member.next()?;
            let graph = &pickle.graph;
            let Node::Tuple(&[key, storage, _]) = graph.node(pickle.root) else {
                return Err(member.corrupt("a tensor is not described by three values"));
            };
            let keys = key_number(graph, key).zip(key_number(graph, storage));
            let (key, storage) = keys.ok_or_else(|| member.corrupt("bad key of a tensor"))?;
            let Some(&storage) = self.refs.get(&storage) else {
                return Err(Error::MissingStorage {
                    path: member.file.path().to_owned(),
                    storage: storage.to_string(),
                    what: format!("tensor {key} needs it"),
                });
            };
            // 32 bits, and 32 that were once written as if they belonged to it.
            let rank = u64::from_le_bytes(member.number()?.to_le_bytes()) & 0xffff_ffff;
            if rank > MAX_RANK {
                return Err(member.corrupt(&format!("a tensor of {rank} dimensions")));
            }
            let mut numbers = || (0..rank).map(|_| member.number()).collect::<Result<_, _>>();
            let shape = numbers()?;
            let strides = numbers()?;
            let offset = member.number()?;
            let tensor = OutsideTensor {
                storage,
                offset,
                shape,
                strides,
            };
            if self.tensors.insert(key, tensor).is_some() {
                return Err(member.corrupt("two tensors have the same key"));
            }
        }
        Ok(())
    }

    fn referents(
        &self,
        file: &SourceReader,
        pickle: &Pickle,
    ) -> Result<HashMap<Id, Referent>, Error> {
        let mut out = HashMap::new();
        for &(node, _) in &pickle.persistents {
            let Node::Persistent(id) = pickle.graph.node(node) else {
                continue;
            };
            let referent = match pickle.graph.node(id) {
                Node::Tuple(&[class, ..]) => Some(Referent::Class(class)),
                _ => key_number(&pickle.graph, id).and_then(|key| {
                    let tensor = self.tensors.get(&key).cloned().map(Referent::Tensor);
                    tensor.or_else(|| self.refs.get(&key).copied().map(Referent::Storage))
                }),
            };
            let referent = referent.ok_or_else(|| Error::MissingStorage {
                path: file.path().to_owned(),
                storage: format!("{:?}", pickle.graph.node(id)),
                what: "the object refers to it".to_owned(),
            })?;
            out.insert(node, referent);
        }
        Ok(out)
    }
}

/// How many things follow. Each takes bytes, so that a huge number only ends early.
fn count(member: &mut Member) -> Result<u64, Error> {
    let pickle = member.next()?;
    match pickle.graph.node(pickle.root) {
        Node::Int(count) => u64::try_from(count).ok(),
        _ => None,
    }
    .ok_or_else(|| member.corrupt("bad number of entries"))
}

fn key_number(graph: &Graph, id: Id) -> Option<i64> {
    match graph.node(id) {
        Node::Int(key) => Some(key),
        Node::Text(text) => text.parse().ok(),
        _ => None,
    }
}
