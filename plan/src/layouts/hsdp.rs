//! `hsdp`: `fully_shard` on a mesh of two axes. Rows are cut over `fsdp` and repeated over the other.

use super::Layout;
use crate::placement::Placement;
use crate::rule::Rule;

/// What the replicating axis may be called.
const REPLICAS: [&str; 4] = ["dp_replicate", "dp", "rep", "replicate"];

pub(super) static LAYOUT: Layout = Layout {
    name: "hsdp",
    summary: "fully_shard over (dp_replicate, fsdp): as fsdp2 within each replica",
    proven: &["torch 2.11.0"],
    source: &["torch/distributed/fsdp/_fully_shard/_fsdp_param.py FSDPParam._init_sharded_param"],
    axis: |_| Some("fsdp"),
    place: |draft| {
        if !REPLICAS.iter().any(|name| draft.has_axis(name)) {
            return Err(draft.axis_missing("hsdp", &REPLICAS));
        }
        let axes = draft.take_axes("hsdp", &["fsdp", "dp_shard"])?;
        draft.place_parameters(&Placement::Shard {
            axes,
            dim: 0,
            rule: Rule::Chunk,
        });
        Ok(())
    },
};
