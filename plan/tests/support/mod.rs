//! Inventories to plan, and plans written out element by element.

#![expect(dead_code, reason = "each test program uses a part of it")]

use proptest::prelude::*;
use wpack_format::{BoxPart, Content, DType, Fill, FlatPart, Slice};
use wpack_plan::{ComponentSpec, Inventory, TensorSpec};

/// One tensor.
pub(crate) fn tensor(name: &str, dtype: DType, shape: &[u64]) -> TensorSpec {
    TensorSpec {
        names: vec![name.to_owned()],
        dtype,
        shape: shape.to_vec(),
    }
}

/// A pack of one component `model`.
pub(crate) fn model(tensors: Vec<TensorSpec>) -> Inventory {
    Inventory {
        components: vec![ComponentSpec {
            name: "model".into(),
            tensors,
        }],
    }
}

/// Tensors of a layer of [`many`].
const LAYER: [(&str, &[u64]); 7] = [
    ("q.weight", &[5120, 5120]),
    ("q.bias", &[5120]),
    ("up.weight", &[13824, 5120]),
    ("modulation", &[1, 6, 5120]),
    ("scale", &[]),
    ("down.weight", &[5120, 13824]),
    ("experts", &[64, 32, 512]),
];

/// A model of very many tensors: layers of seven, of one type.
pub(crate) fn many(tensors: usize) -> Inventory {
    model(
        (0..tensors)
            .map(|at| {
                let (name, shape) = LAYER[at % LAYER.len()];
                let layer = at / LAYER.len();
                tensor(&format!("layers.{layer}.{name}"), DType::Bf16, shape)
            })
            .collect(),
    )
}

/// A plan for [`many`], and how many extents and slices it must have.
pub(crate) struct Planned {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) extents: u64,
    pub(crate) slices: u64,
}

