//! The stored slices of a component that a rank can need, found by tensor.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use wpack_format::{Content, DType, FlatPart, Slice, SliceKind, TensorTable};

use super::{
    ranges::{Range, ranges},
    stored::{Run, Stored},
};

/// One component of the pack.
#[derive(Debug)]
pub(super) struct ComponentTable {
    pub(super) name: String,
    pub(super) tensors: Arc<TensorTable>,
    /// Slices of several parts.
    kept: Vec<Kept>,
    held: HashMap<(u32, SliceKind), Vec<Held>>,
}

/// A stored slice.
#[derive(Debug)]
struct Kept {
    slice: Slice,
    /// First byte in the file.
    offset: u64,
    /// First element of each part, where it is flat.
    starts: Vec<u64>,
}

/// Where elements of a tensor are.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// All of them, together.
    Whole(DType, Run),
    /// A part of a flat slice.
    Part { run: Run, kept: usize, part: usize },
    /// Boxes, each of very many runs: worked out where they are needed.
    Boxes(usize),
}

impl ComponentTable {
    pub(super) fn new(name: String, tensors: Arc<TensorTable>) -> Self {
        Self {
            name,
            tensors,
            kept: Vec::new(),
            held: HashMap::new(),
        }
    }

    pub(super) fn shape(&self, tensor: u32) -> Option<Vec<u64>> {
        Some(self.tensors.get_ref(tensor)?.shape.to_vec())
    }

    /// Remembers what a stored slice holds of the tensors of which `wanted` wants some of the elements
    /// from one number to another.
    pub(super) fn keep(
        &mut self,
        slice: Slice,
        offset: u64,
        wanted: impl Fn(u32, u64, u64) -> bool,
    ) {
        let (kind, dtype) = (slice.kind, slice.dtype);
        let mut held = |tensor, held| {
            self.held.entry((tensor, kind)).or_default().push(held);
        };
        match &slice.content {
            Content::Whole { tensor } => {
                let len = slice.elements().unwrap_or(0);
                let run = Run {
                    start: 0,
                    len,
                    at: offset,
                };
                if wanted(*tensor, 0, len) {
                    held(*tensor, Held::Whole(dtype, run));
                }
            }
            Content::Boxes { tensor, .. } => {
                let mut any = false;
                let shape = |tensor| Some(self.tensors.get_ref(tensor)?.shape.to_vec());
                super::stored::bounds(&slice, shape, |tensor, from, to| {
                    any |= wanted(tensor, from, to);
                });
                if !any {
                    return;
                }
                held(*tensor, Held::Boxes(self.kept.len()));
                self.kept.push(Kept {
                    slice,
                    offset,
                    starts: Vec::new(),
                });
            }
            Content::Flat { parts } => {
                let (mut starts, mut element, mut any) = (Vec::new(), 0_u64, false);
                for (part, piece) in parts.iter().enumerate() {
                    starts.push(element);
                    let (FlatPart::Range { len, .. } | FlatPart::Fill { len, .. }) = *piece;
                    if let (FlatPart::Range { tensor, start, .. }, Some(inside)) =
                        (*piece, dtype.bytes(element))
                        && wanted(tensor, start, start.saturating_add(len))
                    {
                        let at = offset.saturating_add(inside);
                        let run = Run { start, len, at };
                        let kept = self.kept.len();
                        held(tensor, Held::Part { run, kept, part });
                        any = true;
                    }
                    element = element.saturating_add(len);
                }
                if any {
                    self.kept.push(Kept {
                        slice,
                        offset,
                        starts,
                    });
                }
            }
        }
    }

    /// The places of a tensor's elements, of one type.
    pub(super) fn stored(&self, tensor: u32, kind: SliceKind) -> Option<Stored> {
        let held = self.held.get(&(tensor, kind))?;
        let mut dtype = None;
        let mut runs = Vec::new();
        for held in held {
            let of = match *held {
                Held::Whole(of, _) => of,
                Held::Part { kept, .. } | Held::Boxes(kept) => self.kept.get(kept)?.slice.dtype,
            };
            if *dtype.get_or_insert(of) != of {
                return None;
            }
            match *held {
                Held::Whole(_, run) | Held::Part { run, .. } => runs.push(run),
                Held::Boxes(kept) => self.kept.get(kept)?.runs(|t| self.shape(t), &mut runs),
            }
        }
        Some(Stored::new(dtype?, runs))
    }

    /// The first byte of a stretch of a stored flat slice that holds just these parts, fill included.
    pub(super) fn stretch(&self, slice: &Slice, parts: &[FlatPart]) -> Option<u64> {
        let mut before = 0_u64;
        let (tensor, start) = parts.iter().find_map(|part| {
            let (FlatPart::Range { len, .. } | FlatPart::Fill { len, .. }) = *part;
            match *part {
                FlatPart::Range { tensor, start, .. } if len > 0 => Some((tensor, start)),
                _ => {
                    before = before.saturating_add(len);
                    None
                }
            }
        })?;
        let held = self.held.get(&(tensor, slice.kind))?;
        held.iter().find_map(|held| {
            let Held::Part { run, kept, part } = *held else {
                return None;
            };
            if start < run.start || start >= run.end() {
                return None;
            }
            let kept = self.kept.get(kept)?;
            let here = kept.starts.get(part)?.checked_add(start - run.start)?;
            let first = here.checked_sub(before)?;
            if kept.slice.dtype != slice.dtype || !kept.holds(first, parts) {
                return None;
            }
            kept.offset.checked_add(slice.dtype.bytes(first)?)
        })
    }
}

