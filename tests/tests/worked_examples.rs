//! The worked examples of docs/plan.md, carried out: every rank of Megatron-Core and vLLM against the
//! rows that their sources say it holds.

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod convert_common;

use std::{collections::BTreeMap, ops::Range, path::Path};

use convert_common::{Folder, Tensors, against, noise, verify, write};
use safetensors::Dtype;
use wpack_convert::Options;
use wpack_loader::Pack;
use wpack_plan::PlanFile;

/// Heads, elements of a head, heads of keys and values, rows of gate and of up, words of Llama-3.1-8B.
const HEADS: usize = 32;
const HEAD: usize = 128;
const KV: usize = 8;
const WIDE: usize = 14336;
const WORDS: usize = 128_256;
/// Columns, far fewer than the model's: no rule looks at them.
const COLUMNS: usize = 2;

/// The TOML blocks of the page's worked examples.
fn examples() -> Vec<String> {
    let page = std::fs::read_to_string(wpack_tests::root().join("docs/plan.md")).unwrap();
    let (_, section) = page.split_once("## Worked examples").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split_once("```").unwrap().0.to_owned())
        .collect()
}

fn model() -> Tensors {
    let mut tensors = Tensors::new();
    for (name, shape) in [
        ("model.embed_tokens.weight", [WORDS, COLUMNS]),
        (
            "model.layers.0.self_attn.q_proj.weight",
            [HEADS * HEAD, COLUMNS],
        ),
        (
            "model.layers.0.self_attn.k_proj.weight",
            [KV * HEAD, COLUMNS],
        ),
        (
            "model.layers.0.self_attn.v_proj.weight",
            [KV * HEAD, COLUMNS],
        ),
        (
            "model.layers.0.self_attn.o_proj.weight",
            [COLUMNS, HEADS * HEAD],
        ),
        ("model.layers.0.mlp.gate_proj.weight", [WIDE, COLUMNS]),
        ("model.layers.0.mlp.up_proj.weight", [WIDE, COLUMNS]),
        ("model.layers.0.mlp.down_proj.weight", [COLUMNS, WIDE]),
        ("lm_head.weight", [WORDS, COLUMNS]),
    ] {
        let bytes = noise(shape[0] * shape[1] * 2, tensors.len());
        tensors.insert(name.to_owned(), (Dtype::BF16, shape.to_vec(), bytes));
    }
    let norm = (
        "model.norm.weight".to_owned(),
        (Dtype::BF16, vec![COLUMNS], noise(COLUMNS * 2, 99)),
    );
    tensors.extend([norm]);
    tensors
}

/// Rows of a tensor of the checkpoint; zeros for rows that it lacks.
fn rows(tensors: &Tensors, name: &str, rows: Range<usize>) -> Vec<u8> {
    let (_, shape, bytes) = &tensors[name];
    let width = shape[1] * 2;
    let mut out = Vec::new();
    for row in rows {
        match bytes.get(row * width..(row + 1) * width) {
            Some(row) => out.extend(row),
            None => out.extend(vec![0; width]),
        }
    }
    out
}

/// Columns of a tensor of the checkpoint.
fn columns(tensors: &Tensors, name: &str, columns: Range<usize>) -> Vec<u8> {
    let (_, shape, bytes) = &tensors[name];
    let row = |row: usize| {
        let start = (row * shape[1] + columns.start) * 2;
        bytes[start..start + columns.len() * 2].to_vec()
    };
    (0..shape[0]).flat_map(row).collect()
}

/// The `at`th of `parts` equal parts of `whole`.
fn part(whole: usize, parts: usize, at: usize) -> Range<usize> {
    assert_eq!(whole % parts, 0);
    let size = whole / parts;
    size * at..size * (at + 1)
}

/// Every tensor of every rank as `expected` gives it by name, rank of `tp`, and no other.
fn check(
    example: &str,
    ranks_of_tp: usize,
    replicas: usize,
    expected: &dyn Fn(usize) -> BTreeMap<String, Vec<u8>>,
) {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let out = folder.path("model.wpack");
    let options = Options::of_plan(&PlanFile::parse(example).unwrap()).unwrap();
    write(&source, &out, &options, 0);
    verify(&out);
    assert!(against(&out, &source).is_same());
    let pack = Pack::open(Path::new(&out)).unwrap();
    let ranks = ranks_of_tp * replicas;
    assert_eq!(pack.index().ranks(), u32::try_from(ranks).ok());
    for rank in 0..ranks {
        // Of both projects tensor parallel ranks are neighbours.
        let expected = expected(rank % ranks_of_tp);
        let shard = pack.shard(u32::try_from(rank).unwrap()).unwrap();
        let mut names: Vec<&str> = shard
            .iter()
            .map(|view| view.entry().name().unwrap())
            .collect();
        names.sort_unstable();
        assert!(names.iter().eq(expected.keys()), "{names:?}");
        for view in shard.iter() {
            let name = view.entry().name().unwrap();
            assert!(view.bytes() == expected[name], "rank {rank}: {name}");
        }
    }
}

