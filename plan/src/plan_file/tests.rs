//! Plan files are read as they are written, and say where they are wrong.

use wpack_format::DType;

use super::*;
use crate::{Mesh, Pattern, Style};

const TEXT: &str = r#"
    # Wan: units of both transformers, all else on every rank.
    ranks = 4
    take = ["dit", "vae"]
    align = 65536
    hash_sources = true
    layout = "replicate"
    transform = { dtype = "F16", exclude = ["x*"] }

    [component.dit]
    layout = "fsdp1"
    order = "checkpoint"
    fsdp1 = { units = ["blocks.*"], param_dtype = "BF16" }

    [component.dit.transform]
    dtype = "BF16"
    rename = [["^a", "b"]]
    merge = [{ match = '^(.*)\.(?P<part>q|k|v)$', into = "$1.qkv", parts = ["q", "k", "v"], concat = 0, groups = 2 }]
    pad = [{ match = "embed.*", multiple = 64 }]

    [component.dit.zero]
    master = true
    groups = [["*.weight"], ["*"]]

    [[component.dit.rule]]
    match = "*.qkv"
    style = "colwise"

    [[component.dit.rule]]
    regex = 'a\.\d+'
    place = ["tp: Shard(0, blocks(8: even, 4: kv_replicated(2, 2)))", "fsdp: Shard(0, chunk)"]
"#;

#[test]
fn canonical_text_says_the_same() {
    let file = PlanFile::parse(TEXT).unwrap();
    let text = file.canonical().unwrap();
    let again = PlanFile::parse(&text).unwrap();
    assert_eq!(again, file);
    assert_eq!(again.canonical().unwrap(), text);
    let request = file.request().unwrap();
    assert_eq!(request.component_layouts["dit"], "fsdp1");
    let options = request.options.of("dit");
    assert_eq!(options.fsdp1.units, ["blocks.*"]);
    assert_eq!(options.fsdp1.param_dtype, Some(DType::Bf16));
    assert_eq!(options.rules.len(), 2);
    assert_eq!(options.rules[0].pattern, Pattern::Glob("*.qkv".into()));
    assert_eq!(options.rules[0].style, Some(Style::Colwise));
    let steps: Vec<String> = options.rules[1]
        .place
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(steps[1], "fsdp: Shard(0, chunk)");
    assert_eq!(request.options.of("vae"), &request.options);
}

#[test]
fn a_component_inherits_what_it_does_not_say() {
    let file = PlanFile::parse(TEXT).unwrap();
    let transform = file.section("dit").transform.unwrap();
    assert_eq!(transform.dtype.as_deref(), Some("BF16"));
    assert_eq!(transform.exclude, ["x*"]);
    let vae = file.section("vae");
    assert_eq!(vae.transform.unwrap().dtype.as_deref(), Some("F16"));
    assert_eq!(vae.layout.as_deref(), Some("replicate"));
}

#[test]
fn a_resolved_file_resolves_to_itself() {
    let file = PlanFile::parse("ranks = 4").unwrap();
    let mesh = Mesh::parse("dp=4").unwrap();
    let resolved = file.resolved(Some(&mesh));
    assert_eq!(
        resolved.canonical().unwrap(),
        "mesh = \"dp=4\"\nlayout = \"replicate\"\n"
    );
    assert_eq!(resolved.resolved(Some(&mesh)), resolved);
    assert_eq!(
        file.resolved(None).canonical().unwrap(),
        "layout = \"replicate\"\n"
    );
}

#[test]
fn faults_name_the_line() {
    let cases = [
        ("ranks = 4\nlayuot = 'usp'", None),
        ("[component.a]\nlayuot = 'usp'", Some(2)),
        ("ranks = 1\nranks = 2", Some(2)),
        ("ranks = 'x'\n", Some(1)),
        ("[[rule]]\nmatch = 'x'\n", None),
        ("[[rule]]\nstyle = 'colwise'\n", None),
        (
            "[[rule]]\nmatch = 'x'\nregex = 'x'\nstyle = 'colwise'\n",
            None,
        ),
        (
            "[[rule]]\nmatch = 'x'\nplace = ['tp: Shard(0, evenly)']\n",
            None,
        ),
        (
            "[[rule]]\nmatch = 'x'\nstyle = 'colwise'\nplace = ['tp: Shard(0, even)']\n",
            None,
        ),
        ("default_place = ['Replicate', 'Replicate']", None),
        ("[transform]\nmerge = [{ match = 'x' }]", None),
        ("order = 'alphabet'", None),
        ("default_style = 'column'", None),
        ("[fsdp1]\nunits = []\nparam_dtype = 'BF17'", None),
    ];
    for (text, expected) in cases {
        let error = PlanFile::parse(text)
            .and_then(|file| file.request())
            .unwrap_err();
        let Error::PlanFile { line, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*line, expected, "{text}: {error}");
    }
}
