//! Checkpoint to pack and back: every tensor's bytes, whatever layout, cast or thread count.

mod convert_common;

use std::{collections::BTreeMap, fs, sync::atomic::AtomicBool};

use convert_common::*;
use safetensors::Dtype;
use wpack_convert::{
    Context, Error, Options, Prepared, Unlike, WriteOptions, cast::convert_elements,
};
use wpack_format::{BoxPart, Content, DType, FlatPart};
use wpack_loader::{NoProgress, Pack};

/// Lays one part of a slice back into the image of its tensor, one element at a time.
fn lay_box(
    image: &mut [Option<Vec<u8>>],
    tensor: &[u64],
    start: &[u64],
    size: &[u64],
    bytes: &mut &[u8],
    width: usize,
) {
    let elements: u64 = size.iter().product();
    for linear in 0..elements {
        let (mut rest, mut at, mut step) = (linear, 0, 1);
        for d in (0..size.len()).rev() {
            at += (start[d] + rest % size[d]) * step;
            rest /= size[d];
            step *= tensor[d];
        }
        let (element, tail) = bytes.split_at(width);
        *bytes = tail;
        let at = usize::try_from(at).unwrap();
        assert!(
            image[at].replace(element.to_vec()).is_none(),
            "element {at} comes twice"
        );
    }
}

/// The tensors as the slices of all ranks together give them; each element exactly once, but for
/// tensors that every rank holds.
fn reassemble(pack: &Pack<wpack_loader::Map>) -> BTreeMap<String, Vec<u8>> {
    let ranks = pack.index().ranks().unwrap_or(1);
    let mut images: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    for rank in 0..ranks {
        let shard = pack.shard(rank).unwrap();
        for view in shard.iter() {
            let tensor = view.entry().tensor().unwrap().to_tensor();
            let name = tensor.names[0].name.clone();
            let width = usize::try_from(tensor.dtype.bits() / 8).unwrap();
            let elements = usize::try_from(tensor.shape.iter().product::<u64>()).unwrap();
            let image = images.entry(name).or_insert_with(|| vec![None; elements]);
            let mut bytes = view.bytes();
            let content = view.entry().slice().to_slice().content;
            if matches!(content, Content::Whole { .. }) {
                image.fill(None);
            }
            match content {
                Content::Whole { .. } => {
                    let zeros = vec![0; tensor.shape.len()];
                    lay_box(
                        image,
                        &tensor.shape,
                        &zeros,
                        &tensor.shape,
                        &mut bytes,
                        width,
                    );
                }
                Content::Boxes { parts, .. } => {
                    assert_eq!(parts.len(), 1);
                    let BoxPart::Box { start, size } = &parts[0] else {
                        panic!("{parts:?}")
                    };
                    lay_box(image, &tensor.shape, start, size, &mut bytes, width);
                }
                Content::Flat { parts } => {
                    for part in parts {
                        match part {
                            FlatPart::Range { start, len, .. } => {
                                let shape = [elements as u64];
                                lay_box(image, &shape, &[start], &[len], &mut bytes, width);
                            }
                            FlatPart::Fill { len, value } => {
                                let (fill, tail) =
                                    bytes.split_at(usize::try_from(len).unwrap() * width);
                                assert!(fill.chunks(width).all(|one| *one == value.0[..width]));
                                bytes = tail;
                            }
                        }
                    }
                }
            }
            assert!(bytes.is_empty());
        }
    }
    let whole = |(name, image): (String, Vec<Option<Vec<u8>>>)| {
        (
            name,
            image
                .into_iter()
                .flat_map(|element| element.expect("every element is held"))
                .collect(),
        )
    };
    images.into_iter().map(whole).collect()
}

#[test]
fn all_layouts_give_every_tensor_back() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    let out = folder.path("model.wpack");
    for (name, ranks) in [
        ("replicate", None),
        ("usp", None),
        ("zero3", Some(1)),
        ("zero3", Some(2)),
        ("zero3", Some(3)),
        ("fsdp2", Some(2)),
        ("fsdp2", Some(4)),
        ("fsdp2", Some(7)),
    ] {
        write(&source, &out, &layout(name, ranks), 0);
        verify(&out);
        let pack = Pack::open(&out).unwrap();
        let found = reassemble(&pack);
        assert_eq!(found.len(), tensors.len());
        for (tensor, (_, _, bytes)) in &tensors {
            assert!(found[tensor] == *bytes, "{name} {ranks:?}: {tensor}");
        }
        let same = against(&out, &source);
        assert!(same.is_same(), "{name} {ranks:?}: {same:?}");
        assert_eq!(same.equal, tensors.len() as u64);
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_place() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let moved = folder.path("elsewhere/model.safetensors");
    fs::copy(&source, &moved).unwrap();
    let mut options = layout("zero3", Some(3));
    options.hash_sources = true;
    let first = folder.path("0.wpack");
    let report = write(&source, &first, &options, 1);
    let bytes = fs::read(&first).unwrap();
    for threads in [2, 3, 5, 0] {
        let out = folder.path("again.wpack");
        assert_eq!(write(&moved, &out, &options, threads).digest, report.digest);
        assert!(fs::read(&out).unwrap() == bytes, "{threads} threads");
    }
}

#[test]
fn a_replicated_pack_does_not_depend_on_the_ranks() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let digest = |ranks| {
        write(
            &source,
            &folder.path("r.wpack"),
            &layout("replicate", ranks),
            2,
        )
        .digest
    };
    assert_eq!(digest(None), digest(Some(4)));
}

