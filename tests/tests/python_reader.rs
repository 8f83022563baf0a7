//! The Python reader, written from the format's page alone, sees in every golden pack what the loader
//! sees.

mod format_dump;

use std::{path::Path, process::Command};

use serde_json::Value;

/// Plain Python is enough: `PYTHON`, or the `python3` of the path.
fn read_by_python(pack: &Path) -> std::process::Output {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let reader = wpack_tests::root().join("tests/reader/wpack_reader.py");
    Command::new(&python)
        .arg(reader)
        .arg(pack)
        .arg("--json")
        .output()
        .unwrap_or_else(|e| panic!("{} does not run: {e}", python.display()))
}

#[test]
fn python_and_loader_agree_on_every_golden_pack() {
    for pack in format_dump::golden_packs() {
        let output = read_by_python(&pack);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", pack.display());
        let python: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(python, format_dump::dump(&pack), "{}", pack.display());
    }
}

/// The reader checks what it reads: a byte that differs anywhere stops it.
#[test]
fn python_notices_damage() {
    let folder = tempfile::tempdir().unwrap();
    let pack = format_dump::golden().join("v1-flat-stream.wpack");
    let good = std::fs::read(pack).unwrap();
    let bad = folder.path().join("bad.wpack");
    for at in (0..good.len()).step_by(good.len() / 11) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&bad, &bytes).unwrap();
        assert!(
            !read_by_python(&bad).status.success(),
            "byte {at} is unguarded"
        );
    }
    std::fs::write(&bad, &good[..good.len() - 1]).unwrap();
    assert!(!read_by_python(&bad).status.success());
}
