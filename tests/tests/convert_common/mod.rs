//! Checkpoints to convert, and the steps that the tests of conversion share.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use safetensors::{Dtype, tensor::TensorView};
use wpack_checkpoint::{Checkpoint, Input, OpenOptions};
use wpack_convert::{AgainstReport, Context, Options, Prepared, Report, WriteOptions};
use wpack_loader::{FileSource, NoProgress, VerifyOptions};
use wpack_plan::Request;

pub(crate) static GO_ON: AtomicBool = AtomicBool::new(false);
pub(crate) const CONTEXT: Context<'_> = Context {
    progress: &NoProgress,
    interrupt: &GO_ON,
};

pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Bytes without a pattern that a mistake could hide in; finite in every floating type.
pub(crate) fn noise(len: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((state >> 33) % 0x3f).unwrap()
    };
    (0..len).map(step).collect()
}

pub(crate) fn model() -> Tensors {
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

pub(crate) fn save(tensors: &Tensors, path: &Path) {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (
            name.clone(),
            TensorView::new(*dtype, shape.clone(), bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

pub(crate) fn open(path: &Path) -> Checkpoint {
    let input = Input {
        component: None,
        path: path.to_str().unwrap().to_owned(),
    };
    wpack_checkpoint::open(&[input], &OpenOptions::default()).unwrap()
}

pub(crate) fn layout(name: &str, ranks: Option<u32>) -> Options {
    let request = Request {
        layout: name.into(),
        ranks,
        ..Request::default()
    };
    Options {
        request,
        ..Options::default()
    }
}

pub(crate) fn write(source: &Path, out: &Path, options: &Options, threads: usize) -> Report {
    let prepared = Prepared::new(open(source), options).unwrap();
    let write = WriteOptions {
        threads,
        overwrite: true,
    };
    let report = wpack_convert::convert(&prepared, out, &write, &CONTEXT).unwrap();
    assert_eq!(report.file_len, prepared.file_len());
    assert_eq!(report.file_len, fs::metadata(out).unwrap().len());
    report
}

pub(crate) fn verify(pack: &Path) {
    let source = FileSource::open(pack).unwrap();
    let report =
        wpack_loader::verify(&source, &VerifyOptions::default(), &NoProgress, &GO_ON).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

pub(crate) fn against(pack: &Path, source: &Path) -> AgainstReport {
    let pack = FileSource::open(pack).unwrap();
    wpack_convert::against(&pack, open(source), 2, &CONTEXT).unwrap()
}

pub(crate) struct Folder(pub tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A checkpoint of these tensors.
    pub(crate) fn checkpoint(&self, tensors: &Tensors) -> PathBuf {
        let path = self.path("model.safetensors");
        save(tensors, &path);
        path
    }
}
