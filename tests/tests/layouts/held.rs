//! A slice written out element by element, from what the format says of it.

use wpack_format::{BoxPart, Content, FlatPart, Slice};

/// What stands at one place of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// An element of a tensor, row-major.
    Of(u32, u64),
    /// Fill.
    Fill([u8; 16]),
}

/// All places of a slice, in order.
pub(crate) fn elements(slice: &Slice, shape_of: &dyn Fn(u32) -> Vec<u64>) -> Vec<Element> {
    let count: u64 = slice.shape.iter().product();
    match &slice.content {
        Content::Whole { tensor } => (0..count).map(|at| Element::Of(*tensor, at)).collect(),
        Content::Flat { parts } => {
            let mut out = Vec::new();
            for part in parts {
                match *part {
                    FlatPart::Range { tensor, start, len } => {
                        out.extend((start..start + len).map(|at| Element::Of(tensor, at)));
                    }
                    FlatPart::Fill { len, value } => {
                        out.extend((0..len).map(|_| Element::Fill(value.0)));
                    }
                }
            }
            out
        }
        Content::Boxes { tensor, dim, parts } => {
            let (full, along) = (shape_of(*tensor), usize::try_from(*dim).unwrap());
            let place = |flat: u64| {
                let mut at = vec![0; full.len()];
                let mut rest = flat;
                for d in (0..full.len()).rev() {
                    at[d] = rest % slice.shape[d];
                    rest /= slice.shape[d];
                }
                let mut behind = at[along];
                for part in parts {
                    let (BoxPart::Box { size, .. }, BoxPart::Box { start, .. }) = (part, part)
                    else {
                        panic!("no layout fills boxes: {slice:?}")
                    };
                    if behind < size[along] {
                        at[along] = behind;
                        let global =
                            (0..full.len()).fold(0, |sum, d| sum * full[d] + start[d] + at[d]);
                        return Element::Of(*tensor, global);
                    }
                    behind -= size[along];
                }
                panic!("{slice:?} has less parts than rows")
            };
            (0..count).map(place).collect()
        }
    }
}
