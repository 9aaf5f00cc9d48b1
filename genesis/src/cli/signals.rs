//! Ctrl-C and SIGTERM: the first asks a run to save and end, the second ends the process at once.
//!
//! At once means by `_exit`: nothing of the process is taken apart while its threads work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What asked for an end.
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes the signals from now on.
    pub(super) fn take() -> std::io::Result<Signals> {
        let (stop, signal) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        for number in [SIGINT, SIGTERM] {
            // They are called in this order, so that the first signal sees no flag.
            flag::register_conditional_shutdown(number, status(number), stop.clone())?;
            flag::register_usize(number, signal.clone(), number as usize)?;
            flag::register(number, stop.clone())?;
        }
        Ok(Signals { stop, signal })
    }

    /// Set by the first signal.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// The exit code of what was stopped by a signal, if it was.
    pub(super) fn status(&self) -> Option<u8> {
        let number = self.signal.load(Ordering::SeqCst) as i32;
        (number != 0).then(|| status(number) as u8)
    }
}

/// As shells say it: 130 for Ctrl-C, 143 for SIGTERM.
fn status(number: i32) -> i32 {
    128 + number
}
