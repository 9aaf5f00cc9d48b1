//! What a failed `device_assert!` leaves behind: a number in memory that the host can still read once
//! the GPU's context is broken.

use std::sync::atomic::{AtomicI32, Ordering};

use cudarc::driver::sys;

use super::{CudaDevice, Handle};
use crate::diag::Error;

/// Kernels with assertions in one process; later ones fail without their message.
const SLOTS: usize = 1024;

/// One number for each kernel that has assertions, and what the numbers mean.
#[derive(Debug, Default)]
pub(super) struct Asserts {
    /// `SLOTS` numbers in host memory that the GPU writes to, once there is such a kernel.
    memory: Option<Handle<*mut i32>>,
    /// The kernel and the messages of each slot.
    kernels: Vec<(String, Vec<String>)>,
}

impl Asserts {
    /// The assertion that failed, as a sentence; none if none did.
    pub(super) fn failed(&self) -> Option<String> {
        let memory = self.memory?.0;
        self.kernels.iter().enumerate().find_map(|(slot, (kernel, messages))| {
            // SAFETY: the memory has `SLOTS` numbers, `add` gives out no more slots than that, and it
            // is never freed. The GPU may write it at any time, hence the atomic.
            let number = unsafe { AtomicI32::from_ptr(memory.add(slot)) }.load(Ordering::Relaxed);
            let message = messages.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
            Some(format!("`{kernel}` asserts: {message}"))
        })
    }
}

impl CudaDevice {
    /// The address where a kernel with these assertions writes the number of one that fails; 0, which
    /// the kernel takes for nowhere, if there are too many such kernels.
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
        Ok(memory as u64 + 4 * slot as u64)
    }

    fn alloc_assert_memory(&self) -> Result<*mut i32, Error> {
        const PORTABLE_AND_MAPPED: u32 = 0x3;
        let mut memory = std::ptr::null_mut();
        // SAFETY: a context is current, the out pointer is ours.
        let result = unsafe { sys::cuMemHostAlloc(&mut memory, 4 * SLOTS, PORTABLE_AND_MAPPED) };
        self.check("cuMemHostAlloc", result)?;
        let memory = memory.cast::<i32>();
        // SAFETY: the driver gave `SLOTS` numbers of host memory.
        unsafe { std::ptr::write_bytes(memory, 0, SLOTS) };
        Ok(memory)
    }
}
