//! The header's rules, one by one, and against the reference implementation on random files.

use proptest::prelude::*;
use safetensors::SafeTensors;

use crate::support::{Folder, code, file, open_all};

/// Opens bytes as a file.
fn open_bytes(bytes: &[u8]) -> Result<wpack_checkpoint::Checkpoint, wpack_checkpoint::Error> {
    let folder = Folder::default();
    let path = folder.write("m.safetensors", bytes);
    open_all(&[path.to_str().expect("UTF-8")])
}

fn header(text: &str, data: usize) -> &'static str {
    code(open_bytes(&file(text, &vec![0; data])))
}

#[test]
fn sizes_are_multiplied_in_any_order_and_never_wrap() {
    let shape = |shape: &str, end: usize| {
        let text = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        header(&text, end)
    };
    assert_eq!(shape("[2,3]", 24), "opened");
    assert_eq!(shape("[]", 4), "opened");
    assert_eq!(shape("[0,4611686018427387904]", 0), "opened");
    for bad in [
        "[4611686018427387904,4,0]",
        "[0,4,4611686018427387904]",
        "[0,18446744073709551615]",
        "[4294967296,4294967296]",
        "[-1]",
        "[1.0]",
        "[1e0]",
        "[null]",
        "1",
        "[18446744073709551616]",
    ] {
        assert_eq!(shape(bad, 0), "bad-header", "{bad}");
    }
    let deep = format!("[{}1]", "1,".repeat(64));
    assert_eq!(shape(&deep, 4), "bad-header");
}

#[test]
fn packed_types_are_whole_bytes() {
    let packed = |dtype: &str, shape: &str, end: usize| {
        let text =
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        let checkpoint = open_bytes(&file(&text, &vec![0; end]))?;
        let tensor = &checkpoint.components[0].tensors[0];
        Ok((tensor.shape.clone(), tensor.stored_shape.clone()))
    };
    let failed = |result: Result<_, wpack_checkpoint::Error>| {
        result.map_err(|error| error.code()) as Result<(Vec<u64>, Vec<u64>), _>
    };
    assert_eq!(
        failed(packed("F4", "[3,4]", 6)),
        Ok((vec![3, 4], vec![3, 2]))
    );
    assert_eq!(
        failed(packed("F4", "[2,3]", 3)),
        Ok((vec![2, 3], vec![2, 3]))
    );
    assert_eq!(failed(packed("F4", "[3]", 2)), Err("bad-header"));
    assert_eq!(failed(packed("F6_E2M3", "[4]", 3)), Ok((vec![4], vec![4])));
    assert_eq!(failed(packed("F6_E3M2", "[2]", 2)), Err("bad-header"));
    assert_eq!(failed(packed("C128", "[1]", 16)), Ok((vec![1], vec![1])));
    assert_eq!(failed(packed("F128", "[1]", 16)), Err("unsupported-dtype"));
}

