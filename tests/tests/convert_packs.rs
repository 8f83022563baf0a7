//! Checkpoint to pack and back: every tensor's bytes, whatever layout, filter, cast or thread count.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use safetensors::{Dtype, tensor::TensorView};
use wpack_checkpoint::{Checkpoint, Input, OpenOptions};
use wpack_convert::{
    AgainstReport, Context, Error, Options, Prepared, Report, TransformOptions, Unlike, WriteOptions,
    cast::convert_elements,
};
use wpack_format::{BoxPart, Content, DType, FlatPart};
use wpack_loader::{FileSource, NoProgress, Pack, VerifyOptions};
use wpack_plan::{Mesh, Request};

static GO_ON: AtomicBool = AtomicBool::new(false);
const CONTEXT: Context<'_> = Context { progress: &NoProgress, interrupt: &GO_ON };

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Bytes without a pattern that a mistake could hide in; finite in every floating type.
fn noise(len: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((state >> 33) % 0x3f).unwrap()
    };
    (0..len).map(step).collect()
}

fn model() -> Tensors {
    let shapes: [(&str, Dtype, Vec<usize>); 13] = [
        ("blocks.0.attn.weight", Dtype::BF16, vec![64, 48]),
        ("blocks.0.attn.bias", Dtype::BF16, vec![64]),
        ("blocks.0.mlp.weight", Dtype::F32, vec![37, 53]),
        ("blocks.1.attn.weight", Dtype::BF16, vec![64, 48]),
        ("blocks.1.norm.weight", Dtype::F16, vec![5]),
        ("blocks.1.norm.count", Dtype::I64, vec![]),
        ("blocks.1.mask", Dtype::BOOL, vec![7, 3]),
        ("scale", Dtype::F32, vec![]),
        ("empty", Dtype::BF16, vec![0, 16]),
        ("one", Dtype::F64, vec![1]),
        ("quantised", Dtype::F8_E4M3, vec![33, 3]),
        ("big", Dtype::BF16, vec![1500, 1000, 3]),
        ("last", Dtype::U8, vec![3]),
    ];
    let build = |(at, (name, dtype, shape)): (usize, (&str, Dtype, Vec<usize>))| {
        let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let mut bytes = noise(len, at);
        if dtype == Dtype::BOOL {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        (name.to_owned(), (dtype, shape, bytes))
    };
    shapes.into_iter().enumerate().map(build).collect()
}

fn save(tensors: &Tensors, path: &Path) {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn open(path: &Path) -> Checkpoint {
    let input = Input { component: None, path: path.to_str().unwrap().to_owned() };
    wpack_checkpoint::open(&[input], &OpenOptions::default()).unwrap()
}

fn layout(name: &str, ranks: Option<u32>) -> Options {
    let request = Request { layout: name.into(), ranks, ..Request::default() };
    Options { request, ..Options::default() }
}

fn write(source: &Path, out: &Path, options: &Options, threads: usize) -> Report {
    let prepared = Prepared::new(open(source), options).unwrap();
    let write = WriteOptions { threads, overwrite: true };
    let report = wpack_convert::convert(&prepared, out, &write, &CONTEXT).unwrap();
    assert_eq!(report.file_len, prepared.file_len());
    assert_eq!(report.file_len, fs::metadata(out).unwrap().len());
    report
}

fn verify(pack: &Path) {
    let source = FileSource::open(pack).unwrap();
    let report =
        wpack_loader::verify(&source, &VerifyOptions::default(), &NoProgress, &GO_ON).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

fn against(pack: &Path, source: &Path) -> AgainstReport {
    let pack = FileSource::open(pack).unwrap();
    wpack_convert::against(&pack, open(source), 2, &CONTEXT).unwrap()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A checkpoint of these tensors.
    fn checkpoint(&self, tensors: &Tensors) -> PathBuf {
        let path = self.path("model.safetensors");
        save(tensors, &path);
        path
    }
}

/// Lays one part of a slice back into the image of its tensor, one element at a time.
fn lay_box(image: &mut [Option<Vec<u8>>], tensor: &[u64], start: &[u64], size: &[u64], bytes: &mut &[u8], width: usize) {
    let elements: u64 = size.iter().product();
    for linear in 0..elements {
        let (mut rest, mut at, mut step) = (linear, 0, 1);
        for d in (0..size.len()).rev() {
            at += (start[d] + rest % size[d]) * step;
            rest /= size[d];
            step *= tensor[d];
        }
        let (element, tail) = bytes.split_at(width);
        *bytes = tail;
        let at = usize::try_from(at).unwrap();
        assert!(image[at].replace(element.to_vec()).is_none(), "element {at} comes twice");
    }
}

/// The tensors as the slices of all ranks together give them; each element exactly once, but for
/// tensors that every rank holds.
fn reassemble(pack: &Pack<wpack_loader::Map>) -> BTreeMap<String, Vec<u8>> {
    let ranks = pack.index().ranks().unwrap_or(1);
    let mut images: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    for rank in 0..ranks {
        let shard = pack.shard(rank).unwrap();
        for view in shard.iter() {
            let tensor = view.entry().tensor().unwrap().to_tensor();
            let name = tensor.names[0].name.clone();
            let width = usize::try_from(tensor.dtype.bits() / 8).unwrap();
            let elements = usize::try_from(tensor.shape.iter().product::<u64>()).unwrap();
            let image = images.entry(name).or_insert_with(|| vec![None; elements]);
            let mut bytes = view.bytes();
            let content = view.entry().slice().to_slice().content;
            if matches!(content, Content::Whole { .. }) {
                image.fill(None);
            }
            match content {
                Content::Whole { .. } => {
                    let zeros = vec![0; tensor.shape.len()];
                    lay_box(image, &tensor.shape, &zeros, &tensor.shape, &mut bytes, width);
                }
                Content::Boxes { parts, .. } => {
                    assert_eq!(parts.len(), 1);
                    let BoxPart::Box { start, size } = &parts[0] else { panic!("{parts:?}") };
                    lay_box(image, &tensor.shape, start, size, &mut bytes, width);
                }
                Content::Flat { parts } => {
                    for part in parts {
                        match part {
                            FlatPart::Range { start, len, .. } => {
                                let shape = [elements as u64];
                                lay_box(image, &shape, &[start], &[len], &mut bytes, width);
                            }
                            FlatPart::Fill { len, value } => {
                                let (fill, tail) = bytes.split_at(usize::try_from(len).unwrap() * width);
                                assert!(fill.chunks(width).all(|one| *one == value.0[..width]));
                                bytes = tail;
                            }
                        }
                    }
                }
            }
            assert!(bytes.is_empty());
        }
    }
    let whole = |(name, image): (String, Vec<Option<Vec<u8>>>)| {
        (name, image.into_iter().flat_map(|element| element.expect("every element is held")).collect())
    };
    images.into_iter().map(whole).collect()
}

#[test]
fn all_layouts_give_every_tensor_back() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    let out = folder.path("model.wpack");
    for (name, ranks) in [
        ("replicate", None),
        ("usp", None),
        ("zero3", Some(1)),
        ("zero3", Some(2)),
        ("zero3", Some(3)),
        ("fsdp2", Some(2)),
        ("fsdp2", Some(4)),
        ("fsdp2", Some(7)),
    ] {
        write(&source, &out, &layout(name, ranks), 0);
        verify(&out);
        let pack = Pack::open(&out).unwrap();
        let found = reassemble(&pack);
        assert_eq!(found.len(), tensors.len());
        for (tensor, (_, _, bytes)) in &tensors {
            assert!(found[tensor] == *bytes, "{name} {ranks:?}: {tensor}");
        }
        let same = against(&out, &source);
        assert!(same.is_same(), "{name} {ranks:?}: {same:?}");
        assert_eq!(same.equal, tensors.len() as u64);
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_place() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let moved = folder.path("elsewhere/model.safetensors");
    fs::copy(&source, &moved).unwrap();
    let mut options = layout("zero3", Some(3));
    options.hash_sources = true;
    let first = folder.path("0.wpack");
    let report = write(&source, &first, &options, 1);
    let bytes = fs::read(&first).unwrap();
    for threads in [2, 3, 5, 0] {
        let out = folder.path("again.wpack");
        assert_eq!(write(&moved, &out, &options, threads).digest, report.digest);
        assert!(fs::read(&out).unwrap() == bytes, "{threads} threads");
    }
}

#[test]
fn a_replicated_pack_does_not_depend_on_the_ranks() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let digest = |ranks| write(&source, &folder.path("r.wpack"), &layout("replicate", ranks), 2).digest;
    assert_eq!(digest(None), digest(Some(4)));
}

#[test]
fn source_digests_are_those_of_the_files() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let out = folder.path("model.wpack");
    let options = Options { hash_sources: true, ..layout("replicate", None) };
    write(&source, &out, &options, 2);
    let pack = Pack::open(&out).unwrap();
    let found = &pack.index().root().description.sources;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "model.safetensors");
    let digest = wpack_format::sha256(&fs::read(&source).unwrap());
    assert_eq!(found[0].sha256, Some(wpack_format::Hex(&digest).to_string()));
}

