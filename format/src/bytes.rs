//! Fixed-width little-endian fields in and out of byte strings.

use alloc::vec::Vec;

use crate::spec::WORD_LEN;

/// A record of `N` bytes; a field's place is checked when the program is compiled.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a, const N: usize>(pub(crate) &'a [u8; N]);

impl<const N: usize> Record<'_, N> {
    #[inline]
    pub(crate) fn array<const AT: usize, const L: usize>(self) -> [u8; L] {
        const { assert!(AT + L <= N) };
        let mut out = [0; L];
        out.copy_from_slice(&self.0[AT..AT + L]);
        out
    }

    #[inline]
    pub(crate) fn u8<const AT: usize>(self) -> u8 {
        u8::from_le_bytes(self.array::<AT, 1>())
    }

    #[inline]
    pub(crate) fn u16<const AT: usize>(self) -> u16 {
        u16::from_le_bytes(self.array::<AT, 2>())
    }

    #[inline]
    pub(crate) fn u32<const AT: usize>(self) -> u32 {
        u32::from_le_bytes(self.array::<AT, 4>())
    }

    #[inline]
    pub(crate) fn u64<const AT: usize>(self) -> u64 {
        u64::from_le_bytes(self.array::<AT, 8>())
    }
}

/// A record being filled, zero at first.
pub(crate) struct RecordMut<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> RecordMut<N> {
    pub(crate) fn new() -> Self {
        Self([0; N])
    }

    pub(crate) fn put<const AT: usize, const L: usize>(&mut self, value: [u8; L]) -> &mut Self {
        const { assert!(AT + L <= N) };
        self.0[AT..AT + L].copy_from_slice(&value);
        self
    }
}

/// A count as the file's 32 bits; what does not fit becomes a count that no reader accepts.
pub(crate) fn count32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// `usize` in the file's 64 bits.
#[inline]
pub(crate) fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A file's 32 bits as an index; lossless on every platform of at least 32 bits.
#[inline]
pub(crate) fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The 64-bit numbers of a part of a table's word pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a>(pub(crate) &'a [[u8; WORD_LEN]]);

impl<'a> Words<'a> {
    /// Numbers left.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True when no number is left.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The number of an index.
    #[must_use]
    #[inline]
    pub fn get(self, index: usize) -> Option<u64> {
        self.0.get(index).map(|word| u64::from_le_bytes(*word))
    }

    /// The numbers in order.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.0.iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The numbers, owned.
    #[must_use]
    pub fn to_vec(self) -> Vec<u64> {
        self.iter().collect()
    }

    /// The first `n` numbers; this keeps those behind.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> Option<Self> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(Self(head))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        self.take(1)?.get(0)
    }
}

/// Product of the dimensions; `None` if it, or the product without its zeros, overflows. So every
/// product of some of the dimensions fits too.
#[inline]
pub(crate) fn element_count(shape: impl Iterator<Item = u64>) -> Option<u64> {
    let (mut product, mut zero) = (1_u64, false);
    for dim in shape {
        zero |= dim == 0;
        product = product.checked_mul(dim.max(1))?;
    }
    Some(if zero { 0 } else { product })
}
