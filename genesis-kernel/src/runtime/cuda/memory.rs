//! Memory of a GPU: where the allocator gets segments, fills and copies.

use std::sync::atomic::Ordering;

use cudarc::driver::sys::{self, CUresult};

use super::{CudaDevice, CudaStream};
use crate::diag::Error;
use crate::runtime::Device;
use crate::runtime::pool::{Ledger, System};

/// The smallest block, what the driver aligns to, twice: as a power of two.
const GRANULE_LOG2: u32 = 9;

impl CudaDevice {
    /// The account of its memory.
    pub(crate) fn ledger(&'static self) -> &'static Ledger {
        self.ledger.get_or_init(|| {
            let device = Device::Cuda(self.number());
            Ledger::new(device, device.to_string(), self)
        })
    }

    /// Whether the context is broken.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }

    /// Whether a thread records a stream of it for a graph.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Relaxed) != 0
    }
}

impl System for CudaDevice {
    fn granule_log2(&self) -> u32 {
        GRANULE_LOG2
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(self.lost_error(code)),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: a context is current, the out pointer is ours.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => self.check("cuMemAlloc", result).map(|()| Some(address)),
        }
    }

    fn release(&self, address: u64, _: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the driver gave this address; cuMemFree waits for kernels that use it.
        self.check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
    }

    fn settle(&self) -> Result<bool, Error> {
        if self.is_capturing() {
            return Ok(false);
        }
        self.synchronize().map(|()| true)
    }

    fn keeps(&self) -> usize {
        usize::MAX
    }

    fn space(&self) -> Option<(usize, usize)> {
        self.enter().ok()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current, the out pointers are ours.
        let result = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        (result == CUresult::CUDA_SUCCESS).then_some((free, total))
    }
}

impl CudaStream {
    /// Sets every byte of a range.
    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        self.device().enter()?;
        // SAFETY: the caller's buffer owns the range.
        let result = unsafe { sys::cuMemsetD8Async(address, byte, bytes, self.raw()) };
        self.device().check("cuMemsetD8Async", result)
    }

    /// Copies from the host. Of pageable memory the driver has taken a copy when this returns; what is
    /// pinned it reads later.
    pub(crate) fn upload(&self, address: u64, source: &[u8]) -> Result<(), Error> {
        self.device().enter()?;
        let (from, bytes) = (source.as_ptr().cast(), source.len());
        // SAFETY: the caller's buffer owns the range, and keeps what is pinned until it was read.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from, bytes, self.raw()) };
        self.device().check("cuMemcpyHtoDAsync", result)
    }

    /// Copies to the host and waits for it.
    pub(crate) fn download(&self, address: u64, target: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the target is ours until the copy is done, which is waited for.
        unsafe { self.download_later(address, target.as_mut_ptr(), target.len())? };
        self.synchronize()
    }

    /// Copies to the host; nobody waits.
    ///
    /// # Safety
    /// The target must be left alone until the stream has passed.
    pub(crate) unsafe fn download_later(
        &self,
        address: u64,
        target: *mut u8,
        bytes: usize,
    ) -> Result<(), Error> {
        self.device().enter()?;
        // SAFETY: the caller's buffer owns the range; the caller answers for the target.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(target.cast(), address, bytes, self.raw()) };
        self.device().check("cuMemcpyDtoHAsync", result)
    }

    /// Copies between ranges of this device that do not overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.device().enter()?;
        // SAFETY: the caller's buffers own the ranges.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.raw()) };
        self.device().check("cuMemcpyDtoDAsync", result)
    }

    /// Copies from another device, directly where the machine can.
    pub(crate) fn copy_from_peer(
        &self,
        to: u64,
        peer: &CudaDevice,
        from: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        self.device().enter()?;
        let (own, other) = (self.device().context.0, peer.context.0);
        // SAFETY: the caller's buffers own the ranges; both contexts live as long as the process.
        let result = unsafe { sys::cuMemcpyPeerAsync(to, own, from, other, bytes, self.raw()) };
        self.device().check("cuMemcpyPeerAsync", result)
    }
}
