//! A queue between threads that can be closed.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// First in, first out. Its owner bounds it: there are only so many buffers to put in.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(items: impl IntoIterator<Item = T>) -> Self {
        let state = State {
            items: items.into_iter().collect(),
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, item: T) {
        self.lock().items.push_back(item);
        self.changed.notify_one();
    }

    /// Waits for an item; none when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing will be pushed any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;

    #[test]
    fn what_was_pushed_before_closing_comes_out() {
        let queue = Queue::new([1]);
        queue.push(2);
        queue.close();
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(1), Some(2), None]
        );
    }

    #[test]
    fn closing_wakes_all_who_wait() {
        let queue = Queue::<u8>::new([]);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| queue.pop())).collect();
            queue.close();
            assert!(
                waiting
                    .into_iter()
                    .all(|thread| thread.join().unwrap().is_none())
            );
        });
    }
}
