//! Fuzz targets. `README.md` says how to run them.

#[path = "../targets.rs"]
mod targets;

use std::{path::PathBuf, sync::LazyLock};

/// A file of this process, in memory where the system has such a place.
static SCRATCH: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    folder.join(format!("wpack-fuzz-{}", std::process::id()))
});

/// Runs one target.
pub fn run(name: &str, data: &[u8]) {
    let target = targets::TARGETS
        .iter()
        .find(|(target, _)| *target == name)
        .expect("a known target");
    (target.1)(data, &SCRATCH);
}
