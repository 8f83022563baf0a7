//! A slice as row-major ranges of tensors and fill, in the order of its bytes. Pure.

use std::ops::ControlFlow;

use wpack_format::{BoxPart, Content, Fill, FlatPart, Slice};

/// Elements of a slice that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// `len` elements of a tensor from its row-major element `start`.
    Tensor { tensor: u32, start: u64, len: u64 },
    /// Fill.
    Fill { len: u64, value: Fill },
}

/// Visits the ranges of a slice until `visit` breaks; neighbours that go on in the tensor come as
/// one. `None` if the slice does not fit the shapes, which a checked table rules out.
pub(super) fn ranges(
    slice: &Slice,
    shape_of: impl Fn(u32) -> Option<Vec<u64>>,
    visit: &mut dyn FnMut(Range) -> ControlFlow<()>,
) -> Option<()> {
    let mut merge = Merge { open: None, visit };
    let flow = match &slice.content {
        Content::Whole { tensor } => {
            let len = shape_of(*tensor)?
                .iter()
                .try_fold(1_u64, |n, dim| n.checked_mul(*dim))?;
            merge.push(Range::Tensor {
                tensor: *tensor,
                start: 0,
                len,
            })
        }
        Content::Flat { parts } => parts.iter().try_for_each(|part| {
            merge.push(match *part {
                FlatPart::Range { tensor, start, len } => Range::Tensor { tensor, start, len },
                FlatPart::Fill { len, value } => Range::Fill { len, value },
            })
        }),
        Content::Boxes { tensor, dim, parts } => {
            let boxes = Boxes {
                tensor: *tensor,
                whole: shape_of(*tensor)?,
                shape: &slice.shape,
                dim: usize::try_from(*dim).ok()?,
                parts,
            };
            boxes.visit(&mut merge)?
        }
    };
    if flow.is_continue() {
        merge.flush();
    }
    Some(())
}

/// Joins ranges that follow each other.
struct Merge<'v> {
    open: Option<Range>,
    visit: &'v mut dyn FnMut(Range) -> ControlFlow<()>,
}

impl Merge<'_> {
    fn push(&mut self, range: Range) -> ControlFlow<()> {
        if let Range::Tensor { len: 0, .. } | Range::Fill { len: 0, .. } = range {
            return ControlFlow::Continue(());
        }
        match (&mut self.open, range) {
            (
                Some(Range::Tensor { tensor, start, len }),
                Range::Tensor {
                    tensor: next,
                    start: at,
                    len: more,
                },
            ) if *tensor == next && start.checked_add(*len) == Some(at) => {
                *len = len.saturating_add(more);
                ControlFlow::Continue(())
            }
            (
                Some(Range::Fill { len, value }),
                Range::Fill {
                    len: more,
                    value: next,
                },
            ) if *value == next => {
                *len = len.saturating_add(more);
                ControlFlow::Continue(())
            }
            (open, _) => match open.replace(range) {
                Some(done) => (self.visit)(done),
                None => ControlFlow::Continue(()),
            },
        }
    }

    fn flush(&mut self) {
        if let Some(done) = self.open.take() {
            let _ = (self.visit)(done);
        }
    }
}

/// Boxes of one tensor, laid along one dimension.
struct Boxes<'a> {
    tensor: u32,
    whole: Vec<u64>,
    shape: &'a [u64],
    dim: usize,
    parts: &'a [BoxPart],
}