#[test]
fn source_digests_are_those_of_the_files() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let out = folder.path("model.wpack");
    let options = Options {
        hash_sources: true,
        ..layout("replicate", None)
    };
    write(&source, &out, &options, 2);
    let pack = Pack::open(&out).unwrap();
    let found = &pack.index().root().description.sources;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "model.safetensors");
    let digest = wpack_format::sha256(&fs::read(&source).unwrap());
    assert_eq!(
        found[0].sha256,
        Some(wpack_format::Hex(&digest).to_string())
    );
}

#[test]
fn casts_are_those_of_whole_tensors() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    let out = folder.path("model.wpack");
    for (target, ranks) in [
        (DType::Bf16, 1),
        (DType::F32, 3),
        (DType::F8E5M2, 2),
        (DType::F64, 2),
    ] {
        let mut options = layout("zero3", Some(ranks));
        options.transform.dtype = Some(target);
        let prepared = Prepared::new(open(&source), &options).unwrap();
        assert!(
            prepared
                .warnings()
                .iter()
                .any(|warning| warning.code == "dtype-kept")
        );
        write(&source, &out, &options, 2);
        verify(&out);
        let pack = Pack::open(&out).unwrap();
        let found = reassemble(&pack);
        for (tensor, (dtype, _, bytes)) in &tensors {
            let from = match dtype {
                Dtype::BF16 => DType::Bf16,
                Dtype::F16 => DType::F16,
                Dtype::F32 => DType::F32,
                Dtype::F64 => DType::F64,
                _ => {
                    assert!(found[tensor] == *bytes, "{tensor} is left alone");
                    continue;
                }
            };
            let elements = bytes.len() / usize::try_from(from.bits() / 8).unwrap();
            let mut expected = vec![0; elements * usize::try_from(target.bits() / 8).unwrap()];
            convert_elements(from, target, bytes, &mut expected).unwrap();
            assert!(found[tensor] == expected, "{tensor} to {target}");
        }
        assert!(against(&out, &source).is_same());
    }
}

#[test]
fn a_pack_is_not_what_another_checkpoint_gives() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    for (name, ranks) in [("replicate", None), ("zero3", Some(3)), ("fsdp2", Some(2))] {
        let out = folder.path("model.wpack");
        write(&source, &out, &layout(name, ranks), 2);
        let mut other = tensors.clone();
        let at = (700 * 1000 * 3 + 999 * 3 + 2) * 2;
        let big = &mut other.get_mut("big").unwrap().2;
        big[at + 1] ^= 0x10;
        *big.last_mut().unwrap() ^= 1;
        other.remove("one");
        other.insert("two".into(), (Dtype::U8, vec![1], vec![0]));
        other.insert("scale".into(), (Dtype::I32, vec![], vec![0; 4]));
        other.get_mut("blocks.0.mlp.weight").unwrap().1 = vec![53, 37];
        let changed = folder.path("other.safetensors");
        save(&other, &changed);
        let found = against(&out, &changed);
        let named = |list: &[wpack_convert::TensorId]| {
            list.iter().map(|id| id.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(named(&found.missing), ["two"]);
        assert_eq!(named(&found.extra), ["one"]);
        let different: Vec<_> = found
            .different
            .iter()
            .map(|one| (one.tensor.name.as_str(), &one.what))
            .collect();
        let [
            (
                "big",
                Unlike::Values {
                    index,
                    pack,
                    checkpoint,
                },
            ),
            ("blocks.0.mlp.weight", shape),
            ("scale", dtype),
        ] = different.as_slice()
        else {
            panic!("{different:?}");
        };
        assert_eq!(*index, [700, 999, 2]);
        assert_eq!(*pack, tensors["big"].2[at..at + 2]);
        assert_eq!(*checkpoint, other["big"].2[at..at + 2]);
        assert!(matches!(shape, Unlike::Shape { .. }) && matches!(dtype, Unlike::Dtype { .. }));
        assert_eq!(found.equal, tensors.len() as u64 - 4);
    }
}

#[test]
fn a_source_is_never_the_target() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let before = fs::read(&source).unwrap();
    let link = folder.path("link.wpack");
    fs::hard_link(&source, &link).unwrap();
    let prepared = Prepared::new(open(&source), &layout("replicate", None)).unwrap();
    for out in [&source, &link] {
        let write = WriteOptions {
            threads: 1,
            overwrite: true,
        };
        let error = wpack_convert::convert(&prepared, out, &write, &CONTEXT).unwrap_err();
        assert!(matches!(error, Error::TargetIsSource { .. }), "{error}");
    }
    assert!(fs::read(&source).unwrap() == before);
}

#[test]
fn a_source_cut_meanwhile_is_an_error() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let prepared = Prepared::new(open(&source), &layout("zero3", Some(2))).unwrap();
    let len = fs::metadata(&source).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&source)
        .unwrap()
        .set_len(len - 100)
        .unwrap();
    let out = folder.path("model.wpack");
    let error =
        wpack_convert::convert(&prepared, &out, &WriteOptions::default(), &CONTEXT).unwrap_err();
    assert!(matches!(error, Error::Checkpoint(_)), "{error}");
    assert!(!out.exists());
}

#[test]
fn an_interrupt_leaves_nothing() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let prepared = Prepared::new(open(&source), &layout("zero3", Some(2))).unwrap();
    let out = folder.path("model.wpack");
    let context = Context {
        progress: &NoProgress,
        interrupt: &AtomicBool::new(true),
    };
    let error =
        wpack_convert::convert(&prepared, &out, &WriteOptions::default(), &context).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
}
