//! `wpack export`.

use std::collections::BTreeMap;

use crate::support::{Desk, transcript};

/// Names, types, shapes and bytes of a safetensors file.
fn tensors(desk: &Desk, name: &str) -> BTreeMap<String, (String, String, Vec<u8>)> {
    let bytes = desk.read(name);
    let len = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let data = &bytes[8 + len..];
    let entries = header
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "__metadata__");
    entries
        .map(|(name, entry)| {
            let at =
                |i: usize| usize::try_from(entry["data_offsets"][i].as_u64().unwrap()).unwrap();
            let bytes = data[at(0)..at(1)].to_vec();
            let dtype = entry["dtype"].as_str().unwrap().to_owned();
            (name.clone(), (dtype, entry["shape"].to_string(), bytes))
        })
        .collect()
}

#[test]
fn tensors_come_back_whole() {
    let desk = Desk::with_model();
    for layout in ["replicate", "zero3", "fsdp2"] {
        desk.done(&format!(
            "convert model.safetensors -o m.wpack --ranks 3 --layout {layout} --overwrite --quiet"
        ));
        desk.done("export m.wpack -o back.safetensors --overwrite");
        assert_eq!(
            tensors(&desk, "back.safetensors"),
            tensors(&desk, "model.safetensors")
        );
    }
}

#[test]
fn one_file_or_one_for_each_component() {
    let desk = Desk::with_model();
    desk.safetensors("vae.safetensors", &[("conv.weight", "F32", &[4, 2])]);
    desk.done("convert dit=model.safetensors vae=vae.safetensors -o m.wpack");
    transcript!(desk, "export m.wpack -o out", @"
    exit 0
    --- stderr
    wrote out/dit.safetensors: 5 tensors, 688 B
    wrote out/vae.safetensors: 1 tensor, 144 B
    ");
    transcript!(desk, "export m.wpack -o vae-again.safetensors --component vae --json", @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "command": "export",
      "files": [
        {
          "component": "vae",
          "path": "vae-again.safetensors",
          "bytes": 144,
          "tensors": 1
        }
      ]
    }
    "#);
    transcript!(desk, "export m.wpack -o all.safetensors", @"
    exit 2
    --- stderr
    error: 2 components do not go into one file
    hint: give a folder with --output, or one component with --component
    ");
    transcript!(desk, "export m.wpack -o out", @"
    exit 2
    --- stderr
    error: `out/dit.safetensors` exists
    hint: give another --output, or --overwrite
    ");
    transcript!(desk, "export m.wpack -o out --component text", @"
    exit 2
    --- stderr
    error: no component `text`; there is `dit`, `vae`
    hint: give one that is there: --component dit
    ");
    assert_eq!(
        tensors(&desk, "out/vae.safetensors"),
        tensors(&desk, "vae.safetensors")
    );
    assert_eq!(
        tensors(&desk, "out/dit.safetensors"),
        tensors(&desk, "model.safetensors")
    );
}

#[test]
fn damage_is_not_copied() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    let mut bytes = desk.read("m.wpack");
    let report = desk.json("inspect --json m.wpack");
    let at = usize::try_from(report["extents"][0]["offset"].as_u64().unwrap()).unwrap();
    bytes[at] ^= 1;
    desk.write("m.wpack", &bytes);
    transcript!(desk, "export m.wpack -o back.safetensors", @"
    exit 1
    --- stderr
    error: `m.wpack` is damaged: block 0 of extent 0, at byte 65536, has CRC-32C 3a6b1a39 instead of ed8d7b97
    hint: `wpack verify m.wpack` lists all damage; copy the pack again
    ");
    assert!(!desk.path("back.safetensors").exists());
}