#[test]
fn casts_are_those_of_whole_tensors() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    let out = folder.path("model.wpack");
    for (target, ranks) in [(DType::Bf16, 1), (DType::F32, 3), (DType::F8E5M2, 2), (DType::F64, 2)] {
        let mut options = layout("zero3", Some(ranks));
        options.transform.dtype = Some(target);
        let prepared = Prepared::new(open(&source), &options).unwrap();
        assert!(prepared.warnings().iter().any(|warning| warning.code == "dtype-kept"));
        write(&source, &out, &options, 2);
        verify(&out);
        let pack = Pack::open(&out).unwrap();
        let found = reassemble(&pack);
        for (tensor, (dtype, _, bytes)) in &tensors {
            let from = match dtype {
                Dtype::BF16 => DType::Bf16,
                Dtype::F16 => DType::F16,
                Dtype::F32 => DType::F32,
                Dtype::F64 => DType::F64,
                _ => {
                    assert!(found[tensor] == *bytes, "{tensor} is left alone");
                    continue;
                }
            };
            let elements = bytes.len() / usize::try_from(from.bits() / 8).unwrap();
            let mut expected = vec![0; elements * usize::try_from(target.bits() / 8).unwrap()];
            convert_elements(from, target, bytes, &mut expected).unwrap();
            assert!(found[tensor] == expected, "{tensor} to {target}");
        }
        assert!(against(&out, &source).is_same());
    }
}

