//! Where things start.

use crate::spec;

/// The least multiple of `align` (a power of two) that is not below `at`; `None` if it does not fit
/// 64 bits.
#[must_use]
pub fn align_up(at: u64, align: u64) -> Option<u64> {
    let mask = align.checked_sub(1)?;
    Some(at.checked_add(mask)? & !mask)
}

/// Alignment of a slice of `len` bytes within its extent.
#[must_use]
pub fn slice_align(len: u64) -> u64 {
    if len >= spec::SLICE_PAGE {
        spec::SLICE_PAGE
    } else {
        spec::SLICE_ALIGN
    }
}

/// Where a slice of `len` bytes starts if the slice before it ends at `end` (0 for the first). The
/// extent ends where its last slice does.
#[must_use]
pub fn place_slice(end: u64, len: u64) -> Option<u64> {
    align_up(end, slice_align(len))
}

/// The alignment of extents for a pack whose extents sum to `total` bytes, where none was asked for.
#[must_use]
pub fn default_extent_align(total: u64) -> u64 {
    if total < spec::SMALL_PACK {
        spec::EXTENT_ALIGN_SMALL
    } else {
        spec::EXTENT_ALIGN
    }
}

/// Number of blocks of an extent of `len` bytes.
#[must_use]
pub fn block_count(len: u64) -> u64 {
    len.div_ceil(spec::BLOCK_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn align_up_is_checked() {
        assert_eq!(align_up(0, 8), Some(0));
        assert_eq!(align_up(1, 8), Some(8));
        assert_eq!(align_up(8, 8), Some(8));
        assert_eq!(align_up(u64::MAX, 8), None);
        assert_eq!(align_up(u64::MAX - 7, 8), Some(u64::MAX - 7));
        assert_eq!(align_up(5, 0), None);
    }

    #[test]
    fn slices_of_a_page_start_on_a_page() {
        assert_eq!(place_slice(1, 0), Some(512));
        assert_eq!(place_slice(1, 4095), Some(512));
        assert_eq!(place_slice(1, 4096), Some(4096));
        assert_eq!(place_slice(0, 4096), Some(0));
    }

    #[test]
    fn alignment_follows_the_size() {
        assert_eq!(default_extent_align(0), 64 << 10);
        assert_eq!(default_extent_align((64 << 20) - 1), 64 << 10);
        assert_eq!(default_extent_align(64 << 20), 2 << 20);
    }
}
