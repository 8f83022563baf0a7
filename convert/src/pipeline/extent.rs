//! Extents at work, their blocks, and the order to take these in.

use std::{
    ops::Range,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use wpack_format::{Slice, block_count, spec::BLOCK_LEN};

use crate::{
    Error,
    gather::{Tensors, overlapping, source_ranges},
};

/// Slices held in memory at once, but for an extent that has more.
const MOST_SLICES: u64 = 200_000;

/// An extent at work.
#[derive(Debug)]
pub(crate) struct Work {
    /// Its index in the pack.
    pub(crate) extent: usize,
    /// Its component.
    pub(crate) component: u32,
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    slices: RwLock<Vec<Slice>>,
}

impl Work {
    pub(crate) fn new(
        extent: usize,
        component: u32,
        offset: u64,
        len: u64,
        slices: Vec<Slice>,
    ) -> Self {
        Self {
            extent,
            component,
            offset,
            len,
            slices: RwLock::new(slices),
        }
    }

    /// Its slices in the order of their offsets.
    pub(crate) fn slices(&self) -> RwLockReadGuard<'_, Vec<Slice>> {
        self.slices.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to enter checksums.
    pub(crate) fn slices_mut(&self) -> RwLockWriteGuard<'_, Vec<Slice>> {
        self.slices.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One block of an extent.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) work: Arc<Work>,
    pub(crate) block: u64,
}

impl Job {
    /// The bytes of the extent that it covers.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = (self.block * BLOCK_LEN).min(self.work.len);
        start..(start + BLOCK_LEN).min(self.work.len)
    }
}

/// Extents that are worked on together: as many as the slices of fit in memory.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    works: Vec<Arc<Work>>,
    slices: u64,
}

impl Batch {
    /// True if another extent of `slices` slices would be too much.
    pub(crate) fn is_full_for(&self, slices: u32) -> bool {
        !self.works.is_empty() && self.slices + u64::from(slices) > MOST_SLICES
    }

    pub(crate) fn push(&mut self, work: Work, slices: u32) {
        self.works.push(Arc::new(work));
        self.slices += u64::from(slices);
    }

    /// The blocks, in the order in which their first bytes lie in the source.
    pub(crate) fn jobs<'a>(
        &self,
        tensors: impl Fn(u32) -> Option<&'a dyn Tensors>,
    ) -> Result<Vec<Job>, Error> {
        let mut jobs = Vec::new();
        for work in &self.works {
            let slices = work.slices();
            let tensors = tensors(work.component);
            for block in 0..block_count(work.len) {
                let job = Job {
                    work: Arc::clone(work),
                    block,
                };
                let place = tensors.and_then(|tensors| place(tensors, &slices, job.range()));
                jobs.push((place, job));
            }
        }
        jobs.sort_by_key(|(place, job)| (*place, job.block, job.work.extent));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }
}

/// Where the first source byte of a range of an extent is: file and offset in it.
fn place(tensors: &dyn Tensors, slices: &[Slice], range: Range<u64>) -> Option<(u32, u64)> {
    for (_, _, part) in overlapping(slices, range) {
        let mut first = None;
        source_ranges(
            tensors,
            slices,
            part.start..part.start + 1,
            |tensor, range| {
                first.get_or_insert((tensor, range.start));
            },
        );
        if let Some((tensor, start)) = first {
            let found = tensors.get(tensor)?;
            let base = found.bytes.place().unwrap_or(0);
            let source = found.source.unwrap_or(u32::MAX);
            return Some((source, base.saturating_add(start)));
        }
    }
    None
}
