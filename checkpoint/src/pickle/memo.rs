//! The memo: numbered values.

use std::collections::HashMap;

use super::Id;

/// Numbers that follow each other lie in a vector, all others in a map: a number of 2^32 costs no
/// more than any other.
#[derive(Debug, Default)]
pub(super) struct Memo {
    dense: Vec<Id>,
    sparse: HashMap<u64, Id>,
}

impl Memo {
    /// Sets a number; true if it is new.
    pub(super) fn put(&mut self, number: u64, id: Id) -> bool {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(slot) = self.dense.get_mut(at) {
            *slot = id;
            return false;
        }
        if at == self.dense.len() {
            self.dense.push(id);
            return self.sparse.remove(&number).is_none();
        }
        self.sparse.insert(number, id).is_none()
    }

    /// The value of a number.
    pub(super) fn get(&self, number: u64) -> Option<Id> {
        let dense = usize::try_from(number)
            .ok()
            .and_then(|at| self.dense.get(at));
        dense.or_else(|| self.sparse.get(&number)).copied()
    }

    /// Values held: the number that MEMOIZE takes next.
    pub(super) fn len(&self) -> u64 {
        let entries = self.dense.len().saturating_add(self.sparse.len());
        u64::try_from(entries).unwrap_or(u64::MAX)
    }
}
