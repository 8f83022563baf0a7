//! Reading into plain memory.

use std::sync::atomic::AtomicBool;

use super::{FakeSource, Quirks, expected, pack, transfers};
use crate::{Error, NoProgress, ReadOptions, StageStats, Transfers, read_into};

pub(super) fn memory(transfers: &Transfers) -> Vec<Vec<u8>> {
    let destinations = transfers.destinations().iter();
    destinations
        .map(|wanted| vec![0; usize::try_from(wanted.len).unwrap()])
        .collect()
}

fn read(
    source: &FakeSource<'_>,
    transfers: &Transfers,
    threads: usize,
) -> Result<(Vec<Vec<u8>>, StageStats), Error> {
    let mut memory = memory(transfers);
    let slices = memory.iter_mut().map(Vec::as_mut_slice).collect();
    let options = ReadOptions::default().with_threads(threads);
    let flag = AtomicBool::new(false);
    let stats = read_into(source, transfers, slices, &options, &NoProgress, &flag)?;
    Ok((memory, stats))
}

#[test]
fn reads_into_memory() {
    let pack = pack();
    let wants: [&[&str]; 4] = [&[], &["t0", "t2", "t5"], &["t4", "t7", "t6"], &["t3"]];
    for want in wants {
        for check in [true, false] {
            let transfers = transfers(&pack, check, want);
            let expected = expected(&pack, &transfers);
            for quirks in [
                Quirks::default(),
                Quirks {
                    short: 999,
                    ..Quirks::default()
                },
            ] {
                let source = FakeSource::new(&pack, quirks);
                for threads in [1, 3] {
                    let (memory, stats) = read(&source, &transfers, threads).unwrap();
                    assert!(memory == expected, "{want:?}");
                    assert_eq!(stats.copied, transfers.wanted_bytes());
                    assert_eq!(stats.checked > 0, check && stats.copied > 0);
                }
            }
        }
    }
    let transfers = transfers(&pack, true, &[]);
    let flag = AtomicBool::new(false);
    let options = ReadOptions::default();
    let source = FakeSource::new(&pack, Quirks::default());
    let none = read_into(
        &source,
        &transfers,
        Vec::new(),
        &options,
        &NoProgress,
        &flag,
    );
    assert!(matches!(none, Err(Error::WrongMemory { .. })));
}

#[test]
fn faults_while_reading_into_memory() {
    let pack = pack();
    for want in [&[][..], &["t0", "t4", "t7"]] {
        let transfers = transfers(&pack, true, want);
        for transfer in transfers.transfers() {
            let at = transfer.offset + transfers.parts(transfer)[0].from;
            for (quirks, code) in [
                (
                    Quirks {
                        broken: Some(at),
                        ..Quirks::default()
                    },
                    "io",
                ),
                (
                    Quirks {
                        cut: Some(at),
                        ..Quirks::default()
                    },
                    "truncated",
                ),
                (
                    Quirks {
                        flipped: Some(at),
                        ..Quirks::default()
                    },
                    "checksum-mismatch",
                ),
            ] {
                let error = read(&FakeSource::new(&pack, quirks), &transfers, 2).unwrap_err();
                assert_eq!(error.code(), code, "{error}");
            }
        }
    }
}
