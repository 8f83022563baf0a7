//! What every reader gives: components, tensors, and a way to their bytes.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use wpack_format::DType;

use crate::Error;

/// One input of the command line: a path, a glob, or `component=path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The component it becomes; none lets the path decide.
    pub component: Option<String>,
    /// File, folder, index file or glob.
    pub path: String,
}

/// How to open a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Path of the state dict inside a pickled object (`--root`); none finds it.
    pub root: Option<String>,
    /// Most bytes that views and decompression may expand to; none means a multiple of the input.
    pub output_limit: Option<u64>,
}

/// A checkpoint: headers are read and checked against the files, tensor data are not read yet.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// Models, in a fixed order.
    pub components: Vec<Component>,
    /// Files that tensors come from.
    pub sources: Vec<SourceFile>,
    /// Small files that belong to no component alone, such as a diffusers `model_index.json`.
    pub files: Vec<SmallFile>,
    /// What a person should know but need not act on.
    pub warnings: Vec<Warning>,
}

/// One model.
#[derive(Clone, Debug, Default)]
pub struct Component {
    /// Name; `model` when there is only one and nobody named it.
    pub name: String,
    /// Kind of container, e.g. `safetensors`, `torch-zip`.
    pub container: String,
    /// Path of the state dict inside the object, dots between keys; empty for the object itself.
    pub root: String,
    /// Tensors in the order of the container (safetensors: by offset; index: shard by shard).
    pub tensors: Vec<Tensor>,
    /// Text metadata of the container.
    pub metadata: BTreeMap<String, String>,
    /// Small files beside it (`config.json`, ...), read whole.
    pub files: Vec<SmallFile>,
    /// Non-tensor values left out.
    pub skipped: Vec<Skipped>,
}

/// A tensor and the way to its bytes.
#[derive(Clone)]
pub struct Tensor {
    /// Its names, exactly as the checkpoint has them; further ones are aliases of the same view.
    pub names: Vec<String>,
    /// Element type.
    pub dtype: DType,
    /// Logical elements per dimension.
    pub shape: Vec<u64>,
    /// Shape as torch sees it; differs only for packed sub-byte types.
    pub stored_shape: Vec<u64>,
    /// Index into [`Checkpoint::sources`].
    pub source: usize,
    /// The logical bytes: row-major, little-endian, conj and neg resolved, this view only.
    pub bytes: Arc<dyn Bytes>,
}

/// Random access to a tensor's logical bytes.
pub trait Bytes: Send + Sync {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` from byte `offset` on. A file that has become shorter is an error, never zeros.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error>;

    /// Where byte 0 lies in the source file when the logical bytes lie there in one piece, for
    /// ordering reads and reading ahead.
    fn place(&self) -> Option<u64>;

    /// Asks the system to bring a range into memory soon. Never an error.
    fn will_need(&self, offset: u64, len: u64);
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is, for messages and re-opening; never written into a pack.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
}

/// A small file carried along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile {
    /// Path relative to the component's folder, with `/`.
    pub path: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// A value that is no tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Path inside the object.
    pub path: String,
    /// Its type, as Python names it.
    pub kind: String,
}

/// Something noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Stable kebab-case name, e.g. `index-total-size`.
    pub code: &'static str,
    /// The facts.
    pub message: String,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("names", &self.names)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
