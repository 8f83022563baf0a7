//! What a comparison found.

use std::{fmt, time::Duration};

use wpack_format::{DType, Hex};

/// What the comparison of a pack with a checkpoint found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgainstReport {
    /// Tensors compared byte by byte and found equal.
    pub equal: u64,
    /// Tensors of both that differ.
    pub different: Vec<Difference>,
    /// Tensors that the checkpoint has and the pack lacks.
    pub missing: Vec<TensorId>,
    /// Tensors that the pack has and the checkpoint lacks.
    pub extra: Vec<TensorId>,
    /// Components of the checkpoint that the pack does not have at all. A pack does not record which
    /// components were left out when it was made, so these are no difference.
    pub left_out: Vec<String>,
    /// Bytes of the pack's extents that were looked at.
    pub bytes: u64,
    /// Wall time.
    pub elapsed: Duration,
}

impl AgainstReport {
    /// True when the pack holds exactly the tensors that the checkpoint gives.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.different.is_empty() && self.missing.is_empty() && self.extra.is_empty()
    }
}

/// A tensor by its name in the pack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorId {
    /// The component.
    pub component: String,
    /// The name.
    pub name: String,
}

/// A tensor that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub tensor: TensorId,
    /// In what.
    pub what: Unlike,
}

/// In what a tensor differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlike {
    /// Another element type.
    Dtype {
        /// In the pack.
        pack: DType,
        /// What the checkpoint gives.
        checkpoint: DType,
    },
    /// Another shape.
    Shape {
        /// In the pack.
        pack: Vec<u64>,
        /// What the checkpoint gives.
        checkpoint: Vec<u64>,
    },
    /// Other values.
    Values {
        /// The first element that differs, by its index in each dimension.
        index: Vec<u64>,
        /// Its bytes in the pack.
        pack: Vec<u8>,
        /// What the checkpoint gives for them.
        checkpoint: Vec<u8>,
    },
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dtype { pack, checkpoint } => {
                write!(f, "{pack} in the pack, {checkpoint} in the checkpoint")
            }
            Self::Shape { pack, checkpoint } => {
                write!(f, "{pack:?} in the pack, {checkpoint:?} in the checkpoint")
            }
            Self::Values {
                index,
                pack,
                checkpoint,
            } => write!(
                f,
                "first different element {index:?}: bytes {} in the pack, {} in the checkpoint",
                Hex(pack),
                Hex(checkpoint)
            ),
        }
    }
}
