//! The staged reader: a rank's slices from storage into the memory of a device, through a small ring.
//!
//! ```text
//! transfers (pure)      readers                    calling thread
//! block -> parts  -->   read block into a slot  -> hand slot to the sink  -> slot comes back
//!                       check its CRC-32C          (copy runs meanwhile)     when the copy is done
//! ```
//!
//! * [`Transfers`] says which blocks are read and which bytes go where; it moves nothing.
//! * [`stage`] runs it. Memory is bounded by the ring, whatever the model's size. A slot is *moved*
//!   into the sink and comes back only when the sink says that its copy is done, so that no slot can
//!   be filled again too early.
//! * [`DeviceSink`] is the device. It is called from the calling thread only.
//! * [`read_into`] is the shorter way into plain memory: one copy, no ring.
//!
//! Neither way maps the file: one that shrinks or fails is an error, never a signal.

mod check;
mod eager;
mod memory;
mod plan;
mod pool;
mod read;
mod run;
mod sink;
mod stats;
#[cfg(test)]
mod tests;

pub use eager::{ReadOptions, read_into};
pub use memory::HostSlot;
pub use plan::{Check, Destination, Part, Transfer, Transfers};
pub use read::ReadMode;
pub use run::{StageOptions, stage};
pub use sink::{DeviceSink, SinkError};
pub use stats::{ReadBytes, StageStats};
