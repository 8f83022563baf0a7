//! What torch saves is what a pack gives back: every dtype, every kind of view, three ways of saving.
//!
//! `WPACK_TEST_PYTHON` names a Python with torch, see `tests/run`; without one the test is left out
//! unless `WPACK_REQUIRE_FRAMEWORKS=1`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use wpack_checkpoint::{Checkpoint, Input, OpenOptions};
use wpack_convert::{Context, Options, Prepared, WriteOptions, convert};
use wpack_loader::{NoProgress, Pack};
use wpack_plan::Request;

/// Dtype, shape and SHA-256 of the bytes.
type Fact = (String, Vec<u64>, String);

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("WPACK_TEST_PYTHON").map(PathBuf::from);
    let required = std::env::var_os("WPACK_REQUIRE_FRAMEWORKS").is_some_and(|value| value == "1");
    assert!(
        python.is_some() || !required,
        "WPACK_TEST_PYTHON names no Python with torch"
    );
    python
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn expected(folder: &Path) -> (BTreeMap<String, Fact>, BTreeSet<BTreeSet<String>>) {
    let text = fs::read_to_string(folder.join("expected.json")).expect("what torch holds");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let tensors = json["tensors"]
        .as_object()
        .expect("tensors")
        .iter()
        .map(|(name, tensor)| {
            let shape = tensor["shape"].as_array().expect("a shape").iter();
            let shape = shape.map(|size| size.as_u64().expect("a size")).collect();
            (
                name.clone(),
                (text(&tensor["dtype"]), shape, text(&tensor["sha256"])),
            )
        });
    let groups = json["aliases"].as_array().expect("groups").iter();
    let groups = groups.map(|group| group.as_array().expect("names").iter().map(text).collect());
    (tensors.collect(), groups.collect())
}

fn open(path: &Path) -> Checkpoint {
    let input = Input {
        component: None,
        path: path.to_str().expect("UTF-8").to_owned(),
    };
    wpack_checkpoint::open(&[input], &OpenOptions::default()).expect("a good checkpoint")
}

/// Reads each tensor in pieces of an odd length, so that pieces end inside of elements.
fn facts(checkpoint: &Checkpoint) -> BTreeMap<String, Fact> {
    const PIECE: usize = 100_003;
    let mut facts = BTreeMap::new();
    for tensor in checkpoint
        .components
        .iter()
        .flat_map(|component| &component.tensors)
    {
        let len = usize::try_from(tensor.bytes.len()).expect("small");
        let mut bytes = vec![0; len];
        for (piece, at) in bytes.chunks_mut(PIECE).zip((0..).step_by(PIECE)) {
            tensor.bytes.read_at(at, piece).expect("inside");
        }
        for name in &tensor.names {
            let fact = (
                tensor.dtype.name().to_owned(),
                tensor.shape.clone(),
                digest(&bytes),
            );
            assert_eq!(facts.insert(name.clone(), fact), None);
        }
    }
    facts
}

fn pack_facts(pack: &Path) -> (BTreeMap<String, Fact>, BTreeSet<BTreeSet<String>>) {
    let pack = Pack::from_bytes(fs::read(pack).expect("the pack")).expect("a good pack");
    let shard = pack.shard(0).expect("rank 0");
    let (mut facts, mut groups) = (BTreeMap::new(), BTreeSet::new());
    for view in shard.iter() {
        let entry = view.entry();
        let names: BTreeSet<String> = entry.names().map(str::to_owned).collect();
        for name in &names {
            let fact = (
                entry.dtype().name().to_owned(),
                entry.shape(),
                digest(view.bytes()),
            );
            assert_eq!(facts.insert(name.clone(), fact), None);
        }
        if names.len() > 1 {
            groups.insert(names);
        }
    }
    (facts, groups)
}

#[track_caller]
fn same(what: &str, found: &BTreeMap<String, Fact>, expected: &BTreeMap<String, Fact>) {
    for (name, fact) in expected {
        assert_eq!(found.get(name), Some(fact), "{what}: {name}");
    }
    assert_eq!(found.len(), expected.len(), "{what}: other names");
}

#[test]
#[expect(clippy::print_stderr, reason = "says what was not tested")]
fn what_torch_saves_is_what_a_pack_gives_back() {
    let Some(python) = python() else {
        eprintln!("left out: WPACK_TEST_PYTHON names no Python; tests/run sets it");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("torch_roundtrip/save.py");
    let saved = Command::new(python)
        .arg(script)
        .arg(folder.path())
        .output()
        .expect("Python runs");
    assert!(
        saved.status.success(),
        "{}",
        String::from_utf8_lossy(&saved.stderr)
    );
    let (tensors, aliases) = expected(folder.path());
    assert!(tensors.len() > 150, "every dtype and view");

    for (file, container) in [
        ("zip", "torch-zip"),
        ("legacy", "torch-legacy"),
        ("aligned", "torch-zip"),
    ] {
        let path = folder.path().join(format!("{file}.pt"));
        let checkpoint = open(&path);
        assert_eq!(checkpoint.components[0].container, container);
        assert_eq!(checkpoint.components[0].skipped, [], "{file}");
        same(file, &facts(&checkpoint), &tensors);

        let request = Request {
            layout: "replicate".to_owned(),
            ..Request::default()
        };
        let options = Options {
            request,
            ..Options::default()
        };
        let prepared = Prepared::new(checkpoint, &options).expect("a plan");
        let out = folder.path().join(format!("{file}.wpack"));
        let interrupt = AtomicBool::new(false);
        let context = Context {
            progress: &NoProgress,
            interrupt: &interrupt,
        };
        convert(&prepared, &out, &WriteOptions::default(), &context).expect("a pack");
        let (facts, groups) = pack_facts(&out);
        same(&format!("pack of {file}"), &facts, &tensors);
        assert_eq!(groups, aliases, "{file}");
    }
}
