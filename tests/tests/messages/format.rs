//! One sample of every error of `wpack-format`.

use wpack_format::{DType, DescriptionFault, Error, OwnersFault, PartFault, Table};

pub(super) fn all() -> Vec<Error> {
    vec![
        Error::Magic {
            found: *b"\x00asm\x01\x00\x00\x00",
        },
        Error::Version {
            found: 4095,
            oldest: 1,
            newest: 1,
        },
        Error::Truncated {
            expected: 4096,
            found: 4095,
        },
        Error::TrailingBytes {
            expected: 4096,
            found: 4095,
        },
        Error::HeaderDigest,
        Error::Constant {
            field: "field",
            expected: 4096,
            found: 4095,
        },
        Error::ReservedBits {
            table: Table::Slices,
            field: "field",
            entry: 3,
        },
        Error::ExtentAlign { found: 4095 },
        Error::Length {
            what: "the root".into(),
            expected: 4096,
            found: 4095,
        },
        Error::Checksum {
            what: "the root".into(),
            expected: 3735928559,
            found: 4095,
        },
        Error::Digest {
            what: "the root".into(),
        },
        Error::Count {
            table: Table::Slices,
            field: "field",
            expected: 4096,
            found: 4095,
        },
        Error::Code {
            table: Table::Slices,
            field: "field",
            entry: 3,
            found: 4095,
        },
        Error::Range {
            table: Table::Slices,
            field: "field",
            entry: 3,
            found: 4095,
            limit: 4096,
        },
        Error::Value {
            table: Table::Slices,
            field: "field",
            entry: 3,
            expected: 4096,
            found: 4095,
        },
        Error::NameUtf8 { entry: 1 },
        Error::NameOrder {
            entry: 1,
            name: "blocks.0.weight".into(),
            before: "a".into(),
        },
        Error::NameChain {
            tensor: 1,
            entry: 2,
        },
        Error::Shape {
            table: Table::Slices,
            entry: 2,
        },
        Error::StoredShape {
            tensor: 1,
            expected: 4096,
            found: 4095,
        },
        Error::SliceAlign {
            slice: 1,
            len: 4096,
            found: 4095,
            align: 5000,
        },
        Error::SliceOverlap {
            slice: 1,
            expected: 4096,
            found: 4095,
        },
        Error::SliceEnd {
            expected: 4096,
            found: 4095,
        },
        Error::Part {
            slice: 1,
            part: 2,
            fault: PartFault::SubByte,
        },
        Error::WholeShape {
            slice: 1,
            tensor: 2,
        },
        Error::SliceType {
            slice: 1,
            tensor: 2,
            expected: DType::F4,
            found: DType::F32,
        },
        Error::Description {
            reason: "expected value at line 1 column 2".into(),
        },
        Error::NotCanonical { at: 17 },
        Error::Inconsistent {
            fault: DescriptionFault::Mesh,
        },
        Error::Owners {
            extent: 1,
            run: 2,
            fault: OwnersFault::NoMesh,
        },
        Error::Place {
            what: "the root".into(),
            expected: 4096,
            found: 4095,
        },
        Error::TooLarge {
            what: "the root".into(),
        },
    ]
}
