//! A thousand ranks and a hundred thousand tensors are planned without holding the slices: memory grows
//! with the tensors and with the ranks, not with both multiplied.
//!
//! One test, since the heap is counted for the whole process.

mod support;

use peak_alloc::PeakAlloc;
use support::{many, plans_of_many};
use wpack_plan::{PlanFile, plan};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TENSORS: usize = 100_000;
const RANKS: u32 = 1_000;

/// Bytes that a plan may take at its peak for each tensor, beside the inventory.
const PER_TENSOR: usize = 320;
/// Bytes for each extent.
const PER_EXTENT: usize = 400;
/// Bytes for each rule: the patterns are compiled together.
const PER_RULE: usize = 2_500;

#[test]
fn thousand_ranks_hundred_thousand_tensors() {
    let inventory = many(TENSORS);
    for planned in plans_of_many(TENSORS, RANKS) {
        let name = planned.name;
        let request = PlanFile::parse(&planned.text).unwrap().request().unwrap();
        let rules = request.options.rules.len();
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let plan = plan(&inventory, &request).unwrap();
        let peak = HEAP.peak_usage() - before;
        let extents = plan.extents().len();
        assert_eq!(u64::try_from(extents).unwrap(), planned.extents, "{name}");
        let slices: u64 = plan
            .extents()
            .iter()
            .map(|extent| u64::from(extent.slice_count))
            .sum();
        assert_eq!(slices, planned.slices, "{name}");
        let allowed = TENSORS * PER_TENSOR + extents * PER_EXTENT + rules * PER_RULE;
        assert!(peak <= allowed, "{name} took {peak} bytes of {allowed}");

        assert_eq!(
            plan.bytes_by_rank().len(),
            usize::try_from(plan.ranks().unwrap_or(0)).unwrap()
        );
        let last = extents - 1;
        let made = plan.slices(last).unwrap();
        assert_eq!(
            u32::try_from(made.len()).unwrap(),
            plan.extents()[last].slice_count
        );
        let bytes: u64 = made.iter().map(|slice| slice.len_bytes().unwrap()).sum();
        assert_eq!(bytes, plan.extents()[last].bytes, "{name}");
    }
}
