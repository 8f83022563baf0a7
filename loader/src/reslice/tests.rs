//! Any pack gives any rank of any mesh the bytes that a pack made for it would.

use proptest::prelude::*;
use wpack_format::{DType, Slice};

use super::ResliceOptions;
use crate::{
    Error, Pack,
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
        let bytes: u64 = reslice.entries().iter().map(super::ResliceEntry::len).sum();
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
