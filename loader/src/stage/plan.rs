//! Which bytes are read and where they go. Pure: nothing is read but tables.

use wpack_format::{BlockTable, Owners, spec};

use crate::{
    ByteSource, Entry, Error, HeldExtent, Index, ShardIndex,
    span::{Span, spans},
};

/// All reads that bring some slices to their destinations, in file order.
///
/// Every byte of every destination is written by exactly one part.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    destinations: Vec<Destination>,
    transfers: Vec<Transfer>,
    parts: Vec<Part>,
}

/// A slice to be loaded. Its number in [`Transfers::destinations`] is what parts name it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Index of the extent.
    pub extent: u32,
    /// Index of the slice in it.
    pub slice: u32,
    /// Bytes.
    pub len: u64,
}

/// One read of at most a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Index of the extent.
    pub extent: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// How the bytes are checked.
    pub check: Check,
    /// More ranks than one hold these bytes: worth keeping in the page cache.
    pub shared: bool,
    first_part: usize,
    part_count: usize,
}

/// How the bytes of a transfer are checked before they move on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    None,
    /// They are a whole block with this CRC-32C.
    Block {
        /// Index of the block in its extent.
        block: u64,
        /// The checksum.
        crc32c: u32,
    },
    /// Each part is a whole slice with a CRC-32C of its own.
    Parts,
}

/// A byte range of a transfer and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the destination.
    pub destination: u32,
    /// Index of the slice in its extent.
    pub slice: u32,
    /// First byte in the destination.
    pub to: u64,
    /// First byte in the transfer.
    pub from: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// The slice's own checksum, where the part is a whole slice that has one.
    pub crc32c: Option<u32>,
}

impl Part {
    /// The part's bytes among those of its transfer.
    #[must_use]
    pub fn of<'b>(&self, transfer: &'b [u8]) -> &'b [u8] {
        let range = || {
            let from = usize::try_from(self.from).ok()?;
            transfer.get(from..)?.get(..usize::try_from(self.len).ok()?)
        };
        range().unwrap_or_default()
    }
}

impl ShardIndex {
    /// The reads for those slices of the shard that `want` picks. With `check`, block tables are
    /// read, and every byte is checked before it moves on.
    ///
    /// Blocks are read whole, so that their checksum can be checked, except where less than half of
    /// a block is wanted and all that is wanted are slices with checksums of their own.
    pub fn transfers(
        &self,
        index: &Index,
        source: &(impl ByteSource + ?Sized),
        check: bool,
        mut want: impl FnMut(&Entry<'_>) -> bool,
    ) -> Result<Transfers, Error> {
        let mut transfers = Transfers::default();
        for held in self.extents() {
            let slices = (0..held.extent.slice_count)
                .filter(|slice| Entry::of(held, *slice).is_some_and(|entry| want(&entry)));
            let slices: Vec<u32> = slices.collect();
            if slices.is_empty() {
                continue;
            }
            let blocks = if check {
                Some(index.blocks(source, &held.extent)?)
            } else {
                None
            };
            transfers.add(held, &slices, blocks.as_ref());
        }
        Ok(transfers)
    }
}

impl Transfers {
    /// Adds the reads for some slices of an extent, ascending; with its block table, checked ones.
    pub fn add(&mut self, held: &HeldExtent, slices: &[u32], blocks: Option<&BlockTable>) {
        let spans = spans(&held.slices);
        let mut wanted: Vec<(u32, Span)> = Vec::with_capacity(slices.len());
        for slice in slices {
            let Some(span) = spans.get(*slice as usize) else {
                continue;
            };
            let number = u32::try_from(self.destinations.len()).unwrap_or(u32::MAX);
            self.destinations.push(Destination {
                extent: held.index,
                slice: *slice,
                len: span.len,
            });
            if span.len > 0 {
                wanted.push((number, *span));
            }
        }
        let mut rest = wanted.as_slice();
        while let Some((_, first)) = rest.first() {
            let block = first.offset / spec::BLOCK_LEN;
            rest = self.add_blocks(held, rest, block, blocks);
        }
    }

