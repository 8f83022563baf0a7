//! Filters, prefixes, renames, alignments and components of a conversion, and what of them is refused.

mod convert_common;

use std::path::Path;

use convert_common::*;
use wpack_checkpoint::{Input, OpenOptions};
use wpack_convert::{Error, Options, Prepared, TransformOptions, WriteOptions};
use wpack_format::DType;
use wpack_loader::{FileSource, Pack};
use wpack_plan::{Mesh, Request};

fn transformed(transform: TransformOptions) -> Options {
    Options {
        transform,
        ..layout("zero3", Some(2))
    }
}

fn names(prepared: &Prepared) -> Vec<String> {
    let tensors = prepared
        .inventory()
        .components
        .iter()
        .flat_map(|component| &component.tensors);
    let mut names: Vec<_> = tensors.flat_map(|tensor| tensor.names.clone()).collect();
    names.sort();
    names
}

#[test]
fn filters_and_renames_apply_in_order() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let options = transformed(TransformOptions {
        include: vec!["blocks.*".into()],
        exclude: vec!["*.mask".into(), "*.count".into()],
        strip_prefix: vec!["blocks.0.".into(), "blocks.".into()],
        add_prefix: Some("net.".into()),
        rename: vec![
            ("weight$".into(), "w".into()),
            (r"(\d)\.attn".into(), "${1}.attention".into()),
        ],
        dtype: Some(DType::F16),
        ..TransformOptions::default()
    });
    let prepared = Prepared::new(open(&source), &options).unwrap();
    let expected = [
        "net.1.attention.w",
        "net.1.norm.w",
        "net.attn.bias",
        "net.attn.w",
        "net.mlp.w",
    ];
    assert_eq!(names(&prepared), expected);
    let out = folder.path("model.wpack");
    write(&source, &out, &options, 2);
    let pack = Pack::open(&out).unwrap();
    let entry = pack
        .shard(0)
        .unwrap()
        .get("net.mlp.w")
        .unwrap()
        .entry()
        .tensor()
        .unwrap()
        .to_tensor();
    assert_eq!(entry.names[0].source, "blocks.0.mlp.weight");
    assert_eq!((entry.source_dtype, entry.dtype), (DType::F32, DType::F16));
    let same = against(&out, &source);
    assert!(same.is_same(), "{same:?}");
    assert_eq!(same.equal, 5);
}

fn refused(options: &Options) -> Error {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    Prepared::new(open(&source), options).unwrap_err()
}

#[test]
fn patterns_that_find_nothing_are_errors() {
    let include = TransformOptions {
        include: vec!["blocks.*".into(), "block.*".into()],
        ..Default::default()
    };
    let exclude = TransformOptions {
        exclude: vec!["nothing".into()],
        ..Default::default()
    };
    let strip = TransformOptions {
        strip_prefix: vec!["model.".into()],
        ..Default::default()
    };
    let rename = TransformOptions {
        rename: vec![("^model".into(), String::new())],
        ..Default::default()
    };
    for (transform, option) in [
        (include, "--include"),
        (exclude, "--exclude"),
        (strip, "--strip-prefix"),
        (rename, "--rename"),
    ] {
        let error = refused(&transformed(transform));
        assert!(
            matches!(&error, Error::PatternUnused { option: found, .. } if *found == option),
            "{error}"
        );
        assert!(error.hint().is_some());
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let rename = |from: &str, to: &str| {
        transformed(TransformOptions {
            rename: vec![(from.into(), to.into())],
            ..Default::default()
        })
    };
    let collision = refused(&rename(r"blocks\.\d", "blocks"));
    assert!(
        matches!(&collision, Error::NameCollision { name, .. } if name == "blocks.attn.weight"),
        "{collision}"
    );
    assert!(matches!(
        refused(&rename("^scale$", "")),
        Error::EmptyName { .. }
    ));
    assert!(matches!(refused(&rename("(", "")), Error::Pattern { .. }));
    let glob = TransformOptions {
        include: vec!["[".into()],
        ..Default::default()
    };
    assert!(matches!(refused(&transformed(glob)), Error::Pattern { .. }));
    let nothing = TransformOptions {
        exclude: vec!["*".into()],
        ..Default::default()
    };
    assert!(matches!(
        refused(&transformed(nothing)),
        Error::NothingLeft { .. }
    ));
    let unknown = Options {
        components: vec!["vae".into()],
        ..layout("replicate", None)
    };
    assert!(matches!(refused(&unknown), Error::UnknownComponent { .. }));
    for align in [0, 512, 5000, 1 << 31] {
        let options = Options {
            align: Some(align),
            ..layout("replicate", None)
        };
        assert!(matches!(refused(&options), Error::Align { .. }));
    }
}

#[test]
fn an_alignment_asked_for_is_kept() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let out = folder.path("model.wpack");
    for align in [4096, 1 << 20] {
        let options = Options {
            align: Some(align),
            ..layout("fsdp2", Some(3))
        };
        write(&source, &out, &options, 2);
        verify(&out);
        let pack = Pack::open(&out).unwrap();
        assert_eq!(pack.index().header().extent_align, align);
        assert_eq!(pack.index().root().description.plan.align, Some(align));
    }
}

#[test]
fn components_keep_their_names_apart() {
    let folder = Folder::new();
    let tensors = model();
    let (a, b) = (folder.path("a.safetensors"), folder.path("b.safetensors"));
    save(&tensors, &a);
    let mut other = tensors.clone();
    other.retain(|name, _| name.starts_with("blocks.1"));
    other
        .values_mut()
        .for_each(|tensor| tensor.2.iter_mut().for_each(|byte| *byte ^= 1));
    save(&other, &b);
    let input = |component: &str, path: &Path| Input {
        component: Some(component.into()),
        path: path.to_str().unwrap().into(),
    };
    let inputs = [input("dit", &a), input("vae", &b)];
    let open = || wpack_checkpoint::open(&inputs, &OpenOptions::default()).unwrap();
    let request = Request {
        mesh: Some(Mesh::parse("fsdp=2").unwrap()),
        layout: "fsdp2".into(),
        component_layouts: [("vae".into(), "replicate".into())].into(),
        ..Request::default()
    };
    let mut options = Options {
        request,
        ..Options::default()
    };
    let over = TransformOptions {
        add_prefix: Some("v.".into()),
        ..Default::default()
    };
    options.component_transforms.insert("vae".into(), over);
    let prepared = Prepared::new(open(), &options).unwrap();
    let out = folder.path("both.wpack");
    wpack_convert::convert(&prepared, &out, &WriteOptions::default(), &CONTEXT).unwrap();
    verify(&out);
    let pack = Pack::open(&out).unwrap();
    let shard = pack.shard(1).unwrap();
    let view = shard.get_in("vae", "v.blocks.1.attn.weight").unwrap();
    assert_eq!(view.bytes(), other["blocks.1.attn.weight"].2);
    let source = FileSource::open(&out).unwrap();
    let same = wpack_convert::against(&source, open(), 2, &CONTEXT).unwrap();
    assert!(same.is_same(), "{same:?}");
    let only = wpack_checkpoint::open(&inputs[..1], &OpenOptions::default()).unwrap();
    let found = wpack_convert::against(&source, only, 2, &CONTEXT).unwrap();
    assert_eq!(found.extra.len(), other.len());
    assert!(found.missing.is_empty() && found.different.is_empty());
}
