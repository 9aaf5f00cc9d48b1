//! What may come in: requests are checked, and the queue counted, on the thread of whoever asks.
//!
//! The engine may be busy with a step of the model when a request comes. That it is wrong, or that the queue
//! is full, is said at once, which is what a server needs to answer 400 and 429.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::request::{Limits, Request};
use crate::error::{Error, Result};

/// The limits of an engine and the samples that wait.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) limits: Limits,
    waiting: AtomicUsize,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Gate {
        Gate { limits, waiting: AtomicUsize::new(0) }
    }

    /// Takes places in the queue for a request's samples.
    ///
    /// # Errors
    /// If the request is wrong, or the queue has no place, which [`Error::is_busy`] tells.
    pub(super) fn enter(&self, request: &Request) -> Result<()> {
        request.check(&self.limits)?;
        let room = self.limits.max_queue;
        let take = |waiting: usize| Some(waiting + request.samples).filter(|&count| count <= room);
        let taken = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(|_| ()).map_err(|waiting| {
            Error::busy(format!("generate: {waiting} samples wait, the queue has room for {room}"))
        })
    }

    /// A sample waits no longer.
    pub(super) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Samples that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_busy_until_somebody_leaves() {
        let limits = Limits { vocab_size: 4, context: 8, max_queue: 3, has_text: false };
        let gate = Gate::new(limits);
        let request = Request { prompt: vec![1], samples: 2, ..Request::default() };
        assert!(gate.enter(&request).is_ok());
        let error = gate.enter(&request).expect_err("one place is left");
        assert!(error.is_busy());
        assert_eq!(error.to_string(), "generate: 2 samples wait, the queue has room for 3");
        gate.leave();
        assert!(gate.enter(&request).is_ok());
        assert_eq!(gate.waiting(), 3);
    }
}
