//! Slices as plain byte ranges of their extent.

use wpack_format::{SliceRef, SliceTable, TensorTable};

/// Where one slice lies in its extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Its own checksum.
    pub(crate) crc32c: Option<u32>,
}

impl Span {
    /// The byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// All slices of a table in order.
pub(crate) fn spans(table: &SliceTable) -> Vec<Span> {
    let span = |slice: SliceRef<'_>| Span {
        offset: slice.offset,
        len: slice.len,
        crc32c: slice.crc32c,
    };
    table.iter().map(span).collect()
}

/// First names of the tensors in some slices, each once.
pub(crate) fn tensor_names(
    table: &SliceTable,
    tensors: &TensorTable,
    slices: impl Iterator<Item = u32>,
) -> Vec<String> {
    let mut seen: Vec<u32> = Vec::new();
    for slice in slices.filter_map(|slice| table.get_ref(slice)) {
        seen.extend(slice.tensors());
    }
    seen.sort_unstable();
    seen.dedup();
    let found = seen
        .into_iter()
        .filter_map(|tensor| tensors.get_ref(tensor));
    found.map(|tensor| tensor.name().to_owned()).collect()
}
