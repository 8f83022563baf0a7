//! `--processes` of `plan` and `inspect`.

use crate::support::{Desk, transcript};

#[test]
fn of_a_pack() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    let output = desk.done("inspect m.wpack --processes 4 --host-memory 700");
    let text = String::from_utf8(output.stdout).unwrap();
    let at = text.find("Memory of").unwrap();
    let end = text[at..].find("Placements").unwrap();
    insta::assert_snapshot!(&text[at..at + end], @"
    Memory of a host with 700 B for them, for 4 processes
      mode     private copies  fit  this pack, private  shared pages  fit
      ddp            1.22 KiB  no                  0 B         312 B  yes
      zero2          1.22 KiB  no                  0 B         312 B  yes
      zero3          1.22 KiB  no                312 B         312 B  yes
      offload        1.22 KiB  no                  0 B         312 B  yes
      0 B of 312 B are trained; the programs' own memory comes on top
    ");
}

#[test]
fn of_a_checkpoint_before_and_after_casts() {
    let desk = Desk::with_model();
    let fit = |line: &str| desk.json(line)["fit"].clone();
    let whole = fit("inspect model.safetensors --processes 2 --host-memory 1K --json");
    assert_eq!(whole["model_bytes"], 312);
    assert_eq!(whole["modes"][0]["without"]["private_bytes"], 624);
    assert_eq!(whole["modes"][0]["with"]["private_bytes"], 0);
    let cast = fit(
        "plan model.safetensors --dtype bf16 --processes 2 --trainable blocks.* --host-memory 1K --json",
    );
    // The vector of 5 and the scalar halve.
    assert_eq!(cast["model_bytes"], 300);
    assert_eq!(cast["trainable_bytes"], 96 + 10);
    assert_eq!(cast["modes"][0]["with"]["private_bytes"], 2 * (96 + 10));
    assert_eq!(
        cast["modes"][3]["with"]["private_bytes"],
        2 * (96 + 10) + 16 * (48 + 5)
    );
    // Of this machine, whatever it has.
    let here = fit("inspect model.safetensors --processes 1 --json");
    assert!(here["available_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn refusals() {
    let desk = Desk::with_model();
    transcript!(desk, "plan model.safetensors --trainable blocks.*", @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      --processes <N>

    Usage: wpack plan --processes <N> --trainable <GLOB> <CHECKPOINT>...

    For more information, try '--help'.
    ");
    transcript!(desk, "plan model.safetensors --processes 2 --trainable lora.*", @"
    exit 2
    --- stderr
    error: no parameter matches --trainable lora.*
    hint: `wpack inspect --tensors` lists the names
    ");
    transcript!(desk, "plan model.safetensors --processes 0", @"
    exit 2
    --- stderr
    error: invalid value '0' for '--processes <N>': 0 is not in 1..=4294967295

    For more information, try '--help'.
    ");
}
