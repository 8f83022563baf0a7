//! One sample of every error of `wpack-loader`.

use wpack_format::DType;
use wpack_loader::Error;

use super::refused;

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::Io {
            path: "model.wpack".into(),
            offset: Some(8192),
            source: refused(),
        },
        Error::Map {
            path: "model.wpack".into(),
            source: refused(),
        },
        Error::Truncated {
            path: "model.wpack".into(),
            offset: 8192,
            missing: 96,
        },
        Error::Changed {
            path: "model.wpack".into(),
            expected: 4096,
            found: 4095,
        },
        Error::Format {
            path: "model.wpack".into(),
            source: wpack_format::Error::HeaderDigest,
        },
        Error::Checksum {
            path: "model.wpack".into(),
            extent: 2,
            block: 3,
            offset: 8192,
            expected: 3735928559,
            found: 4095,
        },
        Error::SliceChecksum {
            path: "model.wpack".into(),
            extent: 2,
            slice: 3,
            offset: 8192,
            expected: 4096,
            found: 4095,
        },
        Error::EmbeddedFile {
            path: "model.wpack".into(),
            file: "config.json".into(),
        },
        Error::Inconsistent {
            path: "model.wpack".into(),
            extent: 2,
            slice: 3,
            what: "a slice table",
        },
        Error::RankOutsideMesh { rank: 9, ranks: 4 },
        Error::UnknownExtent {
            extent: 1,
            extents: 2,
        },
        Error::Plan {
            path: "model.wpack".into(),
            layout: "zero3".into(),
            convert: Some("wpack convert CHECKPOINT -o OUT.wpack --layout zero3".into()),
            source: wpack_plan::Error::NoRanks,
        },
        Error::PlanTransforms {
            path: "model.wpack".into(),
            component: "dit".into(),
            convert: "wpack convert CHECKPOINT -o OUT.wpack --plan PLAN.toml".into(),
        },
        Error::NotStored {
            path: "model.wpack".into(),
            tensor: "blocks.0.weight".into(),
            kind: " (master copy)",
            convert: "wpack convert CHECKPOINT -o OUT.wpack --layout zero2 --ranks 4".into(),
        },
        Error::UnknownComponent {
            name: "blocks.0.weight".into(),
            have: "`dit`, `vae`".into(),
        },
        Error::UnknownTensor {
            name: "blocks.0.weight".into(),
            rank: 9,
        },
        Error::AmbiguousTensor {
            name: "blocks.0.weight".into(),
            components: "dit, vae".into(),
        },
        Error::WrongType {
            type_name: "type_name",
            found: DType::F32,
        },
        Error::Unaligned { align: 5000 },
        Error::OutOfMemory {
            bytes: 1,
            what: "a slice table",
        },
        Error::Budget {
            needed: 1,
            budget: 2,
        },
        Error::Sink {
            doing: "doing",
            source: Box::new(refused()),
        },
        Error::WrongMemory {
            expected: 4096,
            found: 4095,
        },
        Error::ReaderLost,
        Error::Interrupted,
        Error::Threads {
            threads: 1,
            source: Box::new(refused()),
        },
    ]
}
