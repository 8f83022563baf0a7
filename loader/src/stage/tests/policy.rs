//! Which way bytes are read, and what the stats say of it.

use std::time::Duration;

use super::{
    LateSink, Quirks, expected,
    fake::{Fails, FakeSource},
    pack, run, transfers,
};
use crate::{FileSource, NoProgress, ReadMode, StageOptions, StageStats, stage};

fn load(quirks: Quirks, mode: ReadMode) -> StageStats {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let source = FakeSource::new(&pack, quirks);
    let mut sink = LateSink::new(u64::MAX, Duration::ZERO, Fails::Never);
    let options = StageOptions::default().with_mode(mode);
    let stats = run(&source, &transfers, &mut sink, &options).unwrap();
    super::assert_arrived(&sink.arrived.lock().unwrap(), &expected(&pack, &transfers));
    stats
}

#[test]
fn cached_bytes_come_from_the_cache() {
    let all = Quirks {
        cached: u64::MAX,
        direct: Some(u64::MAX),
        ..Quirks::default()
    };
    let stats = load(all, ReadMode::Auto);
    assert_eq!((stats.reads.direct, stats.reads.buffered), (0, 0));
    assert_eq!(stats.path(), "cached");
    assert!(stats.fallbacks.is_empty());
}

#[test]
fn private_bytes_go_direct_and_shared_ones_through_the_cache() {
    let stats = load(
        Quirks {
            direct: Some(u64::MAX),
            ..Quirks::default()
        },
        ReadMode::Auto,
    );
    assert!(stats.reads.direct > 16 << 20, "{:?}", stats.reads);
    assert!(stats.reads.buffered > 8 << 20, "{:?}", stats.reads);
    assert_eq!((stats.reads.cached, stats.path()), (0, "direct"));
    let stats = load(
        Quirks {
            direct: Some(u64::MAX),
            ..Quirks::default()
        },
        ReadMode::Direct,
    );
    assert_eq!(stats.reads.direct, stats.reads.bytes());
    let stats = load(
        Quirks {
            direct: Some(u64::MAX),
            ..Quirks::default()
        },
        ReadMode::Buffered,
    );
    assert_eq!(stats.reads.buffered, stats.reads.bytes());
}

#[test]
fn a_way_that_is_not_offered_is_named() {
    let stats = load(Quirks::default(), ReadMode::Auto);
    assert_eq!(stats.path(), "buffered");
    assert_eq!(stats.fallbacks, ["the source offers no direct reads"]);
    let stats = load(
        Quirks {
            direct: Some(0),
            ..Quirks::default()
        },
        ReadMode::Auto,
    );
    assert_eq!((stats.path(), stats.fallbacks.len()), ("buffered", 1));
    assert!(
        stats.fallbacks[0].contains("refused a direct read"),
        "{:?}",
        stats.fallbacks
    );
}

#[test]
fn a_real_file_by_every_way() {
    let pack = pack();
    let transfers = transfers(&pack, true, &[]);
    let expected = expected(&pack, &transfers);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &pack).unwrap();
    for mode in [ReadMode::Auto, ReadMode::Buffered, ReadMode::Direct] {
        let source = FileSource::open(file.path()).unwrap();
        let mut sink = LateSink::new(128 << 20, Duration::ZERO, Fails::Never);
        let options = StageOptions::default().with_mode(mode);
        let flag = std::sync::atomic::AtomicBool::new(false);
        let stats = stage(&source, &transfers, &mut sink, &options, &NoProgress, &flag).unwrap();
        super::assert_arrived(&sink.arrived.lock().unwrap(), &expected);
        assert_eq!(stats.reads.bytes(), transfers.read_bytes());
        assert!(stats.wall >= stats.device_wait);
    }
}
