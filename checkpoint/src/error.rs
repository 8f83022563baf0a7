//! What can be wrong with a checkpoint.

mod advice;
mod foreign;
mod shown;

use std::path::PathBuf;

pub use foreign::Foreign;
pub(crate) use shown::{Name, list, shown};

use shown::Names;

/// A checkpoint that cannot be read.
///
/// [`Error::code`] is the stable class, [`Error::hint`] what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },

    /// An input names nothing on disk, or a folder holds no weights: check the path.
    #[error("{input}: {what}", input = Name(input))]
    NoInput {
        /// The input as given.
        input: String,
        /// What was looked for.
        what: String,
    },

    /// One component name for a folder that holds several models.
    #[error("{input}: one name for several components: {list}", input = Name(input), list = Names(names))]
    SeveralComponents {
        /// The input as given.
        input: String,
        /// The components found.
        names: Vec<String>,
    },

    /// The file is something else: fetch the weights themselves.
    #[error("{path}: not a checkpoint but {found}", path = path.display())]
    NotACheckpoint {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: Foreign,
    },

    /// A container or a part of one that is not read.
    #[error("{path}: unsupported format: {what}", path = path.display())]
    UnsupportedFormat {
        /// The file or folder.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What to do instead.
        remedy: Option<String>,
    },

    /// The file ends too early, or has become shorter since it was opened.
    #[error("{path}: truncated: {what} needs {need} bytes, the file has {have}", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The part that is cut.
        what: String,
        /// Bytes the file needs to have.
        need: u64,
        /// Bytes the file has.
        have: u64,
    },

    /// The data are complete and more follows.
    #[error(
        "{path}: {surplus} bytes after the last tensor, which ends at byte {end} of {size}",
        path = path.display(), surplus = size.saturating_sub(*end)
    )]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// End of the last tensor in the file.
        end: u64,
        /// Bytes of the file.
        size: u64,
    },

    /// The header of a safetensors file claims more than any reader takes.
    #[error("{path}: header of {len} bytes is over the limit of {limit}", path = path.display())]
    HeaderTooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes claimed.
        len: u64,
        /// Bytes allowed.
        limit: u64,
    },

    /// The header of a safetensors file breaks a rule of the format.
    #[error("{path}: bad header: {what}", path = path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// The rule and the facts.
        what: String,
    },

    /// A name stands twice in one header or record.
    #[error("{path}: the key {key} occurs twice", path = path.display(), key = Name(key))]
    DuplicateKey {
        /// The file.
        path: PathBuf,
        /// The name.
        key: String,
    },

    /// Bytes between two tensors that belong to none.
    #[error(
        "{path}: {gap} bytes before {tensor} belong to no tensor: data offset {expected} expected, {found} found",
        path = path.display(), tensor = Name(tensor), gap = found.saturating_sub(*expected)
    )]
    Hole {
        /// The file.
        path: PathBuf,
        /// The tensor behind the hole.
        tensor: String,
        /// Where it had to begin.
        expected: u64,
        /// Where it begins.
        found: u64,
    },

    /// Two tensors claim the same bytes.
    #[error(
        "{path}: {a} and {b} overlap: the first ends at data offset {end}, the second begins at {begin}",
        path = path.display(), a = Name(a), b = Name(b)
    )]
    Overlap {
        /// The file.
        path: PathBuf,
        /// The one in front.
        a: String,
        /// The one behind.
        b: String,
        /// End of `a`.
        end: u64,
        /// Begin of `b`.
        begin: u64,
    },

    /// A record's length is not what the object says.
    #[error("{path}: {what} has {found} bytes, {expected} declared", path = path.display())]
    SizeMismatch {
        /// The file.
        path: PathBuf,
        /// The record.
        what: String,
        /// Bytes declared.
        expected: u64,
        /// Bytes there.
        found: u64,
    },

    /// A view reaches outside of its storage.
    #[error("{path}: {tensor} reaches outside of its storage: {what}", path = path.display(), tensor = Name(tensor))]
    OutOfBounds {
        /// The file.
        path: PathBuf,
        /// The tensor, or its storage where it has no name yet.
        tensor: String,
        /// Offset, shape, stride and what the storage holds.
        what: String,
    },

    /// Structure or checksum contradicts itself: the file is damaged.
    #[error("{path}: corrupt: {what}", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The facts.
        what: String,
    },

    /// An archive that two readers would read differently.
    #[error("{path}: ambiguous archive: {what}", path = path.display())]
    AmbiguousArchive {
        /// The file.
        path: PathBuf,
        /// The facts.
        what: String,
    },

    /// Several state dicts, and no rule to choose one.
    #[error("{path}: several state dicts, one must be chosen: {list}", path = path.display(), list = Names(roots))]
    AmbiguousRoot {
        /// The file.
        path: PathBuf,
        /// Their paths inside the object.
        roots: Vec<String>,
    },

    /// The path given for the state dict leads to none.
    #[error("{path}: no state dict at {root}; there is {list}", path = path.display(), root = Name(root), list = Names(roots))]
    NoSuchRoot {
        /// The file.
        path: PathBuf,
        /// The path asked for.
        root: String,
        /// Paths that would do.
        roots: Vec<String>,
    },

    /// An index file breaks a rule.
    #[error("{path}: bad index: {what}", path = path.display())]
    BadIndex {
        /// The index file.
        path: PathBuf,
        /// The rule and the facts.
        what: String,
    },

    /// A shard that an index or a shard number promises is not there.
    #[error("{path}: missing shard {shard}: {what}", path = path.display(), shard = Name(shard))]
    MissingShard {
        /// The index file or the folder.
        path: PathBuf,
        /// Base name of the shard.
        shard: String,
        /// Who promises it.
        what: String,
    },

    /// A tensor that an index promises is not in its shard.
    #[error("{path}: {tensor} is not in {shard}, where the index places it", path = path.display(), tensor = Name(tensor), shard = Name(shard))]
    MissingTensor {
        /// The index file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: String,
    },

    /// A record that a tensor needs is not there.
    #[error("{path}: storage {storage} is missing: {what}", path = path.display(), storage = Name(storage))]
    MissingStorage {
        /// The file.
        path: PathBuf,
        /// The record or key.
        storage: String,
        /// Who needs it.
        what: String,
    },

    /// Two tensors get the same name.
    #[error("two tensors are named {name}: {a} and {b}", name = Name(name), a = Name(a), b = Name(b))]
    NameCollision {
        /// The name.
        name: String,
        /// Where the first is.
        a: String,
        /// Where the second is.
        b: String,
    },

    /// An object without a tensor.
    #[error("{path}: no tensors: {what}", path = path.display())]
    NoTensors {
        /// The file.
        path: PathBuf,
        /// What was there instead.
        what: String,
    },

    /// One process's part of a model: it must be merged by the framework first.
    #[error("{path}: one rank's part of a model: {what}", path = path.display())]
    Partitioned {
        /// The file.
        path: PathBuf,
        /// How it can be told.
        what: String,
        /// How to merge it.
        remedy: String,
    },

    /// An input asks for more than a limit allows.
    #[error("{path}: {what}: {found} is over the limit of {limit}", path = path.display())]
    ResourceLimit {
        /// The file.
        path: PathBuf,
        /// What is limited, with its unit.
        what: String,
        /// What is asked for.
        found: u128,
        /// What is allowed.
        limit: u64,
    },

    /// A name that leads out of its folder or archive.
    #[error("{path}: unsafe path {value}", path = path.display(), value = Name(value))]
    UnsafePath {
        /// The file that holds it.
        path: PathBuf,
        /// The path in it.
        value: String,
    },

    /// The pickle is damaged, or no pickle machine would take it.
    #[error("{path}: malformed pickle: {what} at byte {at} of {record}", path = path.display())]
    MalformedPickle {
        /// The file.
        path: PathBuf,
        /// The record, e.g. `data.pkl`.
        record: String,
        /// Offset of the opcode in the record.
        at: u64,
        /// The facts.
        what: String,
    },

    /// The pickle would run code in a loader that follows it. Nothing was run here.
    #[error("{path}: unsafe pickle: it calls {global} at byte {at} of {record}", path = path.display(), global = Name(global))]
    UnsafePickle {
        /// The file.
        path: PathBuf,
        /// The record.
        record: String,
        /// Offset of the opcode in the record.
        at: u64,
        /// Module and name, e.g. `posix.system`.
        global: String,
    },

    /// An element type that is not known.
    #[error("{path}: {tensor} has the unsupported dtype {dtype}", path = path.display(), tensor = Name(tensor), dtype = Name(dtype))]
    UnsupportedDtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type as the file names it.
        dtype: String,
    },

    /// Bytes whose order cannot be told.
    #[error("{path}: unsupported byte order: {what}", path = path.display())]
    UnsupportedEndian {
        /// The file.
        path: PathBuf,
        /// The facts.
        what: String,
    },

    /// A tensor that is no dense array: sparse, quantized, nested, meta.
    #[error("{path}: {tensor} has the unsupported layout {layout}", path = path.display(), tensor = Name(tensor), layout = Name(layout))]
    UnsupportedLayout {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its layout.
        layout: String,
    },

    /// An object of an unknown class that holds tensors: leaving it out would lose weights.
    #[error("{path}: {object} is of class {class}, which is not known and holds tensors", path = path.display(), object = Name(object), class = Name(class))]
    UnsupportedObject {
        /// The file.
        path: PathBuf,
        /// Path inside the object.
        object: String,
        /// Its class.
        class: String,
    },
}
