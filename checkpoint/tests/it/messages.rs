//! Every message as a person reads it.

use std::{io, path::PathBuf};

use wpack_checkpoint::{Error, Foreign};

use Error as E;

fn path() -> PathBuf {
    PathBuf::from("dir/m.pth")
}

pub(crate) fn every() -> Vec<Error> {
    let text = |text: &str| text.to_owned();
    let path = path();
    let p = || path.clone();
    let roots = vec![text("params"), text("params_ema")];
    vec![
        E::Io {
            path: p(),
            source: io::Error::other("no luck"),
        },
        E::NoInput {
            input: text("*.bin"),
            what: text("nothing matches"),
        },
        E::SeveralComponents {
            input: text("x=dir"),
            names: vec![text("dit"), text("vae")],
        },
        E::NotACheckpoint {
            path: p(),
            found: Foreign::LfsPointer,
        },
        E::UnsupportedFormat {
            path: p(),
            what: text("a TorchScript archive"),
            remedy: None,
        },
        E::Truncated {
            path: p(),
            what: text("the header"),
            need: 20,
            have: 10,
        },
        E::TrailingBytes {
            path: p(),
            end: 20,
            size: 27,
        },
        E::HeaderTooLarge {
            path: p(),
            len: 100_000_001,
            limit: 100_000_000,
        },
        E::BadHeader {
            path: p(),
            what: text("not UTF-8 at byte 3"),
        },
        E::DuplicateKey {
            path: p(),
            key: text("a"),
        },
        E::Hole {
            path: p(),
            tensor: text("b"),
            expected: 4,
            found: 8,
        },
        E::Overlap {
            path: p(),
            a: text("a"),
            b: text("b"),
            end: 8,
            begin: 4,
        },
        E::SizeMismatch {
            path: p(),
            what: text("data/0"),
            expected: 24,
            found: 20,
        },
        E::OutOfBounds {
            path: p(),
            tensor: text("w"),
            what: text("stride -1"),
        },
        E::Corrupt {
            path: p(),
            what: text("CRC-32 mismatch in data/0"),
        },
        E::AmbiguousArchive {
            path: p(),
            what: text("two records data.pkl"),
        },
        E::AmbiguousRoot {
            path: p(),
            roots: roots.clone(),
        },
        E::NoSuchRoot {
            path: p(),
            root: text("ema"),
            roots,
        },
        E::BadIndex {
            path: p(),
            what: text("no weight_map"),
        },
        E::MissingShard {
            path: p(),
            shard: text("s"),
            what: text("2 of 3 are there"),
        },
        E::MissingTensor {
            path: p(),
            tensor: text("a"),
            shard: text("s"),
        },
        E::MissingStorage {
            path: p(),
            storage: text("data/1"),
            what: text("`w` lies in it"),
        },
        E::NameCollision {
            name: text("a"),
            a: text("x.pt"),
            b: text("y.pt"),
        },
        E::NoTensors {
            path: p(),
            what: text("a dict of 2 int"),
        },
        E::Partitioned {
            path: p(),
            what: text("ZeRO-3"),
            remedy: text("merge it"),
        },
        E::ResourceLimit {
            path: p(),
            what: text("nodes"),
            found: 1 << 70,
            limit: 1 << 20,
        },
        E::UnsafePath {
            path: p(),
            value: text("../a"),
        },
        E::MalformedPickle {
            path: p(),
            record: text("data.pkl"),
            at: 7,
            what: text("no mark"),
        },
        E::UnsafePickle {
            path: p(),
            record: text("data.pkl"),
            at: 7,
            global: text("os.system"),
        },
        E::UnsupportedDtype {
            path: p(),
            tensor: text("a"),
            dtype: text("F128"),
        },
        E::UnsupportedEndian {
            path: p(),
            what: text("no dtype on the storage"),
        },
        E::UnsupportedLayout {
            path: p(),
            tensor: text("a"),
            layout: text("sparse_coo"),
        },
        E::UnsupportedObject {
            path: p(),
            object: text("h"),
            class: text("lib.Holder"),
        },
    ]
}

#[test]
fn every_message() {
    let lines: Vec<String> = every()
        .iter()
        .map(|error| {
            let hint = error
                .hint()
                .map(|hint| format!("\n    {hint}"))
                .unwrap_or_default();
            format!("{}: {error}{hint}", error.code())
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn names_from_files_are_escaped_and_cut() {
    let error = E::DuplicateKey {
        path: path(),
        key: format!("\u{1b}[2J{}", "k".repeat(5000)),
    };
    let text = error.to_string();
    assert!(text.contains(r"`\u{1b}[2Jkk"), "{text}");
    assert!(text.len() < 300 && text.contains("...`"), "{text}");
    let roots = (0..100).map(|n| n.to_string()).collect();
    let text = E::AmbiguousRoot {
        path: path(),
        roots,
    }
    .to_string();
    assert!(text.ends_with("`7` and 92 more"), "{text}");
}

#[test]
fn the_limit_that_an_option_raises_is_told() {
    let case = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/cases/bad-expand-huge/x.pt"
    );
    let error = crate::support::open_all(&[case]).expect_err("256 TiB");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("--output-limit")),
        "{error}"
    );
    let depth = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/cases/bomb-depth/x.pt"
    );
    let error = crate::support::open_all(&[depth]).expect_err("too deep");
    let hint = error.hint().expect("a way out");
    assert!(!hint.contains("--output-limit"), "no option raises it");
}

#[test]
fn every_message_has_a_way_out() {
    for error in every() {
        let system = matches!(error, E::Io { .. });
        assert!(error.hint().is_some() || system, "{error}");
    }
}
