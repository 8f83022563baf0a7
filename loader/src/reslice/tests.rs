//! Any pack gives any rank of any mesh the bytes that a pack made for it would.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use wpack_format::{DType, Slice, spec};
use wpack_plan::PlanFile;

use super::{Checked, ResliceEntry, ResliceOptions};
use crate::{
    Error, NoProgress, Pack,
    builder::{self, Builder, Component, pattern, request, small_model, tensor},
};

fn pack(layout: &str, ranks: u32) -> Pack<Vec<u8>> {
    Pack::from_bytes(Builder::planned(vec![small_model()], &request(layout, ranks)).build())
        .unwrap()
}

/// Every slice of every rank against the source; gives bytes without copy and gathered, of all.
fn compare(pack: &Pack<Vec<u8>>, model: &Component, layout: &str, ranks: u32) -> (u64, u64) {
    let (mut zero_copy, mut gathered) = (0, 0);
    for rank in 0..ranks {
        let options = ResliceOptions::new(rank)
            .with_ranks(ranks)
            .with_layout(layout);
        let reslice = pack.reslice(&options).unwrap();
        for entry in reslice.entries() {
            let cut = builder::cut(entry.slice(), &model.tensors);
            let bytes = reslice.bytes(pack.bytes(), entry).unwrap();
            assert_eq!(
                bytes.as_ref(),
                cut,
                "{layout} {rank}/{ranks} {:?}",
                entry.slice()
            );
            assert_eq!(
                matches!(bytes, std::borrow::Cow::Borrowed(_)),
                entry.file_offset().is_some()
            );
            let mut read = vec![1; cut.len()];
            reslice.read(pack.bytes(), entry, &mut read).unwrap();
            assert_eq!(read, cut);
        }
        let explanation = reslice.explain();
        let bytes: u64 = reslice.entries().iter().map(ResliceEntry::len).sum();
        assert_eq!(
            explanation.zero_copy.bytes + explanation.gathered.bytes,
            bytes
        );
        assert_eq!(
            explanation.convert.is_some(),
            explanation.gathered.bytes > 0
        );
        zero_copy += explanation.zero_copy.bytes;
        gathered += explanation.gathered.bytes;
    }
    (zero_copy, gathered)
}

#[test]
fn from_a_replicated_pack_only_slices_with_fill_are_gathered() {
    let pack = pack("replicate", 1);
    let model = small_model();
    for ranks in [1, 2, 3, 4] {
        for layout in ["zero3", "fsdp2", "replicate"] {
            for rank in 0..ranks {
                let options = ResliceOptions::new(rank)
                    .with_ranks(ranks)
                    .with_layout(layout);
                let reslice = pack.reslice(&options).unwrap();
                for entry in reslice.entries() {
                    assert_eq!(
                        entry.file_offset().is_none(),
                        has_fill(entry.slice()),
                        "{entry:?}"
                    );
                }
            }
            compare(&pack, &model, layout, ranks);
        }
    }
}

fn has_fill(slice: &Slice) -> bool {
    format!("{:?}", slice.content).contains("Fill")
}

#[test]
fn from_any_layout_to_any_other() {
    let model = small_model();
    for (from, of) in [("zero3", 3), ("fsdp2", 2), ("fsdp2", 4)] {
        let pack = pack(from, of);
        for (to, ranks) in [
            ("zero3", 2),
            ("zero3", 3),
            ("fsdp2", 3),
            ("fsdp2", 4),
            ("replicate", 2),
        ] {
            let (zero_copy, gathered) = compare(&pack, &model, to, ranks);
            if (from, of) == (to, ranks) {
                assert_eq!(gathered, 0, "the pack's own slices, fill included");
                assert!(zero_copy > 0);
            }
        }
    }
}

/// What layouts must know of [`layers`].
const FACTS: &str = r#"
replicate = ["rope"]
order = "checkpoint"
default_style = "replicate"
frozen = ["frozen"]
[fsdp1]
units = ["layers.*"]
use_orig_params = true
[zero]
master = true
parameter_alignment = true
[stages]
layers = "layers"
first = ["embed.*", "rope"]
last = ["head.*", "steps", "frozen", "none"]
[[rule]]
match = "*.up.*"
style = "packed_colwise"
[[rule]]
match = "*.down.weight"
style = "rowwise"
[[rule]]
match = "*.q.weight"
style = "colwise"
[[rule]]
match = "*.experts"
style = "grouped_gemm"
"#;

