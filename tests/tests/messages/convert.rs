//! One sample of every error of `wpack-convert`.

use wpack_convert::Error;
use wpack_format::DType;

use super::refused;

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::CastUnsupported {
            from: DType::F4,
            to: DType::F32,
        },
        Error::CastLength {
            from: DType::F4,
            to: DType::F32,
            source_len: 3,
            target_len: 4,
        },
        Error::TargetDtype {
            name: "blocks.0.weight".into(),
        },
        Error::Pattern {
            option: "--include",
            pattern: "blocks.*".into(),
            why: "what is in the way".into(),
        },
        Error::PatternUnused {
            option: "--include",
            pattern: "blocks.*".into(),
            of: "component `dit`".into(),
            names: vec!["dit".into(), "vae".into()],
        },
        Error::NothingLeft {
            component: "dit".into(),
        },
        Error::EmptyName {
            component: "dit".into(),
            source_name: "module.".into(),
        },
        Error::NameCollision {
            component: "dit".into(),
            name: "blocks.0.weight".into(),
            first: "a.weight".into(),
            second: "b.weight".into(),
        },
        Error::UnknownComponent {
            component: "dit".into(),
            known: vec!["dit".into(), "vae".into()],
        },
        Error::Align {
            align: 5000,
            min: 4096,
            max: 1073741824,
        },
        Error::TooLarge {
            what: "source files",
        },
        Error::Exists {
            path: "model.pth".into(),
        },
        Error::NotAFile {
            path: "model.pth".into(),
        },
        Error::TargetIsSource {
            path: "model.pth".into(),
        },
        Error::SourceChanged {
            path: "model.pth".into(),
            expected: 4096,
            found: 4095,
        },
        Error::NoSpace {
            path: "model.pth".into(),
            needed: 2,
            source: refused(),
        },
        Error::Io {
            op: "op",
            path: "model.pth".into(),
            source: refused(),
        },
        Error::Join {
            component: "text_encoder".into(),
            what: "merge",
            pattern: r"(.*)\.(?P<part>\d+)".into(),
            why: "what is in the way".into(),
        },
        Error::Interrupted,
        Error::Inconsistent {
            component: "dit".into(),
            tensor: 2,
            why: "what is in the way",
        },
    ]
}
