//! `replicate`: every rank holds everything (DDP, a frozen base under LoRA).

use super::Layout;

pub(super) static LAYOUT: Layout = Layout {
    name: "replicate",
    summary: "every rank holds every tensor; one shared extent, any number of ranks",
    proven: &[],
    source: &[],
    axis: |_| None,
    place: |_| Ok(()),
};
