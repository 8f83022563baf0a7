//! A slice as runs of bytes that lie together both in the extent and in the whole tensor.

use wpack_format::{BoxPart, Content, FlatPart, Slice, Tensor};

/// Bytes of a slice and their place in their tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the tensor.
    pub(super) tensor: u32,
    /// First byte in the extent.
    pub(super) from: u64,
    /// First byte in the tensor.
    pub(super) to: u64,
    /// Bytes.
    pub(super) len: u64,
}

impl Run {
    /// What lies before byte `end` of the extent, and the rest.
    pub(super) fn split(self, end: u64) -> (Self, Option<Self>) {
        let now = self.len.min(end.saturating_sub(self.from));
        let rest = self.len.saturating_sub(now);
        let later = Self {
            from: self.from.saturating_add(now),
            to: self.to.saturating_add(now),
            len: rest,
            ..self
        };
        (Self { len: now, ..self }, (rest > 0).then_some(later))
    }
}

/// The runs of a slice, ascending in the extent; fill has none.
pub(super) fn runs(slice: &Slice, tensors: &[Tensor]) -> Vec<Run> {
    let bits = u64::from(slice.dtype.bits());
    // A plan cuts at whole bytes only, so that this loses nothing.
    let bytes = |elements: u64| elements.saturating_mul(bits) / 8;
    let mut out = Vec::new();
    let mut push = |tensor: u32, from: u64, to: u64, elements: u64| {
        let run = Run {
            tensor,
            from: slice.offset.saturating_add(bytes(from)),
            to: bytes(to),
            len: bytes(elements),
        };
        if run.len > 0 {
            out.push(run);
        }
    };
    match &slice.content {
        Content::Whole { tensor } => push(*tensor, 0, 0, elements(&slice.shape)),
        Content::Flat { parts } => {
            let mut at = 0u64;
            for part in parts {
                match *part {
                    FlatPart::Range { tensor, start, len } => {
                        push(tensor, at, start, len);
                        at = at.saturating_add(len);
                    }
                    FlatPart::Fill { len, .. } => at = at.saturating_add(len),
                }
            }
        }
        Content::Boxes { tensor, dim, parts } => {
            let whole = usize::try_from(*tensor).ok().and_then(|at| tensors.get(at));
            let Some(whole) = whole else { return out };
            boxes(&slice.shape, &whole.shape, *dim, parts, |from, to, len| {
                push(*tensor, from, to, len);
            });
            // Parts are visited one after the other; within the slice they interleave when the
            // dimension is not the first.
            out.sort_by_key(|run| run.from);
        }
    }
    out
}

/// Visits boxes that follow each other along `dim` of a slice: first element in the slice, first in
/// the tensor, number.
fn boxes(
    local: &[u64],
    whole: &[u64],
    dim: u32,
    parts: &[BoxPart],
    mut visit: impl FnMut(u64, u64, u64),
) {
    let dim = usize::try_from(dim).unwrap_or(usize::MAX);
    let (local_strides, whole_strides) = (strides(local), strides(whole));
    let mut ahead = 0u64;
    for part in parts {
        let (start, size) = match part {
            BoxPart::Fill { size, .. } => {
                ahead = ahead.saturating_add(*size);
                continue;
            }
            BoxPart::Box { start, size } => (start, size),
        };
        let base_local = ahead.saturating_mul(local_strides.get(dim).copied().unwrap_or(0));
        let base_whole = dot(start, &whole_strides);
        // Trailing dimensions that the box has in full lie together in both.
        let mut inner = size.len();
        while inner > 0
            && size.get(inner - 1) == whole.get(inner - 1)
            && size.get(inner - 1) == local.get(inner - 1)
        {
            inner -= 1;
        }
        let joined = inner.saturating_sub(1);
        let len = elements(size.get(joined..).unwrap_or_default());
        let outer = size.get(..joined).unwrap_or_default();
        let mut place = vec![0u64; joined];
        for _ in 0..elements(outer) {
            visit(
                base_local.saturating_add(dot(&place, &local_strides)),
                base_whole.saturating_add(dot(&place, &whole_strides)),
                len,
            );
            for (at, size) in place.iter_mut().zip(outer).rev() {
                *at += 1;
                if *at < *size {
                    break;
                }
                *at = 0;
            }
        }
        ahead = ahead.saturating_add(size.get(dim).copied().unwrap_or(0));
    }
}

