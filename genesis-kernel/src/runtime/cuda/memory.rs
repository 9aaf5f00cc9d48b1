//! Memory of a GPU: a caching pool in the order of its stream, fills and copies.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult};

use super::CudaDevice;
use crate::diag::Error;
use crate::knobs;
use crate::runtime::pool::{self, FreeLists};

/// The smallest block: what the driver aligns to, twice.
const SMALLEST: usize = 512;

/// Blocks of a device.
#[derive(Debug, Default)]
pub(super) struct Memory {
    free: FreeLists,
    /// Bytes held from the driver, free blocks included.
    reserved: usize,
    /// The most bytes in use at once.
    peak: usize,
}

/// Bytes of memory on a device, as Genesis sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Bytes of live buffers.
    pub allocated: usize,
    /// Bytes held from the driver: live buffers and free ones kept for reuse.
    pub reserved: usize,
    /// The most bytes of live buffers at once.
    pub peak: usize,
}

impl Memory {
    fn stats(&self) -> MemoryStats {
        let allocated = self.reserved - self.free.free_bytes();
        MemoryStats { allocated, reserved: self.reserved, peak: self.peak }
    }

    fn note_use(&mut self) {
        self.peak = self.peak.max(self.reserved - self.free.free_bytes());
    }
}

impl CudaDevice {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in use and reserved.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        self.memory().stats()
    }

    /// A block; one of 0 bytes has an address that must not be accessed.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        if bytes == 0 {
            return Ok(SMALLEST as u64);
        }
        let class = pool::size_class(bytes, SMALLEST).ok_or_else(|| self.oom(bytes))?;
        let mut memory = self.memory();
        if let Some(address) = memory.free.take(class) {
            memory.note_use();
            return Ok(address);
        }
        drop(memory);
        let address = match self.alloc_from_driver(class)? {
            Some(address) => address,
            None => {
                // What the pool holds in other classes may be enough, once nothing runs on it.
                self.release_free_blocks()?;
                self.alloc_from_driver(class)?.ok_or_else(|| self.oom(bytes))?
            }
        };
        let mut memory = self.memory();
        memory.reserved += class;
        memory.note_use();
        Ok(address)
    }

    /// A block from the driver; none if it has no more memory.
    fn alloc_from_driver(&self, class: usize) -> Result<Option<u64>, Error> {
        let mut address = 0;
        // SAFETY: a context is current, the out pointer is ours.
        match unsafe { sys::cuMemAlloc_v2(&mut address, class) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => self.check("cuMemAlloc", result).map(|()| Some(address)),
        }
    }

    /// Puts a block of [`CudaDevice::alloc`] back. Kernels that were given it may still be queued:
    /// its next owner queues behind them.
    pub(crate) fn free(&self, address: u64, bytes: usize) {
        let Some(class) = pool::size_class(bytes, SMALLEST).filter(|_| bytes != 0) else { return };
        if knobs::get().pool {
            self.memory().free.put(class, address);
        } else if self.enter().is_ok() {
            // SAFETY: the driver gave this address; cuMemFree waits for kernels that use it. An error
            // can only be the echo of an earlier one, which the next call reports.
            let result = unsafe { sys::cuMemFree_v2(address) };
            if self.check("cuMemFree", result).is_ok() {
                self.memory().reserved -= class;
            }
        }
    }

    /// Gives every free block back to the driver.
    pub(crate) fn release_free_blocks(&self) -> Result<(), Error> {
        self.synchronize()?;
        let blocks = self.memory().free.drain();
        for (class, address) in blocks {
            // SAFETY: the driver gave this address and nothing on the stream uses it any more.
            self.check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })?;
            self.memory().reserved -= class;
        }
        Ok(())
    }

    #[cold]
    fn oom(&self, bytes: usize) -> Error {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current, the out pointers are ours. If it fails, zeros are printed.
        let _ = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        let stats = self.memory_stats();
        Error::out_of_memory(format!(
            "asked cuda:{} for {}; of {} on {}, {} are free, {} are in use by this process, and {} \
             more are kept for reuse",
            self.number(),
            mib(bytes),
            mib(total),
            self.info().name,
            mib(free),
            mib(stats.allocated),
            mib(stats.reserved - stats.allocated)
        ))
    }

    /// Sets every byte of a range.
    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's buffer owns the range.
        let result = unsafe { sys::cuMemsetD8Async(address, byte, bytes, self.stream.0) };
        self.check("cuMemsetD8Async", result)
    }

    /// Copies from the host; the source may be reused when this returns.
    pub(crate) fn upload(&self, address: u64, source: &[u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's buffer owns the range. The source is pageable memory, which the
        // driver copies aside before it returns.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), source.len(), self.stream.0)
        };
        self.check("cuMemcpyHtoDAsync", result)
    }

    /// Copies to the host and waits for it.
    pub(crate) fn download(&self, address: u64, target: &mut [u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's buffer owns the range, the target is ours until the copy is done.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                target.as_mut_ptr().cast(),
                address,
                target.len(),
                self.stream.0,
            )
        };
        self.check("cuMemcpyDtoHAsync", result)?;
        self.synchronize()
    }

    /// Copies between ranges of this device that do not overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's buffers own the ranges.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.0) };
        self.check("cuMemcpyDtoDAsync", result)
    }

    /// Whether the context is broken.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }
}

fn mib(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
