//! `wpack register`.

use crate::support::{Desk, transcript};

fn desk_with_pack() -> Desk {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    desk
}

#[test]
fn packs_come_and_go() {
    let desk = desk_with_pack();
    transcript!(desk, "register", @"
    exit 0
    --- stdout
    no pack is registered in [folder]/data/wpack/packs.json
    ");
    transcript!(desk, "register m.wpack --model-id Some/Model", @"
    exit 0
    --- stdout
    [folder]/m.wpack  stands for Some/Model  digest f4b541d0de346942
    ");
    // Again, without the model: the newer word counts.
    transcript!(desk, "register m.wpack", @"
    exit 0
    --- stdout
    [folder]/m.wpack  digest f4b541d0de346942
    ");
    transcript!(desk, "register m.wpack --json", @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "command": "register",
      "file": "[folder]/data/wpack/packs.json",
      "packs": [
        {
          "path": "[folder]/m.wpack",
          "digest": "f4b541d0de346942ef124d7139cc74f899446a851fd9d4de716250942e34e973"
        }
      ]
    }
    "#);
    transcript!(desk, "register missing.wpack", @"
    exit 1
    --- stderr
    error: cannot read `missing.wpack`
      because: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
    transcript!(desk, "register --remove other.wpack", @"
    exit 2
    --- stderr
    error: `[folder]/other.wpack` is not registered
    hint: `wpack register` lists the registered packs
    ");
    std::fs::remove_file(desk.path("m.wpack")).unwrap();
    transcript!(desk, "register", @"
    exit 0
    --- stdout
    [folder]/m.wpack  cannot be opened: cannot read `[folder]/m.wpack`: No such file or directory (os error 2)
    ");
    transcript!(desk, "register m.wpack --remove", @"
    exit 0
    --- stdout
    no pack is registered in [folder]/data/wpack/packs.json
    ");
}

#[test]
fn a_list_that_is_none_is_left_alone() {
    let desk = desk_with_pack();
    desk.write("data/wpack/packs.json", b"[]");
    transcript!(desk, "register m.wpack", @"
    exit 1
    --- stderr
    error: `[folder]/data/wpack/packs.json` is not a list of packs
      because: invalid length 0, expected struct Content with 1 element at line 1 column 2
    hint: move the file away and register the packs again with `wpack register`
    ");
    assert_eq!(desk.read("data/wpack/packs.json"), b"[]");
}

#[test]
fn many_at_once_lose_none() {
    let desk = desk_with_pack();
    let pack = desk.read("m.wpack");
    let names: Vec<String> = (0..8).map(|i| format!("{i}.wpack")).collect();
    for name in &names {
        desk.write(name, &pack);
    }
    let mut running: Vec<_> = names
        .iter()
        .map(|name| desk.command(["register", name]).spawn().unwrap())
        .collect();
    assert!(
        running
            .iter_mut()
            .all(|child| child.wait().unwrap().success())
    );
    let listed = desk.json("register --json");
    assert_eq!(listed["packs"].as_array().unwrap().len(), names.len());
}
