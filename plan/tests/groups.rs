//! Layouts that need facts of the model: flat groups, styles, stages and their products.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::{elements, model, tensor};
use wpack_format::{Content, DType, FlatPart, SliceKind};
use wpack_plan::{Error, Inventory, Plan, PlanFile, TensorSpec, plan};

fn planned(inventory: &Inventory, text: &str) -> Result<Plan, Error> {
    plan(inventory, &PlanFile::parse(text)?.request()?)
}

/// Layers of a small transformer, in the order of the model.
fn layers(sizes: &[(u64, u64)]) -> Inventory {
    let mut tensors = vec![tensor("embed.weight", DType::Bf16, &[11, 6])];
    for (at, &(rows, columns)) in sizes.iter().enumerate() {
        for (name, shape) in [
            ("up.weight", vec![2 * rows, columns]),
            ("up.bias", vec![2 * rows]),
            ("down.weight", vec![columns, rows]),
            ("experts", vec![12, rows, columns]),
        ] {
            tensors.push(tensor(&format!("layers.{at}.{name}"), DType::Bf16, &shape));
        }
    }
    tensors.push(tensor("steps", DType::I64, &[]));
    tensors.push(tensor("head.weight", DType::Bf16, &[11, 6]));
    model(tensors)
}

const FACTS: &str = r#"
order = "checkpoint"
default_style = "replicate"
[fsdp1]
units = ["layers.*"]
[stages]
layers = "layers"
first = ["embed.*"]
last = ["head.*", "steps"]
[[rule]]
match = "*.up.*"
style = "packed_colwise"
[[rule]]
match = "*.down.weight"
style = "rowwise"
[[rule]]
match = "*.experts"
style = "grouped_gemm"
"#;

