//! What each golden pack holds. Append only: a pack that was published never changes.

use wpack_format::{
    BoxPart, ComponentInfo, Content, DType, Description, EmbeddedFile, Fill, FlatPart, MeshAxis,
    Owners, ResolvedPlan, ResolvedRule, Role, Slice, SliceKind, SourceInfo, Tensor, TensorName,
    Transform,
};

use super::builder::{Filled, PackSpec, build};

/// Name and bytes of every golden pack.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("v1-flat-stream", build(flat_stream())),
        ("v1-owners", build(owners())),
        ("v1-boxes", build(boxes())),
        ("v1-dtypes", build(dtypes())),
        ("v1-names", build(names())),
        ("v1-master", build(master())),
        ("v1-empty", build(empty())),
    ]
}

/// A tensor whose elements are all different where its type allows.
fn filled(seed: u128, names: &[(&str, &str)], dtype: DType, shape: &[u64]) -> Filled {
    let name = |(name, source): &(&str, &str)| TensorName {
        name: (*name).into(),
        source: (*source).into(),
    };
    let count: u64 = shape.iter().product();
    let mask = u128::MAX >> (128 - dtype.bits());
    let element = |i: u64| (u128::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + seed) & mask;
    Filled {
        tensor: Tensor {
            names: names.iter().map(name).collect(),
            dtype,
            source_dtype: dtype,
            shape: shape.to_vec(),
            stored_shape: shape.to_vec(),
            role: Role::Parameter,
            rule: 0,
            source: None,
        },
        elements: (0..count).map(element).collect(),
    }
}

