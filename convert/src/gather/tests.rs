//! Gathering against the plainest way to do it: element by element.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use wpack_checkpoint::Bytes;
use wpack_format::{BoxPart, Content, DType, Fill, FlatPart, Slice, SliceKind, TensorName};

use super::{Reader, Tensors, overlapping};
use crate::{cast, model::ModelTensor};

/// Bytes in memory that count how they are read.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    reads: Mutex<Vec<(u64, usize)>>,
}

impl Bytes for Memory {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), wpack_checkpoint::Error> {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.bytes[start..start + out.len()]);
        self.reads.lock().unwrap().push((offset, out.len()));
        Ok(())
    }

    fn place(&self) -> Option<u64> {
        Some(0)
    }

    fn will_need(&self, _: u64, _: u64) {}
}

struct One {
    tensor: ModelTensor,
    memory: Arc<Memory>,
}

impl One {
    fn new(dtype: DType, source_dtype: DType, shape: &[u64]) -> Self {
        let elements = shape.iter().product::<u64>();
        let len = usize::try_from(source_dtype.bytes(elements).unwrap()).unwrap();
        // No byte like its neighbours; no NaN in floating types.
        let bytes = (0..len)
            .map(|at| u8::try_from((at * 7 + at / 251) % 113).unwrap())
            .collect();
        let memory = Arc::new(Memory {
            bytes,
            reads: Mutex::default(),
        });
        let tensor = ModelTensor {
            names: vec![TensorName {
                name: "t".into(),
                source: "t".into(),
            }],
            dtype,
            source_dtype,
            shape: shape.to_vec(),
            stored_shape: shape.to_vec(),
            source: Some(0),
            bytes: Arc::clone(&memory) as Arc<dyn Bytes>,
        };
        Self { tensor, memory }
    }

    /// All of the tensor in the type of the pack.
    fn image(&self) -> Vec<u8> {
        let (from, to) = (self.tensor.source_dtype, self.tensor.dtype);
        let elements = self.tensor.shape.iter().product();
        let mut out = vec![0; usize::try_from(to.bytes(elements).unwrap()).unwrap()];
        cast::convert_elements(from, to, &self.memory.bytes, &mut out).unwrap();
        out
    }
}

impl Tensors for One {
    fn get(&self, tensor: u32) -> Option<&ModelTensor> {
        (tensor == 0).then_some(&self.tensor)
    }

    fn shape(&self, tensor: u32) -> Option<&[u64]> {
        self.get(tensor).map(|tensor| tensor.shape.as_slice())
    }

    fn component(&self) -> &'static str {
        "model"
    }
}

fn fill(byte: u8) -> Fill {
    let mut value = [0; 16];
    value[0] = byte;
    Fill(value)
}

/// Elements of a slice of boxes, one at a time: the tensor's linear index, or fill.
fn naive_boxes(
    tensor: &[u64],
    shape: &[u64],
    dim: usize,
    parts: &[BoxPart],
) -> Vec<Result<u64, Fill>> {
    let mut out = Vec::new();
    let total: u64 = shape.iter().product();
    for linear in 0..total {
        let mut rest = linear;
        let mut index: Vec<u64> = Vec::new();
        for size in shape.iter().rev() {
            index.insert(0, rest % size);
            rest /= size;
        }
        let mut along = index.get(dim).copied().unwrap_or(0);
        for part in parts {
            match part {
                BoxPart::Fill { size, value } if along < *size => {
                    out.push(Err(*value));
                    break;
                }
                BoxPart::Fill { size, .. } => along -= size,
                BoxPart::Box { start, size } => {
                    let own = size.get(dim).copied().unwrap_or(1);
                    if along >= own {
                        along -= own;
                        continue;
                    }
                    let mut at = 0;
                    for d in 0..tensor.len() {
                        let here = start[d] + if d == dim { along } else { index[d] };
                        at = at * tensor[d] + here;
                    }
                    out.push(Ok(at));
                    break;
                }
            }
        }
    }
    out
}

