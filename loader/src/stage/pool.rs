//! The free slots of the ring.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Hands out free slots; readers wait here for the device.
pub(super) struct Pool<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S> {
    free: Vec<S>,
    closed: bool,
}

impl<S> Pool<S> {
    pub(super) fn new(free: Vec<S>) -> Self {
        Self {
            state: Mutex::new(State {
                free,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot; `None` once the pool is closed.
    pub(super) fn take(&self) -> Option<S> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(slot) = state.free.pop() {
                return Some(slot);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a slot back.
    pub(super) fn give(&self, slot: S) {
        self.lock().free.push(slot);
        self.changed.notify_one();
    }

    /// Sends every reader home.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Closes the pool on every way out, a panic of the sink included: else readers would wait for ever.
pub(super) struct Closing<'a, S>(pub(super) &'a Pool<S>);

impl<S> Drop for Closing<'_, S> {
    fn drop(&mut self) {
        self.0.close();
    }
}
