//! The staged reader against a late device and a failing source.

mod eager;
mod fake;
mod planner;
mod policy;

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use wpack_format::{Content, DType, Owners, Slice, SliceKind, spec};

use self::fake::{Arrived, Fails, FakeSource, LateSink, Quirks};
use crate::{
    Error, Index, NoProgress, Pack, Progress, ReadOptions, StageOptions, StageStats, Transfers,
    builder::{Builder, pattern, tensor},
    read_into, stage,
};

const BLOCK: u64 = spec::BLOCK_LEN;

/// A shared extent of a bit more than one block and a private one of a bit more than two, with slices
/// below a block, above it and across its edge, small ones, and an empty one.
fn pack() -> Vec<u8> {
    let sizes = [
        700,
        BLOCK - 9000,
        20_000,
        0,
        513,
        BLOCK + 70_000,
        4096,
        100,
        BLOCK - 80_000,
        30_000,
    ];
    let tensors = (0..).zip(sizes).map(|(at, size)| {
        let tensor = tensor(&format!("t{at}"), DType::U8, &[size]);
        let bytes = pattern(&tensor, at + 1);
        (tensor, bytes)
    });
    let slice = |tensor: usize| Slice {
        content: Content::Whole {
            tensor: u32::try_from(tensor).unwrap(),
        },
        kind: SliceKind::Value,
        dtype: DType::U8,
        shape: vec![sizes[tensor]],
        offset: 0,
        crc32c: None,
    };
    let extents = vec![
        (Owners::All, (0..5).map(slice).collect()),
        (
            Owners::from_ranks([0]).unwrap(),
            (5..10).map(slice).collect(),
        ),
    ];
    Builder::by_hand(tensors.collect(), Some(2), extents).build()
}

fn transfers(pack: &[u8], check: bool, want: &[&str]) -> Transfers {
    let index = Index::read(pack).unwrap();
    let shard = index.shard(pack, 0).unwrap();
    let wanted = |name: Option<&str>| want.is_empty() || want.contains(&name.unwrap());
    shard
        .transfers(&index, pack, check, |entry| wanted(entry.name()))
        .unwrap()
}

/// What must arrive, by number.
fn expected(pack: &[u8], transfers: &Transfers) -> Vec<Vec<u8>> {
    let pack = Pack::from_bytes(pack).unwrap();
    let shard = pack.shard(0).unwrap();
    let bytes = |destination: &crate::Destination| {
        let found = shard.iter().find(|view| {
            (view.held().index, view.index()) == (destination.extent, destination.slice)
        });
        found.unwrap().bytes().to_vec()
    };
    transfers.destinations().iter().map(bytes).collect()
}

fn run(
    source: &FakeSource<'_>,
    transfers: &Transfers,
    sink: &mut LateSink,
    options: &StageOptions,
) -> Result<StageStats, Error> {
    stage(
        source,
        transfers,
        sink,
        options,
        &NoProgress,
        &AtomicBool::new(false),
    )
}

fn assert_arrived(arrived: &[Arrived], expected: &[Vec<u8>]) {
    assert_eq!(arrived.len(), expected.len());
    for (number, (arrived, expected)) in arrived.iter().zip(expected).enumerate() {
        assert!(
            arrived.bytes == *expected,
            "destination {number} has other bytes"
        );
        assert!(arrived.is_covered(), "destination {number}");
    }
}

/// After any end: no copy runs, and every slot is freed.
fn assert_quiet(sink: &LateSink) {
    assert_eq!(sink.flying, 0);
    assert!(sink.drained);
    assert_eq!(sink.budget.live.load(Ordering::SeqCst), 0, "a slot leaked");
}

const QUICK: Duration = Duration::from_micros(300);

