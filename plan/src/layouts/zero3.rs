//! `zero3`: DeepSpeed ZeRO-3. Every parameter is flattened and cut alone into `ceil(n / W)` elements per
//! rank (`param.ds_tensor`); the tail is `torch.empty` in DeepSpeed and zero here, recorded as fill.

use super::Layout;
use crate::placement::Placement;

pub(super) static LAYOUT: Layout = Layout {
    name: "zero3",
    summary: "DeepSpeed ZeRO-3: each parameter flat, ceil(n/W) elements per rank",
    proven: &["deepspeed 0.19.8", "deepspeed 0.16.9"],
    source: &[
        "deepspeed/runtime/zero/partition_parameters.py Init._partition_param",
        "deepspeed/runtime/zero/partition_parameters.py Init._aligned_size",
    ],
    axis: |_| Some("dp"),
    place: |draft| {
        // The engine partitions over data and sequence parallel ranks together.
        let axes = draft.take_axes("zero3", &["dp", "sp"])?;
        draft.place_parameters(&Placement::FlatShard { axes, group: None });
        Ok(())
    },
};
