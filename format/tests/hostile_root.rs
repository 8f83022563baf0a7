//! Every field of the root, wrong one at a time; every length; random bytes.

mod common;

use common::{patch, root};
use proptest::prelude::*;
use wpack_format::{
    Error, Header, Owners, OwnersFault, RankRun, Root, Table, TableRef,
    spec::{self, component as comp, extent as ext, root as at, run},
};

/// Reads changed bytes of a root as if header and checksum were made for them.
fn decode(bytes: &[u8], header: &Header) -> Result<Root, Error> {
    let root = TableRef::of(header.root.offset, bytes);
    Root::decode(
        bytes,
        &Header {
            root,
            ..header.clone()
        },
    )
}

const COMPONENTS: usize = at::SIZE;
const EXTENTS: usize = COMPONENTS + comp::SIZE;
const RUNS: usize = EXTENTS + 3 * ext::SIZE;

#[test]
fn every_field_is_checked() {
    let (good, header) = root();
    let bytes = good.encode();
    let len = bytes.len() as u64;
    let length = |expected| Error::Length {
        what: "the root".into(),
        expected,
        found: len,
    };
    let place = |what: &str, expected, found| Error::Place {
        what: what.into(),
        expected,
        found,
    };
    let reserved = |table, field, entry| Error::ReservedBits {
        table,
        field,
        entry,
    };
    let owners = |extent, run, fault| Error::Owners { extent, run, fault };
    let tensor_table = good.components[0].tensors;
    let [first, second] = [&good.extents[0], &good.extents[1]];
    // Record, its first byte, field, value, what must be said.
    let cases: Vec<(&str, usize, &str, Vec<u8>, Error)> = vec![
        (
            "root",
            0,
            "DESCRIPTION_LEN",
            vec![0xff; 8],
            length(u64::MAX),
        ),
        ("root", 0, "COMPONENT_COUNT", vec![2], length(len + 64)),
        ("root", 0, "EXTENT_COUNT", vec![4], length(len + 136)),
        ("root", 0, "RUN_COUNT", vec![4], length(len + 12)),
        (
            "root",
            0,
            "RESERVED",
            vec![1],
            reserved(Table::Root, "RESERVED", 0),
        ),
        (
            "component",
            COMPONENTS,
            "TENSOR_TABLE",
            vec![1],
            place(
                "the tensor table of component 0",
                tensor_table.offset,
                (tensor_table.offset & !0xff) + 1,
            ),
        ),
        (
            "component",
            COMPONENTS,
            "RESERVED",
            vec![1],
            reserved(Table::Components, "RESERVED", 0),
        ),
        (
            "extent",
            EXTENTS,
            "OFFSET",
            vec![1],
            place("extent 0", first.offset, first.offset + 1),
        ),
        (
            "extent",
            EXTENTS,
            "LEN",
            vec![0, 0, 1],
            place("extent 1", first.offset + (1 << 16), second.offset),
        ),
        (
            "extent",
            EXTENTS,
            "LEN",
            vec![0xff; 8],
            Error::TooLarge {
                what: "extent 0".into(),
            },
        ),
        (
            "extent",
            EXTENTS,
            "COMPONENT",
            vec![1],
            Error::Range {
                table: Table::Extents,
                field: "COMPONENT",
                entry: 0,
                found: 1,
                limit: 1,
            },
        ),
        (
            "extent",
            EXTENTS,
            "RUN_COUNT",
            vec![4],
            owners(0, 3, OwnersFault::Missing),
        ),
        (
            "extent",
            EXTENTS,
            "RESERVED_FLAGS",
            vec![0, 0x80],
            reserved(Table::Extents, "RESERVED_FLAGS", 0),
        ),
        (
            "extent",
            EXTENTS,
            "SLICE_TABLE",
            (first.slices.offset + 8).to_le_bytes().to_vec(),
            place(
                "the slice table of extent 0",
                first.slices.offset,
                first.slices.offset + 8,
            ),
        ),
        (
            "extent",
            EXTENTS,
            "BLOCK_TABLE",
            (first.blocks.offset + 8).to_le_bytes().to_vec(),
            place(
                "the block table of extent 0",
                first.blocks.offset,
                first.blocks.offset + 8,
            ),
        ),
        (
            "run",
            RUNS,
            "FIRST",
            vec![9],
            owners(0, 0, OwnersFault::Rank { rank: 11, ranks: 8 }),
        ),
        (
            "run",
            RUNS,
            "COUNT",
            vec![0],
            owners(0, 0, OwnersFault::Empty),
        ),
        (
            "run",
            RUNS,
            "STEP",
            vec![0],
            owners(0, 0, OwnersFault::Empty),
        ),
    ];
    assert_eq!(good.extents[0].owners.runs().len(), 2);
    for (record, start, field, value, error) in &cases {
        let (_, _, fields) = spec::RECORDS
            .iter()
            .find(|known| known.0 == *record)
            .unwrap();
        let field_at = fields.iter().find(|known| known.name == *field).unwrap();
        let mut bytes = bytes.clone();
        patch(&mut bytes, start + field_at.at, value);
        assert_eq!(
            decode(&bytes, &header).as_ref(),
            Err(error),
            "{record}.{field}"
        );
    }
    // Counts of what other tables hold are checked with those.
    let elsewhere = ["TENSOR_COUNT", "SLICE_COUNT", "UNUSED_FLAGS"];
    for (record, _, fields) in spec::RECORDS {
        for field in fields
            .iter()
            .filter(|_| ["root", "component", "extent", "run"].contains(record))
        {
            let covered = cases
                .iter()
                .any(|case| case.0 == *record && case.2 == field.name);
            assert!(
                covered || elsewhere.contains(&field.name),
                "{record}.{} has no case",
                field.name
            );
        }
    }
}