#[test]
fn every_byte_arrives_once_whatever_the_ring() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let expected = expected(&pack, &transfers);
    let quirks = [
        Quirks::default(),
        Quirks {
            short: 1_000_003,
            interrupts: true,
            ..Quirks::default()
        },
        Quirks {
            cached: u64::MAX,
            ..Quirks::default()
        },
        Quirks {
            cached: 12 << 20,
            direct: Some(u64::MAX),
            ..Quirks::default()
        },
        Quirks {
            direct: Some(20 << 20),
            short: 512 * 4001,
            ..Quirks::default()
        },
    ];
    for (readers, slots) in [(1, 1), (1, 2), (2, 1), (3, 2), (2, 9)] {
        for quirks in quirks {
            let budget = slots * BLOCK;
            let options = StageOptions::default()
                .with_budget(budget)
                .with_readers(readers);
            let source = FakeSource::new(&pack, quirks);
            let mut sink = LateSink::new(budget, QUICK, Fails::Never);
            let stats = run(&source, &transfers, &mut sink, &options).unwrap();
            assert_arrived(&sink.arrived.lock().unwrap(), &expected);
            assert_quiet(&sink);
            assert!(sink.finished);
            let peak = sink.budget.peak.load(Ordering::SeqCst);
            assert!(peak <= budget && peak == stats.ring_bytes);
            assert_eq!(stats.reads.bytes(), transfers.read_bytes());
            assert_eq!(stats.checked, transfers.read_bytes());
            assert_eq!(stats.copied, transfers.wanted_bytes());
        }
    }
}

#[test]
fn a_ring_without_a_slot_is_refused() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let mut sink = LateSink::new(u64::MAX, QUICK, Fails::Never);
    let options = StageOptions::default().with_budget(BLOCK - 1);
    let source = FakeSource::new(&pack, Quirks::default());
    let error = run(&source, &transfers, &mut sink, &options).unwrap_err();
    assert!(
        matches!(error, Error::Budget { needed, budget } if needed == BLOCK && budget < needed)
    );
    assert_quiet(&sink);
}

#[test]
fn the_default_ring_is_small_and_enough() {
    assert!(StageOptions::default().budget <= 128 << 20);
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let mut sink = LateSink::new(128 << 20, QUICK, Fails::Never);
    let source = FakeSource::new(&pack, Quirks::default());
    let stats = run(&source, &transfers, &mut sink, &StageOptions::default()).unwrap();
    assert!(stats.readers >= 2);
    assert_arrived(&sink.arrived.lock().unwrap(), &expected(&pack, &transfers));
}

#[test]
fn nothing_to_load_is_no_error() {
    let pack = pack();
    let transfers = transfers(&pack, true, &["t3"]);
    let mut sink = LateSink::new(0, QUICK, Fails::Never);
    let source = FakeSource::new(&pack, Quirks::default());
    run(&source, &transfers, &mut sink, &StageOptions::default()).unwrap();
    assert!(sink.finished);
    assert_eq!(sink.arrived.lock().unwrap().len(), 1);
}

/// Faults of the source at each transfer in turn: the error says what and where, the device is
/// quiet, and the next load works.
#[test]
fn source_faults_at_every_block_are_typed_errors() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let options = StageOptions::default().with_readers(2);
    for transfer in transfers.transfers() {
        let at = transfer.offset + transfer.len / 2;
        let faults = [
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
            (
                Quirks {
                    broken: Some(at),
                    direct: Some(u64::MAX),
                    ..Quirks::default()
                },
                "io",
            ),
            (
                Quirks {
                    cut: Some(at),
                    direct: Some(u64::MAX),
                    ..Quirks::default()
                },
                "truncated",
            ),
        ];
        for (quirks, code) in faults {
            let source = FakeSource::new(&pack, quirks);
            let mut sink = LateSink::new(128 << 20, QUICK, Fails::Never);
            let error = run(&source, &transfers, &mut sink, &options).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert_quiet(&sink);
            assert!(!sink.finished);
            if let Error::Checksum { extent, offset, .. } = error {
                assert_eq!((extent, offset), (transfer.extent, transfer.offset));
            }
        }
    }
    let source = FakeSource::new(&pack, Quirks::default());
    let mut sink = LateSink::new(128 << 20, QUICK, Fails::Never);
    run(&source, &transfers, &mut sink, &options).unwrap();
}

