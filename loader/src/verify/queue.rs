//! Work for the threads of a check: blocks in file order, so that reads stay sequential, and extents
//! opened by whoever is free, so that no more tables are in memory than there are threads at work.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use wpack_format::spec;

/// One piece of work.
pub(super) enum Work<E> {
    /// Read the tables of an extent, then hand it to [`Queue::opened`].
    Open(u32),
    /// Check a block.
    Block(Arc<E>, u64),
    /// Check that a range is zero.
    Gap(u64, u64),
}

/// An extent whose blocks can be handed out.
pub(super) trait Blocks {
    /// Number of blocks.
    fn blocks(&self) -> u64;
}

/// Hands out all blocks of some extents and some gaps.
pub(super) struct Queue<E> {
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    extents: VecDeque<u32>,
    gaps: VecDeque<(u64, u64)>,
    opening: usize,
    ready: VecDeque<(Arc<E>, u64)>,
    stopped: bool,
}

impl<E: Blocks> Queue<E> {
    pub(super) fn new(extents: &[u32], gaps: Vec<(u64, u64)>) -> Self {
        let state = State {
            extents: extents.iter().copied().collect(),
            gaps: gaps.into(),
            opening: 0,
            ready: VecDeque::new(),
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work; waits while another thread opens the last extent. `None` when all is
    /// handed out or the queue was stopped.
    pub(super) fn next(&self) -> Option<Work<E>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some((extent, block)) = state.ready.pop_front() {
                if let Some(next) = block.checked_add(1).filter(|next| *next < extent.blocks()) {
                    state.ready.push_front((Arc::clone(&extent), next));
                }
                return Some(Work::Block(extent, block));
            }
            if let Some(extent) = state.extents.pop_front() {
                state.opening += 1;
                return Some(Work::Open(extent));
            }
            if let Some((from, to)) = state.gaps.pop_front() {
                let end = from.saturating_add(spec::BLOCK_LEN).min(to);
                if end < to {
                    state.gaps.push_front((end, to));
                }
                return Some(Work::Gap(from, end));
            }
            if state.opening == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The extent of a [`Work::Open`] is ready.
    pub(super) fn opened(&self, extent: E) {
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        if extent.blocks() > 0 {
            state.ready.push_back((Arc::new(extent), 0));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Hands out nothing more.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(u64);

    impl Blocks for Fake {
        fn blocks(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn hands_out_everything_once() {
        let queue = Queue::<Fake>::new(&[3, 0, 2], vec![(1, 5), (10, 10 + spec::BLOCK_LEN + 1)]);
        let seen = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(work) = queue.next() {
                        match work {
                            Work::Open(extent) => queue.opened(Fake(extent.into())),
                            Work::Block(extent, block) => {
                                seen.lock().unwrap().push((extent.0, block));
                            }
                            Work::Gap(from, to) => seen.lock().unwrap().push((from, to)),
                        }
                    }
                });
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let block = spec::BLOCK_LEN;
        assert_eq!(
            seen,
            [
                (1, 5),
                (2, 0),
                (2, 1),
                (3, 0),
                (3, 1),
                (3, 2),
                (10, 10 + block),
                (10 + block, 11 + block)
            ]
        );
    }

    #[test]
    fn stops() {
        let queue = Queue::<Fake>::new(&[1], Vec::new());
        queue.stop();
        assert!(queue.next().is_none());
    }
}
