//! Every field and word of a slice table, wrong one at a time; every length; random bytes.

mod common;

use common::{extent_len, patch, slice, slices, tensors};
use proptest::prelude::*;
use wpack_format::{
    Content, DType, Error, PartFault, Slice, SliceTable, Table, TensorTable,
    spec::{self, slice as at, slice_table as head},
};

const SLICES: usize = head::SIZE;
/// Words of the boxes: 2 of the shape, 5 + 5 + 4 of the parts; of the whole slice: 2; of the flat one:
/// 1 and 3 + 4 + 3.
const WORDS: usize = SLICES + 3 * at::SIZE;

fn decode(bytes: &[u8]) -> Result<(), Error> {
    SliceTable::decode(bytes, 3, extent_len(&slices()), 3).map(|_| ())
}

fn part(slice: u64, part: u64, fault: PartFault) -> Error {
    Error::Part { slice, part, fault }
}

#[test]
fn every_field_is_checked() {
    let bytes = SliceTable::encode(&slices());
    let len = bytes.len() as u64;
    let table = Table::Slices;
    let length = |expected| Error::Length {
        what: "slice table".into(),
        expected,
        found: len,
    };
    let value = |field, entry, expected, found| Error::Value {
        table,
        field,
        entry,
        expected,
        found,
    };
    let range = |field, entry, found, limit| Error::Range {
        table,
        field,
        entry,
        found,
        limit,
    };
    let code = |field, entry, found| Error::Code {
        table,
        field,
        entry,
        found,
    };
    let [boxes, whole, flat] = [0, 1, 2].map(|i| SLICES + i * at::SIZE);
    // Record, its first byte, field, value, what must be said.
    let cases: Vec<(&str, usize, &str, Vec<u8>, Error)> = vec![
        ("slice_table", 0, "SLICE_COUNT", vec![4], length(len + 40)),
        (
            "slice_table",
            0,
            "SLICE_COUNT",
            vec![0xff; 4],
            length(len + 40 * (0xffff_ffff - 3)),
        ),
        (
            "slice_table",
            0,
            "RESERVED",
            vec![0, 0, 0, 1],
            Error::ReservedBits {
                table,
                field: "RESERVED",
                entry: 0,
            },
        ),
        (
            "slice_table",
            0,
            "WORD_COUNT",
            vec![0xff; 8],
            length(u64::MAX),
        ),
        (
            "slice",
            whole,
            "OFFSET",
            vec![1],
            Error::SliceAlign {
                slice: 1,
                len: 16,
                found: 513,
                align: 512,
            },
        ),
        (
            "slice",
            whole,
            "OFFSET",
            vec![0, 0],
            Error::SliceOverlap {
                slice: 1,
                expected: 24,
                found: 0,
            },
        ),
        (
            "slice",
            flat,
            "OFFSET",
            vec![0, 6],
            range("OFFSET", 2, 1536, 1024),
        ),
        (
            "slice",
            flat,
            "OFFSET",
            vec![0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            range("OFFSET", 2, u64::MAX - 511, 1024),
        ),
        ("slice", whole, "LEN", vec![17], value("LEN", 1, 16, 17)),
        ("slice", whole, "TENSOR", vec![3], range("TENSOR", 1, 3, 3)),
        ("slice", flat, "TENSOR", vec![1], value("TENSOR", 2, 0, 1)),
        (
            "slice",
            whole,
            "PART_COUNT",
            vec![1],
            value("PART_COUNT", 1, 0, 1),
        ),
        (
            "slice",
            boxes,
            "PART_COUNT",
            vec![2],
            part(
                0,
                1,
                PartFault::Sum {
                    expected: 4,
                    found: 2,
                },
            ),
        ),
        (
            "slice",
            boxes,
            "PART_COUNT",
            vec![0xff; 4],
            part(0, 3, PartFault::Code(4)),
        ),
        (
            "slice",
            whole,
            "FIRST_WORD",
            vec![0],
            value("FIRST_WORD", 1, 16, 0),
        ),
        ("slice", whole, "DTYPE", vec![30], code("DTYPE", 1, 30)),
        (
            "slice",
            whole,
            "DIMS",
            vec![0, 1],
            range("DIMS", 1, 256, 255),
        ),
        ("slice", whole, "DIMS", vec![255], range("DIMS", 1, 255, 29)),
        ("slice", flat, "DIMS", vec![2], value("DIMS", 2, 1, 2)),
        (
            "slice",
            whole,
            "PART_DIM",
            vec![1],
            value("PART_DIM", 1, 0, 1),
        ),
        (
            "slice",
            boxes,
            "PART_DIM",
            vec![2],
            range("PART_DIM", 0, 2, 2),
        ),
        ("slice", whole, "KIND", vec![2], code("KIND", 1, 2)),
        ("slice", whole, "CONTENT", vec![3], code("CONTENT", 1, 3)),
        ("slice", whole, "CONTENT", vec![2], value("TENSOR", 1, 0, 1)),
    ];
    for (record, start, field, value, error) in &cases {
        let (_, _, fields) = spec::RECORDS
            .iter()
            .find(|known| known.0 == *record)
            .unwrap();
        let at = start + fields.iter().find(|known| known.name == *field).unwrap().at;
        let mut bytes = bytes.clone();
        patch(&mut bytes, at, value);
        assert_eq!(
            decode(&bytes).as_ref(),
            Err(error),
            "{record}.{field} {value:?}"
        );
    }
    // The checksum is of the data; that there is none is checked below.
    let elsewhere = ["CRC32C"];
    for (record, _, fields) in spec::RECORDS {
        for field in fields
            .iter()
            .filter(|_| ["slice_table", "slice"].contains(record))
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
fn every_word_is_checked() {
    let bytes = SliceTable::encode(&slices());
    let max = u64::MAX;
    let cross = |dim, expected, found| PartFault::Cross {
        dim,
        expected,
        found,
    };
    let sum = |expected, found| PartFault::Sum { expected, found };
    let value = |expected, found| {
        let (table, field) = (Table::Slices, "LEN");
        Error::Value {
            table,
            field,
            entry: 0,
            expected,
            found,
        }
    };
    // Word, value, what must be said.
    let cases = [
        (0, 4, value(32, 24)),
        (1, 5, value(30, 24)),
        (2, 2, part(0, 0, PartFault::Code(2))),
        (3, max, part(0, 0, PartFault::Overflow)),
        (5, 2, part(0, 0, cross(0, 3, 2))),
        (6, 2, part(0, 2, sum(4, 5))),
        (12, 1 << 32, part(0, 2, PartFault::Code(1 << 32))),
        (13, 3, part(0, 2, sum(4, 5))),
        (13, max, part(0, 2, PartFault::Overflow)),
        (14, 0x1_0000, part(0, 2, PartFault::Fill)),
        (15, 1, part(0, 2, PartFault::Fill)),
        (19, 3 << 32, part(2, 0, PartFault::Tensor(3))),
        (19, 2, part(2, 0, PartFault::Code(2))),
        (20, max, part(2, 0, PartFault::Overflow)),
        (21, 8, part(2, 2, sum(9, 10))),
        (22, 1 | 1 << 32, part(2, 1, PartFault::Code(1 | 1 << 32))),
        (23, max, part(2, 1, PartFault::Overflow)),
        (24, 1 << 32, part(2, 1, PartFault::Fill)),
    ];
    for (word, value, error) in cases {
        let mut bytes = bytes.clone();
        patch(
            &mut bytes,
            WORDS + word * spec::WORD_LEN,
            &u64::to_le_bytes(value),
        );
        assert_eq!(decode(&bytes), Err(error), "word {word} = {value}");
    }
}

#[test]
fn counts_and_ends_of_the_extent_are_checked() {
    let bytes = SliceTable::encode(&slices());
    let end = extent_len(&slices());
    let decode =
        |count, len, tensors| SliceTable::decode(&bytes[..], count, len, tensors).map(|_| ());
    assert_eq!(decode(3, end, 3), Ok(()));
    let field = "SLICE_COUNT";
    let error = Error::Count {
        table: Table::Slices,
        field,
        expected: 2,
        found: 3,
    };
    assert_eq!(decode(2, end, 3), Err(error));
    let error = Error::SliceEnd {
        expected: end + 1,
        found: end,
    };
    assert_eq!(decode(3, end + 1, 3), Err(error));
    assert!(matches!(
        decode(3, end - 1, 3),
        Err(Error::Range {
            field: "OFFSET",
            ..
        })
    ));
    let mut more = bytes.clone();
    patch(&mut more, head::WORD_COUNT, &30_u64.to_le_bytes());
    more.extend([0; 8]);
    let (table, field) = (Table::Slices, "WORD_COUNT");
    let error = Error::Value {
        table,
        field,
        entry: 3,
        expected: 29,
        found: 30,
    };
    assert_eq!(self::decode(&more), Err(error));
}

#[test]
fn a_checksum_stands_where_there_is_one() {
    let mut empty = slice(Content::Whole { tensor: 0 }, DType::U8, &[0]);
    empty.crc32c = Some(5);
    let bytes = SliceTable::encode(std::slice::from_ref(&empty));
    let table = SliceTable::decode(&bytes[..], 1, 0, 1).unwrap();
    assert_eq!(table.get(0).unwrap().crc32c, None);
    let mut bytes = bytes;
    patch(&mut bytes, SLICES + at::CRC32C, &[5]);
    let (table, field) = (Table::Slices, "CRC32C");
    let error = Error::Value {
        table,
        field,
        entry: 0,
        expected: 0,
        found: 5,
    };
    assert_eq!(
        SliceTable::decode(&bytes[..], 1, 0, 1).map(|_| ()),
        Err(error)
    );

    for (len, expected) in [((8 << 20) - 1, Some(5)), (8 << 20, None)] {
        let mut large = slice(Content::Whole { tensor: 0 }, DType::U8, &[len]);
        large.crc32c = Some(5);
        let bytes = SliceTable::encode(&[large]);
        let table = SliceTable::decode(&bytes[..], 1, len, 1).unwrap();
        assert_eq!(table.get(0).unwrap().crc32c, expected);
    }
}

#[test]
fn cut_at_every_length_it_is_refused() {
    let bytes = SliceTable::encode(&slices());
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn random_changes_never_panic(at in any::<prop::sample::Index>(), value in any::<u64>()) {
        let mut bytes = SliceTable::encode(&slices());
        let at = at.index(bytes.len() - 8);
        patch(&mut bytes, at, &value.to_le_bytes());
        if let Ok(table) = SliceTable::decode(&bytes[..], 3, extent_len(&slices()), 3) {
            let tensors = TensorTable::decode(TensorTable::encode(&tensors()), 3).unwrap();
            let _ = table.check_tensors(&tensors);
            let again: Vec<Slice> = table.iter().map(|slice| slice.to_slice()).collect();
            prop_assert_eq!(SliceTable::encode(&again), bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
    }
}
