//! `wpack inspect`.

use crate::support::{Desk, transcript};

fn desk_with_pack() -> Desk {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack --ranks 4 --layout zero3");
    desk
}

#[test]
fn a_pack() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack", @"");
}

#[test]
fn a_pack_for_any_number_of_ranks() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    transcript!(desk, "inspect m.wpack", @"");
}

#[test]
fn one_rank() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack --rank 3", @"");
    transcript!(desk, "inspect m.wpack --rank 3 --tensors blocks.*", @"");
    transcript!(desk, "inspect m.wpack --rank 4", @"");
}

#[test]
fn tensors() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack --tensors *bias", @"");
    transcript!(desk, "inspect m.wpack --tensors [", @"");
}

#[test]
fn json() {
    let desk = Desk::new();
    desk.safetensors("one.safetensors", &[("w", "F32", &[3])]);
    desk.done("convert one.safetensors -o m.wpack --ranks 2 --layout fsdp2");
    transcript!(desk, "inspect m.wpack --json --rank 0 --tensors", @"");
}

#[test]
fn a_checkpoint() {
    let desk = Desk::with_model();
    transcript!(desk, "inspect model.safetensors", @"");
    transcript!(desk, "inspect model.safetensors --tensors blocks.*", @"");
    transcript!(desk, "inspect model.safetensors --rank 0", @"");
}

#[test]
fn names_cannot_drive_the_terminal() {
    let desk = Desk::new();
    desk.safetensors("m.safetensors", &[("a\\u001b[2Jb\\n", "U8", &[1])]);
    desk.done("convert m.safetensors -o m.wpack");
    transcript!(desk, "inspect m.wpack --tensors", @"");
}
