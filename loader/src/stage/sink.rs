//! What a device must be able to do.

use std::time::Duration;

use super::{Destination, Part};

/// What went wrong on a device, in its own words.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// The device side of a load. All methods are called from the thread that called [`super::stage`].
///
/// The contract that keeps bytes right:
///
/// * A slot given to [`DeviceSink::submit`] stays with the sink until its copy is done, and comes
///   back through [`DeviceSink::reclaim`], in any order. Its memory must not be written or freed
///   before.
/// * Destinations are written only between [`DeviceSink::begin`], which waits (or makes the copy
///   stream wait) for all that the program still does with their memory, and
///   [`DeviceSink::finish`], which makes the program's next work on them wait for the copies.
/// * [`DeviceSink::drain`] is called on every way out. Afterwards no copy runs. A sink that cannot
///   promise that must leak slots and destinations rather than free memory that a device writes.
pub trait DeviceSink {
    /// Host memory that the device can copy from, pinned where that matters. At least of the length
    /// asked for; a start at a multiple of the alignment allows direct reads.
    type Slot: AsRef<[u8]> + AsMut<[u8]> + Send;

    /// Makes one slot of the ring. Called before anything is read; the ring's budget is kept by the
    /// caller.
    fn allocate(&mut self, len: usize, align: usize) -> Result<Self::Slot, SinkError>;

    /// Copies to these destinations will follow.
    fn begin(&mut self, destinations: &[Destination]) -> Result<(), SinkError>;

    /// Starts copying parts of a slot to their destinations and returns without waiting.
    fn submit(&mut self, slot: Self::Slot, parts: &[Part]) -> Result<(), SinkError>;

    /// A slot whose copy is done; waits for one at most so long. `None` if none is done by then.
    fn reclaim(&mut self, wait: Duration) -> Result<Option<Self::Slot>, SinkError>;

    /// Everything was submitted and is done.
    fn finish(&mut self) -> Result<(), SinkError>;

    /// Waits until no copy runs any more.
    fn drain(&mut self) -> Result<(), SinkError>;
}
