//! Blocks of one extent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use wpack_format::{
    Block, BlockDigest, BlockTable, Extent, SliceTable, TensorTable, block_count, crc32c_append,
    spec,
};

use super::{Damage, Fault, Job, Part, queue::Blocks, unreadable};
use crate::{
    Error,
    span::{Span, spans, tensor_names},
};

/// Bytes read and hashed at a time: small enough to stay in a core's own cache between the copy out
/// of the page cache and the hash.
pub(super) const PIECE: usize = 256 << 10;

/// Bytes of a slice in a block from which on their checksum is made once and joined to the block's:
/// joining takes some microseconds, whatever the length.
const JOINED: u64 = 1 << 20;

/// An extent with its tables in memory.
pub(super) struct ExtentCheck {
    index: u32,
    extent: Extent,
    digests: Option<BlockTable>,
    slices: Option<SliceTable>,
    tensors: Option<Arc<TensorTable>>,
    spans: Vec<Span>,
    /// Checksums of slices of which one block was seen.
    halves: Mutex<HashMap<u32, Half>>,
}

/// The part of a small slice in one of the two blocks that it spans.
#[derive(Clone, Copy)]
struct Half {
    crc32c: u32,
    len: u64,
    first: bool,
    /// The block's bytes are what was written, or could not be read: no news in the slice.
    known: bool,
}

impl Blocks for ExtentCheck {
    fn blocks(&self) -> u64 {
        // Without digests there is nothing to hold the bytes against.
        if self.digests.is_some() {
            block_count(self.extent.len)
        } else {
            0
        }
    }
}

impl ExtentCheck {
    /// Reads and checks the extent's tables.
    pub(super) fn open(job: &Job<'_>, index: u32) -> Result<Self, Error> {
        let Some(extent) = job.index.extent(index) else {
            return Err(job.index.unknown_extent(index));
        };
        let tensor_count = job
            .index
            .root()
            .components
            .get(extent.component as usize)
            .map_or(0, |record| record.tensor_count);
        let mut check = Self {
            index,
            extent: extent.clone(),
            digests: None,
            slices: None,
            tensors: job.index.tensors(job.source, extent.component).ok(),
            spans: Vec::new(),
            halves: Mutex::default(),
        };
        let slices = job
            .table(&extent.slices, "a slice table")?
            .and_then(|bytes| {
                SliceTable::decode(bytes, extent.slice_count, extent.len, tensor_count)
                    .and_then(|slices| {
                        check
                            .tensors
                            .as_ref()
                            .map_or(Ok(()), |tensors| slices.check_tensors(&**tensors))?;
                        Ok(slices)
                    })
                    .map_err(Fault::Malformed)
            });
        match slices {
            Ok(slices) => {
                check.spans = spans(&slices);
                check.slices = Some(slices);
            }
            Err(fault) => check.damaged_table(job, fault, true),
        }
        let digests = job
            .table(&extent.blocks, "a block table")?
            .and_then(|bytes| BlockTable::decode(bytes, extent.len).map_err(Fault::Malformed));
        match digests {
            Ok(digests) => check.digests = Some(digests),
            Err(fault) => check.damaged_table(job, fault, false),
        }
        Ok(check)
    }

    fn damaged_table(&self, job: &Job<'_>, fault: Fault, slices: bool) {
        let (part, table) = if slices {
            (Part::SliceTable { extent: self.index }, &self.extent.slices)
        } else {
            (Part::BlockTable { extent: self.index }, &self.extent.blocks)
        };
        let all = (0..).zip(&self.spans).map(|(slice, _)| slice);
        job.report(self.damage(job, part, fault, table.offset, table.len, all));
    }

