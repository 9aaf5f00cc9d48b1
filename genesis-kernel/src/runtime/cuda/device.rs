//! GPUs, opened when a program first asks for one, and what broke them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUresult};

use super::asserts::Asserts;
use super::driver::{self, Driver};
use super::handle::Handle;
use super::info::GpuInfo;
use super::recent::Recent;
use crate::diag::Error;
use crate::knobs;
use crate::runtime::pool::Ledger;
use crate::target::GpuTarget;

/// An open GPU: its context.
///
/// It is opened once and lives as long as the process: a context that is torn down while threads
/// still hold memory of it would be worse than one that the driver cleans up at exit.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    pub(super) number: u32,
    pub(super) info: GpuInfo,
    pub(super) context: Handle<sys::CUcontext>,
    pub(super) ledger: OnceLock<Ledger>,
    /// Threads that record a stream for a graph.
    pub(super) captures: AtomicU32,
    pub(super) asserts: Mutex<Asserts>,
    /// The code of the error that broke the context; 0 while it works.
    pub(super) lost: AtomicU32,
    /// What was launched last, to name it when the context breaks.
    pub(super) recent: Recent,
}

/// More GPUs than this in one machine are not looked at.
pub(super) const MAX_DEVICES: usize = 64;

static DEVICES: [OnceLock<Result<CudaDevice, Error>>; MAX_DEVICES] =
    [const { OnceLock::new() }; MAX_DEVICES];

/// Whether there is a GPU that can be used.
pub(crate) fn is_available() -> bool {
    driver::get().is_ok_and(|driver| driver.device_count > 0)
}

/// The number of GPUs, at least one; or why there is none.
pub(crate) fn device_count() -> Result<u32, Error> {
    driver::get().map(|driver| driver.device_count)
}

/// The GPU with this number, opened on first use.
pub(crate) fn open(number: u32) -> Result<&'static CudaDevice, Error> {
    let driver = driver::get()?;
    let slot = DEVICES.get(number as usize).filter(|_| number < driver.device_count);
    let Some(slot) = slot else {
        return Err(Error::device(format!(
            "there is no GPU cuda:{number}; this machine has {}",
            driver.device_count
        )));
    };
    slot.get_or_init(|| CudaDevice::open(driver, number)).as_ref().map_err(Error::clone)
}

thread_local! {
    /// The device whose context is current on this thread, plus one; 0 for none.
    static BOUND: Cell<u32> = const { Cell::new(0) };
}

impl CudaDevice {
    fn open(driver: &Driver, number: u32) -> Result<CudaDevice, Error> {
        let handle = driver::device_handle(number)?;
        let info = driver::device_info(driver, handle)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the handle is of a device of this driver, the out pointer is ours.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, handle) };
        driver::check("cuDevicePrimaryCtxRetain", result)?;
        // SAFETY: the context was retained above.
        driver::check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        BOUND.set(number + 1);
        Ok(CudaDevice {
            number,
            info,
            context: Handle(context),
            ledger: OnceLock::new(),
            captures: AtomicU32::new(0),
            asserts: Mutex::default(),
            lost: AtomicU32::new(0),
            recent: Recent::default(),
        })
    }

    /// The number in `cuda:0`.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What its code is compiled for: the device itself, unless an older architecture is wished, of whose shared
    /// memory no more is used than the device has.
    pub(crate) fn target(&self) -> GpuTarget {
        let GpuInfo { target: own, capability, driver_version, .. } = self.info;
        let runs = |wished: &GpuTarget| wished.runs_on(capability, driver_version);
        let mut target = knobs::get().target.filter(runs).unwrap_or(own);
        let most = &mut target.features.max_shared_bytes;
        *most = own.features.max_shared_bytes.min(*most);
        target
    }

    /// What it is.
    pub(crate) fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Refuses if the device is lost, else makes its context current on this thread.
    #[inline]
    pub(in crate::runtime) fn enter(&self) -> Result<(), Error> {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost != 0 {
            return Err(self.lost_error(lost));
        }
        if BOUND.get() == self.number + 1 {
            return Ok(());
        }
        // SAFETY: the context is retained for the life of the process.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context.0) })?;
        BOUND.set(self.number + 1);
        Ok(())
    }

    /// The error of a driver call, if it failed; one that breaks the context is remembered.
    #[inline]
    pub(super) fn check(&self, call: &str, result: CUresult) -> Result<(), Error> {
        if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(self.failed(call, result)) }
    }

    #[cold]
    fn failed(&self, call: &str, result: CUresult) -> Error {
        if driver::is_sticky(result) {
            let code = result as u32;
            // The first error is the cause, later ones its echo.
            let first = self.lost.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
            return self.lost_error(first.err().unwrap_or(code));
        }
        Error::device(format!("cuda:{}: {call}: {}", self.number, driver::describe(result)))
    }

    #[cold]
    pub(super) fn lost_error(&self, code: u32) -> Error {
        let what = self.asserts().failed().unwrap_or_else(|| driver::describe_code(code));
        let recent = self.recent.describe(knobs::get().sync);
        Error::device_lost(format!(
            "cuda:{}: {what}; this process can't use the GPU any more{recent}",
            self.number
        ))
    }

    pub(super) fn asserts(&self) -> MutexGuard<'_, Asserts> {
        self.asserts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
