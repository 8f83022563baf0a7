//! Every number `docs/format.md` states, and nothing else.

/// First eight bytes of a packfile.
pub const MAGIC: [u8; 8] = *b"\x89WPACK\r\n";
/// The version this crate writes.
pub const VERSION: u32 = 1;
/// The oldest version this crate reads.
pub const OLDEST_VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_LEN: u64 = 4096;
/// Bytes of a block: the unit of checksumming and of transfer.
pub const BLOCK_LEN: u64 = 8 << 20;
/// The least alignment of an extent, bytes.
pub const EXTENT_ALIGN_MIN: u64 = 4096;
/// Alignment of extents of a pack below [`SMALL_PACK`], bytes.
pub const EXTENT_ALIGN_SMALL: u64 = 64 << 10;
/// Alignment of extents otherwise, bytes.
pub const EXTENT_ALIGN: u64 = 2 << 20;
/// The greatest alignment of an extent, bytes.
pub const EXTENT_ALIGN_MAX: u64 = 1 << 30;
/// A pack whose extents sum to less than this many bytes uses [`EXTENT_ALIGN_SMALL`].
pub const SMALL_PACK: u64 = 64 << 20;
/// A slice of at least this many bytes starts on a multiple of it within its extent.
pub const SLICE_PAGE: u64 = 4096;
/// A smaller slice starts on a multiple of this.
pub const SLICE_ALIGN: u64 = 512;
