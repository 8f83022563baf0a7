//! Tensor parallel styles: how a parameter of a module lies, by the name its framework gives the style.
//!
//! The names are those of transformers 5, whose plans a model carries; PyTorch's `ColwiseParallel` and
//! `RowwiseParallel` of a linear layer are `colwise` and `rowwise`, of an embedding `embedding_colwise`
//! and `embedding_rowwise`.

use crate::TensorSpec;
use crate::rule::Rule;

/// A tensor parallel style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Style {
    /// Rows of a weight, all of a bias.
    Colwise,
    /// Columns of a weight; a bias is whole.
    Rowwise,
    /// As [`Style::Colwise`], a weight of two stacked halves (gate and up): each half is cut.
    PackedColwise,
    /// As [`Style::Rowwise`] with two halves.
    PackedRowwise,
    /// Rows of an embedding.
    EmbeddingRowwise,
    /// Columns of an embedding.
    EmbeddingColwise,
    /// Experts, stacked along dimension 0; they must divide.
    GroupedGemm,
    /// Whole on every rank.
    Replicate,
}

/// Every name that a plan may give a style.
const NAMES: [(&str, Style); 20] = [
    ("colwise", Style::Colwise),
    ("colwise_rep", Style::Colwise),
    ("colwise_gather_output", Style::Colwise),
    ("rowwise", Style::Rowwise),
    ("rowwise_rep", Style::Rowwise),
    ("rowwise_split_input", Style::Rowwise),
    ("packed_colwise", Style::PackedColwise),
    ("packed_rowwise", Style::PackedRowwise),
    ("embedding_rowwise", Style::EmbeddingRowwise),
    ("embedding_colwise", Style::EmbeddingColwise),
    ("grouped_gemm", Style::GroupedGemm),
    ("moe_tp_experts", Style::Replicate),
    ("ep_dispatch_experts", Style::Replicate),
    ("all_reduce", Style::Replicate),
    ("sequence_parallel", Style::Replicate),
    ("replicated_with_grad_allreduce", Style::Replicate),
    ("mla_kv_a_proj", Style::Replicate),
    ("moe_identity_expert", Style::Replicate),
    ("local_params", Style::Replicate),
    ("replicate", Style::Replicate),
];

impl Style {
    /// The style of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, style)| *style)
    }

    /// The name that is a style's own.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            // The first name of the others is their own.
            Self::Replicate => "replicate",
            _ => NAMES
                .iter()
                .find(|(_, style)| *style == self)
                .map_or("replicate", |(name, _)| name),
        }
    }

    /// The dimension it cuts of a tensor, and how; none where the tensor is whole.
    pub(crate) fn cut(self, tensor: &TensorSpec) -> Option<(u32, Rule)> {
        let dims = u32::try_from(tensor.shape.len()).unwrap_or(u32::MAX);
        let bias = tensor
            .names
            .iter()
            .any(|name| name == "bias" || name.ends_with(".bias"));
        // Of a stack of weights (experts first) each is cut; of a vector, its only dimension.
        let rows = dims.saturating_sub(2);
        let columns = dims.saturating_sub(1);
        match self {
            Self::Replicate => None,
            Self::Rowwise if bias => None,
            Self::PackedRowwise if dims < 2 => None,
            Self::Colwise => Some((rows, Rule::Chunk)),
            Self::PackedColwise if dims < 2 => Some((0, Rule::Chunk)),
            Self::PackedColwise => Some((rows, Rule::Strided(2))),
            Self::Rowwise => Some((columns, Rule::Chunk)),
            Self::PackedRowwise => Some((columns, Rule::Strided(2))),
            Self::EmbeddingRowwise => Some((0, Rule::Chunk)),
            Self::EmbeddingColwise => Some((1, Rule::Chunk)),
            Self::GroupedGemm => Some((0, Rule::Even)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (name, style) in NAMES {
            assert_eq!(Style::from_name(name), Some(style));
            assert_eq!(Style::from_name(style.name()), Some(style));
        }
        assert_eq!(Style::from_name("column"), None);
    }
}
