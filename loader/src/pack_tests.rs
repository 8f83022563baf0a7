//! Views of a shard against the tensors that the pack was made of.

use wpack_format::{Content, DType, FlatPart, Owners, Slice, SliceKind};

use crate::{
    Error, ExtentMap, FileSource, Map, MapMode, Pack,
    builder::{self, Builder, Component, pattern, request, small_model, tensor},
};

/// Every slice of every rank, cut again from the source.
fn compare(layout: &str, ranks: u32) {
    let pack = Builder::planned(vec![small_model()], &request(layout, ranks)).build();
    let pack = Pack::from_bytes(pack).unwrap();
    let source = small_model().tensors;
    for rank in 0..ranks {
        let shard = pack.shard(rank).unwrap();
        assert_eq!(shard.len(), shard.iter().count());
        for view in shard.iter() {
            let slice = view.slice().to_slice();
            assert_eq!(
                view.bytes(),
                builder::cut(&slice, &source),
                "{layout} {rank} {slice:?}"
            );
            let stored: u64 = view.stored_shape().iter().product();
            let elements: u64 = view.shape().iter().product();
            let unit = if view.dtype().bits() < 8 {
                1
            } else {
                view.len() / elements.max(1)
            };
            assert_eq!(stored * unit, view.len());
            for name in view.names() {
                assert_eq!(shard.get(name).unwrap().bytes(), view.bytes());
                assert_eq!(shard.get_in("model", name).unwrap().offset(), view.offset());
            }
        }
    }
}

#[test]
fn views_are_the_tensors_bytes() {
    for layout in ["replicate", "zero3", "fsdp2"] {
        for ranks in [1, 2, 3, 4] {
            compare(layout, ranks);
        }
    }
}

#[test]
fn ties_types_and_shapes() {
    let pack = Builder::planned(vec![small_model()], &request("replicate", 1)).build();
    let pack = Pack::from_bytes(pack).unwrap();
    // A replicated pack has no rank count.
    assert_eq!(pack.index().ranks(), None);
    let shard = pack.shard(77).unwrap();
    let embed = shard.get("head.weight").unwrap();
    assert_eq!(
        embed.names().collect::<Vec<_>>(),
        ["embed.weight", "head.weight"]
    );
    assert_eq!((embed.dtype(), embed.shape()), (DType::Bf16, vec![37, 12]));
    assert_eq!(embed.component(), "model");
    let packed = shard.get("layer.0.packed").unwrap();
    assert_eq!(
        (packed.shape(), packed.stored_shape()),
        (vec![6, 4], vec![6, 2])
    );
    let scale = shard.get("layer.0.scale").unwrap();
    assert_eq!((scale.shape(), scale.len()), (vec![], 4));
    assert!(shard.get("layer.0.empty").unwrap().is_empty());
    let error = shard.get("layer.1").unwrap_err();
    assert!(
        matches!(error, Error::UnknownTensor { rank: 77, .. }),
        "{error}"
    );
}

#[test]
fn a_rank_outside_the_mesh_is_an_error() {
    let pack = Builder::planned(vec![small_model()], &request("zero3", 3)).build();
    let pack = Pack::from_bytes(pack).unwrap();
    assert!(pack.shard(2).is_ok());
    let error = pack.shard(3).unwrap_err();
    assert!(
        matches!(error, Error::RankOutsideMesh { rank: 3, ranks: 3 }),
        "{error}"
    );
}

#[test]
fn components_with_equal_names_are_told_apart() {
    let part = |name: &str, seed| {
        let tensor = tensor("w", DType::F32, &[4]);
        let bytes = pattern(&tensor, seed);
        Component {
            name: name.into(),
            tensors: vec![(tensor, bytes)],
        }
    };
    let pack = Builder::planned(
        vec![part("dit", 1), part("vae", 2)],
        &request("replicate", 1),
    );
    let pack = Pack::from_bytes(pack.build()).unwrap();
    let shard = pack.shard(0).unwrap();
    let error = shard.get("w").unwrap_err();
    assert!(error.to_string().contains("dit, vae"), "{error}");
    let (dit, vae) = (
        shard.get_in("dit", "w").unwrap(),
        shard.get_in("vae", "w").unwrap(),
    );
    assert_ne!(dit.bytes(), vae.bytes());
    assert!(shard.get_in("unet", "w").is_err());
    assert!(
        pack.index()
            .component("unet")
            .unwrap_err()
            .to_string()
            .contains("dit, vae")
    );
}

