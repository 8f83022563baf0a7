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
    transcript!(desk, "verify m.wpack", @"
    exit 0
    --- stdout
    m.wpack: sound: 28 KiB (28,672 B) checked in [time]
      digest 924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252
    ");
    transcript!(desk, "verify m.wpack --rank 2 --threads 1", @"
    exit 0
    --- stdout
    m.wpack: sound for rank 2: 14.3 KiB (14,628 B) checked in [time]
      digest 924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252
    ");
    transcript!(desk, "verify m.wpack --json", @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "command": "verify",
      "path": "m.wpack",
      "ok": true,
      "digest": "924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252",
      "rank": null,
      "checked_bytes": 28672,
      "seconds": [time],
      "damage": [],
      "against": null,
      "error": null
    }
    "#);
    transcript!(desk, "verify m.wpack --rank 4", @"
    exit 2
    --- stderr
    error: rank 4 is outside the mesh of 4 ranks
    hint: ranks are 0 to 3; reslice the pack to open it for another number of ranks
    ");
}

#[test]
fn against_its_checkpoint() {
    let desk = desk_with_pack();
    transcript!(desk, "verify m.wpack --against model.safetensors", @"
    exit 0
    --- stdout
    m.wpack: sound: 28 KiB (28,672 B) checked in [time]
      digest 924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252
      5 tensors equal to the checkpoint
    ");
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
    transcript!(desk, "verify m.wpack --against other.safetensors", @"
    exit 1
    --- stdout
    different: model blocks.0.bias: first different element [0]: bytes 05060708 in the pack, 65666768 in the checkpoint
    different: model blocks.0.weight: BF16 in the pack, F32 in the checkpoint
    different: model scale: first different element []: bytes 191a1b1c in the pack, 797a7b7c in the checkpoint
    missing: model head
    extra: model positions
    m.wpack: sound: 28 KiB (28,672 B) checked in [time]
      digest 924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252
    --- stderr
    error: `m.wpack` is not what the checkpoint gives: 3 different, 1 missing, 1 extra
    hint: give the checkpoint that `wpack inspect` names under sources, or convert this one
    ");
    transcript!(desk, "verify m.wpack --json --against other.safetensors", @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "command": "verify",
      "path": "m.wpack",
      "ok": false,
      "digest": "924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252",
      "rank": null,
      "checked_bytes": 28672,
      "seconds": [time],
      "damage": [],
      "against": {
        "equal": 1,
        "different": [
          {
            "component": "model",
            "name": "blocks.0.bias",
            "what": "first different element [0]: bytes 05060708 in the pack, 65666768 in the checkpoint"
          },
          {
            "component": "model",
            "name": "blocks.0.weight",
            "what": "BF16 in the pack, F32 in the checkpoint"
          },
          {
            "component": "model",
            "name": "scale",
            "what": "first different element []: bytes 191a1b1c in the pack, 797a7b7c in the checkpoint"
          }
        ],
        "missing": [
          {
            "component": "model",
            "name": "head"
          }
        ],
        "extra": [
          {
            "component": "model",
            "name": "positions"
          }
        ],
        "left_out": []
      },
      "error": {
        "code": "differs",
        "message": "`m.wpack` is not what the checkpoint gives: 3 different, 1 missing, 1 extra",
        "hint": "give the checkpoint that `wpack inspect` names under sources, or convert this one"
      }
    }
    "#);
    transcript!(desk, "verify m.wpack --against missing.safetensors", @"
    exit 1
    --- stderr
    error: missing.safetensors: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
}

#[test]
fn damaged_data_names_tensors_and_ranks() {
    let desk = desk_with_pack();
    flip(&desk, extent_at(&desk, 2));
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stdout
    m.wpack: block 0 of extent 2: the SHA-256 does not match: 1032 bytes at byte 16384, read by rank 1
      tensor model embed.weight
    --- stderr
    error: `m.wpack` is damaged in 1 part
    hint: copy the pack again, or convert the checkpoint again; do not train from this file
    ");
    transcript!(desk, "verify m.wpack --json", @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "command": "verify",
      "path": "m.wpack",
      "ok": false,
      "digest": "924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252",
      "rank": null,
      "checked_bytes": 28672,
      "seconds": [time],
      "damage": [
        {
          "part": "block 0 of extent 2",
          "fault": "sha256-mismatch",
          "what": "the SHA-256 does not match",
          "offset": 16384,
          "bytes": 1032,
          "extent": 2,
          "block": 0,
          "component": "model",
          "tensors": [
            "embed.weight"
          ],
          "ranks": [
            {
              "first": 1,
              "count": 1,
              "step": 1
            }
          ]
        }
      ],
      "against": null,
      "error": {
        "code": "damaged",
        "message": "`m.wpack` is damaged in 1 part",
        "hint": "copy the pack again, or convert the checkpoint again; do not train from this file"
      }
    }
    "#);
    transcript!(desk, "verify m.wpack --rank 3", @"
    exit 0
    --- stdout
    m.wpack: sound for rank 3: 14.3 KiB (14,628 B) checked in [time]
      digest 924a4d27083e5fafd04d09c3e03a0564e6fc6f006007c6f0c58d3efe05217252
    ");
}

#[test]
fn a_damaged_header() {
    let desk = desk_with_pack();
    flip(&desk, 100);
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the header is damaged: its SHA-256 does not match
    hint: copy the file again, or make it again with `wpack convert`; `wpack verify` lists all damage
    ");
    transcript!(desk, "inspect m.wpack --json", @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "command": "inspect",
      "error": {
        "code": "damaged",
        "message": "`m.wpack` cannot be read as a pack",
        "causes": [
          "the header is damaged: its SHA-256 does not match"
        ],
        "hint": "copy the file again, or make it again with `wpack convert`; `wpack verify` lists all damage"
      }
    }
    "#);
}

#[test]
fn a_damaged_root() {
    let desk = desk_with_pack();
    flip(&desk, 4096);
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the root is damaged: CRC-32C should be 1cab14a0 and is 43c6c67d
    hint: copy the file again, or make it again with `wpack convert`; `wpack verify` lists all damage
    ");
}

#[test]
fn a_pack_that_was_cut() {
    let desk = desk_with_pack();
    let bytes = desk.read("m.wpack");
    desk.write("m.wpack", &bytes[..bytes.len() - 1]);
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the file is cut off: 28671 of 28672 bytes are there
    hint: copy the file again and compare its length
    ");
    desk.write("m.wpack", &bytes[..100]);
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the file is cut off: 100 of 4096 bytes are there
    hint: copy the file again and compare its length
    ");
    let longer = [&bytes[..], b"x"].concat();
    desk.write("m.wpack", &longer);
    transcript!(desk, "verify m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the file goes on behind its end: it should have 28672 bytes and has 28673
    hint: copy the file again and compare its length
    ");
}

#[test]
fn a_version_to_come() {
    let desk = desk_with_pack();
    let mut bytes = desk.read("m.wpack");
    bytes[8] = 2;
    desk.write("m.wpack", &bytes);
    transcript!(desk, "inspect m.wpack", @"
    exit 1
    --- stderr
    error: `m.wpack` cannot be read as a pack
      because: the file is of format version 2, this program reads 1 to 1
    hint: install a newer wpack, or make the pack again with this one: `wpack convert`
    ");
}
