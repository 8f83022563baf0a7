//! What every command is given.

use std::sync::{Arc, atomic::AtomicBool};

use crate::Printer;

/// The world outside of a command.
#[derive(Debug)]
pub struct Context {
    /// The only way to say anything.
    pub printer: Printer,
    /// Set when the user wants it to end.
    pub interrupt: Arc<AtomicBool>,
}

impl Context {
    /// Worker threads: those asked for, else one for each core.
    #[must_use]
    pub fn threads(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
    }
}
