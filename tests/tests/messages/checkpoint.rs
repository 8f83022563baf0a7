//! One sample of every error of `wpack-checkpoint`.

use wpack_checkpoint::{Error, Foreign};

use super::refused;

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::Io {
            path: "model.pth".into(),
            source: refused(),
        },
        Error::NoInput {
            input: "missing/*.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::SeveralComponents {
            input: "missing/*.pth".into(),
            names: vec!["dit".into(), "vae".into()],
        },
        Error::NotACheckpoint {
            path: "model.pth".into(),
            found: Foreign::LfsPointer,
        },
        Error::UnsupportedFormat {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
            remedy: Some("merge it first".into()),
        },
        Error::Truncated {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
            need: 4096,
            have: 1024,
        },
        Error::TrailingBytes {
            path: "model.pth".into(),
            end: 900,
            size: 1000,
        },
        Error::HeaderTooLarge {
            path: "model.pth".into(),
            len: 4096,
            limit: 4096,
        },
        Error::BadHeader {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::DuplicateKey {
            path: "model.pth".into(),
            key: "weight".into(),
        },
        Error::Hole {
            path: "model.pth".into(),
            tensor: "blocks.0.weight".into(),
            expected: 4096,
            found: 4095,
        },
        Error::Overlap {
            path: "model.pth".into(),
            a: "a.weight".into(),
            b: "b.weight".into(),
            end: 900,
            begin: 800,
        },
        Error::SizeMismatch {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
            expected: 4096,
            found: 4095,
        },
        Error::OutOfBounds {
            path: "model.pth".into(),
            tensor: "blocks.0.weight".into(),
            what: "tensor `w`".into(),
        },
        Error::Corrupt {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::AmbiguousArchive {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::AmbiguousRoot {
            path: "model.pth".into(),
            roots: vec!["dit".into(), "vae".into()],
        },
        Error::NoSuchRoot {
            path: "model.pth".into(),
            root: "params_ema".into(),
            roots: vec!["dit".into(), "vae".into()],
        },
        Error::BadIndex {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::MissingShard {
            path: "model.pth".into(),
            shard: "model-00002-of-00003.safetensors".into(),
            what: "tensor `w`".into(),
        },
        Error::MissingTensor {
            path: "model.pth".into(),
            tensor: "blocks.0.weight".into(),
            shard: "model-00002-of-00003.safetensors".into(),
        },
        Error::MissingStorage {
            path: "model.pth".into(),
            storage: "data/7".into(),
            what: "tensor `w`".into(),
        },
        Error::NameCollision {
            name: "blocks.0.weight".into(),
            a: "a.weight".into(),
            b: "b.weight".into(),
        },
        Error::NoTensors {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::Partitioned {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
            remedy: "merge it first".into(),
        },
        Error::ResourceLimit {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
            found: 4095,
            limit: 4096,
        },
        Error::UnsafePath {
            path: "model.pth".into(),
            value: "../../etc/passwd".into(),
        },
        Error::MalformedPickle {
            path: "model.pth".into(),
            record: "data.pkl".into(),
            at: 17,
            what: "tensor `w`".into(),
        },
        Error::UnsafePickle {
            path: "model.pth".into(),
            record: "data.pkl".into(),
            at: 17,
            global: "posix.system".into(),
        },
        Error::UnsupportedDtype {
            path: "model.pth".into(),
            tensor: "blocks.0.weight".into(),
            dtype: "qint8".into(),
        },
        Error::UnsupportedEndian {
            path: "model.pth".into(),
            what: "tensor `w`".into(),
        },
        Error::UnsupportedLayout {
            path: "model.pth".into(),
            tensor: "blocks.0.weight".into(),
            layout: "zero3".into(),
        },
        Error::UnsupportedObject {
            path: "model.pth".into(),
            object: "model.head".into(),
            class: "mylib.Head".into(),
        },
    ]
}
