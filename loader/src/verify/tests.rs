//! Every kind of damage is found and named.

use std::sync::atomic::AtomicBool;

use wpack_format::{Content, DType, Owners, Slice, SliceKind, spec};

use super::{Fault, Part, VerifyOptions, VerifyReport, verify};
use crate::{
    ByteSource, Error, Index, NoProgress, Progress,
    builder::{Builder, pattern, request, small_model, tensor},
};

fn check(pack: &[u8]) -> Result<VerifyReport, Error> {
    check_rank(pack, None)
}

fn check_rank(pack: &[u8], rank: Option<u32>) -> Result<VerifyReport, Error> {
    let options = VerifyOptions::default().with_threads(2).with_rank(rank);
    verify(&pack, &options, &NoProgress, &AtomicBool::new(false))
}

fn small(layout: &str) -> Vec<u8> {
    let mut builder = Builder::planned(vec![small_model()], &request(layout, 3));
    builder
        .files
        .push(("config.json".into(), b"{\"a\": 1}".to_vec()));
    builder.build()
}

fn whole(tensor: u32, dtype: DType, shape: &[u64]) -> Slice {
    Slice {
        content: Content::Whole { tensor },
        kind: SliceKind::Value,
        dtype,
        shape: shape.to_vec(),
        offset: 0,
        crc32c: None,
    }
}

/// Two extents; tensors below a block, above it, and across its edge.
fn blocks() -> Vec<u8> {
    let block = spec::BLOCK_LEN;
    let sizes = [block - 8192, 16384, block + 5000, 77, 3 * block];
    let tensors = (0..).zip(sizes).map(|(at, size)| {
        let tensor = tensor(&format!("t{at}"), DType::U8, &[size]);
        let bytes = pattern(&tensor, at);
        (tensor, bytes)
    });
    let slice = |at: u32| whole(at, DType::U8, &[sizes[at as usize]]);
    let owners = Owners::from_ranks([1]).unwrap();
    Builder::by_hand(
        tensors.collect(),
        Some(2),
        vec![
            (Owners::All, vec![slice(0), slice(1), slice(2), slice(3)]),
            (owners, vec![slice(4)]),
        ],
    )
    .build()
}

#[test]
fn sound_packs_are_sound() {
    for layout in ["replicate", "zero3", "fsdp2"] {
        let pack = small(layout);
        let report = check(&pack).unwrap();
        assert_eq!(report.damage, []);
        assert_eq!(report.bytes, pack.len() as u64, "every byte is read once");
    }
    let report = check(&blocks()).unwrap();
    assert_eq!(report.damage, []);
    assert_eq!((report.blocks, report.extents), (6, 2));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut pack = small("zero3");
    let mut named = 0;
    // The header's reserved page and the data are swept in steps; the tables byte by byte. Which bit
    // depends on the place.
    let tables = Index::read(&pack[..]).unwrap().header().index_len + spec::HEADER_LEN;
    for at in 0..pack.len() {
        let dense = (4000..tables).contains(&(at as u64)) || at < 200;
        if !dense && !at.is_multiple_of(13) {
            continue;
        }
        let bit = 1 << (at % 8);
        pack[at] ^= bit;
        match check(&pack) {
            Ok(report) => {
                assert!(!report.is_sound(), "byte {at} is unguarded");
                named += report
                    .damage
                    .iter()
                    .filter(|d| !d.tensors.is_empty())
                    .count();
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        pack[at] ^= bit;
    }
    assert!(named > 100, "damage names tensors");
    assert!(check(&pack).unwrap().is_sound());
}

#[test]
fn every_cut_is_an_error() {
    let pack = small("fsdp2");
    for len in 0..pack.len() {
        let error = check(&pack[..len]).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{len}: {error:?}");
    }
}

#[test]
fn damage_names_block_tensors_and_ranks() {
    let pack = blocks();
    let index = Index::read(&pack[..]).unwrap();
    let extents = &index.root().extents;
    let block = spec::BLOCK_LEN;
    let damaged = |at: u64| {
        let mut pack = pack.clone();
        pack[usize::try_from(at).unwrap()] ^= 1;
        check(&pack).unwrap().damage
    };

    // Within t0 alone, which its own checksum convicts; t1 across the edge stays under suspicion.
    let found = damaged(extents[0].offset + 5);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].part,
        Part::Block {
            extent: 0,
            block: 0
        }
    );
    assert_eq!(found[0].fault, Fault::Sha256);
    assert_eq!(found[0].offset, extents[0].offset);
    assert_eq!(found[0].len, block);
    assert_eq!(found[0].tensors, ["t0", "t1"]);
    assert_eq!(found[0].ranks, Owners::All);
    assert_eq!(found[0].component.as_deref(), Some("model"));

    // Behind the edge, in t1: t2 shares the block.
    let found = damaged(extents[0].offset + block + 5);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].part,
        Part::Block {
            extent: 0,
            block: 1
        }
    );
    assert_eq!(found[0].tensors, ["t1", "t2"]);

    let found = damaged(extents[1].offset + block);
    assert_eq!(
        found[0].part,
        Part::Block {
            extent: 1,
            block: 1
        }
    );
    assert_eq!(found[0].tensors, ["t4"]);
    assert_eq!(found[0].ranks, Owners::from_ranks([1]).unwrap());

    // Padding behind the extent, and between two slices.
    let found = damaged(extents[0].offset + extents[0].len + 3);
    assert_eq!(
        (&found[0].part, &found[0].fault),
        (&Part::Padding, &Fault::NotZero)
    );
    assert_eq!(found[0].offset, extents[0].offset + extents[0].len);
}

