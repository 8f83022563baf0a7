//! Slices against the tensors they hold.

use crate::{
    DType, Error, FlatPart, SliceKind, Tensor, TensorRef, TensorTable,
    bytes::{Words, element_count, index},
    error::PartFault,
    slice_ref::{BoxPartRef, ContentRef, SliceRef},
    tensor_table::Parts,
};

/// Types and shapes of a component's tensors by index.
pub trait TensorShapes {
    /// Type and shape of a tensor; `None` if there is no such tensor.
    fn shape_of(&self, tensor: u32) -> Option<TensorShape<'_>>;
}

/// Type and shape of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorShape<'a> {
    dtype: DType,
    dims: Dims<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Dims<'a> {
    Words(Words<'a>),
    Slice(&'a [u64]),
}

impl<'a> TensorShape<'a> {
    /// A type and the elements per dimension.
    #[must_use]
    pub fn new(dtype: DType, dims: &'a [u64]) -> Self {
        Self {
            dtype,
            dims: Dims::Slice(dims),
        }
    }

    #[inline]
    fn of(tensor: TensorRef<'a>) -> Self {
        Self {
            dtype: tensor.dtype,
            dims: Dims::Words(tensor.shape),
        }
    }

    fn len(&self) -> usize {
        match self.dims {
            Dims::Words(words) => words.len(),
            Dims::Slice(dims) => dims.len(),
        }
    }

    fn get(&self, dim: usize) -> Option<u64> {
        match self.dims {
            Dims::Words(words) => words.get(dim),
            Dims::Slice(dims) => dims.get(dim).copied(),
        }
    }

    fn elements(&self) -> Option<u64> {
        match self.dims {
            Dims::Words(words) => element_count(words.iter()),
            Dims::Slice(dims) => element_count(dims.iter().copied()),
        }
    }
}

impl<D: AsRef<[u8]>> TensorShapes for TensorTable<D> {
    fn shape_of(&self, tensor: u32) -> Option<TensorShape<'_>> {
        self.parts().tensor(tensor).map(TensorShape::of)
    }
}

impl TensorShapes for Parts<'_> {
    #[inline]
    fn shape_of(&self, tensor: u32) -> Option<TensorShape<'_>> {
        self.tensor(tensor).map(TensorShape::of)
    }
}

impl TensorShapes for [Tensor] {
    fn shape_of(&self, tensor: u32) -> Option<TensorShape<'_>> {
        let tensor = self.get(index(tensor))?;
        Some(TensorShape::new(tensor.dtype, &tensor.shape))
    }
}

