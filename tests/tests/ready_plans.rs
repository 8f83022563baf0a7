//! The ready plan files on the true names and shapes of the models that they are for.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use wpack_checkpoint::{Bytes, Checkpoint, Component, SourceFile, Tensor};
use wpack_convert::{Options, Prepared};
use wpack_format::DType;
use wpack_plan::PlanFile;

/// Bytes that nobody reads: planning needs headers alone.
struct Unread(u64);

impl Bytes for Unread {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), wpack_checkpoint::Error> {
        unreachable!("a plan reads no data")
    }

    fn place(&self) -> Option<u64> {
        None
    }

    fn will_need(&self, _: u64, _: u64) {}
}

fn folder() -> PathBuf {
    wpack_tests::root().join("fixtures/plans")
}

/// A name with ranges, written out.
fn names(folded: &str) -> Vec<String> {
    let Some((before, rest)) = folded.split_once('{') else {
        return vec![folded.to_owned()];
    };
    let (range, after) = rest.split_once('}').unwrap();
    let (first, last) = range.split_once("..").unwrap();
    let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
    (first..=last)
        .flat_map(|number| names(&format!("{before}{number}{after}")))
        .collect()
}

/// Names, types and shapes of a model.
fn inventory(name: &str) -> Vec<(String, DType, Vec<u64>)> {
    let text = std::fs::read_to_string(folder().join("inventories").join(name)).unwrap();
    let mut out = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let folded = words.next().unwrap();
        let dtype = DType::from_name(words.next().unwrap()).unwrap();
        let shape: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        out.extend(
            names(folded)
                .into_iter()
                .map(|name| (name, dtype, shape.clone())),
        );
    }
    out
}

fn prepare(plan: &str, components: &[(&str, &str)]) -> Prepared {
    let component = |(at, (name, file)): (usize, &(&str, &str))| Component {
        name: (*name).to_owned(),
        tensors: inventory(file)
            .into_iter()
            .map(|(name, dtype, shape)| Tensor {
                names: vec![name],
                dtype,
                stored_shape: shape.clone(),
                source: at,
                bytes: Arc::new(Unread(dtype.bytes(shape.iter().product()).unwrap())),
                shape,
            })
            .collect(),
        ..Component::default()
    };
    let checkpoint = Checkpoint {
        components: components.iter().enumerate().map(component).collect(),
        sources: components
            .iter()
            .map(|(name, _)| SourceFile {
                path: (*name).into(),
                size: 0,
            })
            .collect(),
        ..Checkpoint::default()
    };
    let text = std::fs::read_to_string(folder().join(plan)).unwrap();
    let file = PlanFile::parse(&text).unwrap_or_else(|why| panic!("{plan}: {why}"));
    let options = Options::of_plan(&file).unwrap_or_else(|why| panic!("{plan}: {why}"));
    Prepared::new(checkpoint, &options).unwrap_or_else(|why| panic!("{plan}: {why}"))
}

/// Bytes that each rank holds of a component.
fn by_rank(prepared: &Prepared, component: u32) -> Vec<u64> {
    let plan = prepared.plan();
    (0..plan.ranks().unwrap())
        .map(|rank| {
            let held = plan.extents_of(rank).map(|at| &plan.extents()[at]);
            held.filter(|extent| extent.component == component)
                .map(|extent| extent.bytes)
                .sum()
        })
        .collect()
}

/// Wan's `shard_model`: a flat parameter of each block and of the rest, in equal parts.
fn shard_model(file: &str, ranks: u64) -> u64 {
    let mut units: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, dtype, shape) in inventory(file) {
        let unit = match name.strip_prefix("blocks.") {
            Some(rest) => rest.split('.').next().unwrap().to_owned(),
            None => String::new(),
        };
        let (sum, width) = units.entry(unit).or_default();
        *sum += shape.iter().product::<u64>();
        *width = u64::from(dtype.bits()) / 8;
    }
    units
        .values()
        .map(|(sum, width)| sum.div_ceil(ranks) * width)
        .sum()
}

fn whole(file: &str, width: Option<u64>) -> u64 {
    let bytes = |(_, dtype, shape): (String, DType, Vec<u64>)| {
        shape.iter().product::<u64>() * width.unwrap_or(u64::from(dtype.bits()) / 8)
    };
    inventory(file).into_iter().map(bytes).sum()
}

/// `torch.chunk` of dimension 0.
fn rows(file: &str, ranks: u64, rank: u64, width: u64) -> u64 {
    let of = |(_, _, shape): (String, DType, Vec<u64>)| {
        let (first, rest) = shape.split_first().unwrap();
        let chunk = first.div_ceil(ranks);
        let held = (first.saturating_sub(chunk * rank)).min(chunk);
        held * rest.iter().product::<u64>() * width
    };
    inventory(file).into_iter().map(of).sum()
}

