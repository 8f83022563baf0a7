//! One sample of every error of `wpack-plan`.

use wpack_format::DType;
use wpack_plan::{Error, Fault};

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::MeshSyntax {
            text: "dp=2,dp".into(),
            why: "what is in the way".into(),
        },
        Error::TooManyRanks {
            ranks: 4,
            max: 65536,
        },
        Error::NoRanks,
        Error::RanksDisagree {
            mesh: "dp=2,tp=2".into(),
            found: 4095,
            expected: 4096,
        },
        Error::RanksMissing {
            layout: "zero3".into(),
            axis: "tp".into(),
        },
        Error::UnknownLayout {
            layout: "zero3".into(),
            known: vec!["replicate", "zero3"],
        },
        Error::UnknownComponent {
            component: "dit".into(),
            known: vec!["dit".into(), "vae".into()],
        },
        Error::AxisMissing {
            layout: "zero3".into(),
            wanted: "dp or fsdp".into(),
            mesh: "dp=2,tp=2".into(),
        },
        Error::AxisUnused {
            layout: "zero3".into(),
            axis: "tp".into(),
            mesh: "dp=2,tp=2".into(),
        },
        Error::AxisTaken {
            layout: "zero3".into(),
            axis: "tp".into(),
            mesh: "dp=2,tp=2".into(),
        },
        Error::DuplicateComponent {
            component: "dit".into(),
        },
        Error::DuplicateTensor {
            component: "dit".into(),
            name: "blocks.0.weight".into(),
        },
        Error::Unnamed {
            component: "dit".into(),
            index: 2,
        },
        Error::TensorSize {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            dtype: DType::F4,
            shape: vec![5, 3],
        },
        Error::TooManyDims {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            dims: 3,
            max: 65535,
        },
        Error::TotalSize {
            component: "dit".into(),
        },
        Error::TooManySlices {
            tensors: 1,
            ranks: 4,
            slices: 3,
            max: 1073741824,
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
        },
        Error::PatternsDisagree {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            replicate: "*.norm".into(),
            shard: "blocks.*".into(),
        },
        Error::CannotCut {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            shape: vec![5, 3],
            dtype: DType::F4,
            rule: "fsdp: Shard(0, chunk)".into(),
            why: Fault::NotDivisible { len: 7, parts: 2 },
        },
        Error::OrderUnknown {
            component: "dit".into(),
            layout: "zero3".into(),
            tensor: Some("blocks.0.weight".into()),
        },
        Error::MixedTypes {
            component: "dit".into(),
            group: "group".into(),
            first: "a.weight".into(),
            expected: DType::F4,
            tensor: "blocks.0.weight".into(),
            found: DType::F32,
        },
        Error::NoRule {
            component: "dit".into(),
            tensor: "blocks.0.weight".into(),
            layout: "zero3".into(),
            what: "x",
        },
        Error::Rules {
            component: "dit".into(),
            layout: "zero3".into(),
            why: "what is in the way".into(),
        },
        Error::PlanFile {
            line: Some(1),
            why: "what is in the way".into(),
        },
        Error::NoExtent { index: 1, count: 2 },
    ]
}