fn slice(content: Content, dtype: DType, shape: &[u64]) -> Slice {
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

fn whole(tensors: &[Filled], tensor: u32) -> Slice {
    let of = &tensors[tensor as usize].tensor;
    slice(Content::Whole { tensor }, of.dtype, &of.shape)
}

fn boxes_of(tensor: u32, dim: u32, dtype: DType, shape: &[u64], parts: Vec<BoxPart>) -> Slice {
    slice(Content::Boxes { tensor, dim, parts }, dtype, shape)
}

fn part<const N: usize>(start: [u64; N], size: [u64; N]) -> BoxPart {
    BoxPart::Box {
        start: start.into(),
        size: size.into(),
    }
}

fn range(tensor: u32, start: u64, len: u64) -> FlatPart {
    FlatPart::Range { tensor, start, len }
}

fn bits(value: u128) -> Fill {
    Fill(value.to_le_bytes())
}

fn flat(dtype: DType, parts: Vec<FlatPart>) -> Slice {
    let len = |part: &FlatPart| match part {
        FlatPart::Range { len, .. } | FlatPart::Fill { len, .. } => *len,
    };
    let shape = [parts.iter().map(len).sum()];
    slice(Content::Flat { parts }, dtype, &shape)
}

fn ranks(ranks: &[u32]) -> Owners {
    Owners::from_ranks(ranks.iter().copied()).unwrap()
}

fn description(layout: &str, mesh: &[(&str, u32)], components: &[&str]) -> Description {
    let axis = |(name, size): &(&str, u32)| MeshAxis {
        name: (*name).into(),
        size: *size,
    };
    let component = |name: &&str| ComponentInfo {
        name: (*name).into(),
        layout: layout.into(),
        ..ComponentInfo::default()
    };
    let rule = |component: &&str| ResolvedRule {
        component: (*component).into(),
        placements: vec!["golden".into()],
        reason: "as the test needs it".into(),
    };
    Description {
        mesh: (!mesh.is_empty()).then(|| mesh.iter().map(axis).collect()),
        layout: layout.into(),
        components: components.iter().map(component).collect(),
        plan: ResolvedPlan {
            rules: components.iter().map(rule).collect(),
            align: Some(4096),
            ..ResolvedPlan::default()
        },
        ..Description::default()
    }
}

/// Two ranks of a flat stream as FSDP1 cuts it: fill of 42 between tensors, and a buffer that both
/// ranks hold.
fn flat_stream() -> PackSpec {
    let fill = |len| FlatPart::Fill {
        len,
        value: bits(0x4228),
    };
    let mut tensors = vec![
        filled(1, &[("a.weight", "a.weight")], DType::Bf16, &[3, 5]),
        filled(2, &[("a.bias", "a.bias")], DType::Bf16, &[3]),
        filled(3, &[("steps", "steps")], DType::I64, &[]),
    ];
    tensors[2].tensor.role = Role::Buffer;
    let first = flat(DType::Bf16, vec![range(0, 0, 13)]);
    let second = flat(
        DType::Bf16,
        vec![range(0, 13, 2), fill(1), range(1, 0, 3), fill(7)],
    );
    let both = vec![whole(&tensors, 2)];
    PackSpec {
        description: description("fsdp1", &[("fsdp", 2)], &["model"]),
        components: vec![tensors],
        extents: vec![
            (0, ranks(&[0, 1]), both),
            (0, ranks(&[0]), vec![first]),
            (0, ranks(&[1]), vec![second]),
        ],
        files: Vec::new(),
    }
}

/// Owners of many forms on a mesh of 2 x 2 x 2, in two components: shards held by every other rank,
/// a pipeline stage, an expert, ranks without regular distance, all ranks, an extent without bytes.
fn owners() -> PackSpec {
    let dit = vec![
        filled(1, &[("blocks.0.w", "blocks.0.w")], DType::F32, &[4, 3]),
        filled(2, &[("blocks.1.w", "blocks.1.w")], DType::F16, &[2, 2]),
        filled(3, &[("experts.3.w", "experts.3.w")], DType::F16, &[3]),
    ];
    let vae = vec![filled(4, &[("w", "w")], DType::U8, &[5])];
    let rows = |from: u64, rows: u64| {
        boxes_of(
            0,
            0,
            DType::F32,
            &[rows, 3],
            vec![part([from, 0], [rows, 3])],
        )
    };
    let mesh = [("pp", 2), ("dp", 2), ("fsdp", 2)];
    PackSpec {
        description: description("pp+hsdp", &mesh, &["dit", "vae"]),
        extents: vec![
            (0, ranks(&[0, 2, 4, 6]), vec![rows(0, 2)]),
            (0, ranks(&[1, 3, 5, 7]), vec![rows(2, 2)]),
            (0, ranks(&[4, 5, 6, 7]), vec![whole(&dit, 1)]),
            (0, ranks(&[3]), vec![whole(&dit, 2)]),
            (0, ranks(&[0, 1, 4, 5, 7]), Vec::new()),
            (1, Owners::All, vec![whole(&vae, 0)]),
        ],
        components: vec![dit, vae],
        files: Vec::new(),
    }
}

/// Cuts of boxes: columns, a packed gate and up projection, rows three apart, key heads held twice,
/// rows of fill behind the last one, and rows that a rank has none of.
fn boxes() -> PackSpec {
    let tensors = vec![
        filled(1, &[("down", "down")], DType::Bf16, &[4, 6]),
        filled(2, &[("gate_up", "gate_up")], DType::Bf16, &[8, 3]),
        filled(3, &[("strided", "strided")], DType::I32, &[6]),
        filled(4, &[("qkv", "qkv")], DType::F32, &[6, 2, 2]),
        filled(5, &[("rows", "rows")], DType::F32, &[3, 2]),
    ];
    let of = |rank: u64| {
        let half = rank * 3;
        let gate = rank * 2;
        let heads = vec![
            part([rank * 2, 0, 0], [2, 2, 2]),
            part([4, 0, 0], [1, 2, 2]),
            part([5, 0, 0], [1, 2, 2]),
        ];
        let strided = (0..2).map(|i| part([rank + i * 3], [1])).collect();
        // Two rows a rank: the second one has one row and fill.
        let real = if rank == 0 { 2 } else { 1 };
        let mut rows = vec![part([rank * 2, 0], [real, 2])];
        if real == 1 {
            rows.push(BoxPart::Fill {
                size: 1,
                value: Fill::ZERO,
            });
        }
        let none = boxes_of(4, 0, DType::F32, &[0, 2], vec![part([3, 0], [0, 2])]);
        vec![
            boxes_of(0, 1, DType::Bf16, &[4, 3], vec![part([0, half], [4, 3])]),
            boxes_of(
                1,
                0,
                DType::Bf16,
                &[4, 3],
                vec![part([gate, 0], [2, 3]), part([4 + gate, 0], [2, 3])],
            ),
            boxes_of(2, 0, DType::I32, &[2], strided),
            boxes_of(3, 0, DType::F32, &[4, 2, 2], heads),
            boxes_of(4, 0, DType::F32, &[2, 2], rows),
            none,
        ]
    };
    PackSpec {
        description: description("tp", &[("tp", 2)], &["model"]),
        components: vec![tensors],
        extents: vec![(0, ranks(&[0]), of(0)), (0, ranks(&[1]), of(1))],
        files: Vec::new(),
    }
}

/// Every element type whole, a tensor without elements, a scalar, and packed types cut and filled at
/// whole bytes.
fn dtypes() -> PackSpec {
    let mut tensors: Vec<Filled> = (1_u128..)
        .zip(DType::all())
        .map(|(seed, dtype)| {
            let name = format!("t.{dtype}");
            let mut filled = filled(seed, &[(&name, &name)], dtype, &[2, 8]);
            if dtype.bits() < 8 {
                filled.tensor.stored_shape = vec![2, u64::from(dtype.bits())];
            }
            filled
        })
        .collect();
    let fp4 = u32::try_from(DType::all().position(|dtype| dtype == DType::F4).unwrap()).unwrap();
    let mut scalar = filled(99, &[("scalar.pair", "scalar.pair")], DType::F4, &[2]);
    scalar.tensor.stored_shape = Vec::new();
    tensors.push(scalar);
    tensors.push(filled(98, &[("empty", "empty")], DType::F32, &[3, 0, 2]));
    tensors.push(filled(97, &[("scalar", "scalar")], DType::F64, &[]));
    let mut slices: Vec<Slice> = (0_u32..)
        .zip(&tensors)
        .map(|(i, _)| whole(&tensors, i))
        .collect();
    slices.push(boxes_of(
        fp4,
        1,
        DType::F4,
        &[2, 4],
        vec![part([0, 4], [2, 4])],
    ));
    let parts = vec![
        range(fp4, 2, 6),
        FlatPart::Fill {
            len: 2,
            value: bits(0xf),
        },
    ];
    slices.push(flat(DType::F4, parts));
    PackSpec {
        description: description("replicate", &[], &["model"]),
        components: vec![tensors],
        extents: vec![(0, Owners::All, slices)],
        files: Vec::new(),
    }
}

/// Names of every kind, ties that were renamed, metadata, sources, transforms and embedded files.
fn names() -> PackSpec {
    let long = "n".repeat(1000);
    let odd = [
        "",
        " ",
        "\0",
        "\n\t\u{1b}[31m",
        "\u{7f}",
        "\"quoted\" \\ /",
        "../../etc/passwd",
        "na\u{ef}ve",
        "nai\u{308}ve",
        "\u{202e}right to left",
        "\u{1f600}",
        "\u{10ffff}",
        &long,
    ];
    let mut tensors: Vec<Filled> = (1_u128..)
        .zip(odd)
        .map(|(seed, name)| filled(seed, &[(name, name)], DType::U8, &[2]))
        .collect();
    let ties = [
        ("lm_head.weight", "lm_head.weight"),
        ("embed", "model.embed"),
        ("zz", ""),
    ];
    tensors.push(filled(77, &ties, DType::Bf16, &[2, 2]));
    for filled in &mut tensors {
        filled.tensor.source = Some(1);
    }
    let file = |component: Option<&str>, path: &str| EmbeddedFile {
        component: component.map(Into::into),
        path: path.into(),
        offset: 0,
        len: 0,
        sha256: String::new(),
    };
    let source = |name: &str, size, sha256: Option<&str>| SourceInfo {
        name: name.into(),
        size,
        sha256: sha256.map(Into::into),
    };
    let mut description = description("replicate", &[], &["text encoder \u{1f600}"]);
    description.components[0].transform = Transform {
        root: "state_dict".into(),
        include: vec!["*".into()],
        exclude: vec!["*.inv_freq".into()],
        strip_prefix: vec!["model.".into(), "module.".into()],
        add_prefix: String::new(),
        rename: vec![("^head\\.".into(), "lm_head.".into())],
        dtype: Some("BF16".into()),
    };
    description.components[0].metadata = [
        ("format".into(), "pt".into()),
        ("".into(), "\u{1}\"\\\u{8}\u{c}\r\u{7f}".into()),
    ]
    .into();
    description.metadata = [("note".into(), "\u{e9}\u{2028}".into())].into();
    let zeros = "0".repeat(64);
    description.sources = vec![
        source("model-00001-of-00002.safetensors", 0, None),
        source("na\u{ef}ve name.safetensors", u64::MAX, Some(&zeros)),
    ];
    description.files = vec![
        file(None, "model_index.json"),
        file(Some("text encoder \u{1f600}"), "config.json"),
        file(Some("text encoder \u{1f600}"), "tokenizer/empty.txt"),
    ];
    let slices = (0_u32..)
        .zip(&tensors)
        .map(|(i, _)| whole(&tensors, i))
        .collect();
    PackSpec {
        description,
        components: vec![tensors],
        extents: vec![(0, Owners::All, slices)],
        files: vec![
            b"{\"_class_name\": null}\n".to_vec(),
            b"{}".to_vec(),
            Vec::new(),
        ],
    }
}

/// Weights that every rank holds, and each rank's part of the optimizer's master copy of them in a
/// wider type, as ZeRO-1 and ZeRO-2 cut it.
fn master() -> PackSpec {
    let tensors = vec![
        filled(1, &[("w", "w")], DType::Bf16, &[3, 3]),
        filled(2, &[("b", "b")], DType::Bf16, &[2]),
    ];
    let masters = |parts| {
        let mut slice = flat(DType::F32, parts);
        slice.kind = SliceKind::Master;
        vec![slice]
    };
    let pad = FlatPart::Fill {
        len: 1,
        value: Fill::ZERO,
    };
    let weights = vec![whole(&tensors, 0), whole(&tensors, 1)];
    PackSpec {
        description: description("zero2", &[("dp", 2)], &["model"]),
        components: vec![tensors],
        extents: vec![
            (0, ranks(&[0, 1]), weights),
            (0, ranks(&[0]), masters(vec![range(0, 0, 6)])),
            (
                0,
                ranks(&[1]),
                masters(vec![range(0, 6, 3), range(1, 0, 2), pad]),
            ),
        ],
        files: Vec::new(),
    }
}

/// No component, no extent.
fn empty() -> PackSpec {
    PackSpec {
        description: Description::default(),
        components: Vec::new(),
        extents: Vec::new(),
        files: Vec::new(),
    }
}
