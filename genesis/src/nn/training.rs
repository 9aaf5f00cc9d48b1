//! The training flag, of layers that behave otherwise in evaluation.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a layer behaves as in training; on at first.
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Default for Training {
    fn default() -> Training {
        Training(AtomicBool::new(true))
    }
}

impl Clone for Training {
    fn clone(&self) -> Training {
        Training(AtomicBool::new(self.is_on()))
    }
}

impl Training {
    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches it.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}