#[test]
fn lengths_of_tables_move_what_follows() {
    let (good, header) = root();
    let bytes = good.encode();
    let slices = good.extents[0].slices;
    let mut longer = bytes.clone();
    let at = EXTENTS + ext::SLICE_TABLE + spec::table_ref::LEN;
    patch(&mut longer, at, &(slices.len + 8).to_le_bytes());
    let next = good.extents[1].slices.offset;
    let what = "the slice table of extent 1".into();
    let error = Error::Place {
        what,
        expected: next + 8,
        found: next,
    };
    assert_eq!(decode(&longer, &header), Err(error));

    let mut blocks = bytes.clone();
    patch(
        &mut blocks,
        EXTENTS + ext::BLOCK_TABLE + spec::table_ref::LEN,
        &72_u64.to_le_bytes(),
    );
    let what = "the block table of extent 0".into();
    assert_eq!(
        decode(&blocks, &header),
        Err(Error::Length {
            what,
            expected: 36,
            found: 72
        })
    );

    let mut huge = bytes;
    patch(&mut huge, COMPONENTS + spec::table_ref::LEN, &[0xff; 8]);
    let what = r#"the tensor table of component "model""#.into();
    assert_eq!(decode(&huge, &header), Err(Error::TooLarge { what }));
}

#[test]
fn unused_flags_are_ignored() {
    let (good, header) = root();
    let mut bytes = good.encode();
    patch(&mut bytes, EXTENTS + ext::UNUSED_FLAGS, &[0xff; 2]);
    assert_eq!(decode(&bytes, &header), Ok(good));
}

#[test]
fn index_and_file_end_where_they_must() {
    let (good, header) = root();
    let bytes = good.encode();
    let place = |what: &str, expected, found| {
        Err(Error::Place {
            what: what.into(),
            expected,
            found,
        })
    };
    let longer = Header {
        index_len: header.index_len + 8,
        ..header.clone()
    };
    let end = 4096 + header.index_len;
    assert_eq!(
        decode(&bytes, &longer),
        place("the end of the index", end, end + 8)
    );
    let longer = Header {
        file_len: header.file_len + 4096,
        ..header.clone()
    };
    let end = header.file_len;
    assert_eq!(
        decode(&bytes, &longer),
        place("the end of the file", end, end + 4096)
    );
}

