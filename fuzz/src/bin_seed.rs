//! Fills `corpus/` with what the fixtures hold: `cargo run --bin seed`.

use std::{fs, path::Path};

use rawzip::ZipArchive;
use wpack_format::{Header, Root};

fn main() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["cases", "golden"] {
        collect(&fuzz.join("../fixtures").join(folder), &mut files);
    }
    files.sort();
    for (number, path) in files.iter().enumerate() {
        let Ok(bytes) = fs::read(path) else { continue };
        let put = |target: &str, part: &str, seed: &[u8]| {
            let folder = fuzz.join("corpus").join(target);
            fs::create_dir_all(&folder).expect("the corpus folder");
            fs::write(folder.join(format!("seed-{number}-{part}")), seed).expect("a seed");
        };
        if bytes.starts_with(b"\x89WPACK") {
            pack(&bytes, &put);
        } else if bytes.len() > 32 << 10 {
            continue;
        } else if let Ok(archive) = ZipArchive::from_slice(&bytes) {
            put("zip", "whole", &bytes);
            for record in archive.entries().filter_map(Result::ok) {
                let object = record.file_path().as_ref().ends_with(b"data.pkl");
                if let (true, Ok(entry)) = (object, archive.get_entry(record.wayfinder())) {
                    put("pickle", "object", entry.data());
                }
            }
        } else if bytes.starts_with(b"\x80") || bytes.get(257..262) == Some(b"ustar") {
            put("legacy", "whole", &bytes);
        } else if bytes.get(8) == Some(&b'{') {
            put("safetensors", "whole", &bytes);
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder)
        .expect("fixtures")
        .filter_map(Result::ok)
    {
        if entry.path().is_dir() {
            collect(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}

/// The parts of a pack, each for its own decoder.
fn pack(bytes: &[u8], put: &dyn Fn(&str, &str, &[u8])) {
    let part = |offset: u64, len: u64| {
        let start = usize::try_from(offset).expect("in the file");
        bytes
            .get(start..start + usize::try_from(len).expect("in the file"))
            .unwrap_or_default()
    };
    let seed = |which: u8, front: &[u8], body: &[u8]| [&[which], front, body].concat();
    let len = u64::try_from(bytes.len()).expect("in memory");
    let header = Header::decode(bytes, len).expect("a golden pack");
    let root = part(header.root.offset, header.root.len);
    put("pack", "header", &seed(1, &[], part(0, 4096)));
    put("pack", "root", &seed(2, &[], root));
    let root = Root::decode(root, &header).expect("a golden pack");
    if bytes.len() <= 60 << 10 {
        put("pack", "whole", &seed(0, &[], bytes));
    }
    let mut tensors = 0;
    for (at, component) in root.components.iter().enumerate() {
        tensors = component.tensor_count;
        let count = tensors.to_le_bytes();
        let table = part(component.tensors.offset, component.tensors.len);
        put(
            "pack",
            &format!("tensors{at}"),
            &seed(3, &count[..2], table),
        );
    }
    for (at, extent) in root.extents.iter().enumerate().take(4) {
        let mut front = extent.slice_count.to_le_bytes()[..2].to_vec();
        front.extend(&tensors.to_le_bytes()[..2]);
        front.extend(extent.len.to_le_bytes());
        let table = part(extent.slices.offset, extent.slices.len);
        put("pack", &format!("slices{at}"), &seed(4, &front, table));
        let table = part(extent.blocks.offset, extent.blocks.len);
        put(
            "pack",
            &format!("blocks{at}"),
            &seed(5, &extent.len.to_le_bytes(), table),
        );
    }
}
