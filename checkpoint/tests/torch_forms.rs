//! Shapes of objects that the public cases do not have: roots, modules, compressed and shifted archives.

#[path = "torch/object.rs"]
mod object;
#[path = "torch/stored_zip.rs"]
mod stored_zip;

use std::{fs, io::Write as _};

use flate2::{Compression, write::DeflateEncoder};
use object::Pickle;
use stored_zip::stored_zip;
use wpack_checkpoint::{Checkpoint, Error, Input, OpenOptions, open};

/// Storage `0`: the numbers 0, 1, 2, ... as float32.
fn storage() -> Vec<u8> {
    (0..64_u16)
        .flat_map(|at| f32::from(at).to_le_bytes())
        .collect()
}

fn archive(object: &[u8]) -> Vec<u8> {
    stored_zip(&[
        ("a/data.pkl", object),
        ("a/version", b"3\n"),
        ("a/data/0", &storage()),
    ])
}

fn read(bytes: &[u8], root: Option<&str>) -> Result<Checkpoint, Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.pt");
    fs::write(&path, bytes).expect("written");
    let input = [Input {
        component: None,
        path: path.to_str().expect("UTF-8").to_owned(),
    }];
    open(
        &input,
        &OpenOptions {
            root: root.map(str::to_owned),
            ..OpenOptions::default()
        },
    )
}

fn load(object: &Pickle, root: Option<&str>) -> Result<Checkpoint, Error> {
    read(&archive(&object.clone().done()), root)
}

fn good(
    object: &Pickle,
    root: Option<&str>,
) -> (String, Vec<String>, Vec<String>, Vec<&'static str>) {
    let checkpoint = load(object, root).expect("a good checkpoint");
    let component = &checkpoint.components[0];
    let names = component
        .tensors
        .iter()
        .map(|tensor| tensor.names.join(" = "))
        .collect();
    let skipped = component
        .skipped
        .iter()
        .map(|value| format!("{}: {}", value.path, value.kind))
        .collect();
    let warnings = checkpoint
        .warnings
        .iter()
        .map(|warning| warning.code)
        .collect();
    (component.root.clone(), names, skipped, warnings)
}

fn values(checkpoint: &Checkpoint, index: usize) -> Vec<u8> {
    let bytes = &checkpoint.components[0].tensors[index].bytes;
    let mut out = vec![0; usize::try_from(bytes.len()).expect("small")];
    bytes.read_at(0, &mut out).expect("readable");
    out
}

/// One tensor; each offset is another view.
fn tensor(offset: i32) -> Pickle {
    Pickle::default().view("FloatStorage", "0", 64, offset, &[2], &[1])
}

fn dict(entries: &[(&str, Pickle)]) -> Pickle {
    Pickle::default().dict(entries)
}

fn number() -> Pickle {
    Pickle::default().int(7)
}

#[test]
fn one_wrapper_is_unwrapped_and_the_rest_is_listed() {
    let optimizer = dict(&[("exp_avg", tensor(4)), ("step", number())]);
    let scalar = Pickle::default().view("FloatStorage", "0", 64, 9, &[], &[]);
    let object = dict(&[
        ("epoch", number()),
        ("best", scalar),
        ("state_dict", dict(&[("w", tensor(0)), ("b", tensor(2))])),
        ("optimizer", optimizer),
    ]);
    let (root, names, skipped, warnings) = good(&object, None);
    assert_eq!(root, "state_dict");
    assert_eq!(names, ["w", "b"]);
    let all = [
        "epoch: int",
        "best: torch.Tensor",
        "optimizer.exp_avg: torch.Tensor",
        "optimizer.step: int",
    ];
    assert_eq!(skipped, all);
    assert!(warnings.is_empty(), "{warnings:?}");

    let (root, names, skipped, _) = good(&object, Some("optimizer"));
    assert_eq!(
        (root.as_str(), names),
        ("optimizer", vec!["exp_avg".to_owned()])
    );
    assert_eq!(skipped[0], "step: int");
    let (_, names, _, _) = good(&object, Some(""));
    assert_eq!(
        names,
        ["best", "state_dict.w", "state_dict.b", "optimizer.exp_avg"]
    );
}

