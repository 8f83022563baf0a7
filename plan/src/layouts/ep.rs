//! `ep`: expert parallel. Tensors of style `grouped_gemm` hold stacked experts and are cut evenly.

use super::Layout;
use super::style::Style;
use super::tp::place_styles;

pub(super) static LAYOUT: Layout = Layout {
    name: "ep",
    summary: "expert parallel: stacked experts, evenly",
    proven: &["transformers 5.24.0"],
    source: &["transformers/distributed/expert_parallel.py shard_param"],
    axis: |_| Some("ep"),
    place: |draft| {
        let axes = draft.take_axes("ep", &["ep"])?;
        place_styles(draft, &axes, |style| style == Style::GroupedGemm)
    },
};
