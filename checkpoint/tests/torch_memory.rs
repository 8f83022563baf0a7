//! No pickle, archive or stream takes memory out of proportion to its size, or time.
//!
//! One test, since the heap is counted for the whole process.

#[path = "torch/object.rs"]
mod object;
#[path = "torch/stored_zip.rs"]
mod stored_zip;

use std::{fs, io::Write as _, path::Path, time::Instant};

use flate2::{Compression, write::DeflateEncoder};
use object::Pickle;
use peak_alloc::PeakAlloc;
use stored_zip::stored_zip;
use tempfile::TempDir;
use wpack_checkpoint::{Input, OpenOptions, open};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes that any input may take: buffers of fixed size.
const FIXED: usize = 2 << 20;
/// Bytes per byte of input.
const FACTOR: usize = 40;
/// Opcodes of one bomb.
const MANY: usize = 40_000;

#[test]
fn the_heap_stays_in_proportion() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("x.pt");
    let mut worst = (0, String::new());
    for (name, bytes) in bombs() {
        fs::write(&path, &bytes).expect("written");
        let (peak, seconds) = cost(&path);
        assert!(
            peak <= FIXED + FACTOR * bytes.len(),
            "{name}: {} bytes took {peak} bytes",
            bytes.len()
        );
        // Generous: what is not linear takes minutes.
        assert!(
            seconds < 30.0,
            "{name}: {} bytes took {seconds} s",
            bytes.len()
        );
        worst = worst.max((peak.saturating_sub(FIXED) / bytes.len(), name));
    }
    assert!(
        worst.0 > 1,
        "the bombs take more than the buffers: {worst:?}"
    );
}

fn cost(path: &Path) -> (usize, f64) {
    let input = [Input {
        component: None,
        path: path.to_str().expect("UTF-8").to_owned(),
    }];
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let start = Instant::now();
    let opened = open(&input, &OpenOptions::default());
    let peak = HEAP.peak_usage().saturating_sub(before);
    drop(opened);
    (peak, start.elapsed().as_secs_f64())
}

fn bombs() -> Vec<(String, Vec<u8>)> {
    let storage = [0_u8; 64];
    let zipped = |object: &[u8]| stored_zip(&[("a/data.pkl", object), ("a/data/0", &storage)]);
    let mut bombs = Vec::new();
    for (name, object) in objects() {
        bombs.push((format!("stream of {name}"), legacy(&object)));
        bombs.push((name.to_owned(), zipped(&object)));
    }
    bombs.push(("many records".to_owned(), many_records(20_000)));
    for (name, object) in [
        ("deflated lists", vec![b']'; 4 << 20]),
        ("deflated text", long_text()),
    ] {
        bombs.push((name.to_owned(), deflated(&object)));
    }
    bombs
}

