//! `docs/checkpoints.md` against the code: no class undocumented, no row without code.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{messages, support::open_all};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Codes in the first column of the table under a heading.
fn rows(heading: &str) -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/checkpoints.md")).expect("the page");
    let (_, part) = page
        .split_once(&format!("\n## {heading}\n"))
        .expect("the heading");
    let part = part.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        line.strip_prefix("| `")?
            .split_once('`')
            .map(|row| row.0.to_owned())
    };
    part.lines().filter_map(row).collect()
}

#[test]
fn every_error_has_a_row() {
    let codes = messages::every()
        .iter()
        .map(|error| error.code().to_owned())
        .collect();
    assert_eq!(rows("Errors"), codes);
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_warning_has_a_row_and_every_row_a_warning() {
    let rows = rows("Warnings");
    let mut sources = Vec::new();
    files(&root().join("checkpoint/src"), &mut sources);
    let code: String = sources
        .iter()
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    for row in &rows {
        assert!(code.contains(&format!("\"{row}\"")), "no warning {row}");
    }
    let mut cases = Vec::new();
    files(&root().join("fixtures/cases"), &mut cases);
    let mut seen = BTreeSet::new();
    for path in cases {
        if let Ok(checkpoint) = open_all(&[path.to_str().expect("UTF-8")]) {
            seen.extend(
                checkpoint
                    .warnings
                    .iter()
                    .map(|warning| warning.code.to_owned()),
            );
        }
    }
    assert!(seen.len() > 20, "the cases give warnings");
    assert_eq!(
        seen.difference(&rows).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}
