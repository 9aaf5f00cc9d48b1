//! Events: marks in a stream, perhaps with a time.

use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use super::handle::Handle;
use super::{CudaDevice, CudaStream, Writes};
use crate::diag::Error;
use crate::runtime::pool::Fence;

/// A mark in a GPU's stream.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    device: &'static CudaDevice,
    handle: Handle<sys::CUevent>,
}

impl CudaStream {
    /// Marks this point of the stream.
    pub(crate) fn record_event(&self, timed: bool) -> Result<CudaEvent, Error> {
        let device = self.device();
        device.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = match timed {
            true => CUevent_flags::CU_EVENT_DEFAULT,
            false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        // SAFETY: a context is current, the out pointer is ours.
        device.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags as u32) })?;
        let event = CudaEvent { device, handle: Handle(handle) };
        // SAFETY: event and stream are of this device's context.
        device.check("cuEventRecord", unsafe { sys::cuEventRecord(handle, self.raw()) })?;
        Ok(event)
    }

    /// Lets later work wait for an event of any device.
    pub(crate) fn wait_event(&self, event: &CudaEvent) -> Result<(), Error> {
        let device = self.device();
        device.enter()?;
        self.last_launch().set(self.raw(), &Writes::UNKNOWN);
        // SAFETY: the event is recorded; the driver keeps what it needs of it.
        let result = unsafe { sys::cuStreamWaitEvent(self.raw(), event.handle.0, 0) };
        device.check("cuStreamWaitEvent", result)
    }
}

impl CudaEvent {
    /// Whether it is reached.
    pub(crate) fn query(&self) -> Result<bool, Error> {
        self.device.enter()?;
        // SAFETY: the event is ours and recorded.
        match unsafe { sys::cuEventQuery(self.handle.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.device.check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits for it.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.device.enter()?;
        // SAFETY: the event is ours and recorded.
        let result = unsafe { sys::cuEventSynchronize(self.handle.0) };
        self.device.check("cuEventSynchronize", result)
    }

    /// Milliseconds from an earlier mark of the same device; waits for both.
    pub(crate) fn elapsed_ms(&self, since: &CudaEvent) -> Result<f64, Error> {
        if self.device.number() != since.device.number() {
            return Err(Error::launch("elapsed_ms: the events are of different devices"));
        }
        since.synchronize()?;
        self.synchronize()?;
        let mut ms = 0.0;
        // SAFETY: both events live and are recorded; the out pointer is ours.
        let result = unsafe { sys::cuEventElapsedTime(&mut ms, since.handle.0, self.handle.0) };
        self.device.check("cuEventElapsedTime", result)?;
        Ok(f64::from(ms))
    }
}

impl Fence for CudaEvent {
    fn is_reached(&self) -> Result<bool, Error> {
        self.query()
    }

    fn wait(&self) -> Result<(), Error> {
        self.synchronize()
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
