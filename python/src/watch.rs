//! Long work: off the Python thread's lock, with progress, and stopped by Ctrl-C.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use wpack_loader::Progress;

/// How often the waiting thread looks for signals and tells of progress.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two calls of the progress function: at most ten a second.
const TICKS_PER_CALL: u32 = 2;

/// Counters that work advances and the waiting thread reads. The workers never call into Python.
#[derive(Debug, Default)]
struct Counters {
    what: Mutex<String>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress for Counters {
    fn begin(&self, what: &str, total: u64) {
        let mut name = self.what.lock().unwrap_or_else(PoisonError::into_inner);
        what.clone_into(&mut name);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Counters {
    fn tell(&self, progress: &Bound<'_, PyAny>) -> PyResult<()> {
        let what = self
            .what
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let total = self.total.load(Ordering::Relaxed);
        if total == 0 {
            return Ok(());
        }
        let done = self.done.load(Ordering::Relaxed).min(total);
        progress.call1((what, done, total)).map(drop)
    }
}

/// Runs `work` on a thread of its own while this one waits without the GIL, looks for signals and calls
/// `progress(what, done, total)`. A signal handler's or the progress function's exception sets the
/// interrupt flag; it is raised when the work has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Progress, &AtomicBool) -> T + Send,
) -> PyResult<T> {
    let interrupt = AtomicBool::new(false);
    watched_shared(py, progress, &interrupt, |counters| {
        work(&*counters, &interrupt)
    })
}

/// As [`watched`], for work that shares the counters and brings its interrupt flag.
pub(crate) fn watched_shared<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    interrupt: &AtomicBool,
    work: impl FnOnce(Arc<dyn Progress + Send>) -> T + Send,
) -> PyResult<T> {
    let counters = Arc::new(Counters::default());
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        let shared = Arc::clone(&counters);
        thread::Builder::new()
            .name("wpack".to_owned())
            .spawn_scoped(scope, move || {
                let result = work(shared);
                // The receiver outlives the scope's threads; a failed send has nobody to tell.
                let _ = send.send(result);
            })?;
        let mut raised = None;
        let mut ticks = 0_u32;
        let receive = Mutex::new(receive);
        let result = loop {
            let next = py.detach(|| {
                let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
                receive.recv_timeout(TICK)
            });
            match next {
                Ok(result) => break result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err(
                        "a worker thread of wpack panicked; this is a bug",
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if raised.is_some() {
                continue;
            }
            ticks = ticks.wrapping_add(1);
            let told = match progress {
                Some(progress) if ticks.is_multiple_of(TICKS_PER_CALL) => counters.tell(progress),
                _ => Ok(()),
            };
            if let Err(error) = py.check_signals().and(told) {
                interrupt.store(true, Ordering::Relaxed);
                raised = Some(error);
            }
        };
        if let Some(error) = raised {
            return Err(error);
        }
        if let Some(progress) = progress {
            counters.tell(progress)?;
        }
        Ok(result)
    })
}