/// Layers of a small transformer, in the order of the model.
fn layers(dtype: DType, sizes: &[(u64, u64)]) -> Component {
    let mut tensors = vec![
        tensor("embed.weight", dtype, &[11, 6]),
        tensor("rope", DType::F32, &[7]),
    ];
    for (at, &(rows, columns)) in sizes.iter().enumerate() {
        for (name, shape) in [
            ("q.weight", vec![rows, columns]),
            ("up.weight", vec![2 * rows, columns]),
            ("up.bias", vec![2 * rows]),
            ("down.weight", vec![columns, rows]),
            ("experts", vec![12, rows, columns]),
            ("norm", vec![1]),
        ] {
            tensors.push(tensor(&format!("layers.{at}.{name}"), dtype, &shape));
        }
    }
    tensors.push(tensor("frozen", dtype, &[3, 2]));
    tensors.push(tensor("none", dtype, &[0, 2]));
    tensors.push(tensor("steps", DType::I64, &[]));
    tensors.push(tensor("head.weight", dtype, &[11, 6]));
    let tensors = (1..).zip(tensors).map(|(seed, tensor)| {
        let bytes = pattern(&tensor, seed);
        (tensor, bytes)
    });
    Component {
        name: "model".into(),
        tensors: tensors.collect(),
    }
}

fn clone(component: &Component) -> Component {
    Component {
        name: component.name.clone(),
        tensors: component.tensors.clone(),
    }
}

/// Every layout, and products of them, with a mesh; `a` and `b` below 5.
fn layout(which: usize, a: u32, b: u32) -> (&'static str, String) {
    match which {
        0 => ("replicate", String::new()),
        1 => ("usp", format!("sp={a}")),
        2 => ("zero1", format!("dp={a}")),
        3 => ("zero2", format!("dp={a},sp={b}")),
        4 => ("zero3", format!("dp={a}")),
        5 => ("fsdp1", format!("fsdp={a}")),
        6 => ("fsdp2", format!("fsdp={a}")),
        7 => ("hsdp", format!("dp_replicate={b},fsdp={a}")),
        8 => ("tp", format!("tp={a}")),
        9 => ("ep", format!("ep={a}")),
        10 => ("pp", format!("pp={a}")),
        11 => ("usp+fsdp2", format!("sp={a}")),
        12 => ("tp+fsdp2", format!("fsdp={a},tp={b}")),
        13 => ("ep+fsdp2", format!("efsdp={a},ep={b}")),
        14 => ("pp+fsdp2", format!("pp={a},fsdp={b}")),
        15 => ("pp+zero3", format!("pp={a},dp={b}")),
        16 => ("tp+ep", format!("tp={a},ep={b}")),
        _ => ("pp+tp+fsdp2", format!("pp={a},fsdp=2,tp={b}")),
    }
}

const LAYOUTS: usize = 18;

fn plan_text((layout, mesh): &(&str, String)) -> String {
    let mesh = if mesh.is_empty() {
        String::new()
    } else {
        format!("mesh = {mesh:?}\n")
    };
    format!("layout = {layout:?}\n{mesh}{FACTS}")
}

/// The pack opened as it is told equals a pack made for that; gives bytes without copy and gathered.
fn same_as_direct(
    pack: &Pack<Vec<u8>>,
    direct: &Pack<Vec<u8>>,
    options: &ResliceOptions,
    ranks: u32,
) -> (u64, u64) {
    let (mut zero_copy, mut gathered) = (0, 0);
    for rank in 0..ranks {
        let mut options = options.clone();
        options.rank = rank;
        let reslice = pack.reslice(&options).unwrap();
        let shard = direct.shard(rank).unwrap();
        assert_eq!(reslice.entries().len(), shard.len());
        for (entry, view) in reslice.entries().iter().zip(shard.iter()) {
            let wanted = view.slice().to_slice();
            let found = entry.slice();
            assert_eq!(
                (&found.content, found.kind, found.dtype, &found.shape),
                (&wanted.content, wanted.kind, wanted.dtype, &wanted.shape)
            );
            let name = reslice.tensor(entry).map(|tensor| tensor.name());
            assert_eq!(name, view.name());
            assert_eq!(reslice.stored_shape(entry), view.stored_shape());
            let bytes = reslice.bytes(pack.bytes(), entry).unwrap();
            assert_eq!(bytes.as_ref(), view.bytes(), "rank {rank} {found:?}");
            let mut read = vec![1; view.bytes().len()];
            reslice.read(pack.bytes(), entry, &mut read).unwrap();
            assert_eq!(read, view.bytes());
        }
        let cost = reslice.explain();
        let bytes: u64 = reslice.entries().iter().map(ResliceEntry::len).sum();
        assert_eq!(cost.zero_copy.bytes + cost.gathered.bytes, bytes);
        assert_eq!(cost.convert.is_some(), cost.gathered.bytes > 0);
        zero_copy += cost.zero_copy.bytes;
        gathered += cost.gathered.bytes;
    }
    (zero_copy, gathered)
}

