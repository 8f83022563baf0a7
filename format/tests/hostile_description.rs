//! Descriptions that do not hold together, and other forms of their JSON.

mod common;

use common::root;
use wpack_format::{
    Description, DescriptionFault as Fault, EmbeddedFile, Error, Header, MeshAxis, ResolvedRule,
    Root, SourceInfo, TableRef,
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

#[test]
fn descriptions_must_hold_together() {
    let axis = |name: &str, size| MeshAxis {
        name: name.into(),
        size,
    };
    let file = |component: Option<&str>, path: &str| EmbeddedFile {
        component: component.map(Into::into),
        path: path.into(),
        offset: 0,
        len: 0,
        sha256: "0".repeat(64),
    };
    let source = |name: &str| SourceInfo {
        name: name.into(),
        size: 0,
        sha256: None,
    };
    type Change = Box<dyn Fn(&mut Description)>;
    let duplicate = |what, name: &str| Fault::Duplicate {
        what,
        name: name.into(),
    };
    let unknown = |what| Fault::Component {
        what,
        name: "other".into(),
    };
    let mut cases: Vec<(Change, Fault)> = vec![
        (Box::new(move |d| d.mesh = Some(vec![])), Fault::Mesh),
        (
            Box::new(move |d| d.mesh = Some(vec![axis("dp", 0)])),
            Fault::Mesh,
        ),
        (
            Box::new(move |d| d.mesh = Some(vec![axis("a", 1 << 16), axis("b", 1 << 16)])),
            Fault::Mesh,
        ),
        (
            Box::new(move |d| d.mesh = Some(vec![axis("a", 2), axis("a", 2)])),
            duplicate("mesh axis", "a"),
        ),
        (
            Box::new(move |d| d.mesh = Some(vec![axis("", 2)])),
            Fault::Unnamed("mesh axis"),
        ),
        (
            Box::new(|d| d.components[0].name.clear()),
            Fault::Unnamed("component"),
        ),
        (
            Box::new(|d| d.components.push(d.components[0].clone())),
            duplicate("component", "model"),
        ),
        (
            Box::new(|d| {
                let component = "other".into();
                d.plan.rules.push(ResolvedRule {
                    component,
                    ..Default::default()
                });
            }),
            unknown("a rule"),
        ),
        (
            Box::new(move |d| d.files.push(file(Some("other"), "a"))),
            unknown("an embedded file"),
        ),
        (
            Box::new(move |d| d.files.push(file(Some("model"), "config.json"))),
            duplicate("embedded file", "config.json"),
        ),
        (
            Box::new(move |d| d.sources.push(source(""))),
            Fault::Unnamed("source file"),
        ),
        (
            Box::new(move |d| d.sources.push(source(".."))),
            Fault::Path("..".into()),
        ),
        (
            Box::new(move |d| d.sources.push(source("/a"))),
            Fault::Path("/a".into()),
        ),
    ];
    for path in [
        "",
        "/etc/passwd",
        "a/../b",
        "a//b",
        "./a",
        "a\\b",
        "c:a",
        "a\0",
    ] {
        cases.push((
            Box::new(move |d| d.files.push(file(None, path))),
            Fault::Path(path.into()),
        ));
    }
    for digest in ["", "0", &"A".repeat(64), &"0".repeat(65)] {
        let (wrong, fault) = (digest.to_owned(), Fault::Sha256(digest.into()));
        let change = move |d: &mut Description| d.sources[0].sha256 = Some(wrong.clone());
        cases.push((Box::new(change), fault));
    }
    for (change, fault) in cases {
        let (mut root, _) = root();
        change(&mut root.description);
        let header = root.arrange(4096).unwrap();
        assert_eq!(
            decode(&root.encode(), &header),
            Err(Error::Inconsistent { fault })
        );
    }
}

#[test]
fn other_forms_of_the_json_are_refused() {
    let description = common::description();
    let json = String::from_utf8(description.to_json()).unwrap();
    let read = |json: &str| Description::from_json(json.as_bytes());
    assert!(read(&json).is_ok());
    let other_forms = [
        json.replacen("{", "{ ", 1),
        json.replacen("\"size\":42", "\"size\":4.2e1", 1),
        json.replacen("\u{e9}", "\\u00e9", 1),
        json.replacen("\\n", "\\u000a", 1),
        json.replacen("\\u0001", "\\u0001\\/", 1),
        json.replacen("\"layout\":\"zero3\",", "", 1),
        json.replacen(
            "\"layout\":\"zero3\",",
            "\"layout\":\"zero3\",\"more\":1,",
            1,
        ),
        json.replacen(
            "\"layout\":\"zero3\",",
            "\"layout\":\"zero3\",\"layout\":\"zero3\",",
            1,
        ),
        json.replacen("{\"note\":", "{\"note\":\"\",\"note\":", 1),
        json.replacen("{\"note\":", "{\"zzz\":\"\",\"note\":", 1),
        format!("{json}\n"),
        format!("\u{feff}{json}"),
        String::new(),
        "null".into(),
        "[".repeat(100_000),
    ];
    for form in other_forms {
        assert_ne!(form, json);
        let error = read(&form).unwrap_err();
        let kind = matches!(
            error,
            Error::Description { .. } | Error::NotCanonical { .. }
        );
        assert!(kind, "{error}");
    }
    assert!(Description::from_json(b"\xff").is_err());
}
