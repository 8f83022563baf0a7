//! One pack, any world size: a pack of any layout, opened as any other, gives every rank what a pack made
//! for that layout gives it.

use safetensors::Dtype;
use wpack_convert::Options;
use wpack_format::SliceKind;
use wpack_loader::{Map, Pack, ResliceOptions};
use wpack_plan::PlanFile;

use crate::cases::cases;
use crate::convert_common::{Folder, Tensors, noise, write};
use crate::options;

/// Every slice of some ranks against a pack that was made so; bytes that were gathered.
fn same(pack: &Pack<Map>, direct: &Pack<Map>, plan: &PlanFile, ranks: &[u32], what: &str) -> u64 {
    let mut gathered = 0;
    for &rank in ranks {
        let options = ResliceOptions::new(rank).with_plan(plan.clone());
        let reslice = pack
            .reslice(&options)
            .unwrap_or_else(|why| panic!("{what}: {why:?}"));
        let shard = direct.shard(rank).unwrap();
        assert_eq!(reslice.entries().len(), shard.len(), "{what}");
        for (entry, view) in reslice.entries().iter().zip(shard.iter()) {
            let (found, wanted) = (entry.slice(), view.slice().to_slice());
            assert_eq!(
                (&found.content, found.kind, found.dtype, &found.shape),
                (&wanted.content, wanted.kind, wanted.dtype, &wanted.shape),
                "{what}: rank {rank}"
            );
            let names: Vec<_> = reslice
                .tensor(entry)
                .map(|tensor| tensor.names().map(|name| name.name).collect::<Vec<_>>())
                .unwrap_or_default();
            assert_eq!(names, view.names().collect::<Vec<_>>(), "{what}");
            let bytes = reslice.bytes(pack.bytes(), entry).unwrap();
            assert!(
                bytes.as_ref() == view.bytes(),
                "{what}: rank {rank} {found:?}"
            );
        }
        gathered += reslice.explain().gathered.bytes;
    }
    gathered
}

/// The first, the last and one between.
fn some(ranks: u32) -> Vec<u32> {
    let mut some = vec![0, ranks / 2, ranks - 1];
    some.dedup();
    some
}

#[test]
fn every_pack_opens_as_every_other() {
    let folder = Folder::new();
    let mut packs = Vec::new();
    for (at, case) in cases().into_iter().enumerate() {
        let source = case.model.save(&folder);
        let out = folder.path(&format!("{at}.wpack"));
        write(&source, &out, &options(&case), 2);
        let plan = PlanFile::parse(&case.plan).unwrap();
        packs.push((case, plan, Pack::open(&out).unwrap()));
    }
    assert!(packs.len() > 30, "every layout is there");
    for (source, _, pack) in &packs {
        for (target, plan, direct) in &packs {
            let itself = source.name == target.name;
            // A plan that merges or casts goes with a pack that was made so.
            if !(itself || source.model.is_plain() && target.model.is_plain()) {
                continue;
            }
            let what = format!("{} as {}", source.name, target.name);
            let ranks = direct.index().ranks().unwrap_or(1);
            let gathered = same(pack, direct, plan, &some(ranks), &what);
            assert!(
                !itself || gathered == 0,
                "{what}: {gathered} bytes gathered"
            );
        }
    }
}

/// A master copy that is made of the weights while loading is the one that conversion makes.
#[test]
fn masters_are_cast_as_conversion_casts_them() {
    let folder = Folder::new();
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let doubles = (0..40_000_u64).flat_map(|at| {
        // Around every exponent that fp32 has, and every kind of NaN.
        let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let near = spread >> 12 | (800 + at % 450) << 52 | (at & 1) << 63;
        let bits = if at % 8 == 0 {
            spread
        } else if at % 8 == 1 {
            near | 0x7ff << 52
        } else {
            near
        };
        bits.to_le_bytes()
    });
    for (dtype, bytes) in [
        (Dtype::F16, halves.clone()),
        (Dtype::BF16, halves),
        (Dtype::F64, doubles.collect()),
        (Dtype::F32, noise(4096, 3)),
    ] {
        let len = bytes.len() * 8 / dtype.bitsize();
        let mut tensors = Tensors::new();
        tensors.insert("weight".to_owned(), (dtype, vec![len], bytes));
        let source = folder.checkpoint(&tensors);
        let make = |text: &str, name: &str| {
            let plan = PlanFile::parse(text).unwrap();
            let out = folder.path(name);
            write(&source, &out, &Options::of_plan(&plan).unwrap(), 2);
            (plan, Pack::open(&out).unwrap())
        };
        let text =
            "ranks = 3\nlayout = \"zero2\"\norder = \"checkpoint\"\nzero = { master = true }";
        let (plan, direct) = make(text, "zero2.wpack");
        let (_, pack) = make("layout = \"replicate\"", "replicate.wpack");
        let gathered = same(&pack, &direct, &plan, &[0, 1, 2], "masters");
        let masters = |rank| {
            let shard = direct.shard(rank).unwrap();
            let masters = shard.iter().filter(|view| view.kind() == SliceKind::Master);
            masters.map(|view| view.bytes().len() as u64).sum::<u64>()
        };
        // Those of fp32 weights are ranges of them, but for the one with fill.
        let filled = if dtype == Dtype::F32 { 2..3 } else { 0..3 };
        assert_eq!(gathered, filled.map(masters).sum::<u64>());
    }
}
