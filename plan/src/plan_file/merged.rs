//! A value, or what stands in its place where nothing is said.

/// What may be left unsaid.
pub(super) trait Merged {
    /// This, or `base` if this says nothing.
    fn over(&self, base: &Self) -> Self;
}

impl<T: Clone> Merged for Option<T> {
    fn over(&self, base: &Self) -> Self {
        self.as_ref().or(base.as_ref()).cloned()
    }
}

impl<T: Clone> Merged for Vec<T> {
    fn over(&self, base: &Self) -> Self {
        if self.is_empty() { base } else { self }.clone()
    }
}
