//! A small pack's index with an entry of every form, and generators of random ones.
#![allow(dead_code, reason = "each test file uses a part")]

use proptest::{collection::vec, prelude::*};
use wpack_format::{
    Block, BlockTable, BoxPart, ComponentInfo, ComponentRecord, Content, DType, Description,
    EmbeddedFile, Extent, Fill, FlatPart, Header, Hex, MeshAxis, Owners, ResolvedPlan,
    ResolvedRule, Role, Root, Slice, SliceKind, SliceTable, SourceInfo, TableRef, Tensor,
    TensorName, TensorTable, place_slice, sha256,
};

pub(crate) fn name(name: &str, source: &str) -> TensorName {
    TensorName {
        name: name.into(),
        source: source.into(),
    }
}

/// A tensor of whole-byte elements.
pub(crate) fn tensor(names: Vec<TensorName>, dtype: DType, shape: &[u64]) -> Tensor {
    Tensor {
        names,
        dtype,
        source_dtype: dtype,
        shape: shape.to_vec(),
        stored_shape: shape.to_vec(),
        role: Role::Parameter,
        rule: 0,
        source: Some(0),
    }
}

/// Three tensors: one with a tie that was renamed, one packed, one scalar.
pub(crate) fn tensors() -> Vec<Tensor> {
    let mut packed = tensor(vec![name("packed", "packed")], DType::F4, &[4, 8]);
    packed.stored_shape = vec![4, 4];
    let mut scalar = tensor(vec![name("scalar", "scalar")], DType::F32, &[]);
    (scalar.role, scalar.rule, scalar.source) = (Role::Buffer, 1, None);
    let tied = vec![name("tied.b", "tied.b"), name("tied.a", "old.a")];
    vec![tensor(tied, DType::Bf16, &[3, 4]), packed, scalar]
}

/// Gives slices their places, and the end of the last one.
pub(crate) fn place(slices: &mut [Slice]) -> u64 {
    let mut end = 0;
    for slice in slices {
        let len = slice.len_bytes().unwrap();
        slice.offset = place_slice(end, len).unwrap();
        slice.crc32c = (len != 0 && len < 8 << 20).then_some(0x1234_5678);
        end = slice.offset + len;
    }
    end
}

pub(crate) fn slice(content: Content, dtype: DType, shape: &[u64]) -> Slice {
    let shape = shape.to_vec();
    Slice {
        content,
        kind: SliceKind::Value,
        dtype,
        shape,
        offset: 0,
        crc32c: None,
    }
}

/// Boxes, whole and flat slices of [`tensors`].
pub(crate) fn slices() -> Vec<Slice> {
    let boxes = vec![
        BoxPart::Box {
            start: vec![0, 1],
            size: vec![3, 1],
        },
        BoxPart::Box {
            start: vec![0, 3],
            size: vec![3, 1],
        },
        BoxPart::Fill {
            size: 2,
            value: Fill::ZERO,
        },
    ];
    let mut one = Fill::ZERO;
    one.0[3] = 0x3f;
    let flat = vec![
        FlatPart::Range {
            tensor: 0,
            start: 5,
            len: 7,
        },
        FlatPart::Fill { len: 1, value: one },
        FlatPart::Range {
            tensor: 2,
            start: 0,
            len: 1,
        },
    ];
    let mut master = slice(Content::Flat { parts: flat }, DType::F32, &[9]);
    master.kind = SliceKind::Master;
    let mut slices = vec![
        slice(
            Content::Boxes {
                tensor: 0,
                dim: 1,
                parts: boxes,
            },
            DType::Bf16,
            &[3, 4],
        ),
        slice(Content::Whole { tensor: 1 }, DType::F4, &[4, 8]),
        master,
    ];
    place(&mut slices);
    slices
}

/// Bytes of an extent that ends with its last slice.
pub(crate) fn extent_len(slices: &[Slice]) -> u64 {
    slices
        .last()
        .map_or(0, |slice| slice.offset + slice.len_bytes().unwrap())
}

