//! The blocks that resliced bytes come from, checked before they are used.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use wpack_format::{BlockTable, spec};

use super::{Piece, Reslice, ResliceEntry, table::Finder};
use crate::{ByteSource, Error, Index, PageBuffer, Progress};

/// Bytes read at a time: they stay in a core's own cache between the copy and the checksum.
const PIECE: usize = 256 << 10;

/// What [`Reslice::check`] read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Reslice {
    /// Checks the CRC-32C of every block that holds a byte of the slices that `want` picks, each
    /// once. Blocks that none of them touches are not read.
    ///
    /// `index` and `source` are those that the reslice was made from.
    pub fn check(
        &self,
        index: &Index,
        source: &dyn ByteSource,
        want: impl Fn(usize, &ResliceEntry) -> bool,
        progress: &dyn Progress,
        interrupt: &AtomicBool,
    ) -> Result<Checked, Error> {
        let blocks = self.blocks(index, want)?;
        let len = |block: &TouchedBlock| block.end(index).saturating_sub(block.start());
        progress.begin("verify", blocks.iter().map(len).sum());
        let outcome = check(index, source, &blocks, progress, interrupt);
        progress.finish();
        outcome
    }

    /// The blocks with bytes of the slices that `want` picks.
    fn blocks(
        &self,
        index: &Index,
        want: impl Fn(usize, &ResliceEntry) -> bool,
    ) -> Result<BTreeSet<TouchedBlock>, Error> {
        let mut extents: Vec<(u64, u64, u32)> = (0..)
            .zip(&index.root().extents)
            .map(|(number, extent)| (extent.offset, extent.len, number))
            .collect();
        extents.sort_unstable();
        let mut touched = BTreeSet::new();
        let mut add = |at: u64, len: u64| {
            let behind = extents.partition_point(|(offset, ..)| *offset <= at);
            let Some((offset, _, extent)) = behind.checked_sub(1).and_then(|i| extents.get(i))
            else {
                return;
            };
            if let Some(last) = at
                .saturating_sub(*offset)
                .saturating_add(len)
                .checked_sub(1)
            {
                let first = at.saturating_sub(*offset) / spec::BLOCK_LEN;
                touched.extend((first..=last / spec::BLOCK_LEN).map(|block| TouchedBlock {
                    extent: *extent,
                    block,
                }));
            }
        };
        let mut finder = Finder::default();
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.is_empty() || !want(at, entry) {
                continue;
            }
            if let Some(offset) = entry.file_offset() {
                add(offset, entry.len);
                continue;
            }
            self.visit(&mut finder, entry, &mut |piece| {
                if let Piece::Bytes { at, len } | Piece::Cast { at, len, .. } = piece
                    && len > 0
                {
                    add(at, len);
                }
                ControlFlow::Continue(())
            })
            .map_err(|tensor| self.not_stored(entry, tensor, self.convert()))?;
        }
        Ok(touched)
    }
}

/// A block of an extent, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TouchedBlock {
    extent: u32,
    block: u64,
}

impl TouchedBlock {
    /// First byte in the extent.
    fn start(self) -> u64 {
        self.block.saturating_mul(spec::BLOCK_LEN)
    }

    /// End in the extent.
    fn end(self, index: &Index) -> u64 {
        let len = index.extent(self.extent).map_or(0, |extent| extent.len);
        self.start().saturating_add(spec::BLOCK_LEN).min(len)
    }
}

fn check(
    index: &Index,
    source: &dyn ByteSource,
    blocks: &BTreeSet<TouchedBlock>,
    progress: &dyn Progress,
    interrupt: &AtomicBool,
) -> Result<Checked, Error> {
    let mut buffer = PageBuffer::new(PIECE);
    let mut table: Option<(u32, BlockTable<Vec<u8>>)> = None;
    let mut checked = Checked::default();
    for touched in blocks {
        let extent = index
            .extent(touched.extent)
            .ok_or_else(|| index.unknown_extent(touched.extent))?;
        let rows = match table.take() {
            Some((number, rows)) if number == touched.extent => rows,
            _ => index.blocks(source, extent)?,
        };
        let expected = usize::try_from(touched.block)
            .ok()
            .and_then(|block| rows.get(block))
            .map(|row| row.crc32c);
        table = Some((touched.extent, rows));
        let Some(expected) = expected else {
            return Err(Error::Inconsistent {
                path: index.label().to_owned(),
                extent: touched.extent,
                slice: 0,
                what: "a slice outside of its extent",
            });
        };
        let offset = extent.offset.saturating_add(touched.start());
        let len = touched.end(index).saturating_sub(touched.start());
        let mut found = 0;
        let mut done = 0;
        while done < len {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let size = usize::try_from(len - done).unwrap_or(PIECE).min(PIECE);
            let Some(piece) = buffer.get_mut(..size) else {
                break;
            };
            source.read_exact_at(offset.saturating_add(done), piece)?;
            found = wpack_format::crc32c_append(found, piece);
            done = done.saturating_add(size as u64);
            progress.advance(size as u64);
        }
        if found != expected {
            return Err(Error::Checksum {
                path: index.label().to_owned(),
                extent: touched.extent,
                block: touched.block,
                offset,
                expected,
                found,
            });
        }
        checked.blocks = checked.blocks.saturating_add(1);
        checked.bytes = checked.bytes.saturating_add(len);
    }
    Ok(checked)
}
