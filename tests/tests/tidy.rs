//! Tidiness as tests: what a reviewer should not have to look for.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};
use wpack_tests::{files, root};

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .to_string_lossy()
        .replace('\\', "/")
}

/// Text files of the repository by their relative path.
fn texts() -> impl Iterator<Item = (String, String)> {
    let kinds = [
        "rs", "md", "py", "pyi", "toml", "json", "txt", "yml", "sh", "",
    ];
    files(&root()).into_iter().filter_map(move |path| {
        let kind = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !kinds.contains(&kind.as_str()) {
            return None;
        }
        let text = String::from_utf8(fs::read(&path).unwrap()).ok()?;
        Some((relative(&path), text))
    })
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent: Vec<_> = texts()
        .filter(|(path, text)| path.ends_with(".rs") && !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        silent,
        Vec::<String>::new(),
        "files that do not open with //!"
    );
}

/// What `.gitignore` names is made anew by whoever needs it. Without git or its folder there is nothing to
/// ask: then the files came from an archive.
#[test]
fn nothing_that_is_ignored_is_kept() {
    if !root().join(".git").exists() {
        return;
    }
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--ignored", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success());
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
}

#[test]
fn nothing_names_a_machine() {
    // Split so that this file does not find itself.
    let marks = [
        concat!("/", "work/"),
        concat!("/", "tmp/w/"),
        concat!("/", "root/"),
        concat!("/", "home/"),
        concat!("pythonhosted", ".org"),
        concat!("static.", "crates.io"),
        concat!("index.", "crates.io"),
    ];
    let mut found = Vec::new();
    // Checkpoints and lists from public reports are kept as they came.
    let kept = |path: &str| path.starts_with("fixtures/") && !path.ends_with(".md");
    for (path, text) in texts().filter(|(path, _)| path != "Cargo.lock" && !kept(path)) {
        for (number, line) in text.lines().enumerate() {
            for mark in marks.iter().filter(|mark| line.contains(**mark)) {
                found.push(format!("{path}:{}: {mark}", number + 1));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn nothing_is_left_to_be_done() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    let mut found = Vec::new();
    for (path, text) in texts().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".py")) {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{path}:{}", number + 1));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut dead = Vec::new();
    for (path, text) in texts().filter(|(path, _)| path.ends_with(".md")) {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = target.split('#').next().unwrap_or_default();
            let elsewhere = target.is_empty() || target.contains("://") || target.contains(' ');
            if !elsewhere && !folder.join(target).exists() {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn the_reference_of_the_command_line_is_fresh() {
    let written = fs::read_to_string(root().join("docs/cli.md")).unwrap_or_default();
    assert!(
        written == wpack_cli::reference(),
        "docs/cli.md is stale: cargo run -p wpack-cli --example reference > docs/cli.md"
    );
}

/// `SHA256SUMS` as `sha256sum` writes it: file by digest.
fn sums(path: &Path) -> BTreeMap<PathBuf, String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (digest, name) = line.split_once(' ').expect("digest and name");
            (
                PathBuf::from(name.trim_start_matches([' ', '*'])),
                digest.to_owned(),
            )
        })
        .collect()
}

fn sha256(path: &Path) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_text_about_fixtures(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "README.md" || name == "SHA256SUMS" || name.ends_with(".py")
}

#[test]
fn fixtures_are_what_their_sums_say() {
    let fixtures = root().join("fixtures");
    let all = files(&fixtures);
    let mut faults = Vec::new();
    for list in all
        .iter()
        .filter(|path| path.file_name().is_some_and(|name| name == "SHA256SUMS"))
    {
        let folder = list.parent().unwrap();
        let sums = sums(list);
        for (name, digest) in &sums {
            let path = folder.join(name);
            if !path.is_file() {
                faults.push(format!("{}: listed and not there", relative(&path)));
            } else if sha256(&path) != *digest {
                faults.push(format!(
                    "{}: changed; fixtures are append-only",
                    relative(&path)
                ));
            }
        }
        let below = all.iter().filter(|path| path.starts_with(folder));
        for path in below.filter(|path| !is_text_about_fixtures(path)) {
            if !sums.contains_key(path.strip_prefix(folder).unwrap()) {
                faults.push(format!("{}: has no digest", relative(path)));
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn every_fixture_has_a_row() {
    let fixtures = root().join("fixtures");
    let mut faults = Vec::new();
    for path in files(&fixtures)
        .iter()
        .filter(|path| !is_text_about_fixtures(path))
    {
        // A row names the file, or a folder above it (`cases/`) that a manifest describes.
        let mut names = vec![path.file_name().unwrap().to_string_lossy().into_owned()];
        let mut told = false;
        for folder in path
            .ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(&fixtures))
        {
            if let Ok(readme) = fs::read_to_string(folder.join("README.md")) {
                told |= names
                    .iter()
                    .any(|name| readme.contains(&format!("`{name}`")));
            }
            names.push(format!(
                "{}/",
                folder.file_name().unwrap().to_string_lossy()
            ));
        }
        if !told {
            faults.push(relative(path));
        }
    }
    assert_eq!(
        faults,
        Vec::<String>::new(),
        "fixtures that no README.md has a row for"
    );
}

#[test]
fn a_changed_fixture_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    fs::write(&path, b"abc").unwrap();
    let before = sha256(&path);
    assert_eq!(
        before,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    fs::write(&path, b"abd").unwrap();
    assert_ne!(sha256(&path), before);
}

#[test]
fn scripts_can_be_run() {
    use std::os::unix::fs::PermissionsExt as _;
    for script in [".ci/run", "tests/run"] {
        let path = root().join(script);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert!(mode & 0o111 != 0, "{script} is not executable");
        let status = Command::new("bash").arg("-n").arg(&path).status().unwrap();
        assert!(status.success(), "{script} does not parse");
    }
}