#[test]
fn keys_are_text_without_control_characters_and_stand_once() {
    let entry = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    assert_eq!(header(&format!(r#"{{"":{entry}}}"#), 1), "opened");
    assert_eq!(
        header(&format!(r#"{{"a\u0000":{entry}}}"#), 1),
        "bad-header"
    );
    assert_eq!(
        header(&format!(r#"{{"a\u009b":{entry}}}"#), 1),
        "bad-header"
    );
    assert_eq!(
        header(&format!(r#"{{"a":{entry},"\u0061":{entry}}}"#), 1),
        "duplicate-key"
    );
    let twice = r#"{"__metadata__":{"a":"b","a":"b"}}"#;
    assert_eq!(header(twice, 0), "duplicate-key");
    assert_eq!(
        header(r#"{"__metadata__":{},"__metadata__":{}}"#, 0),
        "duplicate-key"
    );
    let field = r#"{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#;
    assert_eq!(header(field, 1), "bad-header");
    let unknown = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[[{"y":null}]]}}"#;
    assert_eq!(header(unknown, 1), "opened");
}

#[test]
fn what_is_ignored_may_be_deep() {
    let nested = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let text = format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{nested}}}}}"#);
    assert_eq!(header(&text, 1), "opened");
    let text = format!(r#"{{"a":{nested}}}"#);
    assert_eq!(header(&text, 1), "bad-header");
}

#[test]
fn numbers_tell_a_cut_from_a_tail() {
    let text = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let said = |data: usize| {
        let error = open_bytes(&file(text, &vec![0; data])).expect_err("not whole");
        error
            .to_string()
            .split_once(": ")
            .map(|(_, said)| said.to_owned())
            .expect("a path")
    };
    let end = 8 + text.len() + 4;
    assert_eq!(
        said(3),
        format!(
            "truncated: the last tensor `a` needs {end} bytes, the file has {}",
            end - 1
        )
    );
    assert_eq!(
        said(6),
        format!(
            "2 bytes after the last tensor, which ends at byte {end} of {}",
            end + 2
        )
    );
}

/// A header that is mostly right, or not: names, types, shapes and offsets from small ranges, so
/// that duplicates, holes, overlaps and wrong sizes are frequent.
fn headers() -> impl Strategy<Value = Vec<u8>> {
    let dtype = prop::sample::select(vec![
        "U8", "BF16", "F32", "F64", "F4", "F6_E2M3", "C64", "X",
    ]);
    let name = prop::sample::select(vec!["a", "b", "c.d", "e", "\\u00e9", "f\\n", ""]);
    let shape = prop::collection::vec(0_u64..4, 0..3);
    let entry = (name, dtype, shape, -2_i64..3, 0..12_u8);
    (prop::collection::vec(entry, 0..4), -1_i64..2, any::<bool>(), 0..3_usize).prop_map(
        |(entries, tail, metadata, pad)| {
            let mut at = 0_i64;
            let mut parts = Vec::new();
            if metadata {
                parts.push(r#""__metadata__":{"format":"pt"}"#.to_owned());
            }
            for (name, dtype, shape, slip, luck) in entries {
                let bits = match dtype {
                    "U8" | "X" => 8,
                    "BF16" => 16,
                    "F32" => 32,
                    "F4" => 4,
                    "F6_E2M3" => 6,
                    _ => 64,
                };
                let bytes = i64::try_from(shape.iter().product::<u64>() * bits / 8).unwrap_or(0);
                let (begin, end) = match luck {
                    0 => (at + slip, at + slip + bytes),
                    1 => (at, at + bytes + slip),
                    _ => (at, at + bytes),
                };
                parts.push(format!(
                    r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
                ));
                at = end;
            }
            let text = format!("{}{{{}}}", " ".repeat(pad), parts.join(","));
            let data = vec![7; usize::try_from(at + tail).unwrap_or(0)];
            file(&text, &data)
        },
    )
}

/// The reference accepts what this reader refuses only by a rule that is stated in
/// `docs/checkpoints.md`.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = open_bytes(bytes);
    let theirs = SafeTensors::deserialize(bytes);
    match (ours, theirs) {
        (Ok(checkpoint), Ok(reference)) => {
            let tensors = &checkpoint.components[0].tensors;
            prop_assert_eq!(tensors.len(), reference.len());
            for tensor in tensors {
                let view = reference.tensor(&tensor.names[0]).expect("the same name");
                prop_assert_eq!(tensor.dtype.name(), view.dtype().to_string());
                let shape: Vec<u64> = view.shape().iter().map(|dim| *dim as u64).collect();
                prop_assert_eq!(&tensor.shape, &shape);
                let mut data = vec![0; view.data().len()];
                prop_assert_eq!(tensor.bytes.len(), data.len() as u64);
                tensor.bytes.read_at(0, &mut data).expect("its bytes");
                prop_assert_eq!(&data, view.data());
            }
        }
        (Err(error), Ok(_)) => {
            let stricter = match error.code() {
                "duplicate-key" => true,
                "bad-header" => {
                    let said = error.to_string();
                    said.contains("control character") || said.contains("dimensions")
                }
                _ => false,
            };
            prop_assert!(stricter, "refused alone: {}", error);
        }
        (Ok(_), Err(error)) => prop_assert!(false, "accepted alone: {}", error),
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn files_are_accepted_as_by_the_reference(bytes in headers()) {
        compare(&bytes)?;
    }

    #[test]
    fn damaged_files_are_accepted_as_by_the_reference(
        bytes in headers(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = bytes;
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        compare(&bytes)?;
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = open_bytes(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn random_headers_never_panic(text in r#"[{}\[\]":,0-9a-z\\_ ]{0,60}"#, data in 0..9_usize) {
        compare(&file(&text, &vec![0; data]))?;
    }
}