#[test]
fn device_faults_at_every_step_are_typed_errors() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let options = StageOptions::default()
        .with_readers(2)
        .with_budget(3 * BLOCK);
    let steps = [
        Fails::Begin,
        Fails::Finish,
        Fails::Allocate(0),
        Fails::Allocate(2),
    ];
    let blocks = 0..transfers.transfers().len();
    let steps = steps.into_iter().chain(blocks.clone().map(Fails::Submit));
    for fails in steps.chain(blocks.map(Fails::Reclaim)) {
        let source = FakeSource::new(&pack, Quirks::default());
        let mut sink = LateSink::new(u64::MAX, QUICK, fails);
        let error = run(&source, &transfers, &mut sink, &options).unwrap_err();
        assert!(matches!(error, Error::Sink { .. }), "{fails:?}: {error}");
        assert_quiet(&sink);
    }
}

/// Sets the flag after so many advances.
struct CancelAt<'a>(AtomicU64, u64, &'a AtomicBool);

impl Progress for CancelAt<'_> {
    fn begin(&self, what: &str, total: u64) {
        assert_eq!(what, "load");
        assert!(total > 0);
        self.2.store(self.1 == 0, Ordering::SeqCst);
    }

    fn advance(&self, _: u64) {
        let done = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        if done == self.1 {
            self.2.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn cancel_at_every_block() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let options = StageOptions::default()
        .with_readers(2)
        .with_budget(2 * BLOCK);
    for at in 0..transfers.transfers().len() as u64 {
        let flag = AtomicBool::new(false);
        let progress = CancelAt(AtomicU64::new(0), at, &flag);
        let source = FakeSource::new(&pack, Quirks::default());
        let mut sink = LateSink::new(u64::MAX, QUICK, Fails::Never);
        let error = stage(&source, &transfers, &mut sink, &options, &progress, &flag).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{at}: {error}");
        assert_quiet(&sink);

        let flag = AtomicBool::new(false);
        let progress = CancelAt(AtomicU64::new(0), at, &flag);
        let mut memory = eager::memory(&transfers);
        let slices = memory.iter_mut().map(Vec::as_mut_slice).collect();
        let options = ReadOptions::default().with_threads(1);
        let error = read_into(&source, &transfers, slices, &options, &progress, &flag).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{at}: {error}");
    }
}

#[test]
fn a_changed_source_is_noticed_at_the_end() {
    let pack = pack();
    let transfers = transfers(&pack, true, &["t6"]);
    let source = FakeSource::new(
        &pack,
        Quirks {
            changed: true,
            ..Quirks::default()
        },
    );
    let mut sink = LateSink::new(u64::MAX, QUICK, Fails::Never);
    let error = run(&source, &transfers, &mut sink, &StageOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}

/// Panics in submit: the panic comes through, and no reader waits for ever.
struct PanickingSink(LateSink);

impl crate::DeviceSink for PanickingSink {
    type Slot = fake::Slot;

    fn allocate(&mut self, len: usize, align: usize) -> Result<Self::Slot, crate::SinkError> {
        self.0.allocate(len, align)
    }

    fn begin(&mut self, destinations: &[crate::Destination]) -> Result<(), crate::SinkError> {
        self.0.begin(destinations)
    }

    fn submit(&mut self, _: Self::Slot, _: &[crate::TransferPart]) -> Result<(), crate::SinkError> {
        panic!("a broken device");
    }

    fn reclaim(&mut self, wait: Duration) -> Result<Option<Self::Slot>, crate::SinkError> {
        self.0.reclaim(wait)
    }

    fn finish(&mut self) -> Result<(), crate::SinkError> {
        self.0.finish()
    }

    fn drain(&mut self) -> Result<(), crate::SinkError> {
        self.0.drain()
    }
}

#[test]
fn a_panic_of_the_device_leaves_no_reader_behind() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let source = FakeSource::new(&pack, Quirks::default());
    let mut sink = PanickingSink(LateSink::new(u64::MAX, QUICK, Fails::Never));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let options = StageOptions::default().with_budget(BLOCK);
        stage(
            &source,
            &transfers,
            &mut sink,
            &options,
            &NoProgress,
            &AtomicBool::new(false),
        )
    }));
    assert!(caught.is_err());
}