/// What both cut alike.
fn common(tensors: &Tensors, tp: usize, rank: usize, words: usize) -> BTreeMap<String, Vec<u8>> {
    let o = "model.layers.0.self_attn.o_proj.weight";
    let down = "model.layers.0.mlp.down_proj.weight";
    let mut held = BTreeMap::from([
        (
            o.to_owned(),
            columns(tensors, o, part(HEADS * HEAD, tp, rank)),
        ),
        (
            down.to_owned(),
            columns(tensors, down, part(WIDE, tp, rank)),
        ),
        (
            "model.norm.weight".to_owned(),
            tensors["model.norm.weight"].2.clone(),
        ),
    ]);
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        held.insert(name.to_owned(), rows(tensors, name, part(words, tp, rank)));
    }
    held
}

/// A rank's rows of the gate, then its rows of the projection up.
fn gate_and_up(tensors: &Tensors, tp: usize, rank: usize) -> Vec<u8> {
    let rows = part(WIDE, tp, rank);
    joined(tensors, &[(GATE, rows.clone()), (UP, rows)])
}

fn joined(tensors: &Tensors, parts: &[(&str, Range<usize>)]) -> Vec<u8> {
    let of = |(name, range): &(&str, Range<usize>)| rows(tensors, name, range.clone());
    parts.iter().flat_map(of).collect()
}

const Q: &str = "model.layers.0.self_attn.q_proj.weight";
const K: &str = "model.layers.0.self_attn.k_proj.weight";
const V: &str = "model.layers.0.self_attn.v_proj.weight";
const GATE: &str = "model.layers.0.mlp.gate_proj.weight";
const UP: &str = "model.layers.0.mlp.up_proj.weight";

#[test]
fn megatron_keeps_query_groups_together() {
    let [megatron, _] = examples().try_into().unwrap();
    let tensors = model();
    let tp = 8;
    check(&megatron, tp, 2, &|rank| {
        // Padded to a multiple of 128 * tp.
        let mut held = common(&tensors, tp, rank, WORDS.next_multiple_of(128 * tp));
        let qkv = [
            (Q, part(HEADS * HEAD, tp, rank)),
            (K, part(KV * HEAD, tp, rank)),
            (V, part(KV * HEAD, tp, rank)),
        ];
        held.insert(
            "model.layers.0.self_attn.linear_qkv.weight".into(),
            joined(&tensors, &qkv),
        );
        held.insert(
            "model.layers.0.mlp.linear_fc1.weight".into(),
            gate_and_up(&tensors, tp, rank),
        );
        held
    });
}

/// With fewer ranks than groups a rank holds several, one after the other.
#[test]
fn megatron_with_two_groups_a_rank() {
    let [megatron, _] = examples().try_into().unwrap();
    let tensors = model();
    let tp = 4;
    check(&megatron.replace("tp=8,dp=2", "tp=4"), tp, 1, &|rank| {
        let mut held = common(&tensors, tp, rank, WORDS.next_multiple_of(1024));
        let group = |group: usize| {
            [
                (Q, part(HEADS * HEAD, KV, group)),
                (K, part(KV * HEAD, KV, group)),
                (V, part(KV * HEAD, KV, group)),
            ]
        };
        let qkv: Vec<_> = [2 * rank, 2 * rank + 1]
            .into_iter()
            .flat_map(group)
            .collect();
        held.insert(
            "model.layers.0.self_attn.linear_qkv.weight".into(),
            joined(&tensors, &qkv),
        );
        held.insert(
            "model.layers.0.mlp.linear_fc1.weight".into(),
            gate_and_up(&tensors, tp, rank),
        );
        held
    });
}

#[test]
fn vllm_repeats_heads_of_keys_and_values() {
    let [_, vllm] = examples().try_into().unwrap();
    let tensors = model();
    let tp = 16;
    check(&vllm, tp, 1, &|rank| {
        let mut held = common(&tensors, tp, rank, WORDS.next_multiple_of(64));
        let head = part(KV * HEAD, KV, rank / (tp / KV));
        let qkv = [
            (Q, part(HEADS * HEAD, tp, rank)),
            (K, head.clone()),
            (V, head),
        ];
        held.insert(
            "model.layers.0.self_attn.qkv_proj.weight".into(),
            joined(&tensors, &qkv),
        );
        held.insert(
            "model.layers.0.mlp.gate_up_proj.weight".into(),
            gate_and_up(&tensors, tp, rank),
        );
        held
    });
}