fn expected(image: &[u8], width: usize, elements: &[Result<u64, Fill>]) -> Vec<u8> {
    let mut out = Vec::new();
    for element in elements {
        match element {
            Ok(at) => {
                let start = usize::try_from(*at).unwrap() * width;
                out.extend(&image[start..start + width]);
            }
            Err(value) => out.extend(&value.0[..width]),
        }
    }
    out
}

/// Reads a slice whole and in two halves, and compares with the elements.
fn check(one: &One, slice: &Slice, elements: &[Result<u64, Fill>], cut: usize) {
    let width = usize::try_from(slice.dtype.bits() / 8).unwrap();
    let expected = expected(&one.image(), width, elements);
    assert_eq!(slice.len_bytes().unwrap(), expected.len() as u64);
    let mut reader = Reader::default();
    let cut = cut % (elements.len() + 1) * width;
    for range in [0..expected.len(), 0..cut, cut..expected.len()] {
        let mut found = vec![0xee; range.len()];
        let bytes = range.start as u64..range.end as u64;
        reader.fill_slice(one, slice, bytes, &mut found).unwrap();
        assert_eq!(found, &expected[range]);
    }
}

fn slice(dtype: DType, shape: Vec<u64>, content: Content) -> Slice {
    Slice {
        content,
        kind: SliceKind::Value,
        dtype,
        shape,
        offset: 0,
        crc32c: None,
    }
}

fn types() -> impl Strategy<Value = (DType, DType)> {
    prop::sample::select(vec![
        (DType::U8, DType::U8),
        (DType::Bf16, DType::Bf16),
        (DType::F32, DType::F32),
        (DType::Bf16, DType::F32),
        (DType::F32, DType::F16),
        (DType::F8E4M3, DType::F64),
        (DType::C128, DType::C128),
    ])
}

/// A tensor's shape, and for every dimension a start and a size within it.
fn boxes() -> impl Strategy<Value = (Vec<u64>, Vec<(u64, u64)>)> {
    prop::collection::vec((1u64..6, 0u64..6, 0u64..6), 0..4).prop_map(|dims| {
        let shape = dims.iter().map(|dim| dim.0).collect();
        let cut = |(len, start, size): &(u64, u64, u64)| {
            let start = start % len;
            (start, size % (len - start + 1))
        };
        (shape, dims.iter().map(cut).collect())
    })
}

proptest! {
    #[test]
    fn one_box((dtype, source) in types(), (shape, cuts) in boxes(), cut in 0usize..200) {
        let one = One::new(dtype, source, &shape);
        let (start, size): (Vec<u64>, Vec<u64>) = cuts.into_iter().unzip();
        let parts = vec![BoxPart::Box { start, size: size.clone() }];
        let elements = naive_boxes(&shape, &size, 0, &parts);
        let content = Content::Boxes { tensor: 0, dim: 0, parts };
        check(&one, &slice(dtype, size, content), &elements, cut);
    }

    #[test]
    fn boxes_and_fill_along_a_dimension(
        (dtype, source) in types(),
        (shape, cuts) in boxes(),
        dim in 0usize..4,
        extra in 0u64..4,
        cut in 0usize..400,
    ) {
        prop_assume!(!shape.is_empty());
        let one = One::new(dtype, source, &shape);
        let dim = dim % shape.len();
        let (start, size): (Vec<u64>, Vec<u64>) = cuts.into_iter().unzip();
        let mut again = (start.clone(), size.clone());
        again.0[dim] = 0;
        again.1[dim] = shape[dim];
        let parts = vec![
            BoxPart::Box { start, size: size.clone() },
            BoxPart::Fill { size: extra, value: fill(42) },
            BoxPart::Box { start: again.0, size: again.1 },
        ];
        let mut whole = size;
        whole[dim] += extra + shape[dim];
        let elements = naive_boxes(&shape, &whole, dim, &parts);
        let content = Content::Boxes { tensor: 0, dim: u32::try_from(dim).unwrap(), parts };
        check(&one, &slice(dtype, whole, content), &elements, cut);
    }

    #[test]
    fn flat_ranges_and_fill(
        (dtype, source) in types(),
        len in 1u64..60,
        ranges in prop::collection::vec((0u64..60, 0u64..60), 0..5),
        extra in 0u64..5,
        cut in 0usize..400,
    ) {
        let one = One::new(dtype, source, &[len]);
        let mut parts = Vec::new();
        let mut elements = Vec::new();
        for (start, size) in ranges {
            let start = start % len;
            let size = size % (len - start + 1);
            parts.push(FlatPart::Range { tensor: 0, start, len: size });
            elements.extend((start..start + size).map(Ok));
        }
        parts.push(FlatPart::Fill { len: extra, value: fill(7) });
        elements.extend((0..extra).map(|_| Err(fill(7))));
        let slice = slice(dtype, vec![elements.len() as u64], Content::Flat { parts });
        check(&one, &slice, &elements, cut);
    }
}

