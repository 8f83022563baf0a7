//! `wpack verify`.

use crate::support::{Desk, transcript};

fn desk_with_pack() -> Desk {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack --ranks 4 --layout zero3 --align 4K");
    desk
}

/// First byte of an extent in the file.
fn extent_at(desk: &Desk, index: usize) -> usize {
    let report = desk.json("inspect --json m.wpack");
    usize::try_from(report["extents"][index]["offset"].as_u64().unwrap()).unwrap()
}

fn flip(desk: &Desk, at: usize) {
    let mut bytes = desk.read("m.wpack");
    bytes[at] ^= 1;
    desk.write("m.wpack", &bytes);
}

#[test]
fn a_sound_pack() {
    let desk = desk_with_pack();
    transcript!(desk, "verify m.wpack", @"");
    transcript!(desk, "verify m.wpack --rank 2 --threads 1", @"");
    transcript!(desk, "verify m.wpack --json", @"");
    transcript!(desk, "verify m.wpack --rank 4", @"");
}

#[test]
fn against_its_checkpoint() {
    let desk = desk_with_pack();
    transcript!(desk, "verify m.wpack --against model.safetensors", @"");
}

#[test]
fn against_another_checkpoint() {
    let desk = desk_with_pack();
    desk.safetensors(
        "other.safetensors",
        &[
            ("embed.weight", "BF16", &[10, 8]),
            ("blocks.0.weight", "F32", &[8, 6]),
            ("blocks.0.bias", "F32", &[5]),
            ("scale", "F32", &[]),
            ("head", "F32", &[1]),
        ],
    );
    transcript!(desk, "verify m.wpack --against other.safetensors", @"");
    transcript!(desk, "verify m.wpack --json --against other.safetensors", @"");
    transcript!(desk, "verify m.wpack --against missing.safetensors", @"");
}

#[test]
fn damaged_data_names_tensors_and_ranks() {
    let desk = desk_with_pack();
    flip(&desk, extent_at(&desk, 2));
    transcript!(desk, "verify m.wpack", @"");
    transcript!(desk, "verify m.wpack --json", @"");
    transcript!(desk, "verify m.wpack --rank 3", @"");
}

#[test]
fn a_damaged_header() {
    let desk = desk_with_pack();
    flip(&desk, 100);
    transcript!(desk, "verify m.wpack", @"");
    transcript!(desk, "inspect m.wpack --json", @"");
}

#[test]
fn a_damaged_root() {
    let desk = desk_with_pack();
    flip(&desk, 4096);
    transcript!(desk, "verify m.wpack", @"");
}

#[test]
fn a_pack_that_was_cut() {
    let desk = desk_with_pack();
    let bytes = desk.read("m.wpack");
    desk.write("m.wpack", &bytes[..bytes.len() - 1]);
    transcript!(desk, "verify m.wpack", @"");
    desk.write("m.wpack", &bytes[..100]);
    transcript!(desk, "verify m.wpack", @"");
    let longer = [&bytes[..], b"x"].concat();
    desk.write("m.wpack", &longer);
    transcript!(desk, "verify m.wpack", @"");
}

#[test]
fn a_version_to_come() {
    let desk = desk_with_pack();
    let mut bytes = desk.read("m.wpack");
    bytes[8] = 2;
    desk.write("m.wpack", &bytes);
    transcript!(desk, "inspect m.wpack", @"");
}