/// Pickles that make one kind of value as often as they can.
fn objects() -> Vec<(&'static str, Vec<u8>)> {
    let repeat =
        |front: &[u8], item: &[u8], back: &[u8]| [front, &item.repeat(MANY), back].concat();
    let each = |front: &[u8], item: &dyn Fn(usize) -> Vec<u8>, back: &[u8]| {
        let items: Vec<Vec<u8>> = (0..MANY / 4).map(item).collect();
        [front, &items.concat(), back].concat()
    };
    let number = |at: usize| u32::try_from(at).expect("small").to_le_bytes();
    vec![
        ("lists", repeat(b"(", b"]", b"l.")),
        ("dicts", repeat(b"(", b"}", b"l.")),
        ("sets", repeat(b"(", b"\x8f", b"l.")),
        ("marks", repeat(b"", b"(", b".")),
        ("nones", repeat(b"(", b"N", b"l.")),
        ("copies", repeat(b"(N", b"2", b"l.")),
        ("filled lists", repeat(b"(", b"]Na", b"l.")),
        ("filled dicts", repeat(b"(", b"}NNs", b"l.")),
        ("one dict", repeat(b"}", b"NNs", b".")),
        ("tuples", repeat(b"(", b"N\x85", b"l.")),
        ("memo", repeat(b"N", b"\x94", b".")),
        (
            "sparse memo",
            each(b"N", &|at| [&b"r"[..], &number(2 * at + 1)].concat(), b"."),
        ),
        (
            "numbers",
            each(b"(", &|at| [&b"J"[..], &number(at + 1000)].concat(), b"l."),
        ),
        (
            "wide numbers",
            repeat(b"(", b"\x8a\x09\0\0\0\0\0\0\0\x80\0", b"l."),
        ),
        ("letters", repeat(b"(", b"U\x01a", b"l.")),
        ("no letters", repeat(b"(", b"U\x00", b"l.")),
        ("bytes", repeat(b"(", b"C\x01a", b"l.")),
        (
            "names",
            each(b"(", &|at| format!("ca\n{at:x}\n").into_bytes(), b"l."),
        ),
        ("calls", repeat(b"ca\nb\nq\x000(", b"h\x00)R", b"l.")),
        ("states", repeat(b"ca\nb\nq\x000(", b"h\x00)RNb", b"l.")),
        ("items", repeat(b"ca\nb\nq\x000(", b"h\x00)RNNs", b"l.")),
        ("references", repeat(b"(", b"NQ", b"l.")),
        ("storages", references()),
        (
            "fan of lists",
            fan(b"](h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00e"),
        ),
        ("keys that are paths", paths()),
        ("a good object", {
            let tensor = Pickle::default().tensor("0", &[16]);
            Pickle::default().dict(&[("w", tensor)]).done()
        }),
    ]
}

/// Lists of lists of lists of one tensor: 8^12 names for a few bytes.
fn fan(level: &[u8]) -> Vec<u8> {
    let tensor = Pickle::default().tensor("0", &[16]);
    let levels = [level, b"q\x00"].concat().repeat(12);
    Pickle::default()
        .raw(tensor.bytes())
        .raw(b"q\x00")
        .raw(&levels)
        .done()
}

/// Long keys around each other: each name is the sum of all above it.
fn paths() -> Vec<u8> {
    let key = "k".repeat(1000);
    let mut object = Pickle::default();
    for _ in 0..300 {
        object = object.raw(b"}").text(&key);
    }
    let tensor = Pickle::default().tensor("0", &[16]);
    object.raw(tensor.bytes()).raw(&b"s".repeat(300)).done()
}

fn references() -> Vec<u8> {
    let one = Pickle::default().storage("FloatStorage", "0", 16);
    Pickle::default()
        .raw(b"(")
        .raw(&one.bytes().repeat(MANY / 50))
        .raw(b"l")
        .done()
}

fn long_text() -> Vec<u8> {
    let len = 4_u32 << 20;
    let text = b"a".repeat(usize::try_from(len).expect("small"));
    [&b"X"[..], &len.to_le_bytes(), &text, b"."].concat()
}

/// The stream of old torch around an object.
fn legacy(object: &[u8]) -> Vec<u8> {
    let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    [
        &magic[..],
        b"\x80\x02M\xe9\x03.",
        b"\x80\x02}.",
        object,
        b"\x80\x02].",
    ]
    .concat()
}

fn many_records(count: usize) -> Vec<u8> {
    let names: Vec<String> = (0..count).map(|at| format!("a/{at}")).collect();
    let mut records = vec![("a/data.pkl", &b"N."[..])];
    records.extend(names.iter().map(|name| (name.as_str(), &b""[..])));
    stored_zip(&records)
}

/// An archive whose object is compressed: method and sizes of the first record are set by hand.
fn deflated(object: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(object).expect("in memory");
    let packed = encoder.finish().expect("in memory");
    let mut zip = stored_zip(&[("a/data.pkl", &packed)]);
    let mut crc = flate2::Crc::new();
    crc.update(object);
    let len = u32::try_from(object.len()).expect("small").to_le_bytes();
    let directory = 30 + "a/data.pkl".len() + packed.len();
    // Offsets of method, CRC-32 and size, which the directory has two bytes later.
    for start in [0, directory + 2] {
        zip[start + 8] = 8;
        zip[start + 14..start + 18].copy_from_slice(&crc.sum().to_le_bytes());
        zip[start + 22..start + 26].copy_from_slice(&len);
    }
    zip
}