fn transformed(transform: TransformOptions) -> Options {
    Options { transform, ..layout("zero3", Some(2)) }
}

fn names(prepared: &Prepared) -> Vec<String> {
    let tensors = prepared.inventory().components.iter().flat_map(|component| &component.tensors);
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
        rename: vec![("weight$".into(), "w".into()), (r"(\d)\.attn".into(), "${1}.attention".into())],
        dtype: Some(DType::F16),
    });
    let prepared = Prepared::new(open(&source), &options).unwrap();
    let expected =
        ["net.1.attention.w", "net.1.norm.w", "net.attn.bias", "net.attn.w", "net.mlp.w"];
    assert_eq!(names(&prepared), expected);
    let out = folder.path("model.wpack");
    write(&source, &out, &options, 2);
    let pack = Pack::open(&out).unwrap();
    let entry = pack.shard(0).unwrap().get("net.mlp.w").unwrap().entry().tensor().unwrap().to_tensor();
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
    let include = TransformOptions { include: vec!["blocks.*".into(), "block.*".into()], ..Default::default() };
    let exclude = TransformOptions { exclude: vec!["nothing".into()], ..Default::default() };
    let strip = TransformOptions { strip_prefix: vec!["model.".into()], ..Default::default() };
    let rename = TransformOptions { rename: vec![("^model".into(), String::new())], ..Default::default() };
    for (transform, option) in
        [(include, "--include"), (exclude, "--exclude"), (strip, "--strip-prefix"), (rename, "--rename")]
    {
        let error = refused(&transformed(transform));
        assert!(matches!(&error, Error::PatternUnused { option: found, .. } if *found == option), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let rename = |from: &str, to: &str| {
        transformed(TransformOptions { rename: vec![(from.into(), to.into())], ..Default::default() })
    };
    let collision = refused(&rename(r"blocks\.\d", "blocks"));
    assert!(matches!(&collision, Error::NameCollision { name, .. } if name == "blocks.attn.weight"), "{collision}");
    assert!(matches!(refused(&rename("^scale$", "")), Error::EmptyName { .. }));
    assert!(matches!(refused(&rename("(", "")), Error::Pattern { .. }));
    let glob = TransformOptions { include: vec!["[".into()], ..Default::default() };
    assert!(matches!(refused(&transformed(glob)), Error::Pattern { .. }));
    let nothing = TransformOptions { exclude: vec!["*".into()], ..Default::default() };
    assert!(matches!(refused(&transformed(nothing)), Error::NothingLeft { .. }));
    let unknown = Options { components: vec!["vae".into()], ..layout("replicate", None) };
    assert!(matches!(refused(&unknown), Error::UnknownComponent { .. }));
    for align in [0, 512, 5000, 1 << 31] {
        let options = Options { align: Some(align), ..layout("replicate", None) };
        assert!(matches!(refused(&options), Error::Align { .. }));
    }
}

#[test]
fn an_alignment_asked_for_is_kept() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let out = folder.path("model.wpack");
    for align in [4096, 1 << 20] {
        let options = Options { align: Some(align), ..layout("fsdp2", Some(3)) };
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
    other.values_mut().for_each(|tensor| tensor.2.iter_mut().for_each(|byte| *byte ^= 1));
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
    let mut options = Options { request, ..Options::default() };
    let over = TransformOptions { add_prefix: Some("v.".into()), ..Default::default() };
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

#[test]
fn a_pack_is_not_what_another_checkpoint_gives() {
    let folder = Folder::new();
    let tensors = model();
    let source = folder.checkpoint(&tensors);
    for (name, ranks) in [("replicate", None), ("zero3", Some(3)), ("fsdp2", Some(2))] {
        let out = folder.path("model.wpack");
        write(&source, &out, &layout(name, ranks), 2);
        let mut other = tensors.clone();
        let at = (700 * 1000 * 3 + 999 * 3 + 2) * 2;
        let big = &mut other.get_mut("big").unwrap().2;
        big[at + 1] ^= 0x10;
        *big.last_mut().unwrap() ^= 1;
        other.remove("one");
        other.insert("two".into(), (Dtype::U8, vec![1], vec![0]));
        other.insert("scale".into(), (Dtype::I32, vec![], vec![0; 4]));
        other.get_mut("blocks.0.mlp.weight").unwrap().1 = vec![53, 37];
        let changed = folder.path("other.safetensors");
        save(&other, &changed);
        let found = against(&out, &changed);
        let named = |list: &[wpack_convert::TensorId]| list.iter().map(|id| id.name.clone()).collect::<Vec<_>>();
        assert_eq!(named(&found.missing), ["two"]);
        assert_eq!(named(&found.extra), ["one"]);
        let different: Vec<_> =
            found.different.iter().map(|one| (one.tensor.name.as_str(), &one.what)).collect();
        let [("big", Unlike::Values { index, pack, checkpoint }), ("blocks.0.mlp.weight", shape), ("scale", dtype)] =
            different.as_slice()
        else {
            panic!("{different:?}");
        };
        assert_eq!(*index, [700, 999, 2]);
        assert_eq!(*pack, tensors["big"].2[at..at + 2]);
        assert_eq!(*checkpoint, other["big"].2[at..at + 2]);
        assert!(matches!(shape, Unlike::Shape { .. }) && matches!(dtype, Unlike::Dtype { .. }));
        assert_eq!(found.equal, tensors.len() as u64 - 4);
    }
}

#[test]
fn a_source_is_never_the_target() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let before = fs::read(&source).unwrap();
    let link = folder.path("link.wpack");
    fs::hard_link(&source, &link).unwrap();
    let prepared = Prepared::new(open(&source), &layout("replicate", None)).unwrap();
    for out in [&source, &link] {
        let write = WriteOptions { threads: 1, overwrite: true };
        let error = wpack_convert::convert(&prepared, out, &write, &CONTEXT).unwrap_err();
        assert!(matches!(error, Error::TargetIsSource { .. }), "{error}");
    }
    assert!(fs::read(&source).unwrap() == before);
}

#[test]
fn a_source_cut_meanwhile_is_an_error() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let prepared = Prepared::new(open(&source), &layout("zero3", Some(2))).unwrap();
    let len = fs::metadata(&source).unwrap().len();
    fs::File::options().write(true).open(&source).unwrap().set_len(len - 100).unwrap();
    let out = folder.path("model.wpack");
    let error = wpack_convert::convert(&prepared, &out, &WriteOptions::default(), &CONTEXT).unwrap_err();
    assert!(matches!(error, Error::Checkpoint(_)), "{error}");
    assert!(!out.exists());
}

#[test]
fn an_interrupt_leaves_nothing() {
    let folder = Folder::new();
    let source = folder.checkpoint(&model());
    let prepared = Prepared::new(open(&source), &layout("zero3", Some(2))).unwrap();
    let out = folder.path("model.wpack");
    let context = Context { progress: &NoProgress, interrupt: &AtomicBool::new(true) };
    let error = wpack_convert::convert(&prepared, &out, &WriteOptions::default(), &context).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
}
