//! Asks the system for source bytes before the workers do.

use std::{
    ops::Range,
    sync::{Condvar, Mutex, PoisonError},
};

use super::{Job, Stage};
use crate::gather::source_ranges;

/// Blocks whose source bytes are asked for together, sorted: the slices of several ranks lie side by
/// side in the source.
const GROUP: usize = 16;
/// How many groups ahead of the workers.
const GROUPS: usize = 2;
/// Most bytes asked for in one call. Linux cuts a longer wish to its readahead window, which is this
/// by default.
const WISH: u64 = 128 << 10;

/// The thread that reads ahead, and how far the others are.
pub(super) struct Ahead<'a> {
    jobs: &'a [Job],
    stage: &'a dyn Stage,
    /// Jobs begun; all of them once closed.
    reached: Mutex<usize>,
    moved: Condvar,
}

impl<'a> Ahead<'a> {
    pub(super) fn new(jobs: &'a [Job], stage: &'a dyn Stage) -> Self {
        Self {
            jobs,
            stage,
            reached: Mutex::new(0),
            moved: Condvar::new(),
        }
    }

    /// A worker has begun a job.
    pub(super) fn reached(&self, index: usize) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *reached / GROUP;
        *reached = (*reached).max(index + 1);
        if *reached / GROUP != before {
            self.moved.notify_one();
        }
    }

    /// No worker is left.
    pub(super) fn close(&self) {
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = usize::MAX;
        self.moved.notify_one();
    }

    pub(super) fn run(&self) {
        for (number, group) in self.jobs.chunks(GROUP).enumerate() {
            let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
            while *reached != usize::MAX && *reached / GROUP + GROUPS < number {
                reached = self
                    .moved
                    .wait(reached)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if *reached == usize::MAX {
                return;
            }
            drop(reached);
            self.ask_for(group);
        }
    }

    fn ask_for(&self, group: &[Job]) {
        let mut ranges: Vec<(u32, u32, Range<u64>)> = Vec::new();
        for job in group {
            let component = job.work.component;
            let Some(tensors) = self.stage.tensors(component) else {
                continue;
            };
            source_ranges(tensors, &job.work.slices(), job.range(), |tensor, range| {
                match ranges.last_mut() {
                    // Rows of a strided cut: near enough to be one read.
                    Some(last)
                        if (last.0, last.1) == (component, tensor)
                            && range.start >= last.2.start
                            && range.start <= last.2.end.saturating_add(WISH) =>
                    {
                        last.2.end = last.2.end.max(range.end);
                    }
                    _ => ranges.push((component, tensor, range)),
                }
            });
        }
        ranges.sort_by_key(|(component, tensor, range)| (*component, *tensor, range.start));
        for (component, tensor, range) in ranges {
            let Some(found) = self
                .stage
                .tensors(component)
                .and_then(|tensors| tensors.get(tensor))
            else {
                continue;
            };
            let mut start = range.start;
            while start < range.end {
                let len = WISH.min(range.end - start);
                found.bytes.will_need(start, len);
                start += len;
            }
        }
    }
}
