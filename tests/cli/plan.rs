//! `wpack plan`.

use crate::support::{Desk, transcript};

#[test]
fn what_a_conversion_would_give() {
    let desk = Desk::with_model();
    transcript!(desk, "plan model.safetensors --ranks 4 --layout zero3", @"");
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn tensors_and_overrides() {
    let desk = Desk::with_model();
    transcript!(
        desk,
        "plan model.safetensors --ranks 2 --layout fsdp2 --replicate embed.* --dtype fp16 --tensors *weight",
        @""
    );
}

#[test]
fn the_plan_is_what_convert_writes() {
    let desk = Desk::with_model();
    let plan = desk.json("plan --json model.safetensors --ranks 3 --layout zero3");
    desk.done("convert model.safetensors -o m.wpack --ranks 3 --layout zero3");
    let pack = desk.json("inspect --json m.wpack");
    for field in ["bytes", "extent_align", "extents", "sharing", "rules", "mesh", "layout"] {
        assert_eq!(plan[field], pack[field], "{field}");
    }
}
