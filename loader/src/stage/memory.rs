//! Plain memory at an aligned address, without `unsafe`.

/// Pageable host memory for sinks without pinned memory of their own. Aligned, so that direct reads
/// can fill it.
#[derive(Debug)]
pub struct HostSlot {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl HostSlot {
    /// `len` zero bytes at a multiple of `align`; none if there is no memory for them.
    #[must_use]
    pub fn new(len: usize, align: usize) -> Option<Self> {
        let align = align.checked_next_power_of_two()?;
        let total = len.checked_add(align)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).ok()?;
        bytes.resize(total, 0);
        let start = bytes.as_ptr().align_offset(align);
        (start <= align).then_some(Self { bytes, start, len })
    }
}

impl AsRef<[u8]> for HostSlot {
    fn as_ref(&self) -> &[u8] {
        self.bytes
            .get(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}

impl AsMut<[u8]> for HostSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes
            .get_mut(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}

/// Whether memory starts at a multiple of `align`.
pub(super) fn is_aligned(bytes: &[u8], align: usize) -> bool {
    align.is_power_of_two() && bytes.as_ptr().addr() & (align - 1) == 0
}
