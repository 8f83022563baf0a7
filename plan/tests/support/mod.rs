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

/// A model of very many tensors: layers of six, of one type.
pub(crate) fn many(tensors: usize) -> Inventory {
    let shapes: [(&str, &[u64]); 6] = [
        ("q.weight", &[5120, 5120]),
        ("q.bias", &[5120]),
        ("up.weight", &[13824, 5120]),
        ("modulation", &[1, 6, 5120]),
        ("scale", &[]),
        ("down.weight", &[5120, 13824]),
    ];
    model(
        (0..tensors)
            .map(|at| {
                let (name, shape) = shapes[at % shapes.len()];
                tensor(
                    &format!("layers.{}.{name}", at / shapes.len()),
                    DType::Bf16,
                    shape,
                )
            })
            .collect(),
    )
}

/// A plan for each kind of layout of [`many`]: one rule for each tensor, a unit for each layer.
pub(crate) fn plans_of_many(tensors: usize, ranks: u32) -> Vec<(&'static str, String)> {
    let tp = 8;
    let wide = ranks / tp;
    let mut styles = String::from("default_style = \"replicate\"\n");
    let mut steps = String::from("default_place = [\"Replicate\"]\n");
    for at in 0..tensors {
        let layer = at / 6;
        let (name, style, step) = match at % 6 {
            0 => ("q.weight", "colwise", "tp: Shard(0, even)"),
            2 => (
                "up.weight",
                "packed_colwise",
                "tp: Shard(0, blocks(6912: even, 6912: even))",
            ),
            5 => ("down.weight", "rowwise", "tp: Shard(1, even)"),
            _ => continue,
        };
        let name = format!("[[rule]]\nmatch = \"layers.{layer}.{name}\"\n");
        styles += &format!("{name}style = \"{style}\"\n");
        steps += &format!("{name}place = [\"{step}\", \"dp: Shard(0, chunk)\"]\n");
    }
    let units =
        "order = \"checkpoint\"\nfsdp1 = { units = [\"layers.*\"], use_orig_params = true }\n";
    let stages = "stages = { layers = \"layers\" }\n";
    let plan = |layout: &str, mesh: String, facts: &str| {
        format!("layout = \"{layout}\"\nmesh = \"{mesh}\"\n{facts}")
    };
    vec![
        ("zero3", plan("zero3", format!("dp={ranks}"), "")),
        ("fsdp2", plan("fsdp2", format!("fsdp={ranks}"), "")),
        ("fsdp1", plan("fsdp1", format!("fsdp={ranks}"), units)),
        (
            "hsdp",
            plan("hsdp", format!("dp_replicate={tp},fsdp={wide}"), ""),
        ),
        (
            "tp+fsdp2",
            plan("tp+fsdp2", format!("fsdp={wide},tp={tp}"), &styles),
        ),
        (
            "pp+fsdp2",
            plan("pp+fsdp2", format!("pp={tp},fsdp={wide}"), stages),
        ),
        ("rules", plan("rules", format!("dp={wide},tp={tp}"), &steps)),
        (
            "zero2, masters",
            plan(
                "zero2",
                format!("dp={ranks}"),
                "order = \"checkpoint\"\nzero = { master = true }\n",
            ),
        ),
    ]
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