#[test]
fn checksum_digest_and_length_of_the_root_are_checked() {
    let (good, header) = root();
    let bytes = good.encode();
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    let error = Root::decode(&damaged, &header).unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    let error = Root::decode(&bytes[1..], &header).unwrap_err();
    assert!(matches!(error, Error::Length { .. }), "{error}");
    let other = TableRef {
        sha256: [0; 32],
        ..header.root
    };
    let what = "the root".to_owned();
    assert_eq!(
        other.check_digest("the root", &bytes),
        Err(Error::Digest { what })
    );
}

#[test]
fn cut_at_every_length_it_is_refused() {
    let (good, header) = root();
    let bytes = good.encode();
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len], &header).is_err(), "{len} bytes");
    }
}

#[test]
fn owners_have_one_form() {
    let run = |first, count, step| RankRun { first, count, step };
    let cases = [
        (vec![run(0, 1, 2)], 0, OwnersFault::Empty),
        (vec![run(0, 2, 1), run(1, 2, 1)], 1, OwnersFault::Order),
        (vec![run(4, 2, 1), run(0, 2, 1)], 1, OwnersFault::Order),
        (
            vec![run(0, 1, 1), run(2, 1, 1)],
            1,
            OwnersFault::NotCanonical,
        ),
        (
            vec![run(0, 2, 1), run(2, 2, 1)],
            1,
            OwnersFault::NotCanonical,
        ),
        (
            vec![run(0, 8, 2)],
            0,
            OwnersFault::Rank { rank: 14, ranks: 8 },
        ),
    ];
    for (runs, run, fault) in cases {
        let (mut root, _) = root();
        root.extents[2].owners = Owners::Ranks(runs.clone());
        let header = root.arrange(4096).unwrap();
        let error = decode(&root.encode(), &header);
        assert_eq!(
            error,
            Err(Error::Owners {
                extent: 2,
                run,
                fault
            }),
            "{runs:?}"
        );
    }
    // `u32` overflow in a run is no rank of any mesh.
    let (mut root, _) = root();
    root.extents[2].owners = Owners::Ranks(vec![run(1, u32::MAX, u32::MAX)]);
    let header = root.arrange(4096).unwrap();
    assert!(decode(&root.encode(), &header).is_err());
}

#[test]
fn ranks_need_a_mesh_that_has_them() {
    let (mut root, _) = root();
    root.description.mesh = None;
    let header = root.arrange(4096).unwrap();
    let error = Error::Owners {
        extent: 0,
        run: 0,
        fault: OwnersFault::NoMesh,
    };
    assert_eq!(decode(&root.encode(), &header), Err(error));
}

#[test]
fn runs_left_over_are_refused() {
    let (mut root, _) = root();
    root.extents[2].owners = Owners::All;
    let header = root.arrange(4096).unwrap();
    let mut bytes = root.encode();
    // One run more than the extents name, and its record.
    patch(&mut bytes, at::RUN_COUNT, &3_u32.to_le_bytes());
    let runs_end = RUNS + 2 * run::SIZE;
    bytes.splice(runs_end..runs_end, [0; run::SIZE]);
    let error = Error::Count {
        table: Table::Root,
        field: "RUN_COUNT",
        expected: 2,
        found: 3,
    };
    assert_eq!(decode(&bytes, &header), Err(error));
}

#[test]
fn components_are_as_many_as_described() {
    let (mut root, _) = root();
    let mut second = root.description.components[0].clone();
    second.name = "vae".into();
    root.description.components.push(second);
    let header = root.arrange(4096).unwrap();
    let error = Error::Count {
        table: Table::Root,
        field: "COMPONENT_COUNT",
        expected: 2,
        found: 1,
    };
    assert_eq!(decode(&root.encode(), &header), Err(error));
}

proptest! {
    #[test]
    fn random_changes_never_panic(at in any::<prop::sample::Index>(), value in any::<u64>()) {
        let (good, header) = root();
        let mut bytes = good.encode();
        let at = at.index(bytes.len() - 8);
        patch(&mut bytes, at, &value.to_le_bytes());
        let _ = decode(&bytes, &header);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (_, header) = root();
        let _ = decode(&bytes, &header);
    }
}
