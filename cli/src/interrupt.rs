//! Ctrl-C, SIGTERM and SIGHUP set a flag that long work looks at; a second one ends the process.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::ExitStatus;

/// Registers the handlers.
pub(crate) fn install() -> io::Result<Arc<AtomicBool>> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: the first signal finds the flag unset and sets it, the second ends the
        // process even where work does not look at the flag.
        flag::register_conditional_shutdown(
            signal,
            i32::from(ExitStatus::Interrupted.code()),
            Arc::clone(&interrupt),
        )?;
        flag::register(signal, Arc::clone(&interrupt))?;
    }
    Ok(interrupt)
}