fn elements(shape: &[u64]) -> u64 {
    crate::report::elements(shape)
}

fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    let mut stride = 1u64;
    for (slot, size) in strides.iter_mut().zip(shape).rev() {
        *slot = stride;
        stride = stride.saturating_mul(*size);
    }
    strides
}

fn dot(place: &[u64], strides: &[u64]) -> u64 {
    place.iter().zip(strides).fold(0, |sum, (at, stride)| {
        sum.saturating_add(at.saturating_mul(*stride))
    })
}

#[cfg(test)]
mod tests {
    use wpack_format::{DType, Fill, Role, SliceKind, TensorName};

    use super::*;

    fn tensor(shape: &[u64]) -> Tensor {
        let name = TensorName {
            name: "t".to_owned(),
            source: "t".to_owned(),
        };
        Tensor {
            names: vec![name],
            dtype: DType::U8,
            source_dtype: DType::U8,
            shape: shape.to_vec(),
            stored_shape: shape.to_vec(),
            role: Role::Parameter,
            rule: 0,
            source: None,
        }
    }

    fn slice(content: Content, shape: &[u64]) -> Slice {
        let (kind, dtype) = (SliceKind::Value, DType::U8);
        Slice {
            content,
            kind,
            dtype,
            shape: shape.to_vec(),
            offset: 100,
            crc32c: None,
        }
    }

    fn part(start: &[u64], size: &[u64]) -> BoxPart {
        BoxPart::Box {
            start: start.to_vec(),
            size: size.to_vec(),
        }
    }

    fn run(from: u64, to: u64, len: u64) -> Run {
        Run {
            tensor: 0,
            from,
            to,
            len,
        }
    }

    #[test]
    fn rows_are_one_run() {
        let content = Content::Boxes {
            tensor: 0,
            dim: 0,
            parts: vec![part(&[2, 0], &[2, 3])],
        };
        assert_eq!(
            runs(&slice(content, &[2, 3]), &[tensor(&[5, 3])]),
            [run(100, 6, 6)]
        );
    }

    #[test]
    fn columns_are_a_run_a_row_and_parts_interleave() {
        let parts = vec![part(&[0, 0], &[2, 1]), part(&[0, 2], &[2, 1])];
        let content = Content::Boxes {
            tensor: 0,
            dim: 1,
            parts,
        };
        assert_eq!(
            runs(&slice(content, &[2, 2]), &[tensor(&[2, 4])]),
            [
                run(100, 0, 1),
                run(101, 2, 1),
                run(102, 4, 1),
                run(103, 6, 1)
            ]
        );
    }

    #[test]
    fn fill_is_passed_over() {
        let parts = vec![
            part(&[4, 0], &[1, 3]),
            BoxPart::Fill {
                size: 2,
                value: Fill::ZERO,
            },
        ];
        let content = Content::Boxes {
            tensor: 0,
            dim: 0,
            parts,
        };
        assert_eq!(
            runs(&slice(content, &[3, 3]), &[tensor(&[5, 3])]),
            [run(100, 12, 3)]
        );
        let parts = vec![
            FlatPart::Fill {
                len: 4,
                value: Fill::ZERO,
            },
            FlatPart::Range {
                tensor: 0,
                start: 7,
                len: 2,
            },
        ];
        assert_eq!(
            runs(&slice(Content::Flat { parts }, &[6]), &[]),
            [run(104, 7, 2)]
        );
    }

    #[test]
    fn scalars_and_nothing() {
        let content = Content::Boxes {
            tensor: 0,
            dim: 0,
            parts: vec![part(&[], &[])],
        };
        assert_eq!(runs(&slice(content, &[]), &[tensor(&[])]), [run(100, 0, 1)]);
        let content = Content::Boxes {
            tensor: 0,
            dim: 0,
            parts: vec![part(&[5, 0], &[0, 3])],
        };
        assert_eq!(runs(&slice(content, &[0, 3]), &[tensor(&[5, 3])]), []);
    }

    #[test]
    fn a_run_is_cut_at_a_block() {
        assert_eq!(run(6, 0, 4).split(8), (run(6, 0, 2), Some(run(8, 2, 2))));
        assert_eq!(run(6, 0, 2).split(8), (run(6, 0, 2), None));
    }
}
