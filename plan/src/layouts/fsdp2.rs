//! `fsdp2`: PyTorch `fully_shard`. Rows are cut as `torch.chunk` cuts them, so trailing ranks may hold
//! fewer rows or none. A slice is the DTensor's local tensor; the rows that PyTorch's own buffer has
//! behind it up to `ceil(s0 / W)` are not stored.

use super::Layout;
use crate::placement::Placement;
use crate::rule::Rule;

pub(super) static LAYOUT: Layout = Layout {
    name: "fsdp2",
    summary: "PyTorch fully_shard: dimension 0 in torch.chunk parts",
    proven: &["torch 2.11.0"],
    source: &[
        "torch/distributed/fsdp/_fully_shard/_fsdp_param.py FSDPParam._init_sharded_param",
        "torch/distributed/fsdp/_fully_shard/_fsdp_common.py _chunk_with_empty",
    ],
    axis: |_| Some("fsdp"),
    place: |draft| {
        let axes = draft.take_axes("fsdp2", &["fsdp"])?;
        draft.place_parameters(&Placement::Shard {
            axes,
            dim: 0,
            rule: Rule::Chunk,
        });
        Ok(())
    },
};
