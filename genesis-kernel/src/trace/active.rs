//! Whether anybody records.

use std::sync::atomic::{AtomicU32, Ordering};

/// Recorders at work in the process: hooks look at nothing else while there is none.
pub(super) static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Whether anything is recorded, by any thread.
#[inline]
pub fn is_on() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}
