//! Every field of the header, wrong one at a time; every length; random bytes.

mod common;

use common::{patch, root};
use proptest::prelude::*;
use wpack_format::{Error, Header, Table, sha256, spec, spec::header as at};

/// The page of a good header with one field changed, and its digest made again.
fn page_with(field: &str, value: &[u8]) -> (Vec<u8>, u64) {
    let (_, header) = root();
    let mut page = header.encode();
    let field = at::FIELDS.iter().find(|known| known.name == field).unwrap();
    assert!(value.len() <= field.len);
    patch(&mut page, field.at, value);
    if field.at < at::SHA256 {
        let digest = sha256(&page[..at::SHA256]);
        patch(&mut page, at::SHA256, &digest);
    }
    (page, header.file_len)
}

#[test]
fn every_field_is_checked() {
    let (_, good) = root();
    let constant = |field, expected, found| Error::Constant {
        field,
        expected,
        found,
    };
    let range = |field, found, limit| {
        let table = Table::Header;
        Error::Range {
            table,
            field,
            entry: 0,
            found,
            limit,
        }
    };
    let reserved = |field| Error::ReservedBits {
        table: Table::Header,
        field,
        entry: 0,
    };
    let version = |found| Error::Version {
        found,
        oldest: 1,
        newest: 1,
    };
    let len = good.file_len;
    let cases: Vec<(&str, Vec<u8>, Error)> = vec![
        (
            "MAGIC",
            b"\x89wPACK\r\n".to_vec(),
            Error::Magic {
                found: *b"\x89wPACK\r\n",
            },
        ),
        ("VERSION", 2_u32.to_le_bytes().to_vec(), version(2)),
        ("VERSION", 0_u32.to_le_bytes().to_vec(), version(0)),
        (
            "HEADER_LEN",
            4097_u32.to_le_bytes().to_vec(),
            constant("HEADER_LEN", 4096, 4097),
        ),
        (
            "RESERVED_FLAGS",
            vec![0, 0, 0, 0, 0, 0, 0, 0x80],
            reserved("RESERVED_FLAGS"),
        ),
        (
            "FILE_LEN",
            (len + 1).to_le_bytes().to_vec(),
            Error::Truncated {
                expected: len + 1,
                found: len,
            },
        ),
        (
            "FILE_LEN",
            (len - 1).to_le_bytes().to_vec(),
            Error::TrailingBytes {
                expected: len - 1,
                found: len,
            },
        ),
        (
            "INDEX_LEN",
            u64::MAX.to_le_bytes().to_vec(),
            range("INDEX_LEN", u64::MAX, len - 4096),
        ),
        (
            "EXTENT_ALIGN",
            2048_u64.to_le_bytes().to_vec(),
            Error::ExtentAlign { found: 2048 },
        ),
        (
            "EXTENT_ALIGN",
            4097_u64.to_le_bytes().to_vec(),
            Error::ExtentAlign { found: 4097 },
        ),
        (
            "EXTENT_ALIGN",
            0_u64.to_le_bytes().to_vec(),
            Error::ExtentAlign { found: 0 },
        ),
        (
            "EXTENT_ALIGN",
            (1_u64 << 31).to_le_bytes().to_vec(),
            Error::ExtentAlign { found: 1 << 31 },
        ),
        (
            "BLOCK_LEN",
            4096_u64.to_le_bytes().to_vec(),
            constant("BLOCK_LEN", spec::BLOCK_LEN, 4096),
        ),
        (
            "SLICE_PAGE",
            512_u32.to_le_bytes().to_vec(),
            constant("SLICE_PAGE", 4096, 512),
        ),
        (
            "SLICE_ALIGN",
            64_u32.to_le_bytes().to_vec(),
            constant("SLICE_ALIGN", 512, 64),
        ),
        (
            "ROOT_OFFSET",
            0_u64.to_le_bytes().to_vec(),
            Error::Place {
                what: "the root".into(),
                expected: 4096,
                found: 0,
            },
        ),
        (
            "ROOT_LEN",
            (good.index_len + 1).to_le_bytes().to_vec(),
            range("ROOT_LEN", good.index_len + 1, good.index_len),
        ),
        (
            "RESERVED",
            vec![0; 3939].into_iter().chain([1]).collect(),
            reserved("RESERVED"),
        ),
        ("SHA256", vec![0], Error::HeaderDigest),
    ];
    for (field, value, error) in &cases {
        let (page, file_len) = page_with(field, value);
        assert_eq!(
            Header::decode(&page, file_len).as_ref(),
            Err(error),
            "{field}"
        );
    }
    // These are read as they are: what they refer to is checked with the root.
    let unchecked = ["UNUSED_FLAGS", "ROOT_SHA256", "ROOT_CRC32C"];
    for field in at::FIELDS {
        let covered = cases.iter().any(|case| case.0 == field.name);
        assert!(
            covered || unchecked.contains(&field.name),
            "{} has no case",
            field.name
        );
    }
}

#[test]
fn unused_flags_are_ignored() {
    let (_, good) = root();
    let (page, file_len) = page_with("UNUSED_FLAGS", &[0xff; 8]);
    assert_eq!(Header::decode(&page, file_len), Ok(good));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (_, header) = root();
    let mut page = header.encode();
    for at in 0..page.len() {
        for bit in 0..8 {
            page[at] ^= 1 << bit;
            assert!(
                Header::decode(&page, header.file_len).is_err(),
                "byte {at} bit {bit}"
            );
            page[at] ^= 1 << bit;
        }
    }
}

#[test]
fn a_short_file_is_cut_off_or_no_packfile() {
    let (_, header) = root();
    let page = header.encode();
    for len in 0..page.len() {
        let found = u64::try_from(len).unwrap();
        let error = Error::Truncated {
            expected: 4096,
            found,
        };
        assert_eq!(Header::decode(&page[..len], found), Err(error));
    }
    let magic = |found: [u8; 8]| Err(Error::Magic { found });
    assert_eq!(
        Header::decode(b"PK\x03\x04", 4),
        magic(*b"PK\x03\x04\0\0\0\0")
    );
    assert_eq!(Header::decode(&[0; 4096], 4096), magic([0; 8]));
}

/// The version comes first: the rest of a newer header may mean anything.
#[test]
fn another_version_is_named_with_the_remedy() {
    let mut page = [0xff; 4096];
    patch(&mut page, 0, &spec::MAGIC);
    let error = Header::decode(&page, 4096).unwrap_err();
    let text = "the file is of format version 4294967295, this program reads 1 to 1";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.code(), "unsupported-version");
    assert!(error.hint().unwrap().contains("newer wpack"));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut page in proptest::collection::vec(any::<u8>(), 4096), sealed: bool) {
        let _ = Header::decode(&page, 4096);
        if sealed {
            patch(&mut page, 0, &spec::MAGIC);
            patch(&mut page, 8, &1_u32.to_le_bytes());
            let digest = sha256(&page[..at::SHA256]);
            patch(&mut page, at::SHA256, &digest);
        }
        prop_assert!(Header::decode(&page, 4096).is_err());
    }
}
