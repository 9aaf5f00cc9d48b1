//! Where kernels write which assertion failed.

use cudarc::driver::sys;

use super::asserts::{BYTES, SLOTS};
use super::device::CudaDevice;
use super::handle::Handle;
use crate::diag::Error;
use crate::printed::FAILED_WORDS;

impl CudaDevice {
    /// The address where a kernel with these assertions writes which one failed; 0, which the kernel takes
    /// for nowhere, if there are too many such kernels.
    pub(super) fn assert_address(&self, kernel: &str, messages: &[String]) -> Result<u64, Error> {
        // Not under the lock: a driver error reads the assertions to say what failed.
        let is_new = self.asserts().memory.is_none();
        let fresh = if is_new { Some(Handle(self.alloc_assert_memory()?)) } else { None };
        let mut asserts = self.asserts();
        // Where two threads were here at once, the second one's memory stays unused.
        asserts.memory = asserts.memory.or(fresh);
        let Some(Handle(memory)) = asserts.memory else { return Ok(0) };
        let slot = asserts.kernels.len();
        if slot == SLOTS {
            return Ok(0);
        }
        asserts.kernels.push((kernel.to_owned(), messages.to_vec()));
        // Host memory that is mapped has one address for the host and the GPU.
        Ok(memory as u64 + (8 * FAILED_WORDS * slot) as u64)
    }

    fn alloc_assert_memory(&self) -> Result<*mut u64, Error> {
        const PORTABLE_AND_MAPPED: u32 = 0x3;
        let mut memory = std::ptr::null_mut();
        // SAFETY: a context is current, the out pointer is ours.
        let result = unsafe { sys::cuMemHostAlloc(&mut memory, BYTES, PORTABLE_AND_MAPPED) };
        self.check("cuMemHostAlloc", result)?;
        let memory = memory.cast::<u64>();
        // SAFETY: the driver gave so many bytes of host memory.
        unsafe { std::ptr::write_bytes(memory, 0, SLOTS * FAILED_WORDS) };
        Ok(memory)
    }
}
