//! No input takes memory out of proportion to its size.
//!
//! One test, since the heap is counted for the whole process.

use std::{
    fs,
    path::{Path, PathBuf},
};

use peak_alloc::PeakAlloc;
use tempfile::TempDir;
use wpack_checkpoint::{Checkpoint, Input, OpenOptions, open};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes that any input may take: buffers of fixed size.
const FIXED: usize = 1 << 20;
/// Bytes per byte of input.
const FACTOR: usize = 24;

#[test]
fn the_heap_stays_in_proportion() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut inputs = hostile(folder.path());
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases"),
        &mut inputs,
    );
    assert!(inputs.len() > 200, "the cases are there");
    let mut worst = (0, PathBuf::new());
    for path in inputs {
        let size = usize::try_from(fs::metadata(&path).expect("a file").len()).expect("small");
        let input = [Input {
            component: None,
            path: path.to_str().expect("UTF-8").to_owned(),
        }];
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        if let Ok(checkpoint) = open(&input, &OpenOptions::default()) {
            touch(&checkpoint);
        }
        let peak = HEAP.peak_usage().saturating_sub(before);
        assert!(
            peak <= FIXED + FACTOR * size,
            "{} of {size} bytes took {peak} bytes",
            path.display()
        );
        if size > 100_000 {
            worst = worst.max((peak.saturating_sub(FIXED) / size, path));
        }
    }
    assert!(worst.0 > 0, "the hostile files take more than the buffers");
}

/// Reads the front of every tensor, as a conversion would.
fn touch(checkpoint: &Checkpoint) {
    let mut buffer = [0; 4096];
    for tensor in checkpoint
        .components
        .iter()
        .flat_map(|component| &component.tensors)
    {
        let len = usize::try_from(tensor.bytes.len())
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        // Damage that shows only now is an outcome like any other.
        let _outcome = tensor.bytes.read_at(0, &mut buffer[..len]);
    }
}

/// Files that say much with little: each makes one kind of node as often as it can.
fn hostile(folder: &Path) -> Vec<PathBuf> {
    let many = |front: &str, item: &dyn Fn(usize) -> String, back: &str| {
        let items: Vec<String> = (0..40_000).map(item).collect();
        format!("{front}{}{back}", items.join(","))
    };
    let safetensors = [
        (
            "empty",
            many(
                "{",
                &|at| format!(r#""{at}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#),
                "}",
            ),
        ),
        (
            "metadata",
            many(r#"{"__metadata__":{"#, &|at| format!(r#""{at}":"""#), "}}"),
        ),
        (
            "shape",
            many(
                r#"{"a":{"dtype":"U8","shape":["#,
                &|_| "1".to_owned(),
                "]}}",
            ),
        ),
        (
            "ignored",
            many(r#"{"a":{"x":["#, &|_| "[]".to_owned(), "]}}"),
        ),
        ("deep", format!(r#"{{"a":{{"x":{}"#, "[".repeat(400_000))),
        ("wrong", many("{", &|at| format!(r#""{at}":[]"#), "}")),
    ];
    let mut paths = Vec::new();
    let mut write = |name: String, bytes: Vec<u8>| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file");
        paths.push(path);
    };
    for (name, header) in safetensors {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        write(format!("{name}.safetensors"), bytes);
    }
    // A length that the file does not back.
    let mut bytes = 99_999_999_u64.to_le_bytes().to_vec();
    bytes.extend(b"{}");
    write("length.safetensors".to_owned(), bytes);
    let map = many(r#"{"weight_map":{"#, &|at| format!(r#""{at}":"""#), "}}");
    write("empty.json".to_owned(), map.into_bytes());
    let map = many(
        r#"{"weight_map":{"#,
        &|at| format!(r#""{at}":"{at}""#),
        "}}",
    );
    write("shards.json".to_owned(), map.into_bytes());
    let map = many(
        r#"{"metadata":{"total_size":["#,
        &|_| "[]".to_owned(),
        "]}}",
    );
    write("size.json".to_owned(), map.into_bytes());
    paths
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_none_or(|extension| extension != "md") {
            paths.push(path);
        }
    }
}