#[test]
fn wan_lays_its_models_out_by_units() {
    let plans = [
        (
            "wan2.2-ti2v-5b.toml",
            vec![
                ("dit", "wan2.2-ti2v-5b.dit.txt"),
                ("text_encoder", "umt5-xxl.text_encoder.txt"),
                ("vae", "wan2.2.vae.txt"),
            ],
        ),
        (
            "wan2.2-i2v-a14b.toml",
            vec![
                ("dit", "wan2.2-i2v-a14b.dit.txt"),
                ("dit2", "wan2.2-i2v-a14b.dit.txt"),
                ("text_encoder", "umt5-xxl.text_encoder.txt"),
                ("vae", "wan2.1.vae.txt"),
            ],
        ),
    ];
    for (plan, components) in plans {
        let prepared = prepare(plan, &components);
        assert_eq!(prepared.plan().ranks(), Some(8));
        for (at, (name, file)) in (0..).zip(&components) {
            let expected = match *name {
                "vae" => whole(file, None),
                _ => shard_model(file, 8),
            };
            assert_eq!(by_rank(&prepared, at), [expected; 8], "{plan}: {name}");
        }
        // A unit lies in the order of the model: the block's own parameter before those of its modules.
        let (plan, tensors) = (prepared.plan(), &prepared.inventory().components[0].tensors);
        let first = plan.extents_of(0).next().unwrap();
        let slices = plan.slices(first).unwrap();
        let starts: Vec<&str> = slices
            .iter()
            .filter_map(|slice| match &slice.content {
                wpack_format::Content::Flat { parts } => match parts[0] {
                    wpack_format::FlatPart::Range { tensor, .. } => Some(tensor),
                    wpack_format::FlatPart::Fill { .. } => None,
                },
                _ => None,
            })
            .map(|tensor| tensors[usize::try_from(tensor).unwrap()].names[0].as_str())
            .collect();
        assert_eq!(starts[0], "patch_embedding.weight");
        assert_eq!(starts[1], "blocks.0.modulation");
    }
}

#[test]
fn qwen_image_edit_is_sharded_by_rows() {
    let components = [
        ("transformer", "qwen-image-edit-2509.dit.txt"),
        ("text_encoder", "qwen-image.text_encoder.txt"),
        ("vae", "qwen-image.vae.txt"),
    ];
    let prepared = prepare("qwen-image-edit.toml", &components);
    for (at, (name, file)) in (0..).zip(components) {
        let expected: Vec<u64> = (0..8)
            .map(|rank| match name {
                "vae" => whole(file, Some(2)),
                _ => rows(file, 8, rank, 2),
            })
            .collect();
        assert_eq!(by_rank(&prepared, at), expected, "{name}");
    }
}

#[test]
fn llama_is_cut_by_style_and_then_by_rows() {
    let prepared = prepare("llama-tp.toml", &[("model", "llama-3.1-8b.txt")]);
    assert_eq!(prepared.plan().mesh().unwrap().to_string(), "fsdp=2,tp=4");
    // All divides: a rank holds an eighth of what is cut twice, a half of what is cut by rows alone.
    let rows_alone = ["norm", "embed_tokens"];
    let expected: u64 = inventory("llama-3.1-8b.txt")
        .iter()
        .map(|(name, _, shape)| {
            let parts = if rows_alone.iter().any(|word| name.contains(word)) {
                2
            } else {
                8
            };
            shape.iter().product::<u64>() * 2 / parts
        })
        .sum();
    assert_eq!(by_rank(&prepared, 0), [expected; 8]);
    let of = |name: &str| {
        let tensors = &prepared.inventory().components[0].tensors;
        let at = tensors
            .iter()
            .position(|tensor| tensor.names[0] == name)
            .unwrap();
        let rule = prepared
            .plan()
            .decision(0, u32::try_from(at).unwrap())
            .unwrap()
            .rule;
        prepared.plan().resolved().rules[usize::try_from(rule).unwrap()]
            .placements
            .join("; ")
    };
    assert_eq!(
        of("model.layers.3.self_attn.k_proj.weight"),
        "tp: Shard(0, chunk); fsdp: Shard(0, chunk)"
    );
    assert_eq!(
        of("model.layers.3.mlp.down_proj.weight"),
        "tp: Shard(1, chunk); fsdp: Shard(0, chunk)"
    );
    assert_eq!(of("model.norm.weight"), "fsdp: Shard(0, chunk)");
}

#[test]
fn experts_are_merged_and_then_cut() {
    let prepared = prepare("qwen3-moe-ep.toml", &[("model", "qwen3-30b-a3b.txt")]);
    let tensors = &prepared.inventory().components[0].tensors;
    let shape = |name: &str| {
        let found = tensors.iter().find(|tensor| tensor.names[0] == name);
        found.unwrap().shape.clone()
    };
    assert_eq!(
        shape("model.layers.47.mlp.experts.gate_up_proj"),
        [128, 1536, 2048]
    );
    assert_eq!(
        shape("model.layers.0.mlp.experts.down_proj"),
        [128, 2048, 768]
    );
    assert_eq!(tensors.len(), 48 * 11 + 3);
    // All divides by the eight ranks, experts and all else alike.
    let total = whole("qwen3-30b-a3b.txt", None);
    assert_eq!(by_rank(&prepared, 0), [total / 8; 8]);
    let tensor = tensors
        .iter()
        .position(|tensor| tensor.names[0] == "model.layers.0.mlp.experts.gate_up_proj")
        .unwrap();
    let tensor = prepared.tensor(0, u32::try_from(tensor).unwrap()).unwrap();
    let source = &tensor.names[0].source;
    assert!(source.contains("experts.0.gate_proj.weight"), "{source}");
}