fn cases() -> impl Strategy<Value = (&'static str, String)> {
    (1u32..5, 1u32..4, 0usize..9).prop_map(|(a, b, which)| match which {
        0 => ("fsdp1", format!("fsdp={a}")),
        1 => ("hsdp", format!("dp={b},fsdp={a}")),
        2 => ("tp", format!("tp={a}")),
        3 => ("tp+fsdp2", format!("fsdp={a},tp={b}")),
        4 => ("pp", format!("pp={a}")),
        5 => ("pp+fsdp2", format!("pp={b},fsdp={a}")),
        6 => ("pp+fsdp1", format!("fsdp={a},pp={b}")),
        7 => (
            "ep",
            format!("dp={b},ep={}", [1, 2, 4][usize::try_from(b).unwrap() - 1]),
        ),
        _ => ("usp+fsdp2", format!("sp={a}")),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the layout: one stored copy of each element, and each rank reads what the sum says.
    #[test]
    fn ranks_together_hold_every_element_once(
        (layout, mesh) in cases(),
        sizes in proptest::collection::vec((1u64..8, 1u64..8), 1..5),
    ) {
        let inventory = layers(&sizes);
        let shapes: Vec<_> = inventory.components[0].tensors.iter().map(|t| t.shape.clone()).collect();
        let text = format!("mesh = {mesh:?}\nlayout = {layout:?}\n{FACTS}");
        let plan = match planned(&inventory, &text) {
            Ok(plan) => plan,
            // Stages that share a unit, and cuts after a flat group, are refused.
            Err(Error::CannotCut { .. } | Error::Rules { .. }) if layout == "pp+fsdp1" => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{error}: {text}"))),
        };
        let mut stored: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        for (at, extent) in plan.extents().iter().enumerate() {
            let mut bytes = 0;
            for slice in plan.slices(at).unwrap() {
                let count: u64 = slice.shape.iter().product();
                bytes += slice.dtype.bytes(count).unwrap();
                let held = elements(&slice, &|tensor| shapes[usize::try_from(tensor).unwrap()].clone());
                prop_assert_eq!(u64::try_from(held.len()).unwrap(), count);
                for element in held.into_iter().flatten() {
                    *stored.entry(element).or_default() += 1;
                }
            }
            prop_assert_eq!(bytes, extent.bytes);
        }
        prop_assert!(stored.values().all(|&copies| copies == 1), "{:?}", stored);
        let all: u64 = shapes.iter().map(|shape| shape.iter().product::<u64>()).sum();
        prop_assert_eq!(u64::try_from(stored.len()).unwrap(), all);
        let by_rank = plan.bytes_by_rank();
        for rank in 0..plan.ranks().unwrap_or(0) {
            prop_assert_eq!(by_rank[usize::try_from(rank).unwrap()], plan.rank_bytes(rank));
        }
    }

    /// A group of masters: dense, in order, whole once, zeros only where the rule puts them.
    #[test]
    fn masters_are_the_group_in_order(
        sizes in proptest::collection::vec(0u64..20, 1..9),
        world in 1u64..6,
        round_robin in any::<bool>(),
        aligned in any::<bool>(),
    ) {
        let tensors = sizes.iter().enumerate()
            .map(|(at, &len)| tensor(&format!("p{at}"), DType::Bf16, &[len])).collect();
        let inventory = model(tensors);
        let frozen = if sizes.len() > 3 { "['p3']" } else { "[]" };
        let text = format!(
            "ranks = {world}\nlayout = 'zero2'\norder = 'checkpoint'\nfrozen = {frozen}\n[zero]\nmaster = true\n\
             round_robin_gradients = {round_robin}\nparameter_alignment = {aligned}");
        let plan = planned(&inventory, &text).unwrap();
        let mut stream = Vec::new();
        for rank in 0..u32::try_from(world).unwrap() {
            for at in plan.extents_of(rank) {
                for slice in plan.slices(at).unwrap() {
                    if slice.kind == SliceKind::Master {
                        prop_assert_eq!(slice.dtype, DType::F32);
                        stream.extend(elements(&slice, &|_| unreachable!()));
                    }
                }
            }
        }
        let mut trained: Vec<(u32, u64)> = (0..).zip(sizes.iter().copied())
            .filter(|&(at, len)| at != 3 && len > 0).collect();
        if round_robin {
            let step = usize::try_from(world).unwrap();
            trained = (0..step).flat_map(|from| trained.iter().skip(from).step_by(step).copied()).collect();
        }
        let mut expected: Vec<Option<(u32, u64)>> = Vec::new();
        for (tensor, len) in trained {
            if aligned {
                expected.resize(expected.len().next_multiple_of(8), None);
            }
            expected.extend((0..len).map(|at| Some((tensor, at))));
        }
        let unit = usize::try_from(2 * world).unwrap();
        expected.resize(expected.len().next_multiple_of(unit), None);
        prop_assert_eq!(stream, expected);
    }
}

#[test]
fn fsdp1_fills_with_42_and_names_what_it_holds() {
    let inventory = model(vec![
        tensor("one", DType::F32, &[1]),
        tensor("u.w", DType::F32, &[2]),
        tensor("u.v", DType::F32, &[3]),
    ]);
    let text = "ranks = 4\nlayout = 'fsdp1'\norder = ['u.v', 'one', 'u.w']\n\
                fsdp1 = { units = ['u'], use_orig_params = true }";
    let plan = planned(&inventory, text).unwrap();
    let slices = plan.slices(3).unwrap();
    // The root unit stands first, where its first tensor would.
    let Content::Flat { parts } = &slices[0].content else {
        panic!()
    };
    assert!(matches!(
        parts[..],
        [
            FlatPart::Range {
                tensor: 0,
                start: 1,
                len: 0
            },
            FlatPart::Fill { len: 1, .. }
        ]
    ));
    let Content::Flat { parts } = &slices[1].content else {
        panic!()
    };
    let FlatPart::Fill { len: 2, value } = parts[1] else {
        panic!("{parts:?}")
    };
    assert_eq!(value.0[..4], 42f32.to_le_bytes());
    assert!(matches!(
        parts[0],
        FlatPart::Range {
            tensor: 1,
            start: 2,
            len: 0
        }
    ));
    let rule = usize::try_from(plan.decision(0, 1).unwrap().rule).unwrap();
    assert_eq!(
        plan.resolved().rules[rule].placements,
        ["fsdp: FlatShard(unit u, align 4, fill 42)"]
    );
}

/// Units are alike, so a glob says the place of a parameter in each of them.
#[test]
fn a_glob_of_the_order_stands_for_one_tensor_of_each_unit() {
    let inventory = layers(&[(2, 3), (2, 3), (2, 3)]);
    let text = |order: &str| {
        format!("ranks = 2\nlayout = 'fsdp1'\norder = {order}\nfsdp1 = {{ units = ['layers.*'] }}")
    };
    let globs = "['head.*', 'embed.weight', 'layers.*.experts', 'layers.*.up.bias', 'layers.*.down.weight', 'layers.*.up.weight']";
    let mut names = vec!["head.weight".to_owned(), "embed.weight".to_owned()];
    for layer in 0..3 {
        for name in ["experts", "up.bias", "down.weight", "up.weight"] {
            names.push(format!("layers.{layer}.{name}"));
        }
    }
    let (by_globs, by_names) = (
        planned(&inventory, &text(globs)).unwrap(),
        planned(&inventory, &text(&format!("{names:?}"))).unwrap(),
    );
    for extent in 0..by_names.extents().len() {
        assert_eq!(
            by_globs.slices(extent).unwrap(),
            by_names.slices(extent).unwrap()
        );
    }
    let error = planned(&inventory, &text("['layers.*.up.*', '*']")).unwrap_err();
    assert_eq!(error.code(), "order-unknown");
}

#[test]
fn whole_weights_fit_any_number_of_ranks() {
    let plan = planned(&layers(&[(2, 2)]), "layout = 'zero2'").unwrap();
    assert_eq!((plan.ranks(), plan.extents().len()), (None, 1));
}

#[test]
fn what_is_not_known_is_refused() {
    let inventory = layers(&[(2, 3), (2, 3)]);
    let tied = TensorSpec {
        names: vec!["layers.0.w".into(), "layers.1.w".into()],
        dtype: DType::F32,
        shape: vec![4],
    };
    let mixed = model(vec![
        tensor("a", DType::F32, &[2]),
        tensor("b", DType::Bf16, &[2]),
    ]);
    let cases: Vec<(Inventory, &str)> = vec![
        (inventory.clone(), "ranks = 2\nlayout = 'fsdp1'"),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'fsdp1'\norder = ['embed.weight']",
        ),
        (
            mixed.clone(),
            "ranks = 2\nlayout = 'fsdp1'\norder = 'checkpoint'",
        ),
        (
            mixed,
            "ranks = 2\nlayout = 'zero1'\norder = 'checkpoint'\nzero = { master = true }",
        ),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'zero1'\nzero = { master = true }",
        ),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'zero1'\norder = 'checkpoint'\nzero = { master = true, groups = [['x']] }",
        ),
        (
            model(vec![tied]),
            "ranks = 2\nlayout = 'fsdp1'\norder = 'checkpoint'\nfsdp1 = { units = ['layers.*'] }",
        ),
        (inventory.clone(), "ranks = 2\nlayout = 'tp'"),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'tp'\n[[rule]]\nmatch = '['\nstyle = 'colwise'",
        ),
        (
            inventory.clone(),
            "ranks = 3\nlayout = 'ep'\n[[rule]]\nmatch = '*'\nstyle = 'grouped_gemm'",
        ),
        (inventory.clone(), "ranks = 2\nlayout = 'pp'"),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'pp'\nstages = { layers = 'layers' }",
        ),
        (
            model(vec![
                tensor("layers.0.w", DType::F32, &[1]),
                tensor("layers.2.w", DType::F32, &[1]),
            ]),
            "ranks = 2\nlayout = 'pp'\nstages = { layers = 'layers' }",
        ),
        (inventory.clone(), "ranks = 2\nlayout = 'hsdp'"),
        (
            inventory.clone(),
            "ranks = 2\nlayout = 'tp+fsdp2'\ndefault_style = 'replicate'",
        ),
        (
            inventory,
            "mesh = 'fsdp=2,tp=2'\nlayout = 'tp+fsdp1'\norder = 'checkpoint'\n\
             [[rule]]\nmatch = '*'\nstyle = 'colwise'",
        ),
    ];
    let mut text = String::new();
    for (inventory, file) in cases {
        let error = planned(&inventory, file).unwrap_err();
        text += &format!("[{}] {error}\n", error.code());
        if let Some(hint) = error.hint() {
            text += &format!("    hint: {hint}\n");
        }
    }
    insta::assert_snapshot!(text);
}
