//! The frameworks themselves: every slice of a pack against what a rank of DeepSpeed or PyTorch holds.
//!
//! `WPACK_TEST_PYTHON` names a Python with the packages of `tests/requirements.txt`; `tests/run` sets it,
//! and `WPACK_REQUIRE_FRAMEWORKS=1`, without which the proofs are left out where there is none.

use std::collections::BTreeSet;
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

/// A program that `cargo build` made: what the variable names, else the file in the folder of this build.
fn program(variable: &str, path: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || {
            let mut folder = std::env::current_exe().unwrap();
            folder.pop();
            folder.pop();
            folder.join(path)
        },
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "no {}: cargo build --workspace --all-targets first, or set {variable}",
        path.display()
    );
    path
}

#[expect(clippy::print_stderr, reason = "says what was not tested")]
fn prove(names: &[&str]) {
    let Some(python) = python() else {
        eprintln!("left out: WPACK_TEST_PYTHON names no Python; tests/run sets it");
        return;
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(root.join("frameworks/run.py"))
        .args(names)
        .env("WPACK_BIN", program("WPACK_BIN", "wpack"))
        .env("WPACK_SLICES", program("WPACK_SLICES", "examples/slices"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    eprintln!("{out}{err}");
}

/// A layout names the versions that the proofs install, and no other.
#[test]
fn layouts_name_the_versions_that_are_asked() {
    let lists = wpack_tests::files(&wpack_tests::root().join("tests"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt"));
    let mut installed = BTreeSet::new();
    for list in lists {
        let text = std::fs::read_to_string(list).unwrap();
        installed.extend(text.lines().map(|line| line.replace("==", " ")));
    }
    let proven: BTreeSet<_> = wpack_plan::layouts()
        .iter()
        .flat_map(|layout| layout.proven)
        .collect();
    assert!(!proven.is_empty());
    for version in proven {
        assert!(installed.contains(*version), "{version} is not installed");
    }
}

#[test]
fn deepspeed_holds_what_a_zero3_pack_says() {
    prove(&["zero3"]);
}

#[test]
fn fully_shard_holds_what_an_fsdp2_pack_says() {
    prove(&["fsdp2"]);
}

#[test]
fn flat_parameters_hold_what_an_fsdp1_plan_says() {
    prove(&["fsdp1"]);
}

#[test]
fn flat_parameters_hold_what_the_ready_plans_of_wan22_say() {
    prove(&["wan22"]);
}

#[test]
fn deepspeed_masters_hold_what_a_zero1_or_zero2_plan_says() {
    prove(&["zero12"]);
}

#[test]
fn parallelize_module_holds_what_a_tp_plan_says() {
    prove(&["tp"]);
}

#[test]
fn transformers_holds_what_tp_ep_pp_and_their_products_say() {
    prove(&["transformers5"]);
}