impl SliceRef<'_> {
    /// Checks the slice, the `entry`th of its table, against the tensors it holds.
    pub fn check(&self, entry: u64, tensors: &(impl TensorShapes + ?Sized)) -> Result<(), Error> {
        match self.content {
            ContentRef::Whole { tensor } => {
                let shape = self.typed(entry, 0, tensor, tensors)?;
                let same = shape.len() == self.shape.len()
                    && (0..shape.len()).all(|dim| shape.get(dim) == self.shape.get(dim));
                if same {
                    Ok(())
                } else {
                    Err(Error::WholeShape {
                        slice: entry,
                        tensor,
                    })
                }
            }
            ContentRef::Boxes { tensor, parts, .. } => {
                let shape = self.typed(entry, 0, tensor, tensors)?;
                for (i, part) in (0..).zip(parts) {
                    if let BoxPartRef::Box { start, size } = part {
                        check_box(&shape, tensor, start, size).map_err(|fault| Error::Part {
                            slice: entry,
                            part: i,
                            fault,
                        })?;
                    }
                }
                self.check_packed_parts()
                    .map_err(|(part, fault)| Error::Part {
                        slice: entry,
                        part,
                        fault,
                    })
            }
            ContentRef::Flat { parts } => {
                for (i, part) in (0..).zip(parts) {
                    let checked = match part {
                        FlatPart::Range { tensor, start, len } => {
                            let shape = self.typed(entry, i, tensor, tensors)?;
                            check_range(&shape, tensor, start, len)
                                .and_then(|()| whole_bytes(self.dtype, [len]))
                        }
                        FlatPart::Fill { len, .. } => whole_bytes(self.dtype, [len]),
                    };
                    checked.map_err(|fault| Error::Part {
                        slice: entry,
                        part: i,
                        fault,
                    })?;
                }
                Ok(())
            }
        }
    }

    /// The tensor's shape; its type is the slice's where the slice holds its values.
    fn typed<'t>(
        &self,
        slice: u64,
        part: u64,
        tensor: u32,
        tensors: &'t (impl TensorShapes + ?Sized),
    ) -> Result<TensorShape<'t>, Error> {
        let Some(shape) = tensors.shape_of(tensor) else {
            return Err(Error::Part {
                slice,
                part,
                fault: PartFault::Tensor(tensor),
            });
        };
        let (expected, found) = (shape.dtype, self.dtype);
        if self.kind == SliceKind::Value && expected != found {
            return Err(Error::SliceType {
                slice,
                tensor,
                expected,
                found,
            });
        }
        Ok(shape)
    }

    /// Where a slice of a packed type has several parts, each starts at a whole byte in every row.
    fn check_packed_parts(&self) -> Result<(), (u64, PartFault)> {
        let ContentRef::Boxes { dim, parts, .. } = self.content else {
            return Ok(());
        };
        if self.dtype.bits().is_multiple_of(8) || parts.count_left() < 2 {
            return Ok(());
        }
        let behind = self.shape.iter().skip(index(dim).saturating_add(1));
        let row = behind.fold(1_u64, u64::saturating_mul);
        for (i, part) in (0..).zip(parts) {
            let size = match part {
                BoxPartRef::Box { size, .. } => size.get(index(dim)).unwrap_or(0),
                BoxPartRef::Fill { size, .. } => size,
            };
            whole_bytes(self.dtype, [size.saturating_mul(row)]).map_err(|fault| (i, fault))?;
        }
        Ok(())
    }
}

/// A flat range is inside its tensor, at whole bytes.
fn check_range(
    shape: &TensorShape<'_>,
    tensor: u32,
    start: u64,
    len: u64,
) -> Result<(), PartFault> {
    let end = start.checked_add(len);
    if end.is_none() || end > shape.elements() {
        return Err(PartFault::Outside(tensor));
    }
    whole_bytes(shape.dtype, [start, len])
}

/// A box is inside its tensor, at whole bytes.
fn check_box(
    shape: &TensorShape<'_>,
    tensor: u32,
    start: Words<'_>,
    size: Words<'_>,
) -> Result<(), PartFault> {
    let inside = |((dim, start), size): ((usize, u64), u64)| {
        let end = start.checked_add(size);
        end.is_some() && end <= shape.get(dim)
    };
    if shape.len() != size.len() || !start.iter().enumerate().zip(size.iter()).all(inside) {
        return Err(PartFault::Outside(tensor));
    }
    if shape.dtype.bits().is_multiple_of(8) {
        return Ok(());
    }
    check_packed_box(shape.dtype, start, size, |dim| shape.get(dim).unwrap_or(0))
}

/// Every run of elements that a box takes from its tensor starts and ends at a whole byte.
fn check_packed_box(
    dtype: DType,
    start: Words<'_>,
    size: Words<'_>,
    tensor_dim: impl Fn(usize) -> u64,
) -> Result<(), PartFault> {
    if size.iter().any(|size| size == 0) {
        return Ok(());
    }
    // From the last dimension up: `stride` elements per step of `dim`. A run is what lies together.
    let (mut stride, mut run, mut together) = (1_u64, 1_u64, true);
    for dim in (0..size.len()).rev() {
        let (start, size) = (start.get(dim).unwrap_or(0), size.get(dim).unwrap_or(0));
        whole_bytes(dtype, [start.saturating_mul(stride)])?;
        if together {
            run = run.saturating_mul(size);
        } else if size > 1 {
            whole_bytes(dtype, [stride])?;
        }
        together &= size == tensor_dim(dim);
        stride = stride.saturating_mul(tensor_dim(dim));
    }
    whole_bytes(dtype, [run])
}

fn whole_bytes<const N: usize>(dtype: DType, elements: [u64; N]) -> Result<(), PartFault> {
    if elements
        .iter()
        .all(|elements| dtype.bytes(*elements).is_some())
    {
        Ok(())
    } else {
        Err(PartFault::SubByte)
    }
}
