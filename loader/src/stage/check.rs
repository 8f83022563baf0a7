//! What a wrong checksum says.

use super::{Check, Part, Transfer};
use crate::{ByteSource, Error};

/// Holds the checksum of a transfer's bytes against that of its block, if it is one.
pub(super) fn block(source: &dyn ByteSource, transfer: &Transfer, found: u32) -> Result<(), Error> {
    match transfer.check {
        Check::Block { block, crc32c } if crc32c != found => Err(Error::Checksum {
            path: source.label(),
            extent: transfer.extent,
            block,
            offset: transfer.offset,
            expected: crc32c,
            found,
        }),
        _ => Ok(()),
    }
}

/// Holds the checksum of a part's bytes against the slice's own.
pub(super) fn part(
    source: &dyn ByteSource,
    transfer: &Transfer,
    part: &Part,
    found: u32,
) -> Result<(), Error> {
    let expected = part.crc32c.unwrap_or(0);
    if expected == found {
        return Ok(());
    }
    Err(Error::SliceChecksum {
        path: source.label(),
        extent: transfer.extent,
        slice: part.slice,
        offset: transfer.offset.saturating_add(part.from),
        expected,
        found,
    })
}