fn ranks_of(pack: &Pack<Vec<u8>>) -> u32 {
    pack.index().ranks().unwrap_or(2)
}

fn by_plan(model: &Component, text: &str, keep: bool) -> Pack<Vec<u8>> {
    Pack::from_bytes(Builder::by_plan(clone(model), text, keep).build()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_opens_as_any_other(
        sizes in prop::collection::vec((1_u64..6, 1_u64..6), 1..4),
        half in any::<bool>(),
        from in (0..LAYOUTS, 1_u32..5, 1_u32..4),
        to in (0..LAYOUTS, 1_u32..5, 1_u32..4),
        by_name in any::<bool>(),
    ) {
        let dtype = if half { DType::Bf16 } else { DType::F32 };
        let model = layers(dtype, &sizes);
        let from = layout(from.0, from.1, from.2);
        let to = layout(to.0, to.1, to.2);
        let text = plan_text(&to);
        // The pack keeps what the wanted layout must know, or it is given.
        let pack = by_plan(&model, &plan_text(&from), by_name);
        let direct = by_plan(&model, &text, true);
        let options = if by_name {
            let options = ResliceOptions::new(0).with_layout(to.0);
            if to.1.is_empty() { options } else { options.with_mesh(to.1.parse().unwrap()) }
        } else {
            ResliceOptions::new(0).with_plan(PlanFile::parse(&text).unwrap())
        };
        let (_, gathered) = same_as_direct(&pack, &direct, &options, ranks_of(&direct));
        if from == to {
            prop_assert_eq!(gathered, 0, "the pack's own slices, fill included");
        }
    }
}

/// Rows of a tensor that is stored whole, and all of it, are ranges; columns and fused halves are not.
#[test]
fn rows_of_whole_tensors_are_views() {
    let model = layers(DType::Bf16, &[(4, 6), (5, 3)]);
    let pack = by_plan(&model, &plan_text(&("replicate", String::new())), true);
    for which in [0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17] {
        let (name, mesh) = layout(which, 3, 2);
        let mut options = ResliceOptions::new(0).with_layout(name);
        if !mesh.is_empty() {
            options = options.with_mesh(mesh.parse().unwrap());
        }
        options.options = Some(no_masters(&plan_text(&(name, mesh))));
        for rank in 0..pack.reslice(&options).unwrap().explain().ranks.unwrap_or(1) {
            options.rank = rank;
            for entry in pack.reslice(&options).unwrap().entries() {
                let tensors = &model.tensors;
                let ranges = range_count(entry.slice(), tensors);
                let view = ranges <= 1 && !has_fill(entry.slice());
                assert_eq!(entry.file_offset().is_some(), view, "{name} {entry:?}");
            }
        }
    }
}

fn no_masters(text: &str) -> wpack_plan::Options {
    let text = text.replace("master = true", "master = false");
    PlanFile::parse(&text).unwrap().request().unwrap().options
}

/// How often the elements of a slice do not go on where the last one was.
fn range_count(slice: &Slice, tensors: &[(wpack_format::Tensor, Vec<u8>)]) -> usize {
    let mut count = 0;
    super::ranges::ranges(
        slice,
        |tensor| Some(tensors[tensor as usize].0.shape.clone()),
        &mut |_| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        },
    );
    count
}

