//! The header: what a reader checks first.

use alloc::{string::ToString as _, vec::Vec};

use crate::{
    Error, TableRef,
    bytes::{Record, RecordMut, wide},
    digest::sha256,
    error::Table,
    spec::{self, header as at},
};

/// The first page of a packfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the format the file was written in.
    pub version: u32,
    /// Exact length of the file, bytes.
    pub file_len: u64,
    /// Alignment of extents, bytes.
    pub extent_align: u64,
    /// Where the index lies: right behind the header; everything before the first extent but padding.
    pub index_len: u64,
    /// The root: description, component records and extent table. `sha256` is the root digest, the
    /// pack's identity.
    pub root: TableRef,
}

impl Header {
    /// The page, its digest included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut page = RecordMut::<{ at::SIZE }>::new();
        page.put::<{ at::MAGIC }, 8>(spec::MAGIC)
            .put::<{ at::VERSION }, 4>(self.version.to_le_bytes())
            .put::<{ at::HEADER_LEN }, 4>(HEADER_LEN32.to_le_bytes())
            .put::<{ at::FILE_LEN }, 8>(self.file_len.to_le_bytes())
            .put::<{ at::INDEX_LEN }, 8>(self.index_len.to_le_bytes())
            .put::<{ at::EXTENT_ALIGN }, 8>(self.extent_align.to_le_bytes())
            .put::<{ at::BLOCK_LEN }, 8>(spec::BLOCK_LEN.to_le_bytes())
            .put::<{ at::SLICE_PAGE }, 4>(SLICE_PAGE32.to_le_bytes())
            .put::<{ at::SLICE_ALIGN }, 4>(SLICE_ALIGN32.to_le_bytes())
            .put::<{ at::ROOT_OFFSET }, 8>(self.root.offset.to_le_bytes())
            .put::<{ at::ROOT_LEN }, 8>(self.root.len.to_le_bytes())
            .put::<{ at::ROOT_SHA256 }, 32>(self.root.sha256)
            .put::<{ at::ROOT_CRC32C }, 4>(self.root.crc32c.to_le_bytes());
        let digest = sha256(&page.0[..at::SHA256]);
        page.put::<{ at::SHA256 }, 32>(digest);
        page.0.to_vec()
    }

    /// Reads the first [`crate::spec::HEADER_LEN`] bytes of a file of `file_len` bytes. Every
    /// field is checked, the file's true length too.
    ///
    /// `bytes` may be shorter only if the file is.
    pub fn decode(bytes: &[u8], file_len: u64) -> Result<Self, Error> {
        let mut start = [0; 8];
        start
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        let seen = bytes.len().min(start.len());
        if start[..seen] != spec::MAGIC[..seen] {
            return Err(Error::Magic { found: start });
        }
        let Some(page) = bytes.first_chunk::<{ at::SIZE }>() else {
            return Err(Error::Truncated {
                expected: spec::HEADER_LEN,
                found: wide(bytes.len()).min(file_len),
            });
        };
        let record = Record(page);
        let version = record.u32::<{ at::VERSION }>();
        if !(spec::OLDEST_VERSION..=spec::VERSION).contains(&version) {
            return Err(Error::Version {
                found: version,
                oldest: spec::OLDEST_VERSION,
                newest: spec::VERSION,
            });
        }
        if sha256(&page[..at::SHA256]) != record.array::<{ at::SHA256 }, 32>() {
            return Err(Error::HeaderDigest);
        }
        check_constants(record)?;
        let header = Self {
            version,
            file_len: record.u64::<{ at::FILE_LEN }>(),
            extent_align: record.u64::<{ at::EXTENT_ALIGN }>(),
            index_len: record.u64::<{ at::INDEX_LEN }>(),
            root: TableRef {
                offset: record.u64::<{ at::ROOT_OFFSET }>(),
                len: record.u64::<{ at::ROOT_LEN }>(),
                crc32c: record.u32::<{ at::ROOT_CRC32C }>(),
                sha256: record.array::<{ at::ROOT_SHA256 }, 32>(),
            },
        };
        header.check(file_len)?;
        Ok(header)
    }

    fn check(&self, file_len: u64) -> Result<(), Error> {
        let align = self.extent_align;
        if !align.is_power_of_two()
            || !(spec::EXTENT_ALIGN_MIN..=spec::EXTENT_ALIGN_MAX).contains(&align)
        {
            return Err(Error::ExtentAlign { found: align });
        }
        let (expected, found) = (self.file_len, file_len);
        if found < expected {
            return Err(Error::Truncated { expected, found });
        }
        if found > expected {
            return Err(Error::TrailingBytes { expected, found });
        }
        let range = |field, found, limit| Error::Range {
            table: Table::Header,
            field,
            entry: 0,
            found,
            limit,
        };
        let room = file_len.saturating_sub(spec::HEADER_LEN);
        if self.index_len > room {
            return Err(range("INDEX_LEN", self.index_len, room));
        }
        if self.root.offset != spec::HEADER_LEN {
            return Err(Error::Place {
                what: "the root".to_string(),
                expected: spec::HEADER_LEN,
                found: self.root.offset,
            });
        }
        if self.root.len > self.index_len {
            return Err(range("ROOT_LEN", self.root.len, self.index_len));
        }
        Ok(())
    }
}

const HEADER_LEN32: u32 = 4096;
const SLICE_PAGE32: u32 = 4096;
const SLICE_ALIGN32: u32 = 512;
const _: () = {
    assert!(HEADER_LEN32 as u64 == spec::HEADER_LEN);
    assert!(SLICE_PAGE32 as u64 == spec::SLICE_PAGE);
    assert!(SLICE_ALIGN32 as u64 == spec::SLICE_ALIGN);
};

/// Fields that have one value in this version.
fn check_constants(record: Record<'_, { at::SIZE }>) -> Result<(), Error> {
    let constants = [
        (
            "HEADER_LEN",
            u64::from(record.u32::<{ at::HEADER_LEN }>()),
            spec::HEADER_LEN,
        ),
        (
            "BLOCK_LEN",
            record.u64::<{ at::BLOCK_LEN }>(),
            spec::BLOCK_LEN,
        ),
        (
            "SLICE_PAGE",
            u64::from(record.u32::<{ at::SLICE_PAGE }>()),
            spec::SLICE_PAGE,
        ),
        (
            "SLICE_ALIGN",
            u64::from(record.u32::<{ at::SLICE_ALIGN }>()),
            spec::SLICE_ALIGN,
        ),
    ];
    for (field, found, expected) in constants {
        if found != expected {
            return Err(Error::Constant {
                field,
                expected,
                found,
            });
        }
    }
    let reserved = |field| Error::ReservedBits {
        table: Table::Header,
        field,
        entry: 0,
    };
    if record.u64::<{ at::RESERVED_FLAGS }>() != 0 {
        return Err(reserved("RESERVED_FLAGS"));
    }
    if record.0[at::RESERVED..at::SHA256]
        .iter()
        .any(|byte| *byte != 0)
    {
        return Err(reserved("RESERVED"));
    }
    Ok(())
}