impl Kept {
    /// Adds the runs of a slice of one tensor.
    fn runs(&self, shape_of: impl Fn(u32) -> Option<Vec<u64>>, runs: &mut Vec<Run>) {
        let mut element = 0_u64;
        // A slice that does not fit its tensor gives no run; a checked table has none.
        let _ = ranges(&self.slice, shape_of, &mut |range| {
            let (len, start) = match range {
                Range::Tensor { start, len, .. } => (len, Some(start)),
                Range::Fill { len, .. } => (len, None),
            };
            if let (Some(start), Some(inside)) = (start, self.slice.dtype.bytes(element)) {
                let at = self.offset.saturating_add(inside);
                runs.push(Run { start, len, at });
            }
            element = element.saturating_add(len);
            ControlFlow::Continue(())
        });
    }

    /// Whether its elements from `first` on are these parts.
    fn holds(&self, first: u64, wanted: &[FlatPart]) -> bool {
        let Content::Flat { parts } = &self.slice.content else {
            return false;
        };
        let mut at = self
            .starts
            .partition_point(|start| *start <= first)
            .saturating_sub(1);
        let mut inside = first.saturating_sub(self.starts.get(at).copied().unwrap_or(0));
        for want in wanted {
            let (FlatPart::Range { len, .. } | FlatPart::Fill { len, .. }) = *want;
            let mut done = 0;
            while done < len {
                let Some(have) = parts.get(at) else {
                    return false;
                };
                let (FlatPart::Range { len: of, .. } | FlatPart::Fill { len: of, .. }) = *have;
                let take = of.saturating_sub(inside).min(len - done);
                let same = take == 0
                    || match (*want, *have) {
                        (
                            FlatPart::Range { tensor, start, .. },
                            FlatPart::Range {
                                tensor: of,
                                start: from,
                                ..
                            },
                        ) => tensor == of && start.checked_add(done) == from.checked_add(inside),
                        (FlatPart::Fill { value, .. }, FlatPart::Fill { value: of, .. }) => {
                            value == of
                        }
                        _ => false,
                    };
                if !same {
                    return false;
                }
                done += take;
                inside = inside.saturating_add(take);
                if inside >= of {
                    at += 1;
                    inside = 0;
                }
            }
        }
        true
    }
}

/// The places of the tensor looked up last: slices of one tensor mostly come together.
#[derive(Default)]
pub(super) struct Finder {
    last: Option<((usize, u32, SliceKind), Option<Stored>)>,
}

impl Finder {
    pub(super) fn find(
        &mut self,
        number: usize,
        component: &ComponentTable,
        tensor: u32,
        kind: SliceKind,
    ) -> Option<&Stored> {
        let key = (number, tensor, kind);
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            self.last = Some((key, component.stored(tensor, kind)));
        }
        self.last.as_ref().and_then(|(_, stored)| stored.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use wpack_format::Fill;

    use super::*;

    #[test]
    fn a_stretch_of_a_flat_slice_is_found_with_its_fill() {
        let range = |tensor, start, len| FlatPart::Range { tensor, start, len };
        let fill = |len, value| FlatPart::Fill {
            len,
            value: Fill([value; 16]),
        };
        let flat = |parts: Vec<FlatPart>, offset| Slice {
            content: Content::Flat { parts },
            kind: SliceKind::Value,
            dtype: DType::F32,
            shape: vec![0],
            offset,
            crc32c: None,
        };
        let tensors = TensorTable::encode(&[]);
        let tensors = Arc::new(TensorTable::decode(tensors, 0).unwrap());
        let mut table = ComponentTable::new("model".into(), tensors);
        let stored = vec![
            range(0, 3, 5),
            fill(3, 7),
            range(1, 0, 0),
            range(1, 0, 9),
            fill(2, 7),
        ];
        table.keep(flat(stored, 0), 1000, |_, _, _| true);
        let find = |parts: &[FlatPart]| table.stretch(&flat(parts.to_vec(), 0), parts);
        assert_eq!(
            find(&[range(0, 3, 5), fill(3, 7), range(1, 0, 9)]),
            Some(1000)
        );
        assert_eq!(
            find(&[range(0, 5, 3), fill(3, 7), range(1, 0, 1)]),
            Some(1008)
        );
        assert_eq!(find(&[fill(2, 7), range(1, 0, 2)]), Some(1024));
        assert_eq!(find(&[range(1, 7, 2), fill(1, 7), fill(1, 7)]), Some(1060));
        assert_eq!(find(&[range(0, 5, 3), fill(2, 7), range(1, 0, 1)]), None);
        assert_eq!(find(&[range(0, 5, 3), fill(3, 8), range(1, 0, 1)]), None);
        assert_eq!(find(&[range(0, 5, 3), fill(3, 7), range(1, 1, 1)]), None);
        assert_eq!(find(&[range(1, 7, 2), fill(3, 7)]), None);
        assert_eq!(find(&[fill(9, 7), range(0, 3, 1)]), None);
        assert_eq!(find(&[fill(2, 7)]), None);
        assert_eq!(find(&[range(0, 0, 3)]), None);
    }
}