    fn damage(
        &self,
        job: &Job<'_>,
        part: Part,
        fault: Fault,
        offset: u64,
        len: u64,
        slices: impl Iterator<Item = u32>,
    ) -> Damage {
        let component = job
            .index
            .root()
            .components
            .get(self.extent.component as usize);
        let tensors = match (&self.slices, &self.tensors) {
            (Some(table), Some(tensors)) => tensor_names(table, tensors, slices),
            _ => Vec::new(),
        };
        Damage {
            part,
            fault,
            offset,
            len,
            component: component.map(|record| record.name.clone()),
            tensors,
            ranks: self.extent.owners.clone(),
        }
    }

    /// Checks one block.
    pub(super) fn block(&self, job: &Job<'_>, block: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let Some(expected) = usize::try_from(block)
            .ok()
            .and_then(|block| self.digests.as_ref().and_then(|digests| digests.get(block)))
        else {
            return Ok(());
        };
        let start = block.saturating_mul(spec::BLOCK_LEN);
        let end = start.saturating_add(spec::BLOCK_LEN).min(self.extent.len);
        let offset = self.extent.offset.saturating_add(start);
        job.source
            .will_need(offset, end.saturating_sub(start).saturating_mul(2));
        let mut scan = Scan::new(&self.spans, start, end);
        let fault = match self.scan(job, &mut scan, offset, end - start, buffer) {
            Ok(()) => scan.fault(&expected),
            Err(error) => Some(unreadable(error)?),
        };
        job.count(end - start);
        job.blocks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let whole = fault.is_none();
        if let Some(fault) = fault {
            let suspect = scan.suspects(&self.spans);
            let part = Part::Block {
                extent: self.index,
                block,
            };
            job.report(self.damage(job, part, fault, offset, end - start, suspect.into_iter()));
        }
        let mut faulty = if whole { scan.mismatched } else { Vec::new() };
        for (slice, half) in scan.halves {
            let half = Half {
                known: !whole,
                ..half
            };
            if self.joined_mismatches(slice, half) {
                faulty.push(slice);
            }
        }
        for slice in faulty {
            let span = self.spans.get(slice as usize).copied().unwrap_or_default();
            let part = Part::Slice {
                extent: self.index,
                slice,
            };
            let at = self.extent.offset.saturating_add(span.offset);
            job.report(self.damage(job, part, Fault::Crc32c, at, span.len, [slice].into_iter()));
        }
        Ok(())
    }

    fn scan(
        &self,
        job: &Job<'_>,
        scan: &mut Scan<'_>,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < len {
            job.check_interrupt()?;
            let piece = usize::try_from(len - done)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let piece = buffer.get_mut(..piece).unwrap_or_default();
            job.source
                .read_exact_at(offset.saturating_add(done), piece)?;
            scan.update(piece);
            done += piece.len() as u64;
        }
        scan.complete = true;
        Ok(())
    }

    /// Takes note of one half of a slice; with the other half there, whether the whole mismatches.
    fn joined_mismatches(&self, slice: u32, half: Half) -> bool {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(other) = halves.remove(&slice) else {
            halves.insert(slice, half);
            return false;
        };
        drop(halves);
        if half.known || other.known {
            return false;
        }
        let (first, second) = if half.first {
            (half, other)
        } else {
            (other, half)
        };
        let len = usize::try_from(second.len).unwrap_or(usize::MAX);
        let joined = crc32c::crc32c_combine(first.crc32c, second.crc32c, len);
        self.spans
            .get(slice as usize)
            .is_some_and(|span| span.crc32c.is_some_and(|crc| crc != joined))
    }
}

/// The running state over the bytes of one block.
struct Scan<'a> {
    digest: BlockDigest,
    crc32c: u32,
    spans: &'a [Span],
    /// The first slice that ends behind `at`.
    next: usize,
    /// Position in the extent.
    at: u64,
    start: u64,
    end: u64,
    /// Checksum so far of the slice `next`, of its bytes in this block.
    running: u32,
    /// Those bytes that are not yet in `crc32c`.
    unjoined: u64,
    padding: bool,
    complete: bool,
    intact: Vec<u32>,
    mismatched: Vec<u32>,
    halves: Vec<(u32, Half)>,
}

