//! The frameworks themselves: every slice of a pack against what a rank of DeepSpeed or PyTorch holds.
//!
//! `WPACK_TEST_PYTHON` names a Python with the packages of `tests/requirements.txt`; `tests/run` sets it,
//! and `WPACK_REQUIRE_FRAMEWORKS=1`, without which the proofs are left out where there is none.

use std::path::PathBuf;
use std::process::Command;

/// The interpreter, or none where the proofs may be left out.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("WPACK_TEST_PYTHON").map(PathBuf::from);
    let required = std::env::var_os("WPACK_REQUIRE_FRAMEWORKS").is_some_and(|value| value == "1");
    assert!(
        python.is_some() || !required,
        "WPACK_REQUIRE_FRAMEWORKS=1, but WPACK_TEST_PYTHON names no Python with torch: run tests/run",
    );
    python
}

/// The binary under test: `WPACK_BIN`, else the one beside this test's own folder.
fn binary() -> PathBuf {
    std::env::var_os("WPACK_BIN").map_or_else(
        || {
            let mut path = std::env::current_exe().unwrap();
            path.pop();
            path.pop();
            path.join("wpack")
        },
        PathBuf::from,
    )
}

#[expect(clippy::print_stderr, reason = "says what was not tested")]
fn prove(names: &[&str]) {
    let Some(python) = python() else {
        eprintln!("left out: WPACK_TEST_PYTHON names no Python; tests/run sets it");
        return;
    };
    let binary = binary();
    assert!(
        binary.exists(),
        "no {}: cargo build first, or set WPACK_BIN",
        binary.display()
    );
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(root.join("frameworks/run.py"))
        .args(names)
        .env("WPACK_BIN", binary)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    eprintln!("{out}{err}");
}

#[test]
fn deepspeed_holds_what_a_zero3_pack_says() {
    prove(&["zero3"]);
}

#[test]
fn fully_shard_holds_what_an_fsdp2_pack_says() {
    prove(&["fsdp2"]);
}
