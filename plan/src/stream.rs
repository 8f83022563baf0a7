//! Flat groups: tensors laid one after the other, and cut as one.

use wpack_format::{DType, Fill, FlatPart, SliceKind};

use crate::Fault;

/// Tensors and fill in one dimension.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The tensor, or fill, from each element on.
    parts: Vec<(u64, FlatPart)>,
    len: u64,
    pub(crate) dtype: DType,
    pub(crate) kind: SliceKind,
}

impl Stream {
    pub(crate) fn new(dtype: DType, kind: SliceKind) -> Self {
        Self {
            parts: Vec::new(),
            len: 0,
            dtype,
            kind,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Adds all elements of a tensor.
    pub(crate) fn push(&mut self, tensor: u32, len: u64) -> Result<(), Fault> {
        self.parts.push((
            self.len,
            FlatPart::Range {
                tensor,
                start: 0,
                len,
            },
        ));
        self.grow(len)
    }

    /// Adds fill up to a multiple of `unit` elements.
    pub(crate) fn pad(&mut self, unit: u64, value: Fill) -> Result<(), Fault> {
        let len = self
            .len
            .checked_next_multiple_of(unit)
            .ok_or(Fault::TooLong)?
            - self.len;
        if len > 0 {
            self.parts.push((self.len, FlatPart::Fill { len, value }));
        }
        self.grow(len)
    }

    fn grow(&mut self, len: u64) -> Result<(), Fault> {
        self.len = self.len.checked_add(len).ok_or(Fault::TooLong)?;
        Ok(())
    }

    /// The parts of `len` elements from element `start`. There is a range among them, if need be an
    /// empty one, that says which stream this is.
    pub(crate) fn cut(&self, start: u64, len: u64) -> Vec<FlatPart> {
        let end = start.saturating_add(len);
        let first = self
            .parts
            .partition_point(|(at, part)| at + part_len(part) <= start);
        let mut out = Vec::new();
        for (at, part) in self.parts.get(first..).unwrap_or_default() {
            if *at >= end {
                break;
            }
            let (lo, hi) = (start.max(*at), end.min(at + part_len(part)));
            if lo >= hi {
                continue;
            }
            out.push(match *part {
                FlatPart::Range { tensor, start, .. } => FlatPart::Range {
                    tensor,
                    start: start + (lo - at),
                    len: hi - lo,
                },
                FlatPart::Fill { value, .. } => FlatPart::Fill {
                    len: hi - lo,
                    value,
                },
            });
        }
        let named = out
            .iter()
            .any(|part| matches!(part, FlatPart::Range { .. }));
        let last = self.parts.iter().rev().find_map(|(_, part)| match part {
            FlatPart::Range { tensor, start, len } => Some((*tensor, start + len)),
            FlatPart::Fill { .. } => None,
        });
        if let (false, Some((tensor, start))) = (named, last) {
            out.insert(
                0,
                FlatPart::Range {
                    tensor,
                    start,
                    len: 0,
                },
            );
        }
        out
    }
}

fn part_len(part: &FlatPart) -> u64 {
    match part {
        FlatPart::Range { len, .. } | FlatPart::Fill { len, .. } => *len,
    }
}

/// A small whole number in the bits of an element type that a flat group may have.
pub(crate) fn number(dtype: DType, value: u8) -> Option<Fill> {
    let float = f32::from(value).to_bits();
    let bytes: &[u8] = match dtype {
        DType::F32 => &float.to_le_bytes(),
        // Eight bits of value fit bfloat16 without rounding.
        DType::Bf16 => &u16::try_from(float >> 16).ok()?.to_le_bytes(),
        DType::F16 => &half_bits(value).to_le_bytes(),
        DType::F64 => &f64::from(value).to_bits().to_le_bytes(),
        _ => return None,
    };
    let mut fill = Fill::ZERO;
    fill.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(fill)
}

/// The bits of a whole number below 256 as IEEE binary16.
fn half_bits(value: u8) -> u16 {
    let Some(log) = value.checked_ilog2() else {
        return 0;
    };
    let exponent = u16::try_from(log).unwrap_or(0) + 15;
    let mantissa = (u16::from(value) << (10 - log)) & 0x3ff;
    exponent << 10 | mantissa
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: Fill = Fill([7; 16]);

    fn stream() -> Stream {
        let mut stream = Stream::new(DType::F32, SliceKind::Value);
        stream.push(3, 5).unwrap();
        stream.pad(4, Fill::ZERO).unwrap();
        stream.push(9, 2).unwrap();
        stream.pad(6, TAIL).unwrap();
        stream
    }

    #[test]
    fn pieces_follow_each_other() {
        let stream = stream();
        assert_eq!(stream.len(), 12);
        let range = |tensor, start, len| FlatPart::Range { tensor, start, len };
        assert_eq!(stream.cut(0, 4), [range(3, 0, 4)]);
        assert_eq!(
            stream.cut(4, 5),
            [
                range(3, 4, 1),
                FlatPart::Fill {
                    len: 3,
                    value: Fill::ZERO
                },
                range(9, 0, 1)
            ]
        );
        assert_eq!(
            stream.cut(9, 3),
            [
                range(9, 1, 1),
                FlatPart::Fill {
                    len: 2,
                    value: TAIL
                }
            ]
        );
        assert_eq!(
            stream.cut(11, 1),
            [
                range(9, 2, 0),
                FlatPart::Fill {
                    len: 1,
                    value: TAIL
                }
            ]
        );
        assert_eq!(stream.cut(12, 0), [range(9, 2, 0)]);
    }

    #[test]
    fn forty_two_in_every_type() {
        let bytes = |dtype| number(dtype, 42).unwrap().0;
        assert_eq!(bytes(DType::F32)[..4], 42f32.to_le_bytes());
        assert_eq!(bytes(DType::F64)[..8], 42f64.to_le_bytes());
        assert_eq!(bytes(DType::Bf16)[..2], 0x4228u16.to_le_bytes());
        assert_eq!(bytes(DType::F16)[..2], 0x5140u16.to_le_bytes());
        assert_eq!(number(DType::I64, 42), None);
    }
}
