//! All that the loader reads of a pack, in the form that the Python reader prints.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wpack_format::{BoxPart, Content, FlatPart, Hex, Role, SliceKind, TensorRef, sha256};
use wpack_loader::{Pack, View};

/// The golden packs, by name.
pub(crate) fn golden_packs() -> Vec<PathBuf> {
    let folder = golden();
    let packs = wpack_tests::files(&folder).into_iter();
    let packs: Vec<_> = packs
        .filter(|path| path.extension().is_some_and(|ext| ext == "wpack"))
        .collect();
    assert!(
        packs.len() >= 7,
        "golden packs are missing from {}",
        folder.display()
    );
    packs
}

/// Their folder.
pub(crate) fn golden() -> PathBuf {
    wpack_tests::root().join("fixtures/golden")
}

/// Description, tensors, and every rank's slices with a digest of their bytes.
pub(crate) fn dump(path: &Path) -> Value {
    let pack = Pack::from_bytes(std::fs::read(path).unwrap()).unwrap();
    let index = pack.index();
    let tensors: Vec<Vec<Value>> = (0_u32..)
        .zip(&index.root().components)
        .map(|(component, _)| {
            let table = index.tensors(pack.bytes(), component).unwrap();
            table.iter().map(|tensor| tensor_json(&tensor)).collect()
        })
        .collect();
    let shards: Vec<Vec<Value>> = (0..index.ranks().unwrap_or(1))
        .map(|rank| {
            pack.shard(rank)
                .unwrap()
                .iter()
                .map(|view| slice_json(&view))
                .collect()
        })
        .collect();
    json!({
        "digest": Hex(&index.digest()).to_string(),
        "description": index.root().description,
        "tensors": tensors,
        "shards": shards,
    })
}

fn tensor_json(tensor: &TensorRef<'_>) -> Value {
    let names: Vec<_> = tensor
        .names()
        .map(|name| [name.name, name.source])
        .collect();
    json!({
        "names": names,
        "dtype": tensor.dtype.name(),
        "source_dtype": tensor.source_dtype.name(),
        "shape": tensor.shape.to_vec(),
        "stored_shape": tensor.stored_shape.to_vec(),
        "role": match tensor.role {
            Role::Parameter => "parameter",
            Role::Buffer => "buffer",
        },
    })
}

fn slice_json(view: &View<'_>) -> Value {
    let slice = view.slice().to_slice();
    let fill = |len: u64, value: &[u8; 16]| json!({ "fill": len, "value": Hex(value).to_string() });
    let (content, dim, parts) = match &slice.content {
        Content::Whole { tensor } => {
            let start = vec![0; slice.shape.len()];
            ("whole", 0, vec![json!([tensor, start, slice.shape])])
        }
        Content::Boxes { tensor, dim, parts } => {
            let part = |part: &BoxPart| match part {
                BoxPart::Box { start, size } => json!([tensor, start, size]),
                BoxPart::Fill { size, value } => fill(*size, &value.0),
            };
            ("boxes", *dim, parts.iter().map(part).collect())
        }
        Content::Flat { parts } => {
            let part = |part: &FlatPart| match part {
                FlatPart::Range { tensor, start, len } => json!([tensor, [start], [len]]),
                FlatPart::Fill { len, value } => fill(*len, &value.0),
            };
            ("flat", 0, parts.iter().map(part).collect())
        }
    };
    json!({
        "component": view.held().extent.component,
        "kind": match slice.kind {
            SliceKind::Value => "value",
            SliceKind::Master => "master",
        },
        "dtype": slice.dtype.name(),
        "shape": slice.shape,
        "content": content,
        "dim": dim,
        "parts": parts,
        "sha256": Hex(&sha256(view.bytes())).to_string(),
    })
}