impl<'a> Scan<'a> {
    fn new(spans: &'a [Span], start: u64, end: u64) -> Self {
        Self {
            digest: BlockDigest::default(),
            crc32c: 0,
            spans,
            next: spans.partition_point(|span| span.end() <= start),
            at: start,
            start,
            end,
            running: 0,
            unjoined: 0,
            padding: true,
            complete: false,
            intact: Vec::new(),
            mismatched: Vec::new(),
            halves: Vec::new(),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let span = self.spans.get(self.next).copied();
            // Up to where the kind of the bytes changes: slice or padding.
            let (inside, until) = match span {
                Some(span) if span.offset <= self.at => (true, span.end()),
                Some(span) => (false, span.offset),
                None => (false, u64::MAX),
            };
            let len = usize::try_from(until.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let (piece, behind) = rest.split_at(len.min(rest.len()));
            rest = behind;
            self.at = self.at.saturating_add(piece.len() as u64);
            match span.filter(|_| inside) {
                Some(span) if span.crc32c.is_some() => {
                    self.running = self.digest.update(self.running, piece);
                    if span.end().min(self.end) - span.offset.max(self.start) >= JOINED {
                        self.unjoined += piece.len() as u64;
                    } else {
                        self.crc32c = crc32c_append(self.crc32c, piece);
                    }
                }
                Some(_) => self.crc32c = self.digest.update(self.crc32c, piece),
                None => {
                    self.crc32c = self.digest.update(self.crc32c, piece);
                    self.padding &= piece.iter().all(|byte| *byte == 0);
                }
            }
            if let Some(span) =
                span.filter(|span| inside && (self.at >= span.end() || self.at >= self.end))
            {
                self.close(&span);
            }
            // Empty slices stand where others end.
            while self
                .spans
                .get(self.next)
                .is_some_and(|span| span.end() <= self.at)
            {
                self.next += 1;
                self.running = 0;
            }
        }
    }

    /// The slice's bytes in this block are over.
    fn close(&mut self, span: &Span) {
        if let Ok(len @ 1..) = usize::try_from(std::mem::take(&mut self.unjoined)) {
            self.crc32c = crc32c::crc32c_combine(self.crc32c, self.running, len);
        }
        let (Some(expected), Ok(slice)) = (span.crc32c, u32::try_from(self.next)) else {
            return;
        };
        let (head, tail) = (span.offset >= self.start, span.end() <= self.end);
        if head && tail {
            let list = if expected == self.running {
                &mut self.intact
            } else {
                &mut self.mismatched
            };
            list.push(slice);
            return;
        }
        let from = span.offset.max(self.start);
        let len = span.end().min(self.end).saturating_sub(from);
        self.halves.push((
            slice,
            Half {
                crc32c: self.running,
                len,
                first: head,
                known: false,
            },
        ));
    }

    fn fault(&self, expected: &Block) -> Option<Fault> {
        if self.digest.clone().finish() != expected.sha256 {
            return Some(Fault::Sha256);
        }
        if self.crc32c != expected.crc32c {
            return Some(Fault::Crc32c);
        }
        (!self.padding).then_some(Fault::NotZero)
    }

    /// Slices with bytes in the block that no checksum of their own proves intact.
    fn suspects(&self, spans: &[Span]) -> Vec<u32> {
        let first = spans.partition_point(|span| span.end() <= self.start);
        let here = spans.iter().enumerate().skip(first);
        let here = here.take_while(|(_, span)| span.offset < self.end);
        let here = here.filter(|(_, span)| span.len > 0);
        here.filter_map(|(slice, _)| u32::try_from(slice).ok())
            .filter(|slice| !self.complete || self.intact.binary_search(slice).is_err())
            .collect()
    }
}
