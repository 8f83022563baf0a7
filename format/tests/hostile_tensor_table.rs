//! Every field of a tensor table, wrong one at a time; every length; random bytes.

mod common;

use common::{description, name, patch, tensor, tensors};
use proptest::prelude::*;
use wpack_format::{
    DType, Error, Table, TensorTable,
    spec::{self, name as nam, tensor as at, tensor_table as head},
};

/// First bytes of the records of [`tensors`]: their names, sorted, are `packed`, `scalar`, `tied.a`
/// and `tied.b`; their shapes have 2, 2 + 2 and 0 words.
const TENSORS: usize = head::SIZE;
const NAMES: usize = TENSORS + 3 * at::SIZE + 6 * spec::WORD_LEN;
const TEXT: usize = NAMES + 4 * nam::SIZE;

fn decode(bytes: &[u8]) -> Result<(), Error> {
    TensorTable::decode(bytes, 3).map(|_| ())
}

#[test]
fn every_field_is_checked() {
    let bytes = TensorTable::encode(&tensors());
    let len = bytes.len() as u64;
    let table = Table::Tensors;
    let length = |expected| Error::Length {
        what: "tensor table".into(),
        expected,
        found: len,
    };
    let value = |table, field, entry, expected, found| Error::Value {
        table,
        field,
        entry,
        expected,
        found,
    };
    let range = |table, field, entry, found, limit| Error::Range {
        table,
        field,
        entry,
        found,
        limit,
    };
    let code = |field, found| Error::Code {
        table,
        field,
        entry: 1,
        found,
    };
    let second = TENSORS + at::SIZE;
    let third_name = NAMES + 2 * nam::SIZE;
    // Record, its first byte, field, value, what must be said.
    let cases: Vec<(&str, usize, &str, Vec<u8>, Error)> = vec![
        (
            "tensor_table",
            0,
            "TENSOR_COUNT",
            vec![2],
            Error::Count {
                table,
                field: "TENSOR_COUNT",
                expected: 3,
                found: 2,
            },
        ),
        (
            "tensor_table",
            0,
            "TENSOR_COUNT",
            vec![0xff; 4],
            length(16 + u64::from(u32::MAX) * 32 + 6 * 8 + 4 * 20),
        ),
        (
            "tensor_table",
            0,
            "NAME_COUNT",
            vec![99],
            length(16 + 3 * 32 + 6 * 8 + 99 * 20),
        ),
        (
            "tensor_table",
            0,
            "WORD_COUNT",
            vec![0xff; 8],
            length(u64::MAX),
        ),
        (
            "tensor",
            second,
            "FIRST_NAME",
            vec![1],
            Error::NameChain {
                tensor: 1,
                entry: 1,
            },
        ),
        (
            "tensor",
            second,
            "FIRST_NAME",
            vec![0xff; 4],
            Error::NameChain {
                tensor: 1,
                entry: u32::MAX.into(),
            },
        ),
        (
            "tensor",
            second,
            "FIRST_WORD",
            vec![3],
            value(table, "FIRST_WORD", 1, 2, 3),
        ),
        ("tensor", second, "DTYPE", vec![30], code("DTYPE", 30)),
        (
            "tensor",
            second,
            "SOURCE_DTYPE",
            vec![0],
            code("SOURCE_DTYPE", 0),
        ),
        (
            "tensor",
            second,
            "DIMS",
            vec![255],
            range(table, "DIMS", 1, 255, 6),
        ),
        (
            "tensor",
            second,
            "DIMS",
            vec![0, 1],
            range(table, "DIMS", 1, 256, 255),
        ),
        (
            "tensor",
            second,
            "DIMS",
            vec![1],
            Error::StoredShape {
                tensor: 1,
                expected: 2,
                found: 32,
            },
        ),
        (
            "tensor",
            second,
            "STORED_DIMS",
            vec![0xfe, 0xff],
            range(table, "STORED_DIMS", 1, 0xfffe, 255),
        ),
        (
            "tensor",
            second,
            "STORED_DIMS",
            vec![0xff, 0xff],
            Error::StoredShape {
                tensor: 1,
                expected: 16,
                found: 32,
            },
        ),
        ("tensor", second, "ROLE", vec![2], code("ROLE", 2)),
        (
            "tensor",
            second,
            "RESERVED",
            vec![0, 0, 0, 0, 0, 0, 1],
            Error::ReservedBits {
                table,
                field: "RESERVED",
                entry: 1,
            },
        ),
        (
            "name",
            third_name,
            "TEXT",
            vec![11],
            value(Table::Names, "TEXT", 2, 12, 11),
        ),
        (
            "name",
            third_name,
            "NAME_LEN",
            vec![0xff; 4],
            range(Table::Names, "NAME_LEN", 2, u32::MAX.into(), 17),
        ),
        (
            "name",
            third_name,
            "SOURCE_LEN",
            vec![12],
            range(Table::Names, "SOURCE_LEN", 2, 12, 11),
        ),
        (
            "name",
            third_name,
            "TENSOR",
            vec![1],
            Error::NameChain {
                tensor: 0,
                entry: 2,
            },
        ),
        // A chain that leads back to its start.
        (
            "name",
            third_name,
            "NEXT",
            vec![3, 0, 0, 0],
            Error::NameChain {
                tensor: 0,
                entry: 3,
            },
        ),
        (
            "name",
            third_name,
            "NEXT",
            vec![0, 0, 0, 0],
            Error::NameChain {
                tensor: 0,
                entry: 0,
            },
        ),
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
    // What a rule and a source are is checked with the description.
    let elsewhere = ["RULE", "SOURCE"];
    for (record, _, fields) in spec::RECORDS {
        for field in fields
            .iter()
            .filter(|_| ["tensor_table", "tensor", "name"].contains(record))
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
fn rules_and_sources_must_exist() {
    let description = description();
    let check = |tensors: &[wpack_format::Tensor]| {
        let table = TensorTable::decode(TensorTable::encode(tensors), 3).unwrap();
        table.check_references(&description)
    };
    assert_eq!(check(&tensors()), Ok(()));
    let mut changed = tensors();
    changed[1].rule = 2;
    let (table, entry, found) = (Table::Tensors, 1, 2);
    let error = Error::Range {
        table,
        field: "RULE",
        entry,
        found,
        limit: 2,
    };
    assert_eq!(check(&changed), Err(error));
    let mut changed = tensors();
    changed[2].source = Some(1);
    let error = Error::Range {
        table,
        field: "SOURCE",
        entry: 2,
        found: 1,
        limit: 1,
    };
    assert_eq!(check(&changed), Err(error));
}

#[test]
fn names_are_sorted_unique_and_utf8() {
    let bytes = TensorTable::encode(&tensors());
    let mut swapped = bytes.clone();
    patch(&mut swapped, TEXT, b"zacked");
    let (name_text, before) = ("scalar".into(), "zacked".into());
    assert_eq!(
        decode(&swapped),
        Err(Error::NameOrder {
            entry: 1,
            name: name_text,
            before
        })
    );
    let mut twice = bytes.clone();
    patch(&mut twice, TEXT, b"scalar");
    let (name_text, before) = ("scalar".into(), "scalar".into());
    assert_eq!(
        decode(&twice),
        Err(Error::NameOrder {
            entry: 1,
            name: name_text,
            before
        })
    );
    let mut broken = bytes.clone();
    patch(&mut broken, TEXT + 6, b"\xff");
    assert_eq!(decode(&broken), Err(Error::NameUtf8 { entry: 1 }));
    // A name must not end within a character: the two names `s` and `\u{e9}...` are no text.
    let mut cut = bytes.clone();
    patch(&mut cut, TEXT + 5, "\u{e9}".as_bytes());
    assert_eq!(decode(&cut), Err(Error::NameUtf8 { entry: 0 }));
    let mut longer = bytes;
    longer.push(b'x');
    let field = "text behind the last name";
    let error = Error::Value {
        table: Table::Names,
        field,
        entry: 4,
        expected: 0,
        found: 1,
    };
    assert_eq!(decode(&longer), Err(error));
}

#[test]
fn a_source_name_is_stored_only_where_it_differs() {
    let mut table = vec![tensor(vec![name("aa", "bb")], DType::U8, &[1])];
    let mut bytes = TensorTable::encode(&table);
    let text = bytes.len() - 4;
    patch(&mut bytes, text, b"aaaa");
    let (table_kind, field) = (Table::Names, "SOURCE_LEN");
    let expected = spec::SAME_SOURCE.into();
    let error = Error::Value {
        table: table_kind,
        field,
        entry: 0,
        expected,
        found: 2,
    };
    assert_eq!(TensorTable::decode(&bytes[..], 1).map(|_| ()), Err(error));
    table[0].names.clear();
    let error = Error::NameChain {
        tensor: 0,
        entry: u32::MAX.into(),
    };
    assert_eq!(
        TensorTable::decode(TensorTable::encode(&table), 1).map(|_| ()),
        Err(error)
    );
}

#[test]
fn shapes_have_whole_bytes_of_64_bits() {
    let shape = |dtype, shape: &[u64], stored: &[u64]| {
        let mut one = tensor(vec![name("a", "a")], dtype, shape);
        one.stored_shape = stored.to_vec();
        TensorTable::decode(TensorTable::encode(&[one]), 1).map(|_| ())
    };
    let fault = Err(Error::Shape {
        table: Table::Tensors,
        entry: 0,
    });
    let huge = [1 << 32, 1 << 32];
    assert_eq!(shape(DType::U8, &huge, &huge), fault);
    assert_eq!(shape(DType::U16, &[1 << 63], &[1 << 63]), fault);
    // Strides of an empty tensor must fit too.
    let empty = [1 << 32, 1 << 32, 0];
    assert_eq!(shape(DType::U8, &empty, &empty), fault);
    assert_eq!(shape(DType::F4, &[3], &[2]), fault);
    assert_eq!(shape(DType::F4, &[4], &huge), fault);
    assert_eq!(shape(DType::F4, &[4], &[2]), Ok(()));
    assert_eq!(shape(DType::F6E2M3, &[4], &[3]), Ok(()));
    // A packed scalar has no shape of its own: torch's scalar of two halves is two elements.
    assert_eq!(shape(DType::F4, &[2], &[]), Ok(()));
    assert_eq!(shape(DType::F4, &[0, 3], &[0, 3]), Ok(()));
    let field = "STORED_DIMS";
    let (table, expected) = (Table::Tensors, spec::SAME_SHAPE.into());
    let error = Error::Value {
        table,
        field,
        entry: 0,
        expected,
        found: 1,
    };
    assert_eq!(shape(DType::U8, &[2, 1], &[2]), Err(error));
}

#[test]
fn an_equal_stored_shape_is_not_stored() {
    let one = tensor(vec![name("a", "a")], DType::F4, &[0]);
    let bytes = TensorTable::encode(&[one]);
    // The same table with the shape stored again: two words, `STORED_DIMS` 1.
    let mut long = bytes.clone();
    patch(&mut long, head::WORD_COUNT, &[2]);
    patch(&mut long, TENSORS + at::STORED_DIMS, &1_u16.to_le_bytes());
    let words = TENSORS + at::SIZE;
    long.splice(words..words, [0; 8]);
    let (table, expected) = (Table::Tensors, spec::SAME_SHAPE.into());
    let error = Error::Value {
        table,
        field: "STORED_DIMS",
        entry: 0,
        expected,
        found: 1,
    };
    assert_eq!(TensorTable::decode(&long[..], 1).map(|_| ()), Err(error));
}

#[test]
fn cut_at_every_length_it_is_refused() {
    let bytes = TensorTable::encode(&tensors());
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn random_changes_never_panic(at in any::<prop::sample::Index>(), value in any::<u64>()) {
        let mut bytes = TensorTable::encode(&tensors());
        let at = at.index(bytes.len() - 8);
        patch(&mut bytes, at, &value.to_le_bytes());
        if let Ok(table) = TensorTable::decode(&bytes[..], 3) {
            prop_assert_eq!(table.iter().count(), 3);
            for tensor in table.iter() {
                prop_assert!(!tensor.to_tensor().names.is_empty());
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
    }

    /// One table for one meaning: what decodes encodes to the same bytes.
    #[test]
    fn what_decodes_is_canonical(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = TensorTable::encode(&tensors());
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(table) = TensorTable::decode(&bytes[..], 3) {
            let tensors: Vec<_> = table.iter().map(|tensor| tensor.to_tensor()).collect();
            prop_assert_eq!(TensorTable::encode(&tensors), bytes);
        }
    }
}
