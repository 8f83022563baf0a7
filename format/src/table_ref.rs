//! References to tables.

use alloc::string::ToString as _;

use crate::{
    Error,
    bytes::{Record, RecordMut, wide},
    digest::{crc32c, sha256},
    spec::table_ref as at,
};

/// Where a table lies, and its digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRef {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl TableRef {
    /// The reference of a table whose bytes lie at `offset`.
    #[must_use]
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        Self {
            offset,
            len: wide(bytes.len()),
            crc32c: crc32c(bytes),
            sha256: sha256(bytes),
        }
    }

    /// Checks length and CRC-32C of the table's bytes; `what` names the table in the message.
    pub fn check(&self, what: &str, bytes: &[u8]) -> Result<(), Error> {
        let found = wide(bytes.len());
        if found != self.len {
            return Err(Error::Length {
                what: what.to_string(),
                expected: self.len,
                found,
            });
        }
        let found = crc32c(bytes);
        if found != self.crc32c {
            return Err(Error::Checksum {
                what: what.to_string(),
                expected: self.crc32c,
                found,
            });
        }
        Ok(())
    }

    /// Checks the SHA-256 too: slower, and what `verify` does.
    pub fn check_digest(&self, what: &str, bytes: &[u8]) -> Result<(), Error> {
        self.check(what, bytes)?;
        if sha256(bytes) == self.sha256 {
            Ok(())
        } else {
            Err(Error::Digest {
                what: what.to_string(),
            })
        }
    }

    pub(crate) fn encode(&self) -> [u8; at::SIZE] {
        let mut record = RecordMut::new();
        record
            .put::<{ at::OFFSET }, 8>(self.offset.to_le_bytes())
            .put::<{ at::LEN }, 8>(self.len.to_le_bytes())
            .put::<{ at::SHA256 }, 32>(self.sha256)
            .put::<{ at::CRC32C }, 4>(self.crc32c.to_le_bytes());
        record.0
    }

    pub(crate) fn decode(bytes: &[u8; at::SIZE]) -> Self {
        let record = Record(bytes);
        Self {
            offset: record.u64::<{ at::OFFSET }>(),
            len: record.u64::<{ at::LEN }>(),
            sha256: record.array::<{ at::SHA256 }, 32>(),
            crc32c: record.u32::<{ at::CRC32C }>(),
        }
    }
}
