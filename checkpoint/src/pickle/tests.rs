//! The machine on whole pickles, good and bad.

use super::*;

/// Runs a whole pickle.
fn load(bytes: &[u8]) -> Result<Pickle, Fault> {
    let mut input = Input::new(bytes);
    let pickle = run(&mut input, MAX_MEMORY)?;
    let end = u64::try_from(bytes.len()).expect("small");
    assert_eq!(input.position(), end, "bytes behind STOP");
    Ok(pickle)
}

fn malformed(bytes: &[u8]) -> String {
    match load(bytes) {
        Err(Fault::Malformed { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// The object as an expression of Python, for comparing.
fn show(pickle: &Pickle, id: Id) -> String {
    let graph = &pickle.graph;
    let all = |ids: &[Id]| {
        let texts: Vec<String> = ids.iter().map(|&id| show(pickle, id)).collect();
        texts.join(",")
    };
    let pairs = |pairs: &[(Id, Id)]| {
        let pairs = pairs.iter();
        let texts: Vec<String> = pairs
            .map(|&(key, value)| format!("{}:{}", show(pickle, key), show(pickle, value)))
            .collect();
        texts.join(",")
    };
    match graph.node(id) {
        Node::None => "None".to_owned(),
        Node::Bool(value) => value.to_string(),
        Node::Int(value) => value.to_string(),
        Node::Wide(value) => value.to_string(),
        Node::Huge => "huge".to_owned(),
        Node::Float => "float".to_owned(),
        Node::Text(text) => format!("{text:?}"),
        Node::LongText => "long text".to_owned(),
        Node::Bytes(bytes) => format!("b{bytes:?}"),
        Node::LongBytes => "long bytes".to_owned(),
        Node::ByteArray => "bytearray".to_owned(),
        Node::Tuple(ids) => format!("({})", all(ids)),
        Node::List(ids) => format!("[{}]", all(ids)),
        Node::Dict(entries) => format!("{{{}}}", pairs(entries)),
        Node::Set(ids) => format!("set({})", all(ids)),
        Node::FrozenSet(ids) => format!("frozenset({})", all(ids)),
        Node::Global(global) => global.path(),
        Node::Persistent(id) => format!("@{}", show(pickle, id)),
        Node::Object(object) => {
            let mut text = show(pickle, object.callee);
            text += &show(pickle, object.args);
            for (name, part) in [
                ("kwargs", object.kwargs().map(|id| show(pickle, id))),
                ("states", Some(all(object.states()))),
                ("items", Some(pairs(object.items()))),
                ("list", Some(all(object.list()))),
            ] {
                if let Some(part) = part.filter(|part| !part.is_empty()) {
                    text += &format!(".{name}({part})");
                }
            }
            text
        }
    }
}

#[track_caller]
fn gives(bytes: &[u8], expected: &str) {
    let pickle = load(bytes).expect("a good pickle");
    assert_eq!(show(&pickle, pickle.root), expected);
}

#[test]
fn values_of_every_opcode() {
    gives(b"N.", "None");
    gives(b"\x88.", "true");
    gives(b"\x89.", "false");
    gives(b"I01\n.", "true");
    gives(b"I-5\n.", "-5");
    gives(
        b"I123456789012345678901234567890\n.",
        "123456789012345678901234567890",
    );
    gives(b"K\xff.", "255");
    gives(b"M\xff\xff.", "65535");
    gives(b"J\xff\xff\xff\xff.", "-1");
    gives(b"L12L\n.", "12");
    gives(b"\x8a\x00.", "0");
    gives(
        b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.",
        "9223372036854775808",
    );
    gives(b"\x8b\x01\x00\x00\x00\x80.", "-128");
    gives(b"F1.5\n.", "float");
    gives(b"Fnan\n.", "float");
    gives(b"G\x00\x00\x00\x00\x00\x00\x00\x00.", "float");
    gives(b"S'a\\x41'\n.", r#""aA""#);
    gives(b"T\x01\x00\x00\x00a.", r#""a""#);
    gives(b"U\x02\xff\xfe.", "b[255, 254]");
    gives(b"V\\u00e9\n.", "\"\u{e9}\"");
    gives(b"X\x02\x00\x00\x00\xc3\xa9.", "\"\u{e9}\"");
    gives(b"\x8c\x01a.", r#""a""#);
    gives(b"\x8d\x01\x00\x00\x00\x00\x00\x00\x00a.", r#""a""#);
    gives(b"B\x01\x00\x00\x00\x80.", "b[128]");
    gives(b"C\x01\x80.", "b[128]");
    gives(b"\x8e\x01\x00\x00\x00\x00\x00\x00\x00\x80.", "b[128]");
    gives(b"\x96\x01\x00\x00\x00\x00\x00\x00\x00\x80.", "bytearray");
}

#[test]
fn containers_of_every_opcode() {
    gives(b").", "()");
    gives(b"(K\x01K\x02t.", "(1,2)");
    gives(b"K\x01\x85.", "(1)");
    gives(b"K\x01K\x02\x86.", "(1,2)");
    gives(b"K\x01K\x02K\x03\x87.", "(1,2,3)");
    gives(b"].", "[]");
    gives(b"](e.", "[]");
    gives(b"]K\x01a(K\x02K\x03e.", "[1,2,3]");
    gives(b"(K\x01l.", "[1]");
    gives(b"}.", "{}");
    gives(b"}K\x01K\x02s(K\x03K\x04u.", "{1:2,3:4}");
    gives(b"(K\x01K\x02d.", "{1:2}");
    gives(b"\x8f(K\x01\x90.", "set(1)");
    gives(b"(K\x01\x91.", "frozenset(1)");
}

#[test]
fn stack_and_memo() {
    gives(b"K\x01K\x020.", "1");
    gives(b"K\x01(0.", "1");
    gives(b"K\x01(K\x02K\x031.", "1");
    gives(b"K\x012\x86.", "(1,1)");
    gives(b"K\x01p7\n0g7\n.", "1");
    gives(b"K\x01q\x070h\x07.", "1");
    gives(b"K\x01r\xff\xff\xff\xff0j\xff\xff\xff\xff.", "1");
    gives(b"K\x01\x94K\x02\x94h\x00h\x01\x87\x86.", "(1,(2,1,2))");
    // A value is held by reference: what is added later is seen wherever it stands.
    gives(b"]q\x00h\x00K\x01a\x86.", "([1],[1])");
}

#[test]
fn objects() {
    gives(b"ca\nb\n.", "a.b");
    gives(b"\x8c\x01a\x8c\x01b\x93.", "a.b");
    gives(b"ca\nb\nK\x01\x85R.", "a.b(1)");
    gives(b"ca\nb\n)\x81}b.", "a.b().states({})");
    gives(b"ca\nb\n)}\x92.", "a.b().kwargs({})");
    gives(b"(K\x01ia\nb\n.", "a.b(1)");
    gives(b"(ca\nb\nK\x01o.", "a.b(1)");
    gives(b"ca\nb\n)\x81K\x01K\x02s.", "a.b().items(1:2)");
    gives(b"ca\nb\n)\x81K\x01a.", "a.b().list(1)");
    gives(
        b"ccollections\nOrderedDict\n)R(K\x01K\x02u}b.",
        "collections.OrderedDict().states({}).items(1:2)",
    );
    gives(b"K\x01Q.", "@1");
    gives(b"Pab\n.", "@\"ab\"");
}

#[test]
fn frames() {
    gives(
        b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.."
            .get(..13)
            .expect("13"),
        "None",
    );
    assert!(
        malformed(b"\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x01.").contains("end of its frame at 10")
    );
    assert!(malformed(b"\x95\x05\x00\x00\x00\x00\x00\x00\x00N.").contains("the frame goes on"));
    let nested = b"\x95\x10\x00\x00\x00\x00\x00\x00\x00\x95\x01\x00\x00\x00\x00\x00\x00\x00N.";
    assert!(malformed(nested).contains("inside of a frame"));
    assert!(malformed(b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.").contains("2^64"));
}

#[test]
fn what_no_machine_would_take() {
    for (bytes, fact) in [
        (&b"\x80\x06N."[..], "PROTO: protocol 6"),
        (b"\x7f.", "0x7f is no opcode"),
        (b".", "STOP: the stack is empty"),
        (b"NN.", "STOP: 1 values are left over"),
        (b"N(.", "STOP: 1 marks are still open"),
        (b"Nt.", "TUPLE: there is no mark"),
        (b"N(\x85.", "TUPLE1: the stack holds too few values"),
        (b"N(Na.", "APPEND: the stack is empty"),
        (b"}K\x01a.", "APPEND: the target is not a list"),
        (b"]K\x01K\x02s.", "SETITEM: the target is not a dict"),
        (b"](K\x01\x90.", "ADDITEMS: the target is not a set"),
        (b"}(K\x01u.", "SETITEMS: a key without a value"),
        (b"}}b.", "BUILD: the target takes no state"),
        (b"h\x05.", "BINGET: memo 5 was never set"),
        (
            b"K\x01)R.",
            "REDUCE: what is called is no class or function",
        ),
        (b"ca\nb\nNR.", "REDUCE: the arguments are no tuple"),
        (b"ctorch\nfloat32\n)R.", "REDUCE: what is called"),
        (b"(o.", "OBJ: no class"),
        (b"\x82\x01.", "EXT1: the extension registry"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"\x98.", "READONLY_BUFFER"),
        (b"\x8b\xff\xff\xff\xff.", "LONG4: negative length -1"),
        (b"T\xff\xff\xff\xff.", "BINSTRING: negative length"),
        (b"X\x01\x00\x00\x00\xff.", "BINUNICODE: not UTF-8"),
        (b"Iabc\n.", "INT: not a number"),
        (b"F0x1p3\n.", "FLOAT: not a number"),
        (b"Sabc\n.", "STRING: bad quotes"),
        (b"p-1\n.", "PUT"),
        (b"Nc\xff\nb\n.", "GLOBAL: the name is not UTF-8"),
        (b"NN\x93.", "STACK_GLOBAL: module and name"),
        // A tensor takes no items (CVE-2026-24747).
        (
            b"ctorch._utils\n_rebuild_tensor_v2\n)RK\x01K\x02s.",
            "SETITEM: the target is not a dict",
        ),
        (
            b"ctorch._utils\n_rebuild_tensor_v2\n)RK\x01a.",
            "APPEND: the target is not a list",
        ),
    ] {
        let what = malformed(bytes);
        assert!(what.contains(fact), "{what} for {fact}");
    }
}

#[test]
fn an_early_end_is_told_apart() {
    let whole = b"\x80\x02}q\x00X\x01\x00\x00\x00a(K\x01M\x02\x00ca\nb\n)Rts\x8a\x02ab0.";
    load(whole).expect("good");
    for len in 0..whole.len() {
        match load(&whole[..len]) {
            Err(Fault::Ends { need, .. }) => {
                assert!(need > u64::try_from(len).expect("small"), "{len}: {need}");
            }
            other => panic!("{len}: {other:?}"),
        }
    }
}

#[test]
fn unsafe_names_are_refused_where_they_are_named() {
    for bytes in [
        &b"cposix\nsystem\n0N."[..],
        b"\x8c\x05posix\x8c\x06system\x930N.",
        b"(iposix\nsystem\n0N.",
        b"c__builtin__\neval\n.",
        b"cmylib\na.b\n.",
    ] {
        assert!(
            matches!(load(bytes), Err(Fault::Unsafe { .. })),
            "{bytes:?}"
        );
    }
    let sharded = b"ctorch.distributed.tensor\nDTensor\n0c__builtin__\ngetattr\n.";
    assert!(matches!(load(sharded), Err(Fault::Partitioned { .. })));
}

#[test]
fn depth_is_limited_and_nothing_recurses() {
    let nested = |levels: usize| {
        let mut bytes = b")".to_vec();
        bytes.extend(std::iter::repeat_n(b'\x85', levels));
        bytes.push(b'.');
        bytes
    };
    load(&nested(900)).expect("deep but good");
    assert!(matches!(
        load(&nested(200_000)),
        Err(Fault::Limit {
            what: "nesting depth",
            ..
        })
    ));
    // Lists that are filled before they are put into each other, and lists that never are.
    let mut bytes = vec![b']'; 500_000];
    bytes.push(b'.');
    assert!(malformed(&bytes).contains("499999 values are left over"));
}

#[test]
fn long_strings_are_passed_over_and_checked() {
    let len = 3 * MAX_KEPT + 1;
    let mut text = b"X".to_vec();
    text.extend(u32::try_from(len).expect("small").to_le_bytes());
    // Two-byte letters: the pieces end inside of one.
    text.extend(
        "a\u{e9}"
            .repeat(MAX_KEPT)
            .bytes()
            .take(len - 1)
            .chain([b'x']),
    );
    text.push(b'.');
    let bad = {
        let mut bad = text.clone();
        bad[2 * MAX_KEPT] = 0xff;
        bad
    };
    assert!(matches!(load(&text), Ok(_) | Err(Fault::Malformed { .. })));
    assert!(malformed(&bad).contains("not UTF-8"));
    let mut good = b"X".to_vec();
    good.extend(u32::try_from(len - 1).expect("small").to_le_bytes());
    good.extend("\u{e9}".repeat((len - 1) / 2).bytes());
    good.push(b'.');
    gives(&good, "long text");

    let mut line = vec![b'V'];
    line.extend(std::iter::repeat_n(b'a', len));
    line.extend(b"\n.");
    gives(&line, "long text");
    let mut bytes = b"B".to_vec();
    bytes.extend(u32::try_from(len).expect("small").to_le_bytes());
    bytes.extend(std::iter::repeat_n(b'a', len));
    bytes.push(b'.');
    gives(&bytes, "long bytes");
}

#[test]
fn memory_is_limited() {
    let mut bytes = vec![b'}'; 10_000];
    bytes.push(b'.');
    let fault = run(&mut Input::new(bytes.as_slice()), 50_000).expect_err("too much");
    assert!(
        matches!(fault, Fault::Limit { limit: 50_000, .. }),
        "{fault:?}"
    );
}