/// A part of a flat group lies with its fill in a part that goes further; two parts do not lie together.
#[test]
fn parts_of_flat_groups() {
    let tensors = [("a", 3), ("b", 5), ("c", 4)].map(|(name, len)| {
        let tensor = tensor(name, DType::F32, &[len]);
        let bytes = pattern(&tensor, len);
        (tensor, bytes)
    });
    let model = Component {
        name: "model".into(),
        tensors: tensors.into(),
    };
    // Each starts at a multiple of four elements, so that all have sixteen, over any of these ranks.
    let plan = |ranks: u32| {
        format!(
            "ranks = {ranks}\nlayout = \"fsdp1\"\norder = \"checkpoint\"\nfsdp1 = {{ use_orig_params = true }}"
        )
    };
    let pack = by_plan(&model, &plan(2), true);
    // Slices of fill alone are two elements for eight ranks, and four of one element for sixteen.
    for (ranks, copied) in [(4, 0), (8, 8), (16, 16), (1, 64), (3, 48)] {
        let options = ResliceOptions::new(0).with_ranks(ranks);
        let direct = by_plan(&model, &plan(ranks), true);
        let (_, gathered) = same_as_direct(&pack, &direct, &options, ranks);
        assert_eq!(gathered, copied, "{ranks} ranks");
    }
}

/// Masters come from stored ones, from fp32 weights as they are, and from others by a cast.
#[test]
fn masters() {
    let zero2 = |ranks: u32| plan_text(&("zero2", format!("dp={ranks}")));
    let count = |reslice: &super::Reslice| {
        let masters = reslice.entries().iter();
        let masters = masters.filter(|e| e.slice().kind == wpack_format::SliceKind::Master);
        masters
            .filter(|entry| entry.file_offset().is_some())
            .count()
    };
    for (dtype, from, stored) in [
        (DType::Bf16, zero2(2), true),
        (DType::Bf16, plan_text(&("fsdp2", "fsdp=2".into())), false),
        (DType::F32, plan_text(&("replicate", String::new())), false),
    ] {
        let model = layers(dtype, &[(3, 5)]);
        let pack = by_plan(&model, &from, true);
        let direct = by_plan(&model, &zero2(4), true);
        let options = ResliceOptions::new(0).with_layout("zero2").with_ranks(4);
        same_as_direct(&pack, &direct, &options, 4);
        assert_eq!(count(&pack.reslice(&options).unwrap()) > 0, stored);
    }
}

#[test]
fn what_the_pack_does_not_know_is_refused_with_the_way_out() {
    let model = layers(DType::F32, &[(2, 3)]);
    let pack = by_plan(&model, "layout = \"replicate\"", true);
    for (layout, code) in [
        ("tp", "no-rule"),
        ("ep", "no-rule"),
        ("fsdp1", "order-unknown"),
        ("pp", "rules"),
        ("rules", "no-rule"),
        ("tp+fsdp2", "no-rule"),
        ("hsdp", "axis-missing"),
        ("zero9", "unknown-layout"),
    ] {
        let options = ResliceOptions::new(0).with_layout(layout).with_ranks(2);
        let error = pack.reslice(&options).unwrap_err();
        assert_eq!(error.code(), code, "{layout}: {error}");
        let command = format!("wpack convert CHECKPOINT -o OUT.wpack --layout {layout} --ranks 2");
        let hint = error.hint().unwrap();
        assert!(hint.contains(&command), "{layout}: {hint}");
    }
    // The plan that the pack keeps goes with the command.
    let pack = by_plan(&model, &plan_text(&("tp", "tp=2".into())), true);
    let options = ResliceOptions::new(0).with_layout("tp+fsdp2").with_ranks(2);
    let hint = pack.reslice(&options).unwrap_err().hint().unwrap();
    let command = "wpack inspect PACK --plan > PLAN.toml && wpack convert CHECKPOINT -o OUT.wpack \
                   --plan PLAN.toml --layout tp+fsdp2 --ranks 2";
    assert!(hint.contains(command), "{hint}");
}

#[test]
fn a_plan_file_is_in_space_of_the_pack() {
    let model = layers(DType::F32, &[(2, 3)]);
    let pack = by_plan(&model, "layout = \"replicate\"", true);
    let plan = |text: &str| ResliceOptions::new(0).with_plan(PlanFile::parse(text).unwrap());
    let casts = plan("ranks = 2\nlayout = \"zero3\"\ntransform = { dtype = \"bf16\" }");
    let error = pack.reslice(&casts).unwrap_err();
    assert_eq!(error.code(), "plan-transforms");
    assert!(
        error.hint().unwrap().contains("--plan PLAN.toml"),
        "{error}"
    );
    // Once it is done, a plan may say so again.
    let text = "layout = \"replicate\"\ntransform = { dtype = \"BF16\" }";
    let cast = by_plan(&layers(DType::Bf16, &[(2, 3)]), text, true);
    assert!(cast.reslice(&casts).is_ok());
    let takes = plan("ranks = 2\nlayout = \"zero3\"\ntake = [\"vae\"]");
    let error = pack.reslice(&takes).unwrap_err();
    assert_eq!(error.code(), "unknown-component");
    let unused = plan("ranks = 2\nlayout = \"zero3\"\nreplicate = [\"misspelt\"]");
    assert_eq!(pack.reslice(&unused).unwrap_err().code(), "pattern-unused");
    let ranks = plan("ranks = 2\nlayout = \"zero3\"").with_ranks(3);
    assert_eq!(pack.reslice(&ranks).unwrap().explain().ranks, Some(3));
    let mesh = plan("mesh = \"dp=2\"\nlayout = \"zero3\"").with_ranks(3);
    assert_eq!(pack.reslice(&mesh).unwrap_err().code(), "ranks-disagree");
}