pub(crate) fn description() -> Description {
    let rule = |reason: &str| ResolvedRule {
        component: "model".into(),
        placements: vec!["dp: FlatShard".into()],
        reason: reason.into(),
    };
    let zeros = Hex(&[0; 32]).to_string();
    Description {
        mesh: Some(vec![
            MeshAxis {
                name: "dp".into(),
                size: 2,
            },
            MeshAxis {
                name: "fsdp".into(),
                size: 4,
            },
        ]),
        layout: "zero3".into(),
        components: vec![ComponentInfo {
            name: "model".into(),
            layout: "zero3".into(),
            metadata: [("format".into(), "pt".into())].into(),
            ..ComponentInfo::default()
        }],
        plan: ResolvedPlan {
            rules: vec![rule("parameter"), rule("buffer")],
            ..ResolvedPlan::default()
        },
        sources: vec![SourceInfo {
            name: "model.safetensors".into(),
            size: 42,
            sha256: Some(zeros),
        }],
        files: vec![EmbeddedFile {
            component: Some("model".into()),
            path: "config.json".into(),
            offset: 0,
            len: 2,
            sha256: Hex(&sha256(b"{}")).to_string(),
        }],
        metadata: [("note".into(), "caf\u{e9} \"\n\u{1}".into())].into(),
    }
}

/// An extent of [`slices`].
pub(crate) fn extent(owners: Owners) -> Extent {
    let len = extent_len(&slices());
    Extent {
        component: 0,
        owners,
        offset: 0,
        len,
        slice_count: 3,
        slices: TableRef::of(0, &SliceTable::encode(&slices())),
        blocks: TableRef::of(0, &BlockTable::encode(&[Block::of(b"")])),
    }
}

/// The root of a pack of three extents, placed, and its sealed header.
pub(crate) fn root() -> (Root, Header) {
    let mut root = Root {
        description: description(),
        components: vec![ComponentRecord {
            name: "model".into(),
            tensor_count: 3,
            tensors: TableRef::of(0, &TensorTable::encode(&tensors())),
        }],
        extents: vec![
            extent(Owners::from_ranks([0, 1, 2, 7]).unwrap()),
            extent(Owners::All),
            extent(Owners::from_ranks([3, 5]).unwrap()),
        ],
    };
    let header = root.arrange(4096).unwrap();
    let header = header.seal(&root.encode());
    (root, header)
}

/// Overwrites bytes.
pub(crate) fn patch(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(crate) fn any_dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::all().collect::<Vec<_>>())
}

fn any_shape() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![4 => 0_u64..5, 1 => 0_u64..3000], 0..5)
}

/// Tensors with distinct names and whole bytes, of every type.
pub(crate) fn any_tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let one = (
        any_dtype(),
        any_dtype(),
        any_shape(),
        1_usize..4,
        any::<bool>(),
        any::<[u32; 2]>(),
    );
    (vec(one, 0..12), any::<u64>()).prop_map(|(rows, salt)| {
        let mut serial = salt;
        let mut next = |rest: &str| {
            serial = serial
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            format!("{:x}\u{e9}\0{rest}{serial}", serial % 16)
        };
        rows.into_iter()
            .map(
                |(dtype, source_dtype, mut shape, ties, buffer, [rule, source])| {
                    let packed = dtype.bits() < 8;
                    if packed {
                        shape.push(8);
                    }
                    let mut stored_shape = shape.clone();
                    if let Some(last) = stored_shape.last_mut().filter(|_| packed) {
                        *last = dtype.bytes(*last).unwrap();
                    }
                    let names = (0..ties).map(|tie| {
                        let name = next("");
                        let source = if tie == 1 {
                            next("source")
                        } else {
                            name.clone()
                        };
                        TensorName { name, source }
                    });
                    Tensor {
                        names: names.collect(),
                        dtype,
                        source_dtype,
                        shape,
                        stored_shape,
                        role: if buffer {
                            Role::Buffer
                        } else {
                            Role::Parameter
                        },
                        rule,
                        source: Some(source).filter(|source| *source != u32::MAX),
                    }
                },
            )
            .collect()
    })
}