#[test]
fn two_copies_of_a_model_are_a_question() {
    let copy = |offset| dict(&[("w", tensor(offset))]);
    for keys in [
        ["params", "params_ema"],
        ["model", "model_ema"],
        ["state_dict", "ema"],
    ] {
        let object = dict(&[(keys[0], copy(0)), (keys[1], copy(4))]);
        match load(&object, None) {
            Err(error @ Error::AmbiguousRoot { .. }) => {
                assert!(
                    error
                        .hint()
                        .expect("a hint")
                        .contains(&format!("--root {}", keys[0]))
                );
            }
            other => panic!("{other:?}"),
        }
        let (root, names, skipped, _) = good(&object, Some(keys[1]));
        assert_eq!((root.as_str(), names), (keys[1], vec!["w".to_owned()]));
        assert_eq!(skipped, [format!("{}.w: torch.Tensor", keys[0])]);
    }
}

#[test]
fn a_root_may_have_dots_in_its_keys() {
    let object = dict(&[
        ("a.b", dict(&[("c", dict(&[("w", tensor(0))]))])),
        ("a", dict(&[("x", dict(&[("w", tensor(2))]))])),
    ]);
    assert_eq!(good(&object, Some("a.b.c")).1, ["w"]);
    assert_eq!(good(&object, Some("a.x")).1, ["w"]);
    assert_eq!(good(&object, None).1, ["a.b.c.w", "a.x.w"]);
    match load(&object, Some("a.y")) {
        Err(Error::NoSuchRoot { roots, .. }) => assert_eq!(roots, ["a.b", "a"]),
        other => panic!("{other:?}"),
    }
}

/// `nn.Module` as it is pickled: class, no arguments, state.
fn module(entries: &[(&str, Pickle)]) -> Pickle {
    let state = dict(entries);
    Pickle::default()
        .global("mymodel", "Net")
        .raw(b")\x81")
        .raw(state.bytes())
        .raw(b"b")
}

