//! Files that are no checkpoint, or a damaged one.

use crate::support::{Desk, transcript};

#[test]
fn what_a_file_really_is() {
    let desk = Desk::new();
    desk.write("empty.safetensors", b"");
    desk.write("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    desk.write("page.safetensors", b"<!DOCTYPE html><html><body>Access denied</body></html>");
    desk.write("model.gguf", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    desk.write("zeros.safetensors", &[0; 64]);
    transcript!(desk, "inspect missing.safetensors", @"");
    transcript!(desk, "inspect missing/*.safetensors", @"");
    transcript!(desk, "inspect empty.safetensors", @"");
    transcript!(desk, "inspect lfs.safetensors", @"");
    transcript!(desk, "inspect page.safetensors", @"");
    transcript!(desk, "inspect model.gguf", @"");
    transcript!(desk, "inspect zeros.safetensors", @"");
}

#[test]
fn a_download_that_broke_off() {
    let desk = Desk::with_model();
    let bytes = desk.read("model.safetensors");
    desk.write("model.safetensors", &bytes[..bytes.len() - 100]);
    transcript!(desk, "plan model.safetensors", @"");
}

#[test]
fn a_pack_is_no_checkpoint() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    transcript!(desk, "convert m.wpack -o n.wpack", @"");
}

#[test]
fn a_checkpoint_is_no_pack() {
    let desk = Desk::with_model();
    transcript!(desk, "verify model.safetensors", @"");
    transcript!(desk, "verify missing.wpack", @"");
}