impl Boxes<'_> {
    fn visit(&self, merge: &mut Merge<'_>) -> Option<ControlFlow<()>> {
        let strides = strides(&self.whole)?;
        let across = product(
            self.shape
                .get(self.dim.saturating_add(1)..)
                .unwrap_or_default(),
        )?;
        let mut outer = Odometer::new(self.shape.get(..self.dim)?);
        while let Some(index) = outer.next() {
            for part in self.parts {
                let flow = match part {
                    BoxPart::Box { start, size } => {
                        let first = dot(start, &strides)?.checked_add(dot(index, &strides)?)?;
                        self.inner(first, size, &strides, merge)?
                    }
                    BoxPart::Fill { size, value } => merge.push(Range::Fill {
                        len: size.checked_mul(across)?,
                        value: *value,
                    }),
                };
                if flow.is_break() {
                    return Some(flow);
                }
            }
        }
        Some(ControlFlow::Continue(()))
    }

    /// The part of a box at one position in the dimensions before the part dimension.
    fn inner(
        &self,
        first: u64,
        size: &[u64],
        strides: &[u64],
        merge: &mut Merge<'_>,
    ) -> Option<ControlFlow<()>> {
        let dims = self.whole.len();
        // Behind `last`, the box takes all of the tensor, so that one run covers it.
        let full = (self.dim..dims)
            .rev()
            .take_while(|d| size.get(*d) == self.whole.get(*d))
            .count();
        let last = dims
            .saturating_sub(full)
            .max(self.dim.saturating_add(1))
            .checked_sub(1)?;
        let run = product(size.get(last..).unwrap_or_default())?;
        let mut middle = Odometer::new(size.get(self.dim..last).unwrap_or_default());
        let middle_strides = strides.get(self.dim..).unwrap_or_default();
        while let Some(index) = middle.next() {
            let start = first.checked_add(dot(index, middle_strides)?)?;
            let flow = merge.push(Range::Tensor {
                tensor: self.tensor,
                start,
                len: run,
            });
            if flow.is_break() {
                return Some(flow);
            }
        }
        Some(ControlFlow::Continue(()))
    }
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size))
}

/// Elements from one index of each dimension to the next.
fn strides(shape: &[u64]) -> Option<Vec<u64>> {
    (1..=shape.len())
        .map(|d| product(shape.get(d..)?))
        .collect()
}

fn dot(index: &[u64], strides: &[u64]) -> Option<u64> {
    let mut terms = index.iter().zip(strides);
    terms.try_fold(0_u64, |sum, (at, stride)| {
        sum.checked_add(at.checked_mul(*stride)?)
    })
}

/// Counts through all indices below some sizes, the last dimension fastest.
struct Odometer<'a> {
    sizes: &'a [u64],
    at: Vec<u64>,
    fresh: bool,
}

impl<'a> Odometer<'a> {
    fn new(sizes: &'a [u64]) -> Self {
        Self {
            sizes,
            at: vec![0; sizes.len()],
            fresh: true,
        }
    }

    fn next(&mut self) -> Option<&[u64]> {
        if std::mem::take(&mut self.fresh) {
            return (!self.sizes.contains(&0)).then_some(&self.at);
        }
        for (at, size) in self.at.iter_mut().zip(self.sizes).rev() {
            *at = at.saturating_add(1);
            if *at < *size {
                return Some(&self.at);
            }
            *at = 0;
        }
        None
    }
}

