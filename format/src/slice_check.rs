//! Slices against the tensors they hold.

use crate::{
    DType, Error, FlatPart, SliceKind, Tensor, TensorTable,
    bytes::{Words, element_count, index},
    error::PartFault,
    slice_ref::{BoxPartRef, ContentRef, SliceRef},
};

/// Types and shapes of a component's tensors by index.
pub trait TensorShapes {
    /// Element type; `None` if there is no such tensor.
    fn dtype(&self, tensor: u32) -> Option<DType>;
    /// Number of dimensions.
    fn dims(&self, tensor: u32) -> Option<usize>;
    /// Elements in a dimension.
    fn dim(&self, tensor: u32, dim: usize) -> Option<u64>;
    /// Number of elements.
    fn elements(&self, tensor: u32) -> Option<u64>;
}

impl<D: AsRef<[u8]>> TensorShapes for TensorTable<D> {
    fn dtype(&self, tensor: u32) -> Option<DType> {
        Some(self.get_ref(tensor)?.dtype)
    }

    fn dims(&self, tensor: u32) -> Option<usize> {
        Some(self.get_ref(tensor)?.shape.len())
    }

    fn dim(&self, tensor: u32, dim: usize) -> Option<u64> {
        self.get_ref(tensor)?.shape.get(dim)
    }

    fn elements(&self, tensor: u32) -> Option<u64> {
        Some(self.get_ref(tensor)?.elements())
    }
}

impl TensorShapes for [Tensor] {
    fn dtype(&self, tensor: u32) -> Option<DType> {
        Some(self.get(index(tensor))?.dtype)
    }

    fn dims(&self, tensor: u32) -> Option<usize> {
        Some(self.get(index(tensor))?.shape.len())
    }

    fn dim(&self, tensor: u32, dim: usize) -> Option<u64> {
        self.get(index(tensor))?.shape.get(dim).copied()
    }

    fn elements(&self, tensor: u32) -> Option<u64> {
        element_count(self.get(index(tensor))?.shape.iter().copied())
    }
}

impl SliceRef<'_> {
    /// Checks the slice, the `entry`th of its table, against the tensors it holds.
    pub fn check(&self, entry: u64, tensors: &(impl TensorShapes + ?Sized)) -> Result<(), Error> {
        match self.content {
            ContentRef::Whole { tensor } => {
                self.check_type(entry, tensor, tensors)?;
                let same = tensors.dims(tensor) == Some(self.shape.len())
                    && (0..self.shape.len())
                        .all(|dim| tensors.dim(tensor, dim) == self.shape.get(dim));
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
                self.check_type(entry, tensor, tensors)?;
                for (i, part) in (0..).zip(parts) {
                    self.check_box(part, tensor, tensors)
                        .map_err(|fault| Error::Part {
                            slice: entry,
                            part: i,
                            fault,
                        })?;
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
                    if let FlatPart::Range { tensor, .. } = part {
                        self.check_type(entry, tensor, tensors)?;
                    }
                    self.check_range(part, tensors)
                        .map_err(|fault| Error::Part {
                            slice: entry,
                            part: i,
                            fault,
                        })?;
                }
                Ok(())
            }
        }
    }

    fn check_type(
        &self,
        slice: u64,
        tensor: u32,
        tensors: &(impl TensorShapes + ?Sized),
    ) -> Result<(), Error> {
        let missing = Error::Part {
            slice,
            part: 0,
            fault: PartFault::Tensor(tensor),
        };
        let (expected, found) = (tensors.dtype(tensor).ok_or(missing)?, self.dtype);
        if self.kind == SliceKind::Value && expected != found {
            return Err(Error::SliceType {
                slice,
                tensor,
                expected,
                found,
            });
        }
        Ok(())
    }

    fn check_range(
        &self,
        part: FlatPart,
        tensors: &(impl TensorShapes + ?Sized),
    ) -> Result<(), PartFault> {
        match part {
            FlatPart::Range { tensor, start, len } => {
                let elements = tensors.elements(tensor).ok_or(PartFault::Tensor(tensor))?;
                if start.checked_add(len).is_none_or(|end| end > elements) {
                    return Err(PartFault::Outside(tensor));
                }
                let dtype = tensors.dtype(tensor).ok_or(PartFault::Tensor(tensor))?;
                whole_bytes(dtype, [start, len])?;
                whole_bytes(self.dtype, [len])
            }
            FlatPart::Fill { len, .. } => whole_bytes(self.dtype, [len]),
        }
    }

    fn check_box(
        &self,
        part: BoxPartRef<'_>,
        tensor: u32,
        tensors: &(impl TensorShapes + ?Sized),
    ) -> Result<(), PartFault> {
        let BoxPartRef::Box { start, size } = part else {
            return Ok(());
        };
        let outside = PartFault::Outside(tensor);
        if tensors.dims(tensor) != Some(size.len()) {
            return Err(outside);
        }
        for (dim, (start, size)) in start.iter().zip(size.iter()).enumerate() {
            let end = start.checked_add(size).ok_or(outside)?;
            if tensors.dim(tensor, dim).is_none_or(|limit| end > limit) {
                return Err(outside);
            }
        }
        let dtype = tensors.dtype(tensor).ok_or(PartFault::Tensor(tensor))?;
        if dtype.bits().is_multiple_of(8) {
            return Ok(());
        }
        check_packed_box(dtype, start, size, |dim| {
            tensors.dim(tensor, dim).unwrap_or(0)
        })
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
