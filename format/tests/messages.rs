//! Every message, seen at a glance.

use wpack_format::{DType, DescriptionFault, Error, OwnersFault, PartFault, Table};

fn every_error() -> Vec<Error> {
    let (table, field, entry) = (Table::Slices, "DTYPE", 7);
    let what = "the root".to_owned();
    let part = |fault| Error::Part {
        slice: 7,
        part: 2,
        fault,
    };
    let described = |fault| Error::Inconsistent { fault };
    let owners = |fault| Error::Owners {
        extent: 3,
        run: 1,
        fault,
    };
    vec![
        Error::Magic {
            found: *b"PK\x03\x04\x14\0\0\0",
        },
        Error::Version {
            found: 2,
            oldest: 1,
            newest: 1,
        },
        Error::Version {
            found: 0,
            oldest: 1,
            newest: 1,
        },
        Error::Truncated {
            expected: 4096,
            found: 100,
        },
        Error::TrailingBytes {
            expected: 4096,
            found: 4097,
        },
        Error::HeaderDigest,
        Error::Constant {
            field: "BLOCK_LEN",
            expected: 8_388_608,
            found: 4096,
        },
        Error::ReservedBits {
            table: Table::Header,
            field: "RESERVED_FLAGS",
            entry: 0,
        },
        Error::ExtentAlign { found: 2048 },
        Error::Length {
            what: what.clone(),
            expected: 100,
            found: 99,
        },
        Error::Checksum {
            what: what.clone(),
            expected: 0x1234,
            found: 0xdead_beef,
        },
        Error::Digest { what: what.clone() },
        Error::Count {
            table,
            field: "SLICE_COUNT",
            expected: 3,
            found: 4,
        },
        Error::Code {
            table,
            field,
            entry,
            found: 30,
        },
        Error::Range {
            table,
            field: "TENSOR",
            entry,
            found: 9,
            limit: 9,
        },
        Error::Value {
            table: Table::Tensors,
            field: "FIRST_WORD",
            entry,
            expected: 2,
            found: 3,
        },
        Error::NameUtf8 { entry },
        Error::NameOrder {
            entry,
            name: "a\n".into(),
            before: "b".into(),
        },
        Error::NameChain { tensor: 3, entry },
        Error::Shape {
            table: Table::Tensors,
            entry,
        },
        Error::StoredShape {
            tensor: 7,
            expected: 16,
            found: 32,
        },
        Error::SliceAlign {
            slice: 7,
            len: 16,
            found: 513,
            align: 512,
        },
        Error::SliceOverlap {
            slice: 7,
            expected: 24,
            found: 0,
        },
        Error::SliceEnd {
            expected: 100,
            found: 99,
        },
        part(PartFault::Missing),
        part(PartFault::Code(4)),
        part(PartFault::Tensor(9)),
        part(PartFault::Cross {
            dim: 1,
            expected: 4,
            found: 5,
        }),
        part(PartFault::Sum {
            expected: 4,
            found: 5,
        }),
        part(PartFault::Overflow),
        part(PartFault::Fill),
        part(PartFault::Outside(1)),
        part(PartFault::SubByte),
        Error::WholeShape {
            slice: 7,
            tensor: 1,
        },
        Error::SliceType {
            slice: 7,
            tensor: 1,
            expected: DType::Bf16,
            found: DType::F16,
        },
        Error::Description {
            reason: "EOF while parsing a value at line 1 column 0".into(),
        },
        Error::NotCanonical { at: 12 },
        described(DescriptionFault::Unnamed("component")),
        described(DescriptionFault::Duplicate {
            what: "component",
            name: "dit".into(),
        }),
        described(DescriptionFault::Mesh),
        described(DescriptionFault::Component {
            what: "a rule",
            name: "dit".into(),
        }),
        described(DescriptionFault::Path("../a".into())),
        described(DescriptionFault::Sha256("abc".into())),
        owners(OwnersFault::Missing),
        owners(OwnersFault::Empty),
        owners(OwnersFault::Order),
        owners(OwnersFault::NotCanonical),
        owners(OwnersFault::Rank { rank: 8, ranks: 8 }),
        owners(OwnersFault::NoMesh),
        Error::Place {
            what: what.clone(),
            expected: 4096,
            found: 0,
        },
        Error::TooLarge { what },
    ]
}

#[test]
fn messages() {
    let lines: Vec<String> = every_error()
        .iter()
        .map(|error| format!("{}: {error}", error.code()))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn hints() {
    let mut hints: Vec<String> = every_error()
        .iter()
        .map(|error| format!("{}: {}", error.code(), error.hint().unwrap_or_default()))
        .collect();
    hints.dedup();
    insta::assert_snapshot!(hints.join("\n"));
}

/// The list above has every variant: the source file has no other.
#[test]
fn no_variant_is_missing() {
    let source = include_str!("../src/error.rs");
    let declared = source.matches("#[error(").count();
    let shown: std::collections::BTreeSet<String> = every_error()
        .iter()
        .map(|error| {
            let text = format!("{error:?}");
            let (outer, rest) = text.split_once([' ', '(']).unwrap_or((&text, ""));
            let fault = rest.split_once("fault: ").map_or("", |fault| fault.1);
            let inner = fault.split([' ', '(']).next().unwrap_or_default();
            format!("{outer} {inner}")
        })
        .collect();
    // Three variants show the message of the fault inside them, under a heading of their own.
    assert_eq!(shown.len() + 3, declared);
}