/// Components are taken by name, and keep theirs.
#[test]
fn some_components_of_a_pack() {
    let two = || {
        let mut vae = small_model();
        vae.name = "vae".into();
        vec![layers(DType::F32, &[(2, 3)]), vae]
    };
    let pack = Builder::planned(two(), &request("zero3", 3)).build();
    let pack = Pack::from_bytes(pack).unwrap();
    let text = "ranks = 2\nlayout = \"fsdp2\"\ntake = [\"vae\"]";
    let options = ResliceOptions::new(1).with_plan(PlanFile::parse(text).unwrap());
    let reslice = pack.reslice(&options).unwrap();
    assert_eq!(reslice.entries().len(), small_model().tensors.len());
    for entry in reslice.entries() {
        assert_eq!(reslice.component(entry), "vae");
        let bytes = reslice.bytes(pack.bytes(), entry).unwrap();
        assert_eq!(
            bytes.as_ref(),
            builder::cut(entry.slice(), &small_model().tensors)
        );
    }
}

/// A glob that only the pack's own layout had a use for does not stand in the way of another.
#[test]
fn globs_of_the_pack_stay_in_force() {
    let mut made = request("fsdp2", 2);
    made.shard = vec!["layer.0.steps".into()];
    made.replicate = vec!["embed.*".into()];
    let pack = Builder::planned(vec![small_model()], &made).build();
    let pack = Pack::from_bytes(pack).unwrap();
    let whole = ResliceOptions::new(0).with_layout("replicate");
    assert_eq!(pack.reslice(&whole).unwrap().explain().ranks, None);
    let cut = ResliceOptions::new(1).with_ranks(3);
    let reslice = pack.reslice(&cut).unwrap();
    let shape = |name: &str| {
        let mut entries = reslice.entries().iter();
        let entry = entries.find(|e| reslice.tensor(e).is_some_and(|t| t.name() == name));
        entry.unwrap().slice().shape.clone()
    };
    assert_eq!(shape("layer.0.steps"), [1]);
    assert_eq!(shape("embed.weight"), [37, 12]);
}

#[test]
fn what_it_costs_is_said_with_the_remedy() {
    let pack = pack("zero3", 3);
    let options = ResliceOptions::new(1).with_ranks(2);
    let reslice = pack.reslice(&options).unwrap();
    let explanation = reslice.explain();
    assert_eq!(
        (explanation.ranks, explanation.layout.as_str()),
        (Some(2), "zero3")
    );
    let convert = "wpack convert CHECKPOINT -o OUT.wpack --layout zero3 --ranks 2";
    assert_eq!(explanation.convert.as_deref(), Some(convert));
    let text = explanation.to_string();
    assert!(
        text.contains("rank 1 of 2, zero3") && text.contains(convert),
        "{text}"
    );
    // As the pack is: nothing to gather, nothing to convert.
    let own = pack.reslice(&ResliceOptions::new(2)).unwrap();
    assert_eq!(
        (own.explain().gathered.bytes, &own.explain().convert),
        (0, &None)
    );
}

#[test]
fn bad_requests_are_errors() {
    let pack = pack("replicate", 1);
    let layout = ResliceOptions::new(0).with_layout("zero9").with_ranks(2);
    assert!(matches!(pack.reslice(&layout), Err(Error::Plan { .. })));
    let rank = ResliceOptions::new(2).with_layout("zero3").with_ranks(2);
    assert!(matches!(
        pack.reslice(&rank),
        Err(Error::RankOutsideMesh { rank: 2, ranks: 2 })
    ));
    let no_ranks = ResliceOptions::new(0).with_layout("zero3");
    assert!(matches!(pack.reslice(&no_ranks), Err(Error::Plan { .. })));
    let fine = ResliceOptions::new(0).with_layout("zero3").with_ranks(2);
    let reslice = pack.reslice(&fine).unwrap();
    let entry = reslice
        .entries()
        .iter()
        .find(|entry| entry.len() > 1)
        .unwrap();
    assert!(reslice.read(pack.bytes(), entry, &mut [0]).is_err());
    assert!(reslice.bytes(&[], entry).is_err());
}