#[test]
fn a_rank_checks_only_its_own() {
    let pack = blocks();
    let index = Index::read(&pack[..]).unwrap();
    let mut pack = pack.clone();
    let at = usize::try_from(index.root().extents[1].offset).unwrap();
    pack[at] ^= 1;
    let report = check_rank(&pack, Some(0)).unwrap();
    assert!(report.is_sound());
    assert!(report.bytes < 25 << 20);
    assert!(!check_rank(&pack, Some(1)).unwrap().is_sound());
    let error = check_rank(&pack, Some(2)).unwrap_err();
    assert!(matches!(
        error,
        Error::RankOutsideMesh { rank: 2, ranks: 2 }
    ));
}

/// Fails reads that touch one byte.
struct Broken<'a>(&'a [u8], u64);

impl ByteSource for Broken<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        if (offset..offset + into.len() as u64).contains(&self.1) {
            return Err(std::io::Error::other("a bad sector"));
        }
        self.0.read_at(offset, into)
    }

    fn label(&self) -> String {
        "broken".into()
    }
}

#[test]
fn an_unreadable_block_is_damage_and_the_check_goes_on() {
    let mut pack = blocks();
    let index = Index::read(&pack[..]).unwrap();
    let extents = &index.root().extents;
    let (bad, flipped) = (extents[0].offset + 9, extents[1].offset + 9);
    pack[usize::try_from(flipped).unwrap()] ^= 1;
    let source = Broken(&pack, bad);
    let options = VerifyOptions::default().with_threads(1);
    let report = verify(&source, &options, &NoProgress, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.damage.len(), 2);
    assert!(matches!(&report.damage[0].fault, Fault::Unreadable(why) if why == "a bad sector"));
    assert_eq!(report.damage[0].tensors, ["t0", "t1"]);
    assert_eq!(report.damage[1].fault, Fault::Sha256);
}

/// Sets the flag after some bytes.
struct StopAfter<'a>(std::sync::atomic::AtomicU64, u64, &'a AtomicBool);

impl Progress for StopAfter<'_> {
    fn advance(&self, bytes: u64) {
        let done = self
            .0
            .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed)
            + bytes;
        if done > self.1 {
            self.2.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn it_can_be_interrupted_and_counts_to_the_end() {
    let pack = blocks();
    let flag = AtomicBool::new(false);
    let progress = StopAfter(0.into(), 9 << 20, &flag);
    let error = verify(&pack, &VerifyOptions::default(), &progress, &flag).unwrap_err();
    assert!(matches!(error, Error::Interrupted));

    let flag = AtomicBool::new(false);
    let progress = StopAfter(0.into(), u64::MAX, &flag);
    verify(&pack, &VerifyOptions::default(), &progress, &flag).unwrap();
    assert_eq!(progress.0.into_inner(), pack.len() as u64);
}
