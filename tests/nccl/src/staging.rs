//! Pinned memory that values are exchanged through.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUresult};

/// Pinned memory; given back to a pool when dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    data: *mut u8,
    room: usize,
    bytes: usize,
}

// SAFETY: the memory is this one's own.
unsafe impl Send for Staging {}
// SAFETY: it is read and written in the order of one stream.
unsafe impl Sync for Staging {}

static POOL: Mutex<Vec<Staging>> = Mutex::new(Vec::new());

impl Staging {
    pub(crate) fn take(bytes: usize) -> Result<Staging, CUresult> {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = pool.iter().position(|staging| staging.room >= bytes) {
            let mut staging = pool.swap_remove(index);
            staging.bytes = bytes;
            return Ok(staging);
        }
        let (mut data, room) = (std::ptr::null_mut(), bytes.max(1).next_power_of_two());
        // SAFETY: the out pointer is ours; the caller's context is current.
        match unsafe { sys::cuMemHostAlloc(&mut data, room, 0) } {
            CUresult::CUDA_SUCCESS => Ok(Staging { data: data.cast(), room, bytes }),
            wrong => Err(wrong),
        }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.data.cast()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory has so many bytes; who writes them runs before, in the stream's order.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }

    /// The bytes, to be written by the function that runs in the stream's order, and by no other.
    #[allow(
        clippy::mut_from_ref,
        reason = "a job is run by one thread at a time, also when a graph repeats it"
    )]
    pub(crate) fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: as above; nobody else has the memory until the job is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Staging { data, room, .. } = *self;
        POOL.lock().unwrap_or_else(PoisonError::into_inner).push(Staging { data, room, bytes: 0 });
    }
}