#[test]
fn a_damaged_block_is_found_by_those_who_read_it_and_no_others() {
    // Three tensors of a block each, of which a rank takes the second half.
    let block = spec::BLOCK_LEN;
    let tensors = (0..3).map(|at| {
        let tensor = tensor(&format!("t{at}"), DType::Bf16, &[2, block / 4]);
        let bytes = pattern(&tensor, at);
        (tensor, bytes)
    });
    let model = Component {
        name: "model".into(),
        tensors: tensors.collect(),
    };
    let mut bytes = Builder::planned(vec![model], &request("replicate", 1)).build();
    let pack = Pack::from_bytes(bytes.clone()).unwrap();
    let options = ResliceOptions::new(1).with_ranks(2).with_layout("fsdp2");
    let reslice = pack.reslice(&options).unwrap();
    let check = |bytes: &[u8], want: &[usize]| {
        let interrupt = AtomicBool::new(false);
        let want = |at: usize, _: &ResliceEntry| want.contains(&at);
        reslice.check(pack.index(), &bytes, want, &NoProgress, &interrupt)
    };
    let all = Checked {
        blocks: 3,
        bytes: 3 * block,
    };
    assert_eq!(check(&bytes, &[0, 1, 2]).unwrap(), all);
    assert_eq!(check(&bytes, &[2]).unwrap().blocks, 1);
    assert_eq!(check(&bytes, &[]).unwrap(), Checked::default());

    let extent = pack.index().extent(0).unwrap().offset;
    bytes[usize::try_from(extent + block + 7).unwrap()] ^= 4;
    assert_eq!(check(&bytes, &[0, 2]).unwrap().blocks, 2);
    let error = check(&bytes, &[1]).unwrap_err();
    assert!(
        matches!(error, Error::Checksum { extent: 0, block: 1, offset, .. } if offset == extent + block),
        "{error:?}"
    );
    let stop = AtomicBool::new(true);
    let stopped = reslice.check(pack.index(), &&bytes[..], |_, _| true, &NoProgress, &stop);
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn gathered_slices_are_checked_in_every_extent_that_they_come_from() {
    let mut bytes = Builder::planned(vec![small_model()], &request("zero3", 3)).build();
    let pack = Pack::from_bytes(bytes.clone()).unwrap();
    let options = ResliceOptions::new(0).with_layout("replicate");
    let reslice = pack.reslice(&options).unwrap();
    assert!(reslice.explain().gathered.bytes > 0);
    let check = |bytes: &[u8]| {
        let interrupt = AtomicBool::new(false);
        reslice.check(pack.index(), &bytes, |_, _| true, &NoProgress, &interrupt)
    };
    let extents = pack.index().root().extents.len();
    assert_eq!(check(&bytes).unwrap().blocks, extents as u64);
    for extent in &pack.index().root().extents {
        let at = usize::try_from(extent.offset).unwrap();
        bytes[at] ^= 1;
        assert!(matches!(check(&bytes), Err(Error::Checksum { .. })));
        bytes[at] ^= 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_models_and_meshes(
        shapes in prop::collection::vec(prop::collection::vec(0_u64..9, 0..4), 1..5),
        from in (0_usize..3, 1_u32..5),
        to in (0_usize..3, 1_u32..5),
    ) {
        let layouts = ["replicate", "zero3", "fsdp2"];
        let tensors = (0..).zip(&shapes).map(|(at, shape)| {
            let tensor = tensor(&format!("t{at}"), DType::F32, shape);
            let bytes = pattern(&tensor, at + 9);
            (tensor, bytes)
        });
        let model = Component { name: "model".into(), tensors: tensors.collect() };
        let again = Component { name: "model".into(), tensors: model.tensors.clone() };
        let pack = Builder::planned(vec![again], &request(layouts[from.0], from.1)).build();
        let pack = Pack::from_bytes(pack).unwrap();
        compare(&pack, &model, layouts[to.0], to.1);
    }
}
