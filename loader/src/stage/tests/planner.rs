//! The planner alone: exact cover of what is wanted, nothing read that need not be.

use proptest::prelude::*;
use wpack_format::{Content, DType, Owners, Slice, SliceKind, spec};

use super::{BLOCK, pack, transfers};
use crate::{
    Check, Index, Transfers,
    builder::{Builder, tensor},
};

/// Every wanted byte comes from its place in the file, once; reads stay within blocks.
fn assert_exact(pack: &[u8], plan: &Transfers) {
    let index = Index::read(pack).unwrap();
    let mut end_of = std::collections::BTreeMap::new();
    let mut last = 0;
    for transfer in plan.transfers() {
        let extent = index.extent(transfer.extent).unwrap();
        let start = transfer.offset - extent.offset;
        assert!(transfer.len > 0 && start + transfer.len <= extent.len);
        assert_eq!(
            start / BLOCK,
            (start + transfer.len - 1) / BLOCK,
            "crosses a block"
        );
        assert!(transfer.offset >= last, "not in file order");
        last = transfer.offset + transfer.len;
        assert!(transfer.offset.is_multiple_of(512));
        let held = index.held(pack, transfer.extent).unwrap();
        if let Check::Block { block, crc32c } = transfer.check {
            assert_eq!(start, block * BLOCK);
            let blocks = index.blocks(pack, extent).unwrap();
            assert_eq!(
                blocks.get(usize::try_from(block).unwrap()).unwrap().crc32c,
                crc32c
            );
            assert_eq!(transfer.len, (extent.len - start).min(BLOCK));
        }
        let mut at = 0;
        for part in plan.parts(transfer) {
            assert!(part.len > 0 && part.from >= at && part.from + part.len <= transfer.len);
            at = part.from + part.len;
            let destination = plan.destinations()[part.destination as usize];
            assert_eq!(
                (destination.extent, destination.slice),
                (transfer.extent, part.slice)
            );
            let slice = held.slices.get_ref(part.slice).unwrap();
            assert_eq!(
                slice.offset + part.to,
                start + part.from,
                "from another place"
            );
            let end = end_of.entry(part.destination).or_insert(0);
            assert_eq!(*end, part.to, "a hole or an overlap");
            *end += part.len;
            if transfer.check == Check::Parts {
                assert_eq!(part.crc32c, slice.crc32c);
                assert!(part.crc32c.is_some() && part.len == slice.len);
            }
        }
    }
    for (number, destination) in (0_u32..).zip(plan.destinations()) {
        assert_eq!(
            end_of.get(&number).copied().unwrap_or(0),
            destination.len,
            "{number}"
        );
    }
}

#[test]
fn all_of_a_shard_is_read_once_in_whole_blocks() {
    let pack = pack();
    let plan = transfers(&pack, true, &[]);
    assert_exact(&pack, &plan);
    let index = Index::read(&pack[..]).unwrap();
    let all: u64 = index.root().extents.iter().map(|extent| extent.len).sum();
    assert_eq!(plan.read_bytes(), all);
    assert_eq!(plan.destinations().len(), 10);
    assert!(plan.transfers().iter().any(|transfer| transfer.shared));
    assert!(plan.transfers().iter().any(|transfer| !transfer.shared));
}

#[test]
fn a_small_slice_is_read_alone_and_still_checked() {
    let pack = pack();
    let plan = transfers(&pack, true, &["t7"]);
    assert_exact(&pack, &plan);
    assert_eq!(plan.read_bytes(), 100);
    assert_eq!(plan.transfers()[0].check, Check::Parts);
    // A slice across two blocks has no block of its own: both are read whole.
    let plan = transfers(&pack, true, &["t2"]);
    assert_exact(&pack, &plan);
    assert!(plan.read_bytes() > BLOCK);
    // Without checks only the bytes themselves are read.
    let plan = transfers(&pack, false, &["t2"]);
    assert_exact(&pack, &plan);
    assert_eq!(plan.read_bytes(), 20_000);
}

/// A pack of slices of some sizes, and a choice among them.
fn choice() -> impl Strategy<Value = (Vec<u64>, Vec<bool>)> {
    let size = prop_oneof![
        4 => 0_u64..6000,
        2 => 60_000_u64..70_000,
        1 => Just(spec::BLOCK_LEN - 4096),
        1 => Just(spec::BLOCK_LEN),
        1 => spec::BLOCK_LEN - 3..spec::BLOCK_LEN + 9000,
    ];
    prop::collection::vec((size, any::<bool>()), 1..12).prop_map(|all| all.into_iter().unzip())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_choice_is_covered_exactly((sizes, chosen) in choice()) {
        let tensors = sizes.iter().enumerate().map(|(at, size)| {
            let bytes = vec![u8::try_from(at).unwrap(); usize::try_from(*size).unwrap()];
            (tensor(&format!("t{at}"), DType::U8, &[*size]), bytes)
        });
        let slices = (0..).zip(&sizes).map(|(tensor, size)| Slice {
            content: Content::Whole { tensor },
            kind: SliceKind::Value,
            dtype: DType::U8,
            shape: vec![*size],
            offset: 0,
            crc32c: None,
        });
        let pack = Builder::by_hand(tensors.collect(), None, vec![(Owners::All, slices.collect())]);
        let pack = pack.build();
        let index = Index::read(&pack[..]).unwrap();
        let shard = index.shard(&pack[..], 0).unwrap();
        for check in [true, false] {
            let plan = shard.transfers(&index, &pack[..], check, |entry| chosen[entry.index() as usize]);
            let plan = plan.unwrap();
            prop_assert_eq!(plan.destinations().len(), chosen.iter().filter(|chosen| **chosen).count());
            assert_exact(&pack, &plan);
            prop_assert!(plan.transfers().iter().all(|transfer| check != (transfer.check == Check::None)));
        }
    }
}