#[test]
fn a_flat_stream_has_pieces_and_no_name() {
    let tensors: Vec<_> = [("a", 6_u64), ("b", 5)]
        .map(|(name, len)| {
            let tensor = tensor(name, DType::F32, &[len]);
            let bytes = pattern(&tensor, len);
            (tensor, bytes)
        })
        .into();
    let stream = Slice {
        content: Content::Flat {
            parts: vec![
                FlatPart::Range {
                    tensor: 0,
                    start: 2,
                    len: 4,
                },
                FlatPart::Fill {
                    len: 2,
                    value: wpack_format::Fill::ZERO,
                },
                FlatPart::Range {
                    tensor: 1,
                    start: 0,
                    len: 3,
                },
            ],
        },
        kind: SliceKind::Value,
        dtype: DType::F32,
        shape: vec![9],
        offset: 0,
        crc32c: None,
    };
    let a = tensors[0].1.clone();
    let pack = Builder::by_hand(
        tensors,
        Some(1),
        vec![(Owners::from_ranks([0]).unwrap(), vec![stream])],
    );
    let pack = Pack::from_bytes(pack.build()).unwrap();
    let shard = pack.shard(0).unwrap();
    let view = shard.iter().next().unwrap();
    assert_eq!((view.name(), view.tensor_index()), (None, None));
    assert!(shard.get("a").is_err());
    let pieces: Vec<_> = view.pieces().collect();
    assert_eq!(pieces.len(), 2);
    assert_eq!(
        (pieces[0].tensor.name(), pieces[0].start, pieces[0].elements),
        ("a", 2, 4)
    );
    assert_eq!(
        (pieces[1].tensor.name(), pieces[1].offset, pieces[1].len),
        ("b", 24, 12)
    );
    assert_eq!(view.bytes()[..16], a[8..]);
}

#[test]
fn a_map_is_the_file() {
    let bytes = Builder::planned(vec![small_model()], &request("zero3", 2)).build();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let pack = Pack::open(file.path()).unwrap();
    assert_eq!(pack.bytes(), bytes);
    let shard = pack.shard(1).unwrap();
    let weight = shard.get("layer.0.weight").unwrap();
    assert_eq!(weight.as_slice::<f32>().unwrap().len(), 72);
    assert!(weight.as_slice::<half::bf16>().is_err());

    // The file is longer or shorter than the header says: nothing is mapped.
    for len in [bytes.len() as u64 - 1, bytes.len() as u64 + 1] {
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), &bytes).unwrap();
        other.as_file().set_len(len).unwrap();
        assert!(matches!(
            Pack::open(other.path()),
            Err(Error::Format { .. })
        ));
    }
}

#[test]
fn empty_files_and_ranges() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Pack::open(file.path()).is_err());
    let source = FileSource::open(file.path()).unwrap();
    assert_eq!(Map::new(&source).unwrap().as_ref(), b"");
    let map = ExtentMap::new(&source, 0, 0, MapMode::CopyOnWrite).unwrap();
    assert!(map.is_empty() && !map.as_mut_ptr().is_null());
    assert!(map.populate(0, 10) && map.will_need(5, 10));
    let error = ExtentMap::new(&source, 0, 1, MapMode::ReadOnly).unwrap_err();
    assert_eq!(error.code(), "map");
    assert!(ExtentMap::new(&source, u64::MAX, 2, MapMode::ReadOnly).is_err());
}

#[test]
fn extents_map_at_any_offset() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![3; 20_000]).unwrap();
    let source = FileSource::open(file.path()).unwrap();
    for mode in [MapMode::CopyOnWrite, MapMode::ReadOnly] {
        let map = ExtentMap::new(&source, 5000, 9000, mode).unwrap();
        assert_eq!((map.len(), map.mode()), (9000, mode));
        assert!(!map.as_mut_ptr().is_null());
        map.populate(0, 9000);
        map.will_need(100, usize::MAX);
    }
}
