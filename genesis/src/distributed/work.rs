//! A collective that runs on the group's own stream.

use genesis_kernel::runtime::{Event, Stream};

use crate::error::Result;
use crate::tensor::Tensor;

/// A collective under way, beside what the current stream is given meanwhile.
///
/// What it reads must not be written, and what it writes not be used, before [`Work::wait`]. Dropping it
/// waits for nothing: memory is kept for as long as the collective needs it.
#[derive(Debug)]
#[must_use = "what it writes may be used after `wait`"]
pub struct Work {
    /// None where there was nothing to do.
    end: Option<Event>,
    /// What it reads and writes.
    tensors: Vec<Tensor>,
}

impl Work {
    pub(super) fn done(tensors: Vec<Tensor>) -> Work {
        Work { end: None, tensors }
    }

    pub(super) fn until(end: Event, tensors: Vec<Tensor>) -> Work {
        Work { end: Some(end), tensors }
    }

    /// Lets the current stream wait for it; the host does not wait. Gives what the collective made.
    ///
    /// # Errors
    /// If the device failed.
    pub fn wait(self) -> Result<Tensor> {
        if let (Some(end), Some(tensor)) = (&self.end, self.tensors.first()) {
            let current: Stream = tensor.device().stream();
            current.wait_event(end)?;
        }
        let mut tensors = self.tensors;
        Ok(tensors.swap_remove(0))
    }

    /// Whether it has ended; does not wait.
    ///
    /// # Errors
    /// If the device failed.
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.end.as_ref().map_or(Ok(true), Event::query)?)
    }
}
