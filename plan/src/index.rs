//! Indices of the file and of memory.

/// An index of the file as one of memory. A file's index is below the length of a list in memory.
pub(crate) fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// An index of memory as one of the file. [`crate::MAX_SLICES`] bounds the number of tensors, and with it all
/// that is counted here.
pub(crate) fn index32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