fn any_fill(dtype: DType) -> impl Strategy<Value = Fill> {
    any::<u128>()
        .prop_map(move |bits| Fill((bits & (u128::MAX >> (128 - dtype.bits()))).to_le_bytes()))
}

/// A slice of one of `tensors`, of any content; `None` where the tensor does not allow it.
fn any_slice(tensors: Vec<Tensor>) -> impl Strategy<Value = Option<Slice>> {
    (0..tensors.len(), 0_u8..4, any::<[u64; 8]>()).prop_flat_map(move |(index, form, random)| {
        let tensor = tensors[index].clone();
        let other = tensors
            .iter()
            .rposition(|other| other.dtype == tensor.dtype)
            .unwrap();
        let sizes = [
            tensor.shape.iter().product(),
            tensors[other].shape.iter().product(),
        ];
        any_fill(tensor.dtype).prop_map(move |value| {
            random_slice(&tensor, [index, other], sizes, form, random, value)
        })
    })
}

fn random_slice(
    tensor: &Tensor,
    indices: [usize; 2],
    sizes: [u64; 2],
    form: u8,
    random: [u64; 8],
    value: Fill,
) -> Option<Slice> {
    let [index, other] = indices.map(|index| u32::try_from(index).unwrap());
    let unit = if tensor.dtype.bits() < 8 { 8 } else { 1 };
    let pick = |i: usize, n: u64| random[i] % (n + 1);
    match form {
        0 => Some(slice(
            Content::Whole { tensor: index },
            tensor.dtype,
            &tensor.shape,
        )),
        1 => {
            // Two boxes and fill along one dimension; the last one only in whole units.
            let dims = u64::try_from(tensor.shape.len()).unwrap().max(1);
            let dim = usize::try_from(random[0] % dims).unwrap();
            let along = *tensor.shape.get(dim)?;
            let last = dim + 1 == tensor.shape.len();
            let unit = if last { unit } else { 1 };
            let cut = |i| {
                let start = pick(i, along) / unit * unit;
                let size = pick(i + 1, along - start) / unit * unit;
                let mut box_start = vec![0; tensor.shape.len()];
                let mut box_size = tensor.shape.clone();
                (box_start[dim], box_size[dim]) = (start, size);
                (
                    size,
                    BoxPart::Box {
                        start: box_start,
                        size: box_size,
                    },
                )
            };
            let (first, second) = (cut(1), cut(3));
            let fill = pick(5, 3) * unit;
            let mut shape = tensor.shape.clone();
            shape[dim] = first.0 + second.0 + fill;
            let parts = vec![first.1, BoxPart::Fill { size: fill, value }, second.1];
            let dim = u32::try_from(dim).unwrap();
            Some(slice(
                Content::Boxes {
                    tensor: index,
                    dim,
                    parts,
                },
                tensor.dtype,
                &shape,
            ))
        }
        _ => {
            let cut = |i: usize, tensor: u32, size: u64| {
                let start = pick(i, size) / unit * unit;
                let len = pick(i + 1, size - start) / unit * unit;
                (len, FlatPart::Range { tensor, start, len })
            };
            let (first, second) = (cut(1, index, sizes[0]), cut(3, other, sizes[1]));
            let fill = pick(5, 9) * unit;
            let parts = vec![first.1, second.1, FlatPart::Fill { len: fill, value }];
            Some(slice(
                Content::Flat { parts },
                tensor.dtype,
                &[first.0 + second.0 + fill],
            ))
        }
    }
}

/// Tensors and slices of them, placed.
pub(crate) fn any_slices() -> impl Strategy<Value = (Vec<Tensor>, Vec<Slice>)> {
    any_tensors()
        .prop_filter("some tensor", |tensors| !tensors.is_empty())
        .prop_flat_map(|tensors| {
            vec(any_slice(tensors.clone()), 0..8).prop_map(move |slices| {
                let mut slices: Vec<Slice> = slices.into_iter().flatten().collect();
                place(&mut slices);
                (tensors.clone(), slices)
            })
        })
}
