//! Events: marks in the stream with a time.

use cudarc::driver::sys;

use super::{CudaDevice, Handle};
use crate::diag::Error;

/// A mark in a GPU's stream.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    device: &'static CudaDevice,
    handle: Handle<sys::CUevent>,
}

impl CudaDevice {
    /// Marks this point of the stream.
    pub(crate) fn record_event(&'static self) -> Result<CudaEvent, Error> {
        self.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a context is current, the out pointer is ours.
        self.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        let event = CudaEvent { device: self, handle: Handle(handle) };
        // SAFETY: event and stream are of this device's context.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(handle, self.raw_stream()) })?;
        Ok(event)
    }
}

impl CudaEvent {
    /// Milliseconds from an earlier mark of the same device; waits for both.
    pub(crate) fn elapsed_ms(&self, since: &CudaEvent) -> Result<f64, Error> {
        if self.device.number() != since.device.number() {
            return Err(Error::launch("elapsed_ms: the events are of different devices"));
        }
        self.device.enter()?;
        for event in [since, self] {
            // SAFETY: the event lives as long as `event`.
            let result = unsafe { sys::cuEventSynchronize(event.handle.0) };
            self.device.check("cuEventSynchronize", result)?;
        }
        let mut ms = 0.0;
        // SAFETY: both events live and are recorded; the out pointer is ours.
        let result = unsafe { sys::cuEventElapsedTime(&mut ms, since.handle.0, self.handle.0) };
        self.device.check("cuEventElapsedTime", result)?;
        Ok(f64::from(ms))
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the event is ours and used no more. An error could only be the echo of an
            // earlier one, which the next call reports.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle.0) };
        }
    }
}
