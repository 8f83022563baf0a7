//! One rank of a thousand opens a pack of a hundred thousand tensors by its own tables, whatever the
//! layout.
//!
//! One test, since the heap is counted for the whole process.

#[path = "../../plan/tests/support/mod.rs"]
mod many;
mod sparse;

use peak_alloc::PeakAlloc;
use sparse::Sparse;
use wpack_loader::Index;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TENSORS: usize = 100_000;
const RANKS: u32 = 1_000;
const RANK: u32 = 517;

/// Bytes of heap for each byte of the tables.
const FACTOR: usize = 2;
/// Bytes of heap for each extent of the pack.
const PER_EXTENT: usize = 400;

#[test]
fn a_rank_opens_by_its_own_tables() {
    let inventory = many::many(TENSORS);
    for planned in many::plans_of_many(TENSORS, RANKS) {
        let name = planned.name;
        let source = Sparse::new(&inventory, &planned.text, RANK);
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let index = Index::read(&source).unwrap();
        let shard = index.shard(&source, RANK).unwrap();
        let peak = HEAP.peak_usage() - before;
        let read = source.take_read();
        assert_eq!(read, source.bytes(), "{name}");
        let bytes = usize::try_from(read).unwrap();
        let extents = index.root().extents.len();
        assert_eq!(u64::try_from(extents).unwrap(), planned.extents, "{name}");
        let allowed = FACTOR * bytes + PER_EXTENT * extents;
        assert!(peak <= allowed, "{name} took {peak} bytes of {allowed}");
        let held = index.extents_of(RANK).unwrap();
        let slices: u32 = held
            .iter()
            .map(|at| index.extent(*at).unwrap().slice_count)
            .sum();
        assert_eq!(shard.len(), usize::try_from(slices).unwrap(), "{name}");
        assert_eq!(shard.iter().count(), shard.len(), "{name}");
    }
}