    /// Adds the reads of the block and those behind it until no wanted slice goes on; gives the
    /// slices that start later.
    fn add_blocks<'w>(
        &mut self,
        held: &HeldExtent,
        mut wanted: &'w [(u32, Span)],
        mut block: u64,
        blocks: Option<&BlockTable>,
    ) -> &'w [(u32, Span)] {
        loop {
            let start = block.saturating_mul(spec::BLOCK_LEN);
            let end = start.saturating_add(spec::BLOCK_LEN).min(held.extent.len);
            let count = wanted.partition_point(|(_, span)| span.offset < end);
            let (here, later) = wanted.split_at(count);
            if !here.is_empty() {
                self.add_block(held, here, (block, start, end), blocks);
            }
            // The last one may go on in the next block.
            match here.last() {
                Some((_, span)) if span.end() > end => {
                    wanted = wanted.get(count - 1..).unwrap_or_default();
                    block = block.saturating_add(1);
                }
                _ => return later,
            }
        }
    }

    fn add_block(
        &mut self,
        held: &HeldExtent,
        wanted: &[(u32, Span)],
        (block, start, end): (u64, u64, u64),
        blocks: Option<&BlockTable>,
    ) {
        let inside = |span: &Span| span.offset.max(start)..span.end().min(end);
        let bytes: u64 = wanted
            .iter()
            .map(|(_, span)| inside(span))
            .map(|range| range.end - range.start)
            .sum();
        let own = |span: &Span| span.crc32c.is_some() && span.offset >= start && span.end() <= end;
        let crc32c = usize::try_from(block)
            .ok()
            .and_then(|block| blocks.and_then(|blocks| blocks.get(block)))
            .map(|block| block.crc32c);
        let sparse = bytes < (end - start) / 2;
        match crc32c {
            Some(_) if sparse && wanted.iter().all(|(_, span)| own(span)) => {
                self.add_runs(held, wanted, (start, end), Check::Parts);
            }
            Some(crc32c) => {
                let check = Check::Block { block, crc32c };
                self.add_transfer(held, wanted, start..end, (start, end), check);
            }
            None => self.add_runs(held, wanted, (start, end), Check::None),
        }
    }

    /// One read for each run of wanted slices with no large hole in it.
    fn add_runs(
        &mut self,
        held: &HeldExtent,
        wanted: &[(u32, Span)],
        (start, end): (u64, u64),
        check: Check,
    ) {
        let near = |a: &(u32, Span), b: &(u32, Span)| {
            b.1.offset.saturating_sub(a.1.end()) < spec::SLICE_PAGE * 16
        };
        for run in wanted.chunk_by(near) {
            let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) else {
                continue;
            };
            let range = first.offset.max(start)..last.end().min(end);
            self.add_transfer(held, run, range, (start, end), check);
        }
    }

    fn add_transfer(
        &mut self,
        held: &HeldExtent,
        wanted: &[(u32, Span)],
        range: std::ops::Range<u64>,
        (start, end): (u64, u64),
        check: Check,
    ) {
        let first_part = self.parts.len();
        let destinations = &self.destinations;
        self.parts.extend(wanted.iter().map(|(destination, span)| {
            let (from, to) = (span.offset.max(start), span.end().min(end));
            Part {
                destination: *destination,
                slice: destinations
                    .get(*destination as usize)
                    .map_or(0, |known| known.slice),
                to: from - span.offset,
                from: from - range.start,
                len: to - from,
                crc32c: span.crc32c.filter(|_| to - from == span.len),
            }
        }));
        let shared = match &held.extent.owners {
            Owners::All => true,
            owners => owners.count(u32::MAX) > 1,
        };
        self.transfers.push(Transfer {
            extent: held.index,
            offset: held.extent.offset.saturating_add(range.start),
            len: range.end - range.start,
            check,
            shared,
            first_part,
            part_count: wanted.len(),
        });
    }

    /// What is loaded, by number.
    #[must_use]
    pub fn destinations(&self) -> &[Destination] {
        &self.destinations
    }

    /// The reads in file order.
    #[must_use]
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The parts of a read, ascending.
    #[must_use]
    pub fn parts(&self, transfer: &Transfer) -> &[Part] {
        let end = transfer.first_part.saturating_add(transfer.part_count);
        self.parts.get(transfer.first_part..end).unwrap_or_default()
    }

    /// Bytes that are read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.transfers
            .iter()
            .fold(0, |sum, transfer| sum.saturating_add(transfer.len))
    }

    /// Bytes that arrive.
    #[must_use]
    pub fn wanted_bytes(&self) -> u64 {
        self.destinations
            .iter()
            .fold(0, |sum, destination| sum.saturating_add(destination.len))
    }

    /// Bytes of the longest read.
    #[must_use]
    pub(crate) fn longest(&self) -> u64 {
        self.transfers
            .iter()
            .map(|transfer| transfer.len)
            .max()
            .unwrap_or(0)
    }
}