/// A plan for each layout and some products of them: one rule for each tensor, a unit for each layer.
/// Ranks must be a multiple of 40, and at most as many as layers.
pub(crate) fn plans_of_many(tensors: usize, ranks: u32) -> Vec<Planned> {
    let mut styles = String::from("default_style = \"replicate\"\n");
    let mut steps = String::from("default_place = [\"Replicate\"]\n");
    // How many tensors tensor parallelism cuts, how many are experts, and how many only data parallelism cuts.
    let (mut by_tp, mut experts, mut others, mut scales) = (0, 0, 0, 0);
    for at in 0..tensors {
        let (name, _) = LAYER[at % LAYER.len()];
        let (style, step) = match name {
            "q.weight" => ("colwise", "tp: Shard(0, even)"),
            "up.weight" => (
                "packed_colwise",
                "tp: Shard(0, blocks(6912: even, 6912: even))",
            ),
            "down.weight" => ("rowwise", "tp: Shard(1, even)"),
            "experts" => ("grouped_gemm", "tp: Shard(0, even)"),
            _ => {
                *(if name == "scale" {
                    &mut scales
                } else {
                    &mut others
                }) += 1;
                continue;
            }
        };
        *(if name == "experts" {
            &mut experts
        } else {
            &mut by_tp
        }) += 1;
        let layer = at / LAYER.len();
        let head = format!("[[rule]]\nmatch = \"layers.{layer}.{name}\"\n");
        styles += &format!("{head}style = \"{style}\"\n");
        steps += &format!("{head}place = [\"{step}\", \"dp: Shard(0, chunk)\"]\n");
    }
    let layers = u64::try_from(tensors.div_ceil(LAYER.len())).unwrap();
    let units =
        "order = \"checkpoint\"\nfsdp1 = { units = [\"layers.*\"], use_orig_params = true }\n";
    let masters = "order = \"checkpoint\"\nzero = { master = true }\n";
    let stages = "stages = { layers = \"layers\" }\n";
    let both = format!("{stages}{styles}");
    let (all, eighth, fortieth) = (
        u64::from(ranks),
        u64::from(ranks / 8),
        u64::from(ranks / 40),
    );
    let cut = by_tp + experts;
    let parameters = cut + others;
    let whole = parameters + scales;
    let split = all * parameters + scales;
    let styled = format!("fsdp={eighth},tp=8");
    let three = format!("pp=5,fsdp={fortieth},tp=8");
    let plans: [(&'static str, &str, String, &str, u64, u64); 18] = [
        ("replicate", "replicate", String::new(), "", 1, whole),
        ("usp", "usp", String::new(), "", 1, whole),
        ("zero1", "zero1", String::new(), "", 1, whole),
        ("zero2", "zero2", String::new(), "", 1, whole),
        (
            "zero2, masters",
            "zero2",
            format!("dp={all}"),
            masters,
            all + 1,
            whole + all,
        ),
        ("zero3", "zero3", format!("dp={all}"), "", all + 1, split),
        (
            "fsdp1",
            "fsdp1",
            format!("fsdp={all}"),
            units,
            all + 1,
            all * layers + scales,
        ),
        ("fsdp2", "fsdp2", format!("fsdp={all}"), "", all + 1, split),
        (
            "hsdp",
            "hsdp",
            format!("dp_replicate=8,fsdp={eighth}"),
            "",
            eighth + 1,
            eighth * parameters + scales,
        ),
        (
            "tp",
            "tp",
            format!("dp={eighth},tp=8"),
            &styles,
            9,
            8 * cut + others + scales,
        ),
        (
            "ep",
            "ep",
            format!("dp={eighth},ep=8"),
            &styles,
            9,
            8 * experts + by_tp + others + scales,
        ),
        ("pp", "pp", format!("pp={all}"), stages, all, whole),
        (
            "rules",
            "rules",
            format!("dp={eighth},tp=8"),
            &steps,
            all + 1,
            all * cut + others + scales,
        ),
        (
            "usp+fsdp2",
            "usp+fsdp2",
            format!("sp={all}"),
            "",
            all + 1,
            split,
        ),
        (
            "tp+fsdp2",
            "tp+fsdp2",
            styled,
            &styles,
            all + eighth + 1,
            all * cut + eighth * others + scales,
        ),
        (
            "ep+fsdp2",
            "ep+fsdp2",
            format!("efsdp={eighth},ep=8"),
            &styles,
            all + 1,
            split,
        ),
        (
            "pp+fsdp2",
            "pp+fsdp2",
            format!("pp=8,fsdp={eighth}"),
            stages,
            all + 8,
            eighth * parameters + scales,
        ),
        (
            "pp+tp+fsdp2",
            "pp+tp+fsdp2",
            three,
            &both,
            all + all / 8 + 5,
            fortieth * (8 * cut + others) + scales,
        ),
    ];
    let planned = |(name, layout, mesh, facts, extents, slices): (_, &str, String, &str, _, _)| {
        let mesh = if mesh.is_empty() {
            mesh
        } else {
            format!("mesh = \"{mesh}\"\n")
        };
        Planned {
            name,
            text: format!("layout = \"{layout}\"\n{mesh}{facts}"),
            extents,
            slices,
        }
    };
    plans.into_iter().map(planned).collect()
}

/// The row-major element of the tensor at each place of a slice, in order; none for fill.
pub(crate) fn elements(
    slice: &Slice,
    shape_of: &dyn Fn(u32) -> Vec<u64>,
) -> Vec<Option<(u32, u64)>> {
    match &slice.content {
        Content::Whole { tensor } => {
            let count: u64 = shape_of(*tensor).iter().product();
            (0..count).map(|at| Some((*tensor, at))).collect()
        }
        Content::Flat { parts } => {
            let mut out = Vec::new();
            for part in parts {
                match part {
                    FlatPart::Range { tensor, start, len } => {
                        out.extend((*start..start + len).map(|at| Some((*tensor, at))));
                    }
                    FlatPart::Fill { len, value } => {
                        assert_eq!(*value, Fill::ZERO);
                        out.extend((0..*len).map(|_| None));
                    }
                }
            }
            out
        }
        Content::Boxes { tensor, dim, parts } => {
            let full = shape_of(*tensor);
            let along = usize::try_from(*dim).unwrap();
            // Where each place along the part dimension comes from.
            let mut places = Vec::new();
            for part in parts {
                match part {
                    BoxPart::Box { start, size } => {
                        for (other, (&from, &len)) in start.iter().zip(size).enumerate() {
                            assert!(from + len <= full[other], "{slice:?} leaves {full:?}");
                            assert!(other == along || len == slice.shape[other]);
                        }
                        places.extend(
                            (0..size[along]).map(|at| Some((start.clone(), start[along] + at))),
                        );
                    }
                    BoxPart::Fill { size, .. } => places.extend((0..*size).map(|_| None)),
                }
            }
            assert_eq!(
                u64::try_from(places.len()).unwrap(),
                slice.shape[along],
                "{slice:?}"
            );
            let count: u64 = slice.shape.iter().product();
            (0..count)
                .map(|flat| {
                    let mut at = vec![0; full.len()];
                    let mut rest = flat;
                    for other in (0..full.len()).rev() {
                        at[other] = rest % slice.shape[other];
                        rest /= slice.shape[other];
                    }
                    let (start, place) = places[usize::try_from(at[along]).unwrap()].clone()?;
                    let global = (0..full.len()).fold(0, |sum, other| {
                        let from = if other == along {
                            place
                        } else {
                            start[other] + at[other]
                        };
                        sum * full[other] + from
                    });
                    Some((*tensor, global))
                })
                .collect()
        }
    }
}

/// Any element type.
pub(crate) fn dtype() -> impl Strategy<Value = DType> {
    let all: Vec<DType> = DType::all().collect();
    prop_oneof![3 => Just(DType::Bf16), 3 => Just(DType::F32), 2 => proptest::sample::select(all)]
}

/// A few components of a few small tensors, zero-element, 0-dim and tied ones among them.
pub(crate) fn inventory() -> impl Strategy<Value = Inventory> {
    let shape = prop_oneof![
        1 => Just(vec![]),
        8 => proptest::collection::vec(prop_oneof![1 => Just(0u64), 9 => 1u64..12], 1..4),
        1 => Just(vec![1537]),
    ];
    let tensors = proptest::collection::vec((dtype(), shape, 1usize..3), 0..10);
    proptest::collection::vec(tensors, 1..4).prop_map(|components| Inventory {
        components: components
            .into_iter()
            .enumerate()
            .map(|(index, tensors)| ComponentSpec {
                name: format!("c{index}"),
                tensors: tensors
                    .into_iter()
                    .enumerate()
                    .filter(|(_, (dtype, shape, _))| dtype.bytes(shape.iter().product()).is_some())
                    .map(|(at, (dtype, shape, ties))| TensorSpec {
                        names: (0..ties).map(|tie| format!("t{at}.n{tie}")).collect(),
                        dtype,
                        shape,
                    })
                    .collect(),
            })
            .collect(),
    })
}
