//! Tensors: from the call that would build one to a view of a storage.

use wpack_format::DType;

use super::{
    dense::Dense,
    dtype::{self, Class},
    gather::Change,
    object::View as Objects,
    storages::{Loaded, OutsideTensor, Referent, StorageRef},
};
use crate::{
    Error,
    error::Name,
    file::SourceReader,
    pickle::{Build, Id, Meaning, Node, Object},
};

/// What a tensor turned out to be.
#[derive(Debug)]
pub(super) enum Found {
    /// A view of a storage.
    Dense(Dense),
    /// No dense array: the name of its layout.
    Layout(String),
    /// One process's part of a tensor: its class.
    Partitioned(String),
    /// Of a class of its own, whose meaning is not known.
    Subclass(String),
}

/// Where tensors come from.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'g> {
    pub(super) file: &'g SourceReader,
    pub(super) objects: Objects<'g>,
    pub(super) loaded: &'g Loaded,
    /// Offset in the pickle of what is looked at, for messages.
    pub(super) at: u64,
}

/// What to look at next.
#[derive(Clone, Copy)]
enum Step<'g> {
    Node(Id),
    /// A function and its arguments.
    Call(Id, &'g [Id]),
}

/// What one call around a tensor says.
enum Done<'g> {
    Found(Found),
    /// The tensor is further inside.
    Inside(Step<'g>),
}

/// The arguments of a call that builds a dense tensor.
struct Call {
    storage: Id,
    offset: Id,
    size: Id,
    stride: Id,
    dtype: Option<Id>,
    metadata: Option<Id>,
}

impl<'g> Tensors<'g> {
    /// Resolves a tensor node. `attached` gets what Python would keep beside its values.
    pub(super) fn find(&self, id: Id, name: &str, attached: &mut Vec<Id>) -> Result<Found, Error> {
        let at = match self.objects.graph.node(id) {
            Node::Object(object) => object.at,
            _ => self.at,
        };
        Self { at, ..*self }.resolve(id, name, attached)
    }

    fn resolve(&self, id: Id, name: &str, attached: &mut Vec<Id>) -> Result<Found, Error> {
        // Wrappers stand around tensors that were there before them, so this ends.
        let mut step = Step::Node(id);
        loop {
            let (callee, args) = match step {
                Step::Node(id) => match self.objects.graph.node(id) {
                    Node::Object(object) => {
                        attached.extend(object.states());
                        (object.callee, self.objects.args(object))
                    }
                    Node::Persistent(_) => return self.referred(id, name).map(Found::Dense),
                    _ => return Err(self.malformed(name, "no tensor inside")),
                },
                Step::Call(callee, args) => (callee, args),
            };
            step = match self.call(callee, args, name, attached)? {
                Done::Found(found) => return Ok(found),
                Done::Inside(step) => step,
            };
        }
    }

    fn referred(&self, id: Id, name: &str) -> Result<Dense, Error> {
        match self.loaded.referents.get(&id) {
            Some(Referent::Tensor(tensor)) => self.outside(tensor, name),
            _ => Err(self.malformed(name, "a storage where a tensor must be")),
        }
    }