#[test]
fn modules_give_what_their_state_dict_would() {
    let shared = tensor(8);
    let inner = module(&[
        (
            "_parameters",
            dict(&[("weight", tensor(0)), ("bias", Pickle::default().raw(b"N"))]),
        ),
        (
            "_buffers",
            dict(&[("kept", tensor(2)), ("cache", tensor(4))]),
        ),
        ("_modules", dict(&[])),
        (
            "_non_persistent_buffers_set",
            Pickle::default()
                .raw(b"c__builtin__\nset\n(")
                .raw(b"](")
                .text("cache")
                .raw(b"etR"),
        ),
        ("training", number()),
    ]);
    let outer = module(&[
        ("_modules", dict(&[("layer", inner)])),
        ("_parameters", dict(&[("w", shared.clone())])),
        ("_buffers", dict(&[])),
        // As an LSTM keeps its weights a second time.
        (
            "_flat_weights",
            Pickle::default().raw(b"](").raw(shared.bytes()).raw(b"e"),
        ),
    ]);
    let (root, names, skipped, warnings) = good(&dict(&[("model", outer)]), None);
    assert_eq!(root, "model");
    assert_eq!(names, ["w", "layer.weight", "layer.kept"]);
    assert_eq!(
        skipped,
        ["layer.cache: non-persistent buffer", "_flat_weights: list"]
    );
    assert_eq!(warnings, ["pickled-module"]);

    let lost = module(&[
        ("_parameters", dict(&[])),
        ("_modules", dict(&[])),
        ("anchors", tensor(0)),
    ]);
    match load(&lost, None) {
        Err(Error::UnsupportedObject { object, class, .. }) => {
            assert_eq!(
                (object.as_str(), class.as_str()),
                ("anchors", "mymodel.Net")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_tensor_is_passed_over() {
    let beside = [
        // In a dict subclass, but as its attribute; in a set; as a key; as an argument.
        Pickle::default()
            .global("a", "Dict")
            .raw(b")\x81")
            .text("k")
            .int(1)
            .raw(b"s")
            .raw(dict(&[("t", tensor(0))]).bytes())
            .raw(b"b"),
        Pickle::default()
            .raw(b"c__builtin__\nset\n(](")
            .raw(tensor(0).bytes())
            .raw(b"etR"),
        Pickle::default()
            .raw(b"}")
            .raw(tensor(0).bytes())
            .int(1)
            .raw(b"s"),
        Pickle::default()
            .raw(b"}(K\x01K\x02t")
            .raw(tensor(0).bytes())
            .raw(b"s"),
        Pickle::default()
            .raw(b"ccollections\ndeque\n(](")
            .raw(tensor(0).bytes())
            .raw(b"etRNa"),
        Pickle::default()
            .raw(b"ccollections\nOrderedDict\n(](")
            .raw(tensor(0).bytes())
            .raw(b"etR"),
        Pickle::default()
            .global("a", "Point")
            .raw(b"(")
            .raw(tensor(0).bytes())
            .raw(b"t\x81"),
    ];
    for value in beside {
        let object = dict(&[("w", tensor(2)), ("x", value)]);
        let error = load(&object, None).expect_err("a tensor would be lost");
        assert_eq!(error.code(), "unsupported-object", "{error}");
    }
}

#[test]
fn big_endian_storages_are_turned_around() {
    let float = Pickle::default().view("FloatStorage", "0", 64, 1, &[2], &[1]);
    let complex = Pickle::default().view("ComplexFloatStorage", "1", 1, 0, &[1], &[1]);
    let bytes = Pickle::default().view("ByteStorage", "2", 2, 0, &[2], &[1]);
    let object = dict(&[("f", float), ("c", complex), ("b", bytes)]).done();
    let big: Vec<u8> = (0..64_u16)
        .flat_map(|at| f32::from(at).to_be_bytes())
        .collect();
    let number = [1.5_f32.to_be_bytes(), 2.5_f32.to_be_bytes()].concat();
    let zip = stored_zip(&[
        ("a/data.pkl", &object),
        ("a/byteorder", b"big"),
        ("a/data/0", &big),
        ("a/data/1", &number),
        ("a/data/2", &[1, 2]),
    ]);
    let checkpoint = read(&zip, None).expect("a good checkpoint");
    assert_eq!(
        values(&checkpoint, 0),
        [1_f32.to_le_bytes(), 2_f32.to_le_bytes()].concat()
    );
    assert_eq!(
        values(&checkpoint, 1),
        [1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes()].concat()
    );
    assert_eq!(values(&checkpoint, 2), [1, 2]);
}

/// Method, CRC-32 and size of a record that is in place as if it were stored.
fn make_deflated(zip: &mut [u8], name: &str, content: &[u8]) {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let len = u32::try_from(content.len()).expect("small").to_le_bytes();
    let places: Vec<usize> = zip
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| *window == name.as_bytes())
        .map(|(at, _)| at)
        .collect();
    // A name stands 30 bytes behind the start of a local header and 46 behind that of an entry.
    for (place, header) in places.into_iter().zip([30, 44]) {
        let start = place - header;
        zip[start + 8] = 8;
        zip[start + 14..start + 18].copy_from_slice(&crc.sum().to_le_bytes());
        zip[start + 22..start + 26].copy_from_slice(&len);
    }
}

fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).expect("in memory");
    encoder.finish().expect("in memory")
}

#[test]
fn compressed_records_are_read_at_any_place_and_checked() {
    let object = dict(&[("w", tensor(3)), ("x", tensor(10))]).done();
    let packed = deflate(&storage());
    let mut zip = stored_zip(&[("a/data.pkl", &object), ("a/data/0", &packed)]);
    make_deflated(&mut zip, "a/data/0", &storage());
    let checkpoint = read(&zip, None).expect("a good checkpoint");
    assert!(
        checkpoint
            .warnings
            .iter()
            .any(|warning| warning.code == "compressed-records")
    );
    assert_eq!(
        values(&checkpoint, 1),
        [10_f32.to_le_bytes(), 11_f32.to_le_bytes()].concat()
    );
    assert_eq!(
        values(&checkpoint, 0),
        [3_f32.to_le_bytes(), 4_f32.to_le_bytes()].concat()
    );

    let mut other = storage();
    other[0] ^= 1;
    let mut zip = stored_zip(&[("a/data.pkl", &object), ("a/data/0", &deflate(&other))]);
    make_deflated(&mut zip, "a/data/0", &storage());
    let checkpoint = read(&zip, None).expect("the headers are good");
    let mut out = [0; 8];
    let error = checkpoint.components[0].tensors[0]
        .bytes
        .read_at(0, &mut out)
        .expect_err("damage");
    assert_eq!(error.code(), "corrupt", "{error}");
}

#[test]
fn damage_of_a_stored_record_is_found_by_whoever_reads_its_last_byte() {
    let object = dict(&[("w", Pickle::default().tensor("0", &[64]))]).done();
    let mut zip = stored_zip(&[("a/data.pkl", &object), ("a/data/0", &storage())]);
    let place = zip
        .windows(8)
        .position(|window| window == &storage()[4..12])
        .expect("the storage");
    zip[place] ^= 1;
    let checkpoint = read(&zip, None).expect("the headers are good");
    let bytes = &checkpoint.components[0].tensors[0].bytes;
    let mut out = [0; 128];
    bytes.read_at(128, &mut out).expect("half of it");
    let error = bytes.read_at(0, &mut out).expect_err("the other half");
    assert!(
        error.to_string().contains("CRC-32 mismatch in a/data/0"),
        "{error}"
    );
}

#[test]
fn bytes_before_the_archive_are_allowed() {
    let object = dict(&[("w", tensor(5))]).done();
    let shifted = [&b"#!/bin/sh\nexit\n"[..], &archive(&object)].concat();
    let checkpoint = read(&shifted, None).expect("a good checkpoint");
    assert_eq!(checkpoint.warnings[0].code, "prepended-data");
    assert_eq!(
        values(&checkpoint, 0),
        [5_f32.to_le_bytes(), 6_f32.to_le_bytes()].concat()
    );

    let twice = [archive(&object), archive(&object)].concat();
    let error = read(&twice, None).expect_err("two archives");
    assert_eq!(error.code(), "unsupported-format", "{error}");
}

/// As above, where the zip64 records say the places: `torch.save` writes them always.
#[test]
fn bytes_before_a_zip64_archive_are_allowed() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/cases/zip-zip64-forced/x.pt"
    );
    let archive = fs::read(path).expect("the fixture");
    let all = |checkpoint: &Checkpoint| -> Vec<(Vec<String>, Vec<u8>)> {
        let tensors = checkpoint.components[0].tensors.iter().enumerate();
        tensors
            .map(|(at, tensor)| (tensor.names.clone(), values(checkpoint, at)))
            .collect()
    };
    let plain = read(&archive, None).expect("a good checkpoint");
    assert!(!all(&plain).is_empty());
    for len in [1, 64, 5000] {
        let shifted = [vec![b'#'; len], archive.clone()].concat();
        let checkpoint = read(&shifted, None).expect("a good checkpoint");
        assert_eq!(checkpoint.warnings[0].code, "prepended-data");
        assert_eq!(all(&checkpoint), all(&plain), "{len} bytes");
    }
    // The other way round, bytes are missing.
    let error = read(&archive[16..], None).expect_err("no beginning");
    assert_eq!(error.code(), "corrupt", "{error}");
}

#[test]
fn limits_are_stated() {
    let wide = Pickle::default().view("FloatStorage", "0", 64, 0, &[1 << 30, 64], &[0, 1]);
    let error = load(&dict(&[("w", wide)]), None).expect_err("256 GiB");
    assert_eq!(error.code(), "resource-limit", "{error}");
    // One tensor at 8^9 places.
    let mut object = Pickle::default().raw(tensor(0).bytes()).raw(b"q\x00");
    for _ in 0..9 {
        object = object.raw(b"](h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00eq\x00");
    }
    let object = Pickle::default()
        .raw(b"(")
        .raw(object.bytes())
        .raw(b"1h\x00");
    let error = load(&object, None).expect_err("a bomb of names");
    assert_eq!(error.code(), "resource-limit", "{error}");
}
