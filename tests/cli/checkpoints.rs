//! Files that are no checkpoint, or a damaged one.

use crate::support::{Desk, transcript};

#[test]
fn what_a_file_really_is() {
    let desk = Desk::new();
    desk.write("empty.safetensors", b"");
    desk.write(
        "lfs.safetensors",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    );
    desk.write(
        "page.safetensors",
        b"<!DOCTYPE html><html><body>Access denied</body></html>",
    );
    desk.write(
        "model.gguf",
        b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    desk.write("zeros.safetensors", &[0; 64]);
    transcript!(desk, "inspect missing.safetensors", @"
    exit 1
    --- stderr
    error: missing.safetensors: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
    transcript!(desk, "inspect missing/*.safetensors", @"
    exit 1
    --- stderr
    error: `missing/*.safetensors`: nothing matches
    hint: give a weight file, its folder, its index file or a quoted glob; a component's name goes in front: dit=PATH
    ");
    transcript!(desk, "inspect empty.safetensors", @"
    exit 1
    --- stderr
    error: empty.safetensors: not a checkpoint but an empty file
    hint: download the file again and compare its size
    ");
    transcript!(desk, "inspect lfs.safetensors", @"
    exit 1
    --- stderr
    error: lfs.safetensors: not a checkpoint but a Git LFS pointer
    hint: fetch the weights: git lfs pull
    ");
    transcript!(desk, "inspect page.safetensors", @"
    exit 1
    --- stderr
    error: page.safetensors: not a checkpoint but a web page
    hint: the server answered with an error: download again, signed in if need be
    ");
    transcript!(desk, "inspect model.gguf", @"
    exit 1
    --- stderr
    error: model.gguf: not a checkpoint but a GGUF file
    hint: convert it to safetensors with its own tool first
    ");
    transcript!(desk, "inspect zeros.safetensors", @"
    exit 1
    --- stderr
    error: zeros.safetensors: not a checkpoint but a file of zero bytes (a download that was prepared but not written)
    hint: download the file again and compare its size
    ");
}

#[test]
fn a_download_that_broke_off() {
    let desk = Desk::with_model();
    let bytes = desk.read("model.safetensors");
    desk.write("model.safetensors", &bytes[..bytes.len() - 100]);
    transcript!(desk, "plan model.safetensors", @"
    exit 1
    --- stderr
    error: model.safetensors: truncated: the last tensor `positions` needs 664 bytes, the file has 564
    hint: the file is incomplete: download or copy it again
    ");
}

#[test]
fn a_pack_is_no_checkpoint() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    transcript!(desk, "convert m.wpack -o n.wpack", @"
    exit 1
    --- stderr
    error: m.wpack: not a checkpoint but a packfile
    hint: a packfile is an output: give the checkpoint that it was made from
    ");
}

#[test]
fn a_checkpoint_is_no_pack() {
    let desk = Desk::with_model();
    transcript!(desk, "verify model.safetensors", @"
    exit 1
    --- stderr
    error: `model.safetensors` cannot be read as a pack
      because: no packfile: it starts with the bytes [58, 01, 00, 00, 00, 00, 00, 00], not with the magic
    hint: make a pack from a checkpoint with `wpack convert CHECKPOINT -o OUT.wpack`
    ");
    transcript!(desk, "verify missing.wpack", @"
    exit 1
    --- stderr
    error: cannot read `missing.wpack`
      because: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
}
