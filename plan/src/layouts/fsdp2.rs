//! `fsdp2`: PyTorch `fully_shard`. Rows are cut as `torch.chunk` cuts them, so trailing ranks may hold
//! fewer rows or none. A slice is the DTensor's local tensor; the rows that PyTorch's own buffer has
//! behind it up to `ceil(s0 / W)` are not stored.

use super::Layout;
use crate::mesh::Axes;
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
        // Experts are sharded over what `ep` leaves of the ranks that all else is sharded over.
        if draft.has_axis("efsdp") && draft.has_axis("ep") {
            let experts = draft.take_axes("fsdp2", &["efsdp"])?;
            let all = draft.axes(&["efsdp", "ep"]);
            for (index, _) in draft.parameters() {
                let axes = if draft.lies_on(index, "ep") {
                    &experts
                } else {
                    &all
                };
                draft.place(index, &rows(axes.clone()));
            }
            return Ok(());
        }
        let axes = draft.take_axes("fsdp2", &["fsdp", "dp_shard"])?;
        draft.place_parameters(&rows(axes));
        Ok(())
    },
};

fn rows(axes: Axes) -> Placement {
    Placement::Shard {
        axes,
        dim: 0,
        rule: Rule::Chunk,
    }
}
