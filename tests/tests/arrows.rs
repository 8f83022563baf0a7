//! The architecture as tests: which crate may use which, where `unsafe` may stand, and that the
//! format opens no file.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;
use wpack_tests::{files, root};

/// Every crate and the crates of the workspace that it may use. Arrows point down only; a crate that
/// serves inference compiles no reader of checkpoints.
const ARROWS: [(&str, &[&str]); 8] = [
    ("wpack-format", &[]),
    ("wpack-plan", &["wpack-format"]),
    ("wpack-checkpoint", &["wpack-format"]),
    ("wpack-loader", &["wpack-format", "wpack-plan"]),
    (
        "wpack-convert",
        &[
            "wpack-checkpoint",
            "wpack-format",
            "wpack-loader",
            "wpack-plan",
        ],
    ),
    (
        "wpack-cli",
        &[
            "wpack-checkpoint",
            "wpack-convert",
            "wpack-format",
            "wpack-loader",
            "wpack-plan",
        ],
    ),
    (
        "wpack-python",
        &[
            "wpack-cli",
            "wpack-convert",
            "wpack-format",
            "wpack-loader",
            "wpack-plan",
        ],
    ),
    ("wpack-tests", &[]),
];

/// Files that may hold `unsafe`, and why.
const UNSAFE: [(&str, &str); 2] = [
    ("loader/src/map.rs", "maps files"),
    (
        "python/src/dlpack.rs",
        "hands memory to frameworks as DLPack structures",
    ),
];

/// The crates of the workspace, and the crates of it that they use outside of tests.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    packages
        .iter()
        .map(|package| {
            let used = package["dependencies"].as_array().unwrap().iter();
            let used = used.filter(|dependency| dependency["kind"].as_str() != Some("dev"));
            let used = used.map(|dependency| text(&dependency["name"]));
            (
                text(&package["name"]),
                used.filter(|name| name.starts_with("wpack-")).collect(),
            )
        })
        .collect()
}

fn faults(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed = BTreeMap::from(ARROWS);
    let mut faults = Vec::new();
    for (from, used) in arrows {
        let Some(allowed) = allowed.get(from.as_str()) else {
            faults.push(format!("{from} is not in the table"));
            continue;
        };
        for to in used.iter().filter(|to| !allowed.contains(&to.as_str())) {
            faults.push(format!("{from} must not use {to}"));
        }
    }
    faults
}

#[test]
fn crates_use_only_what_lies_below() {
    let arrows = arrows();
    assert!(arrows.len() >= 7, "cargo lists {} crates", arrows.len());
    assert_eq!(faults(&arrows), Vec::<String>::new());
}

#[test]
fn an_arrow_up_is_noticed() {
    let up = BTreeMap::from([(
        "wpack-loader".to_owned(),
        BTreeSet::from(["wpack-checkpoint".to_owned(), "wpack-plan".to_owned()]),
    )]);
    assert_eq!(faults(&up), ["wpack-loader must not use wpack-checkpoint"]);
}

#[test]
fn unsafe_stands_in_the_named_files_only() {
    let root = root();
    let allowed = UNSAFE.map(|(file, _)| file);
    let mut found = Vec::new();
    for path in files(&root)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
    {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        if has_word(&text, "unsafe") && !allowed.contains(&name.as_str()) {
            found.push(name);
        }
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "unsafe outside of the named files"
    );
}

#[test]
fn words_in_text_are_not_code() {
    assert!(has_word("let x = unsafe { f() };", "unsafe"));
    assert!(has_word("let q = '\"'; unsafe fn f() {}", "unsafe"));
    for text in [
        "// unsafe { }",
        "/// unsafe",
        "let code = \"unsafe-pickle: \\\" unsafe\";",
        "#![expect(unsafe_code)]",
        "let r = r#\"unsafe \" here\"#;",
    ] {
        assert!(!has_word(text, "unsafe"), "{text}");
    }
}

#[test]
fn the_format_opens_no_file() {
    let lib = std::fs::read_to_string(root().join("format/src/lib.rs")).unwrap();
    assert!(
        lib.contains("#![no_std]"),
        "without std there is no file to open"
    );
    let uses_std = lib.lines().zip(lib.lines().skip(1)).any(|(before, line)| {
        line.trim() == "extern crate std;" && before.trim() != "#[cfg(test)]"
    });
    assert!(!uses_std, "std may be linked for tests only");
}

/// Whether a word stands in code: outside of comments, strings and longer names.
fn has_word(source: &str, word: &str) -> bool {
    let code = code_of(source);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// The source with comments and the contents of strings left out.
fn code_of(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(len) = raw_string(rest) {
            len
        } else if c == '"' {
            string(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\\"'") {
            4
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skip..];
    }
    code
}

/// Length of the string literal that `text` starts with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the raw string literal that `text` starts with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let body = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        body.find(&end)
            .map_or(text.len(), |at| 2 + hashes + at + end.len()),
    )
}
