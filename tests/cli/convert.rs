//! `wpack convert`.

use crate::support::{Desk, transcript};

#[test]
fn zero3_over_four_ranks() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o m.wpack --ranks 4 --layout zero3", @"");
    assert_eq!(desk.names(), ["m.wpack", "model.safetensors"]);
}

#[test]
fn quiet_says_nothing() {
    let desk = Desk::with_model();
    transcript!(desk, "convert -q model.safetensors -o m.wpack", @"");
}

#[test]
fn json() {
    let desk = Desk::with_model();
    transcript!(desk, "convert --json model.safetensors -o m.wpack --ranks 2 --layout fsdp2", @"");
}

#[test]
fn a_dry_run_writes_nothing() {
    let desk = Desk::with_model();
    transcript!(desk, "convert -n model.safetensors --ranks 2 --layout zero3", @"");
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn every_way_to_change_names_and_values() {
    let desk = Desk::with_model();
    transcript!(
        desk,
        "convert model.safetensors -o m.wpack --dtype fp32 --exclude positions --strip-prefix blocks. --add-prefix net. --rename ^net\\.0\\.=net.first. --hash-sources --align 4K",
        @""
    );
    transcript!(desk, "inspect m.wpack --tensors", @"");
}

#[test]
fn two_components_with_layouts_of_their_own() {
    let desk = Desk::with_model();
    desk.safetensors("vae.safetensors", &[("conv.weight", "F32", &[4, 2])]);
    transcript!(
        desk,
        "convert dit=model.safetensors vae=vae.safetensors -o m.wpack --ranks 2 --layout zero3 --layout vae=replicate --dtype vae=bf16",
        @""
    );
    transcript!(desk, "inspect m.wpack", @"");
}

#[test]
fn threads_do_not_change_a_byte() {
    let desk = Desk::with_model();
    for threads in ["1", "3"] {
        desk.done(&format!(
            "convert model.safetensors -o {threads}.wpack --ranks 3 --layout fsdp2 --threads {threads}"
        ));
    }
    assert!(desk.read("1.wpack") == desk.read("3.wpack"));
}

#[test]
fn ranks_that_change_nothing_are_mentioned() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o m.wpack --ranks 4", @"");
}

#[test]
fn a_file_in_the_way_stays() {
    let desk = Desk::with_model();
    desk.write("m.wpack", b"precious");
    transcript!(desk, "convert model.safetensors -o m.wpack", @"");
    assert_eq!(desk.read("m.wpack"), b"precious");
    desk.done("convert model.safetensors -o m.wpack --overwrite");
    desk.done("verify m.wpack");
}

#[test]
fn a_target_that_is_a_source_stays() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o model.safetensors --overwrite", @"");
    transcript!(desk, "convert model.safetensors -o .", @"");
    transcript!(desk, "convert model.safetensors -o no/such/folder/m.wpack", @"");
}

#[test]
fn requests_that_contradict_themselves() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero9", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --ranks 0", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --mesh dp", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --mesh dp=2 --ranks 3", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --align 5000", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --align many", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --threads 0", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --dtype int7", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --component vae", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout vae=replicate", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --include nothing.*", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --include [", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --exclude *", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename (=x", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename x", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename .*=same", @"");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --ranks 2 --shard scale", @"");
    transcript!(
        desk,
        "convert model.safetensors -o m.wpack --layout zero3 --ranks 2 --replicate blocks.* --shard *.bias",
        @""
    );
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn a_failure_as_json() {
    let desk = Desk::with_model();
    transcript!(desk, "convert --json missing.safetensors -o m.wpack", @"");
    transcript!(desk, "convert --json model.safetensors -o m.wpack --layout zero3", @"");
}
