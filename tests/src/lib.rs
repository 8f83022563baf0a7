//! What the end-to-end tests have in common: where the repository lies, and a Python with the
//! frameworks in it.

use std::path::{Path, PathBuf};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The Python that holds the frameworks (`tests/run` sets it up), or none: the test is then skipped
/// with a line that says so.
///
/// # Panics
/// When frameworks are required (`WPACK_REQUIRE_FRAMEWORKS=1`, as `tests/run` sets) and there are
/// none: a test run that skips them must not look like one that passed.
#[must_use]
pub fn python() -> Option<PathBuf> {
    let python = std::env::var_os("WPACK_TEST_PYTHON").map(PathBuf::from);
    let required = std::env::var_os("WPACK_REQUIRE_FRAMEWORKS").is_some_and(|value| value == "1");
    assert!(
        python.is_some() || !required,
        "WPACK_REQUIRE_FRAMEWORKS is set and WPACK_TEST_PYTHON is not: run tests/run"
    );
    python
}

/// Files below a folder, sorted; build outputs, environments and hidden files left out.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let entry = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let skipped = [
                "target",
                "corpus",
                "artifacts",
                "__pycache__",
                "node_modules",
                "build",
                "dist",
                "shared",
            ];
            let hidden = name.starts_with('.') && name != ".ci";
            if hidden || skipped.contains(&&*name) || name.ends_with(".egg-info") {
                continue;
            }
            let kind = entry
                .file_type()
                .unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}
