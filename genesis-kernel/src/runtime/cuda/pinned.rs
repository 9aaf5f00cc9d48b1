//! Pinned host memory: pages that stay where they are, so that a GPU copies from and to them by itself
//! while the host and its kernels go on.

use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use crate::diag::Error;
use crate::runtime::Device;
use crate::runtime::pool::{Arena, Ledger, System};

/// The alignment of blocks, as a power of two.
const GRANULE_LOG2: u32 = 9;

/// Pinned memory, of all GPUs alike.
pub(crate) fn arena() -> Result<&'static Arena, Error> {
    static ARENA: OnceLock<&'static Arena> = OnceLock::new();
    // Whether there is a GPU at all: without one nothing is pinned.
    super::open(0)?;
    Ok(ARENA.get_or_init(|| {
        let ledger = Ledger::new(Device::Cpu, "pinned host memory".to_owned(), &Pinned);
        let ledger: &'static Ledger = Box::leak(Box::new(ledger));
        ledger.arena(0)
    }))
}

struct Pinned;

impl System for Pinned {
    fn granule_log2(&self) -> u32 {
        GRANULE_LOG2
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error> {
        /// Pinned for every context of the process.
        const PORTABLE: u32 = 1;
        let device = super::open(0)?;
        device.enter()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: a context is current, the out pointer is ours.
        match unsafe { sys::cuMemHostAlloc(&mut address, bytes, PORTABLE) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => device.check("cuMemHostAlloc", result).map(|()| Some(address as u64)),
        }
    }

    fn release(&self, address: u64, _: usize) -> Result<(), Error> {
        let device = super::open(0)?;
        device.enter()?;
        // SAFETY: the driver gave this address, and streams that used it have passed.
        let result = unsafe { sys::cuMemFreeHost(address as usize as *mut _) };
        device.check("cuMemFreeHost", result)
    }

    fn settle(&self) -> Result<bool, Error> {
        for number in 0..super::device_count()? {
            let device = super::open(number)?;
            if device.is_capturing() {
                return Ok(false);
            }
            device.synchronize()?;
        }
        Ok(true)
    }

    fn keeps(&self) -> usize {
        usize::MAX
    }

    fn space(&self) -> Option<(usize, usize)> {
        None
    }
}