/// The first element of a box and the one behind its last, in the row-major tensor.
pub(super) fn bounds(start: &[u64], size: &[u64], whole: &[u64]) -> Option<(u64, u64)> {
    let strides = strides(whole)?;
    let first = dot(start, &strides)?;
    if size.contains(&0) {
        return Some((first, first));
    }
    let last: Vec<u64> = size.iter().map(|size| size.saturating_sub(1)).collect();
    Some((
        first,
        first.checked_add(dot(&last, &strides)?)?.checked_add(1)?,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wpack_format::{DType, SliceKind};

    use super::*;
    use crate::builder;

    /// The slice's bytes by ranges.
    fn by_ranges(slice: &Slice, tensors: &[(wpack_format::Tensor, Vec<u8>)]) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut count = 0;
        let shape = |tensor: u32| Some(tensors[tensor as usize].0.shape.clone());
        ranges(slice, shape, &mut |range| {
            count += 1;
            match range {
                Range::Tensor { tensor, start, len } => {
                    let (from, to) = (start * 2, (start + len) * 2);
                    let range = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
                    out.extend_from_slice(&tensors[tensor as usize].1[range]);
                }
                Range::Fill { len, value } => {
                    (0..len).for_each(|_| out.extend_from_slice(&value.0[..2]));
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        (out, count)
    }

    fn slice(shape: Vec<u64>, dim: u32, parts: Vec<BoxPart>) -> Slice {
        Slice {
            content: Content::Boxes {
                tensor: 0,
                dim,
                parts,
            },
            kind: SliceKind::Value,
            dtype: DType::Bf16,
            shape,
            offset: 0,
            crc32c: None,
        }
    }

    fn model(shape: &[u64]) -> Vec<(wpack_format::Tensor, Vec<u8>)> {
        let tensor = builder::tensor("w", DType::Bf16, shape);
        let bytes = builder::pattern(&tensor, 3);
        vec![(tensor, bytes)]
    }

    #[test]
    fn rows_are_one_range_and_columns_one_each() {
        let tensors = model(&[6, 4, 5]);
        let rows = slice(
            vec![2, 4, 5],
            0,
            vec![BoxPart::Box {
                start: vec![3, 0, 0],
                size: vec![2, 4, 5],
            }],
        );
        assert_eq!(
            by_ranges(&rows, &tensors),
            (builder::cut(&rows, &tensors), 1)
        );
        let columns = slice(
            vec![6, 2, 5],
            1,
            vec![BoxPart::Box {
                start: vec![0, 1, 0],
                size: vec![6, 2, 5],
            }],
        );
        assert_eq!(
            by_ranges(&columns, &tensors),
            (builder::cut(&columns, &tensors), 6)
        );
        let deep = slice(
            vec![6, 4, 2],
            2,
            vec![BoxPart::Box {
                start: vec![0, 0, 3],
                size: vec![6, 4, 2],
            }],
        );
        assert_eq!(
            by_ranges(&deep, &tensors),
            (builder::cut(&deep, &tensors), 24)
        );
        // A box that is cut in a dimension behind the part dimension.
        let corner = slice(
            vec![2, 3, 5],
            0,
            vec![BoxPart::Box {
                start: vec![1, 1, 0],
                size: vec![2, 3, 5],
            }],
        );
        assert_eq!(
            by_ranges(&corner, &tensors),
            (builder::cut(&corner, &tensors), 2)
        );
    }

    proptest! {
        #[test]
        fn boxes_and_fill_as_element_by_element(
            shape in prop::collection::vec(0_u64..6, 1..4),
            dim in 0_usize..3,
            cuts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 1..4),
            other in prop::collection::vec((any::<u64>(), any::<u64>()), 3),
        ) {
            let dim = dim % shape.len();
            let inside = |size: u64, (a, b): (u64, u64)| {
                let start = a % (size + 1);
                (start, b % (size - start + 1))
            };
            let mut start = Vec::new();
            let mut size = Vec::new();
            for (d, whole) in shape.iter().enumerate() {
                let (from, len) = inside(*whole, other[d]);
                start.push(from);
                size.push(len);
            }
            let mut along = 0;
            let parts = cuts.iter().map(|(a, b, fill)| {
                let (from, len) = inside(shape[dim], (*a, *b));
                along += len;
                if *fill {
                    let mut value = Fill::ZERO;
                    value.0[..2].copy_from_slice(&[7, 9]);
                    return BoxPart::Fill { size: len, value };
                }
                let (mut start, mut size) = (start.clone(), size.clone());
                (start[dim], size[dim]) = (from, len);
                BoxPart::Box { start, size }
            }).collect();
            let mut of_slice = size.clone();
            of_slice[dim] = along;
            let tensors = model(&shape);
            let slice = slice(of_slice, u32::try_from(dim).unwrap(), parts);
            prop_assert_eq!(by_ranges(&slice, &tensors).0, builder::cut(&slice, &tensors));
        }
    }
}
