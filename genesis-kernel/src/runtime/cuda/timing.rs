//! When a GPU reached a point of its stream: events that are taken from a pool and read later.
//!
//! An event is made once and used again: a training step under the profiler marks hundreds of points.
//! Nothing here waits but [`Mark::wait`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult};

use super::device::{CudaDevice, MAX_DEVICES};
use super::handle::Handle;

/// Events of each device that nobody uses.
static POOLS: [Mutex<Vec<Handle<sys::CUevent>>>; MAX_DEVICES] =
    [const { Mutex::new(Vec::new()) }; MAX_DEVICES];

/// Events that a pool keeps.
const KEPT: usize = 1 << 14;

/// A point of a GPU's stream. Its event goes back to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Mark {
    device: &'static CudaDevice,
    handle: Handle<sys::CUevent>,
}

impl CudaDevice {
    fn pool(&self) -> MutexGuard<'static, Vec<Handle<sys::CUevent>>> {
        POOLS[self.number() as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks this point of a stream of the device; none where one of its streams is being recorded into a
    /// graph, or the device refuses: a profile must not break what it looks at.
    pub(crate) fn mark(&'static self, stream: sys::CUstream) -> Option<Mark> {
        if self.is_capturing() {
            return None;
        }
        self.enter().ok()?;
        let pooled = self.pool().pop();
        let handle = match pooled {
            Some(handle) => handle,
            None => self.create_mark()?,
        };
        let mark = Mark { device: self, handle };
        // SAFETY: event and stream are of this device's context.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(handle.0, stream) }).ok()?;
        Some(mark)
    }

    /// Fills the pool with so many events.
    pub(crate) fn prepare_marks(&self, n: usize) {
        let mut pool = self.pool();
        while pool.len() < n
            && self.enter().is_ok()
            && let Some(handle) = self.create_mark()
        {
            pool.push(handle);
        }
    }

    fn create_mark(&self) -> Option<Handle<sys::CUevent>> {
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a context is current, the out pointer is ours.
        let result = unsafe { sys::cuEventCreate(&mut handle, flags) };
        self.check("cuEventCreate", result).ok()?;
        Some(Handle(handle))
    }
}

impl Mark {
    /// Whether the device has reached it.
    pub(crate) fn is_reached(&self) -> bool {
        // SAFETY: the event lives as long as the mark.
        self.device.enter().is_ok()
            && unsafe { sys::cuEventQuery(self.handle.0) } == CUresult::CUDA_SUCCESS
    }

    /// Waits until the device has reached it; false if it never will.
    pub(crate) fn wait(&self) -> bool {
        // SAFETY: the event lives as long as the mark.
        self.device.enter().is_ok()
            && unsafe { sys::cuEventSynchronize(self.handle.0) } == CUresult::CUDA_SUCCESS
    }

    /// Nanoseconds from an earlier mark of the device to this one, where both are reached.
    pub(crate) fn nanos_since(&self, earlier: &Mark) -> Option<f64> {
        self.device.enter().ok()?;
        let mut ms = 0.0;
        // SAFETY: both events live and are recorded; the out pointer is ours.
        let result = unsafe { sys::cuEventElapsedTime(&mut ms, earlier.handle.0, self.handle.0) };
        (result == CUresult::CUDA_SUCCESS).then(|| f64::from(ms) * 1e6)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut pool = self.device.pool();
        if pool.len() < KEPT {
            pool.push(self.handle);
            return;
        }
        drop(pool);
        if self.device.enter().is_ok() {
            // SAFETY: the event is ours and used no more. An error could only be the echo of an
            // earlier one, which the next call reports.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle.0) };
        }
    }
}
