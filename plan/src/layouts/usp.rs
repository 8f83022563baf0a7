//! `usp`: unified sequence parallel (Ulysses, ring). Activations are cut, weights never are.

use super::Layout;

pub(super) static LAYOUT: Layout = Layout {
    name: "usp",
    summary: "sequence parallel cuts activations, not weights: as replicate",
    proven: &[],
    source: &[
        "yunchang set_seq_parallel_pg",
        "diffsynth/utils/xfuser/xdit_context_parallel.py usp_attn_forward",
    ],
    axis: |_| None,
    place: |_| Ok(()),
};