    /// Looks at one of the calls that stand around a tensor.
    fn call(
        &self,
        callee: Id,
        args: &'g [Id],
        name: &str,
        attached: &mut Vec<Id>,
    ) -> Result<Done<'g>, Error> {
        let malformed = |what: &str| self.malformed(name, what);
        let arg = |at: usize| {
            args.get(at)
                .copied()
                .ok_or_else(|| malformed("too few arguments"))
        };
        let Some(global) = self.objects.global(callee) else {
            return Err(malformed("it is built by no function"));
        };
        let found = match global.meaning {
            Meaning::Build(Build::V1) => Found::Dense(self.dense(args, None, None, name)?),
            Meaning::Build(Build::V2) => {
                Found::Dense(self.dense(args, None, args.get(6).copied(), name)?)
            }
            Meaning::Build(Build::V3) => {
                Found::Dense(self.dense(args, Some(arg(6)?), args.get(7).copied(), name)?)
            }
            Meaning::Build(Build::FromType) => {
                attached.extend(args.get(3));
                match self.objects.global(arg(1)?) {
                    Some(class) if class.meaning == Meaning::Tensor => {
                        let Node::Tuple(inner) = self.objects.graph.node(arg(2)?) else {
                            return Err(malformed("its arguments are no tuple"));
                        };
                        return Ok(Done::Inside(Step::Call(arg(0)?, inner)));
                    }
                    Some(class) if class.meaning == Meaning::Partitioned => {
                        Found::Partitioned(class.path())
                    }
                    Some(class) => Found::Subclass(class.path()),
                    None => return Err(malformed("its class is no class")),
                }
            }
            Meaning::Build(Build::Parameter) => {
                attached.extend(args.get(3));
                return Ok(Done::Inside(Step::Node(arg(0)?)));
            }
            Meaning::Build(Build::FromCpu) => return Ok(Done::Inside(Step::Node(arg(0)?))),
            // `Parameter(tensor)` and `Variable(tensor)`.
            Meaning::Tensor if !args.is_empty() => {
                return Ok(Done::Inside(Step::Node(arg(0)?)));
            }
            Meaning::Tensor => Found::Layout(format!("{} made by its own state", global.path())),
            Meaning::Build(other) => self.refused(other, args),
            Meaning::Partitioned => Found::Partitioned(global.path()),
            _ => return Err(malformed("it is built by no function that is known")),
        };
        Ok(Done::Found(found))
    }

    /// Tensors that are no dense arrays, by name.
    fn refused(&self, build: Build, args: &[Id]) -> Found {
        let first = args.first().copied();
        Found::Layout(match build {
            Build::Sparse => first
                .and_then(|id| self.layout(id))
                .unwrap_or("torch.sparse".into()),
            Build::Quantized => {
                let parameters = args.get(4).map(|&id| self.objects.graph.node(id));
                let scheme = match parameters {
                    Some(Node::Tuple(&[scheme, ..])) => self.objects.global(scheme),
                    _ => None,
                };
                match scheme.map(|scheme| scheme.name.as_str()) {
                    Some(name) if name.starts_with("per_channel") => "quantized-per-channel".into(),
                    Some(name) if name.starts_with("per_tensor") => "quantized-per-tensor".into(),
                    _ => "quantized".into(),
                }
            }
            Build::Nested => "nested".into(),
            Build::Meta => "meta".into(),
            Build::FromNumpy => "numpy array of another device".into(),
            Build::Wrapper => {
                let class = first.and_then(|id| self.objects.global(id));
                return match class {
                    Some(class) if class.meaning == Meaning::Partitioned => {
                        Found::Partitioned(class.path())
                    }
                    Some(class) => Found::Subclass(class.path()),
                    None => Found::Subclass("a wrapper subclass".into()),
                };
            }
            _ => "unknown".into(),
        })
    }

    /// `_get_layout('torch.sparse_coo')` or the name itself.
    fn layout(&self, id: Id) -> Option<String> {
        match self.objects.graph.node(id) {
            Node::Text(text) => Some(text.to_owned()),
            Node::Global(global) => Some(global.path()),
            Node::Object(object) => match self.objects.graph.node(*self.first(object)?) {
                Node::Text(text) => Some(text.to_owned()),
                _ => None,
            },
            _ => None,
        }
    }

    fn first(&self, object: &Object) -> Option<&Id> {
        self.objects.args(object).first()
    }

    fn dense(
        &self,
        args: &[Id],
        dtype: Option<Id>,
        metadata: Option<Id>,
        name: &str,
    ) -> Result<Dense, Error> {
        let &[storage, offset, size, stride, ..] = args else {
            return Err(self.malformed(name, "too few arguments"));
        };
        let call = Call {
            storage,
            offset,
            size,
            stride,
            dtype,
            metadata,
        };
        let Some(Referent::Storage(storage)) = self.loaded.referents.get(&call.storage).cloned()
        else {
            return Err(self.malformed(name, "its storage is no storage"));
        };
        let dtype = self.dtype(&call, storage, name)?;
        let offset = self.whole(call.offset, name)?;
        let shape = self.wholes(call.size, name)?;
        let strides = self.wholes(call.stride, name)?;
        let (conj, neg) = self.flags(call.metadata);
        let change = self.change(dtype, storage, conj, neg, name)?;
        self.place(storage, dtype, offset, &shape, &strides, change, name)
    }

    fn outside(&self, tensor: &OutsideTensor, name: &str) -> Result<Dense, Error> {
        let wide = |values: &[i64]| {
            values
                .iter()
                .map(|&value| value.into())
                .collect::<Vec<i128>>()
        };
        let storage = tensor.storage;
        let dtype = match storage.class {
            Class::Typed(dtype) => dtype,
            Class::Untyped => DType::U8,
            Class::Quantized(_) => return Err(self.unsupported(name, "a quantized type")),
        };
        let (shape, strides) = (wide(&tensor.shape), wide(&tensor.strides));
        let change = Change::default();
        self.place(
            storage,
            dtype,
            tensor.offset.into(),
            &shape,
            &strides,
            change,
            name,
        )
    }

    fn dtype(&self, call: &Call, storage: StorageRef, name: &str) -> Result<DType, Error> {
        let Some(id) = call.dtype else {
            return match storage.class {
                Class::Typed(dtype) => Ok(dtype),
                Class::Untyped => Ok(DType::U8),
                Class::Quantized(_) => Err(self.unsupported(name, "a quantized type")),
            };
        };
        match self.objects.global(id) {
            Some(global) if global.meaning == Meaning::DType => {
                dtype::dtype(&global.name).ok_or_else(|| self.unsupported(name, &global.path()))
            }
            _ => Err(self.malformed(name, "its element type is none")),
        }
    }

    /// The conj and neg bits.
    fn flags(&self, metadata: Option<Id>) -> (bool, bool) {
        let Some(Node::Dict(entries)) = metadata.map(|id| self.objects.graph.node(id)) else {
            return (false, false);
        };
        let set = |name| {
            let value = self.objects.lookup(entries, name);
            value.is_some_and(|id| matches!(self.objects.graph.node(id), Node::Bool(true)))
        };
        (set("conj"), set("neg"))
    }

    fn change(
        &self,
        dtype: DType,
        storage: StorageRef,
        conj: bool,
        neg: bool,
        name: &str,
    ) -> Result<Change, Error> {
        let unit = dtype::swap_width(dtype);
        let swap = self.loaded.big_endian && unit > 1;
        if swap && storage.class == Class::Untyped {
            return Err(Error::UnsupportedEndian {
                path: self.file.path().to_owned(),
                what: format!(
                    "{} is big-endian, and its storage names no element type that says how wide \
                     the swapped units are",
                    Name(name)
                ),
            });
        }
        let complex = matches!(dtype, DType::C32 | DType::C64 | DType::C128);
        let conj = conj && complex;
        let real = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
        if neg && !complex && !real {
            return Err(self.unsupported(name, &format!("{dtype} with the neg bit set")));
        }
        Ok(Change {
            swap: if swap { unit } else { 0 },
            sign: if conj || neg { unit } else { 0 },
            imaginary: conj && !neg,
            real: conj && neg,
        })
    }

    /// Checks that every element lies inside of the storage.
    #[expect(clippy::too_many_arguments, reason = "the parts of one view")]
    fn place(
        &self,
        storage: StorageRef,
        dtype: DType,
        offset: i128,
        shape: &[i128],
        strides: &[i128],
        change: Change,
        name: &str,
    ) -> Result<Dense, Error> {
        if shape.len() != strides.len() {
            let (sizes, strides) = (shape.len(), strides.len());
            return Err(self.malformed(name, &format!("{sizes} sizes and {strides} strides")));
        }
        let width = dtype::width(dtype);
        let outside = |what: &str| Error::OutOfBounds {
            path: self.file.path().to_owned(),
            tensor: name.to_owned(),
            what: format!(
                "{what}: offset {offset}, shape {shape:?}, stride {strides:?} over {} elements",
                storage.len / width
            ),
        };
        if offset < 0 || shape.iter().chain(strides).any(|&number| number < 0) {
            return Err(outside("a negative number"));
        }
        let empty = shape.contains(&0);
        let mut last = offset;
        for (&size, &stride) in shape.iter().zip(strides) {
            if size > 1 {
                let distance = (size - 1).checked_mul(stride);
                last = distance
                    .and_then(|distance| last.checked_add(distance))
                    .ok_or_else(|| outside("past 2^127"))?;
            }
        }
        let end = last
            .checked_add(1)
            .and_then(|end| end.checked_mul(i128::from(width)));
        if !empty && end.is_none_or(|end| end > i128::from(storage.len)) {
            return Err(outside("past the end"));
        }
        let number = |value: i128| u64::try_from(value).map_err(|_| outside("past 2^64"));
        let sizes = shape
            .iter()
            .map(|&size| number(size))
            .collect::<Result<Vec<_>, _>>()?;
        let steps = shape.iter().zip(strides).map(|(&size, &stride)| {
            if size > 1 && !empty {
                number(stride)
            } else {
                Ok(0)
            }
        });
        let strides = steps.collect::<Result<Vec<_>, _>>()?;
        // The offset of an empty view means nothing, and may lie anywhere.
        let start = if empty {
            0
        } else {
            number(offset * i128::from(width))?
        };
        Ok(Dense {
            storage: storage.index,
            start: storage.start.saturating_add(start),
            dtype,
            shape: sizes,
            strides,
            change,
        })
    }

    fn whole(&self, id: Id, name: &str) -> Result<i128, Error> {
        match self.objects.graph.node(id) {
            Node::Int(value) => Ok(value.into()),
            Node::Wide(value) => Ok(value),
            Node::Huge => Err(Error::OutOfBounds {
                path: self.file.path().to_owned(),
                tensor: name.to_owned(),
                what: "a number past 2^127".to_owned(),
            }),
            _ => Err(self.malformed(name, "offset, size and stride must be whole numbers")),
        }
    }

    /// A tuple, a list or a `torch.Size`.
    fn wholes(&self, id: Id, name: &str) -> Result<Vec<i128>, Error> {
        let values = match self.objects.role(id) {
            super::object::Role::Sequence(values) => values,
            _ => return Err(self.malformed(name, "size and stride must be tuples")),
        };
        const MAX_RANK: usize = 64;
        if values.len() > MAX_RANK {
            return Err(self.malformed(name, &format!("{} dimensions", values.len())));
        }
        values
            .iter()
            .map(|&value| self.whole(value, name))
            .collect()
    }

    fn malformed(&self, name: &str, what: &str) -> Error {
        Error::MalformedPickle {
            path: self.file.path().to_owned(),
            record: self.loaded.record.clone(),
            at: self.at,
            what: format!("tensor {}: {what}", Name(name)),
        }
    }

    fn unsupported(&self, name: &str, dtype: &str) -> Error {
        Error::UnsupportedDtype {
            path: self.file.path().to_owned(),
            tensor: name.to_owned(),
            dtype: dtype.to_owned(),
        }
    }
}
