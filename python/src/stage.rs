//! The staged reader's sink that lives in Python: torch owns ring and destinations and runs the copies.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use pyo3::{intern, prelude::*, types::PyDict};
use wpack_loader::{Destination, DeviceSink, SinkError, StageStats, TransferPart};

use crate::dlpack::{Lent, lend};

/// Pause between two looks at a copy that is still running.
const PAUSE: Duration = Duration::from_micros(100);

/// Calls a `wpack._stage.Sink`.
pub(crate) struct Sink {
    python: Py<PyAny>,
    /// Position in the Python sink's list of destinations, by the number of the destination.
    targets: Vec<u32>,
    flying: VecDeque<Slot>,
}

/// One slot of the ring.
pub(crate) struct Slot {
    number: usize,
    memory: Lent,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref()
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut()
    }
}

impl Sink {
    pub(crate) fn new(python: Py<PyAny>, targets: Vec<u32>) -> Self {
        Self {
            python,
            targets,
            flying: VecDeque::new(),
        }
    }

    fn call<T>(
        &self,
        act: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T, SinkError> {
        Python::attach(|py| act(self.python.bind(py))).map_err(SinkError::from)
    }
}

impl DeviceSink for Sink {
    type Slot = Slot;

    fn allocate(&mut self, len: usize, align: usize) -> Result<Slot, SinkError> {
        self.call(|sink| {
            let made = sink.call_method1(intern!(sink.py(), "allocate"), (len, align))?;
            let (number, address): (usize, usize) = made.extract()?;
            Ok(Slot {
                number,
                memory: lend(address, len),
            })
        })
    }

    fn begin(&mut self, _: &[Destination]) -> Result<(), SinkError> {
        self.call(|sink| sink.call_method0(intern!(sink.py(), "begin")).map(drop))
    }

    fn submit(&mut self, slot: Slot, parts: &[TransferPart]) -> Result<(), SinkError> {
        let number = slot.number;
        // In flight before the call: should it fail half way, a copy may run already.
        self.flying.push_back(slot);
        self.call(|sink| {
            let parts: Vec<(u32, u64, u64, u64)> = parts
                .iter()
                .filter_map(|part| {
                    let target = self.targets.get(part.destination as usize)?;
                    Some((*target, part.to, part.from, part.len))
                })
                .collect();
            sink.call_method1(intern!(sink.py(), "copy"), (number, parts))
                .map(drop)
        })
    }

    fn reclaim(&mut self, wait: Duration) -> Result<Option<Slot>, SinkError> {
        let Some(oldest) = self.flying.front() else {
            return Ok(None);
        };
        let (number, start) = (oldest.number, Instant::now());
        loop {
            let done = self.call(|sink| {
                sink.call_method1(intern!(sink.py(), "done"), (number,))?
                    .extract::<bool>()
            })?;
            if done {
                return Ok(self.flying.pop_front());
            }
            if start.elapsed() >= wait {
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.call(|sink| sink.call_method0(intern!(sink.py(), "finish")).map(drop))
    }

    fn drain(&mut self) -> Result<(), SinkError> {
        self.call(|sink| sink.call_method0(intern!(sink.py(), "drain")).map(drop))
    }
}

/// What a load did, for Python.
pub(crate) fn report<'py>(py: Python<'py>, stats: &StageStats) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("seconds", stats.wall.as_secs_f64())?;
    out.set_item("path", stats.path())?;
    out.set_item("reads", stats.reads.count)?;
    out.set_item("cached_bytes", stats.reads.cached)?;
    out.set_item("direct_bytes", stats.reads.direct)?;
    out.set_item("buffered_bytes", stats.reads.buffered)?;
    out.set_item("read_seconds", stats.read.as_secs_f64())?;
    out.set_item("checked_bytes", stats.checked)?;
    out.set_item("check_seconds", stats.check.as_secs_f64())?;
    out.set_item("copied_bytes", stats.copied)?;
    out.set_item("submit_seconds", stats.submit.as_secs_f64())?;
    out.set_item("device_wait_seconds", stats.device_wait.as_secs_f64())?;
    out.set_item("reader_wait_seconds", stats.reader_wait.as_secs_f64())?;
    out.set_item("readers", stats.readers)?;
    out.set_item("slots", stats.slots)?;
    out.set_item("ring_bytes", stats.ring_bytes)?;
    out.set_item("fallbacks", stats.fallbacks.clone())?;
    Ok(out)
}
