//! How long jobs tell their caller how far they are.

/// Told of the progress of one job. Methods are called from any thread, also from several at once,
/// and must return quickly.
pub trait Progress: Sync {
    /// A stage starts that moves `total` bytes; `what` is a word such as `verify`.
    fn begin(&self, what: &str, total: u64) {
        let _ = (what, total);
    }

    /// `bytes` more are done.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The stage is over.
    fn finish(&self) {}
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
