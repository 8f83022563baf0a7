//! Every message of every crate in one list, as the command prints it: code, exit status, text, causes
//! and hint. Read it as a user would.

mod checkpoint;
mod cli;
mod convert;
mod format;
mod loader;
mod plan;

use std::{collections::BTreeSet, fmt::Write as _, io};

use wpack_cli::Error;
use wpack_tests::root;

/// What a system says.
fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "permission denied")
}

/// Crate, name of the variant, the error as the command has it.
fn all() -> Vec<(&'static str, String, Error)> {
    let mut all = Vec::new();
    for error in format::all() {
        let path = "model.wpack".to_owned();
        let name = variant(&error);
        let error = wpack_loader::Error::Format {
            path,
            source: error,
        };
        all.push(("format", name, error.into()));
    }
    for error in plan::all() {
        all.push((
            "plan",
            variant(&error),
            wpack_convert::Error::from(error).into(),
        ));
    }
    for error in checkpoint::all() {
        all.push(("checkpoint", variant(&error), error.into()));
    }
    for error in convert::all() {
        all.push(("convert", variant(&error), error.into()));
    }
    for error in loader::all() {
        all.push(("loader", variant(&error), error.into()));
    }
    for error in cli::all() {
        all.push(("cli", variant(&error), error));
    }
    all
}

/// `Io` of `Io { .. }`.
fn variant(error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    text.split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The variants that the source of a crate's error defines.
fn defined(krate: &str) -> BTreeSet<String> {
    let path = root().join(krate).join("src/error.rs");
    let source = std::fs::read_to_string(path).unwrap();
    let body = source
        .split_once("pub enum Error {\n")
        .expect("an error enum")
        .1;
    let body = body.split_once("\n}").expect("its end").0;
    body.lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_variant_has_a_sample() {
    // These only carry another crate's error.
    let carriers = [
        ("cli", "Checkpoint"),
        ("cli", "Convert"),
        ("cli", "Loader"),
        ("convert", "Checkpoint"),
        ("convert", "Format"),
        ("convert", "Pack"),
        ("convert", "Plan"),
    ];
    let all = all();
    let mut lacking = Vec::new();
    for krate in ["format", "plan", "checkpoint", "convert", "loader", "cli"] {
        let defined = defined(krate);
        assert!(defined.len() > 5, "{krate}: {defined:?}");
        for variant in defined {
            let sampled = all
                .iter()
                .any(|(of, name, _)| *of == krate && *name == variant);
            if !sampled && !carriers.contains(&(krate, &variant)) {
                lacking.push(format!("{krate}::Error::{variant}"));
            }
        }
    }
    assert_eq!(
        lacking,
        Vec::<String>::new(),
        "add samples to tests/tests/messages"
    );
}

#[test]
fn messages_are_well_formed() {
    let mut faults = Vec::new();
    for (krate, variant, error) in all() {
        let mut texts = error.chain();
        texts.extend(error.hint());
        for text in &texts {
            for fault in faults_of(text) {
                faults.push(format!("{krate}::{variant}: {fault}: {text}"));
            }
        }
        let code = error.code();
        let kebab = code
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !kebab {
            faults.push(format!(
                "{krate}::{variant}: code `{code}` is not kebab-case"
            ));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

/// What is wrong with a text: brackets, quotes, case, stops, spaces.
fn faults_of(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    let mut open = Vec::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '`' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => open.push(c),
            ')' | ']' | '}' => {
                let pair = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if open.pop() != Some(pair) {
                    faults.push("a bracket closes nothing");
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        faults.push("a bracket never closes");
    }
    if quoted {
        faults.push("a backtick never closes");
    }
    let first = text.split(' ').next().unwrap_or_default();
    // Names of things, such as SHA-256 or Git, are no sentence's beginning.
    let name = first
        .chars()
        .skip(1)
        .any(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    if first.starts_with(|c: char| c.is_uppercase()) && !name {
        faults.push("it begins with a capital");
    }
    // A lone dot is the folder of a command to run.
    if text.ends_with('.') && !text.ends_with("...") && !text.ends_with(" .") {
        faults.push("it ends with a full stop");
    }
    if text.contains("  ") || text.trim() != text || text.is_empty() {
        faults.push("stray spaces");
    }
    if text.contains('\n') {
        faults.push("a line end");
    }
    faults
}

#[test]
fn faults_are_noticed() {
    for (text, fault) in [
        ("a (b", "a bracket never closes"),
        ("a b)", "a bracket closes nothing"),
        ("a `b", "a backtick never closes"),
        ("Cannot read", "it begins with a capital"),
        ("cannot read.", "it ends with a full stop"),
        ("a  b", "stray spaces"),
    ] {
        assert_eq!(faults_of(text), [fault]);
    }
    assert_eq!(faults_of("SHA-256 of `a (` is [1, 2]"), Vec::<&str>::new());
}

#[test]
fn every_message() {
    let mut list = String::new();
    for (krate, variant, error) in all() {
        let chain = error.chain().join("\n    because: ");
        let status = error.status().code();
        let _ = writeln!(
            list,
            "{krate}::{variant} [{}, exit {status}]\n    {chain}",
            error.code()
        );
        if let Some(hint) = error.hint() {
            let _ = writeln!(list, "    hint: {hint}");
        }
    }
    insta::assert_snapshot!("messages", list);
}
