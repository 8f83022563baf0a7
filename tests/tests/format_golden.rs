//! The golden packs of every version so far: they open, verify, hold what their listing says, and no
//! bit of them is unguarded.

#[path = "../../format/examples/golden/builder.rs"]
mod builder;
mod format_dump;
#[path = "../../format/examples/golden/packs.rs"]
mod packs;

use std::{collections::BTreeMap, path::Path, sync::atomic::AtomicBool};

use serde_json::Value;
use wpack_format::{Error as FormatError, Hex, sha256};
use wpack_loader::{Error, Index, NoProgress, Pack, VerifyOptions, VerifyReport, verify};

use crate::format_dump::{dump, golden, golden_packs};

fn check(bytes: &[u8]) -> Result<VerifyReport, Error> {
    let options = VerifyOptions::default().with_threads(1);
    verify(&bytes, &options, &NoProgress, &AtomicBool::new(false))
}

/// Open for one rank, without data.
fn open(bytes: &[u8], rank: u32) -> Result<(), Error> {
    Index::read(bytes)?.shard(bytes, rank).map(|_| ())
}

/// The listing beside a pack.
fn listing(pack: &Path) -> Value {
    let path = pack.with_extension("json");
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn every_pack_opens_verifies_and_holds_what_is_listed() {
    for pack in golden_packs() {
        let name = pack.display();
        let bytes = std::fs::read(&pack).unwrap();
        let report = check(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(report.damage.is_empty(), "{name}: {:?}", report.damage);
        assert_eq!(report.bytes, bytes.len() as u64, "{name}");
        assert_eq!(dump(&pack), listing(&pack), "{name}");
        Pack::open(&pack).unwrap();
    }
}

/// The comparison above can fail: no pack holds what is listed for another.
#[test]
fn no_pack_holds_what_is_listed_for_another() {
    let packs = golden_packs();
    for (pack, other) in packs.iter().zip(packs.iter().cycle().skip(1)) {
        assert_ne!(
            dump(pack),
            listing(other),
            "{} and {}",
            pack.display(),
            other.display()
        );
    }
}

/// Slices against their tensors, whoever holds them: what the loader checks of a rank it opens.
#[test]
fn slices_fit_their_tensors() {
    for pack in golden_packs() {
        let pack = Pack::from_bytes(std::fs::read(&pack).unwrap()).unwrap();
        let index = pack.index();
        for extent in &index.root().extents {
            let tensors = index.tensors(pack.bytes(), extent.component).unwrap();
            index
                .slices(pack.bytes(), extent)
                .unwrap()
                .check_tensors(&tensors)
                .unwrap();
        }
    }
}

/// Published packs never change, and each file of the folder is listed with its digest.
#[test]
fn files_are_those_of_the_sums() {
    let sums = std::fs::read_to_string(golden().join("SHA256SUMS")).unwrap();
    let listed: BTreeMap<&str, &str> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (name, sum))
        .collect();
    let readme = std::fs::read_to_string(golden().join("README.md")).unwrap();
    let mut found = BTreeMap::new();
    for path in wpack_tests::files(&golden()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if ["README.md", "SHA256SUMS"].contains(&&*name) {
            continue;
        }
        if let Some(stem) = name.strip_suffix(".wpack") {
            assert!(
                readme.contains(&format!("| `{stem}` |")),
                "README.md has no row for {stem}"
            );
            assert!(
                path.with_extension("json").exists(),
                "{stem} has no listing"
            );
        }
        found.insert(
            name,
            Hex(&sha256(&std::fs::read(&path).unwrap())).to_string(),
        );
    }
    let found: BTreeMap<&str, &str> = found.iter().map(|(name, sum)| (&**name, &**sum)).collect();
    assert_eq!(found, listed);
}

/// This version still writes what the first one wrote.
#[test]
fn the_generator_makes_the_same_bytes() {
    for (name, bytes) in packs::all() {
        let published = std::fs::read(golden().join(format!("{name}.wpack"))).unwrap();
        assert!(
            bytes == published,
            "{name} differs from its published bytes"
        );
    }
}

/// A small pack with every kind of table in it.
fn small() -> Vec<u8> {
    std::fs::read(golden().join("v1-flat-stream.wpack")).unwrap()
}

/// Places and bits whose flip goes unnoticed, of every `step`th byte from `first`.
fn unguarded(mut bytes: Vec<u8>, first: usize, step: usize) -> Vec<(usize, u8)> {
    let mut found = Vec::new();
    for at in (first..bytes.len()).step_by(step) {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if check(&bytes).is_ok_and(|report| report.damage.is_empty()) {
                found.push((at, bit));
            }
            bytes[at] ^= 1 << bit;
        }
    }
    found
}

#[test]
fn verify_notices_every_flipped_bit() {
    assert!(check(&small()).unwrap().damage.is_empty());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<_> = std::thread::scope(|scope| {
        let start = |first| scope.spawn(move || unguarded(small(), first, threads));
        let running: Vec<_> = (0..threads).map(start).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(found, [], "places and bits that nothing guards");
}

/// What a rank reads when it opens a pack is checked then: header, root and its own tables.
#[test]
fn open_notices_every_flipped_bit_of_what_it_reads() {
    let mut bytes = small();
    let index = Index::read(&bytes[..]).unwrap();
    let root = index.root();
    let mut read = vec![
        (0, 4096),
        (index.header().root.offset, index.header().root.len),
    ];
    read.extend(
        root.components
            .iter()
            .map(|record| (record.tensors.offset, record.tensors.len)),
    );
    for extent in root
        .extents
        .iter()
        .filter(|extent| extent.owners.contains(1))
    {
        read.push((extent.slices.offset, extent.slices.len));
    }
    let read: Vec<usize> = read
        .into_iter()
        .flat_map(|(start, len)| start..start + len)
        .map(|at| usize::try_from(at).unwrap())
        .collect();
    for at in read {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(open(&bytes, 1).is_err(), "byte {at} bit {bit} is unguarded");
            bytes[at] ^= 1 << bit;
        }
    }
    open(&bytes, 1).unwrap();
}

#[test]
fn cut_at_every_length_it_does_not_open() {
    let bytes = small();
    for len in 0..bytes.len() {
        let Err(Error::Format { source, .. }) = Index::read(&bytes[..len]) else {
            panic!("{len} bytes open");
        };
        assert!(
            matches!(source, FormatError::Truncated { .. }),
            "{len} bytes: {source}"
        );
    }
    let longer = [&bytes[..], b"x"].concat();
    let Err(Error::Format { source, .. }) = Index::read(&longer[..]) else {
        panic!("a byte more opens");
    };
    assert!(
        matches!(source, FormatError::TrailingBytes { .. }),
        "{source}"
    );
}
