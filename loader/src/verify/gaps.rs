//! Bytes between the parts of a pack.

use wpack_format::spec;

use crate::Index;

/// The ranges that no digest covers, ascending: between tables, and between extents, up to the end
/// of the file. With `extents`, only those behind these.
pub(super) fn find(index: &Index, extents: Option<&[u32]>, file_len: u64) -> Vec<(u64, u64)> {
    let root = index.root();
    let mut parts: Vec<(u64, u64)> = vec![(0, spec::HEADER_LEN)];
    let tables = [&index.header().root]
        .into_iter()
        .chain(root.components.iter().map(|record| &record.tensors))
        .chain(
            root.extents
                .iter()
                .flat_map(|extent| [&extent.slices, &extent.blocks]),
        );
    parts.extend(tables.map(|table| (table.offset, table.len)));
    parts.extend(
        root.description
            .files
            .iter()
            .map(|file| (file.offset, file.len)),
    );
    parts.extend(
        root.extents
            .iter()
            .map(|extent| (extent.offset, extent.len)),
    );
    parts.sort_unstable();

    let mut gaps = Vec::new();
    let mut end = 0_u64;
    for (offset, len) in parts {
        if offset > end {
            gaps.push((end, offset));
        }
        end = end.max(offset.saturating_add(len));
    }
    if file_len > end {
        gaps.push((end, file_len));
    }
    if let Some(extents) = extents {
        let mut ends: Vec<u64> = extents
            .iter()
            .filter_map(|extent| index.extent(*extent))
            .map(|extent| extent.offset.saturating_add(extent.len))
            .collect();
        ends.sort_unstable();
        gaps.retain(|(from, _)| ends.binary_search(from).is_ok());
    }
    gaps
}
