//! What `verify` found.

use serde::Serialize;

use super::ErrorBody;

/// `wpack verify`.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// Version of this format.
    pub schema: u32,
    /// `verify`.
    pub command: &'static str,
    /// The file, as it was given.
    pub path: String,
    /// Whether everything that was checked is right.
    pub ok: bool,
    /// The root digest, which is the pack's identity: SHA-256, hexadecimal.
    pub digest: String,
    /// The rank whose parts were checked; null for all of the file.
    pub rank: Option<u32>,
    /// Bytes read and checked.
    pub checked_bytes: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Parts of the file that are damaged.
    pub damage: Vec<Damage>,
    /// What `--against` found; null without it.
    pub against: Option<Against>,
    /// What went wrong, in the form of every failure; null when all is right.
    pub error: Option<ErrorBody>,
}

/// A damaged part of the file.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// Which part.
    pub part: String,
    /// What is wrong with it, as a stable name.
    pub fault: &'static str,
    /// The same in words.
    pub what: String,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of the part.
    pub bytes: u64,
    /// The extent, for a part of one.
    pub extent: Option<u32>,
    /// The block within the extent, for a block.
    pub block: Option<u64>,
    /// Component concerned, if it is one.
    pub component: Option<String>,
    /// First names of the tensors that have bytes there.
    pub tensors: Vec<String>,
    /// Who reads it.
    pub ranks: super::Owners,
}

/// The comparison with a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// Tensors that were compared and are equal.
    pub equal: u64,
    /// Tensors that differ.
    pub different: Vec<Difference>,
    /// Tensors of the checkpoint that the pack lacks.
    pub missing: Vec<TensorRef>,
    /// Tensors of the pack that the checkpoint lacks.
    pub extra: Vec<TensorRef>,
    /// Components of the checkpoint that the pack does not have at all.
    pub left_out: Vec<String>,
}

/// A tensor that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Component.
    pub component: String,
    /// Name in the pack.
    pub name: String,
    /// What differs.
    pub what: String,
}

/// A tensor.
#[derive(Clone, Debug, Serialize)]
pub struct TensorRef {
    /// Component.
    pub component: String,
    /// Name.
    pub name: String,
}