fn whole(dtype: DType, len: u64, offset: u64) -> Slice {
    Slice {
        offset,
        ..slice(dtype, vec![len], Content::Whole { tensor: 0 })
    }
}

#[test]
fn padding_between_slices_is_zero() {
    let one = One::new(DType::U8, DType::U8, &[5]);
    let slices = [whole(DType::U8, 5, 0), whole(DType::U8, 5, 512)];
    let mut out = vec![0xee; 600];
    Reader::default()
        .fill(&one, &slices, 0..600, &mut out)
        .unwrap();
    assert_eq!(&out[..5], &one.memory.bytes[..]);
    assert_eq!(&out[512..517], &one.memory.bytes[..]);
    assert!(out[5..512].iter().chain(&out[517..]).all(|byte| *byte == 0));
}

#[test]
fn slices_without_elements_hide_none_behind_them() {
    let empty = Slice {
        shape: vec![0],
        ..whole(DType::U8, 0, 512)
    };
    let slices = [
        whole(DType::U8, 5, 0),
        empty.clone(),
        whole(DType::U8, 5, 512),
        empty,
    ];
    let found: Vec<_> = overlapping(&slices, 510..515)
        .map(|(at, _, part)| (at, part))
        .collect();
    assert_eq!(found, [(2, 512..515)]);
    assert_eq!(overlapping(&slices, 5..512).count(), 0);
}

#[test]
fn a_contiguous_slice_is_one_read() {
    let one = One::new(DType::U8, DType::U8, &[64, 1024]);
    let parts = vec![BoxPart::Box {
        start: vec![16, 0],
        size: vec![32, 1024],
    }];
    let content = Content::Boxes {
        tensor: 0,
        dim: 0,
        parts,
    };
    let slice = slice(DType::U8, vec![32, 1024], content);
    let mut out = vec![0; 32 << 10];
    Reader::default()
        .fill_slice(&one, &slice, 0..32 << 10, &mut out)
        .unwrap();
    assert_eq!(*one.memory.reads.lock().unwrap(), [(16 << 10, 32 << 10)]);
}

#[test]
fn short_rows_are_read_together() {
    let one = One::new(DType::U8, DType::U8, &[1000, 64]);
    let parts = vec![BoxPart::Box {
        start: vec![0, 16],
        size: vec![1000, 16],
    }];
    let content = Content::Boxes {
        tensor: 0,
        dim: 0,
        parts,
    };
    let slice = slice(DType::U8, vec![1000, 16], content);
    let mut out = vec![0; 16_000];
    Reader::default()
        .fill_slice(&one, &slice, 0..16_000, &mut out)
        .unwrap();
    assert_eq!(*one.memory.reads.lock().unwrap(), [(16, 999 * 64 + 16)]);
}

#[test]
fn a_cast_reads_its_source_once() {
    let one = One::new(DType::Bf16, DType::F32, &[3 << 20]);
    let mut out = vec![0; 6 << 20];
    let slice = slice(DType::Bf16, vec![3 << 20], Content::Whole { tensor: 0 });
    Reader::default()
        .fill_slice(&one, &slice, 0..6 << 20, &mut out)
        .unwrap();
    assert_eq!(out, one.image());
    let reads = one.memory.reads.lock().unwrap();
    assert_eq!(reads.iter().map(|read| read.1).sum::<usize>(), 12 << 20);
    assert!(reads.iter().all(|read| read.1 <= 1 << 20));
}
