//! The virtual clock of the driver of `tests/driver`, where that is the driver and has one.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult, CUuuid};

/// The driver's table of this name, as `tests/driver/src/api/clock.rs` has it.
#[repr(C)]
pub(crate) struct Clock {
    bytes: usize,
    now: extern "C" fn() -> u64,
    end: extern "C" fn(u64),
    set_free: extern "C" fn(c_int),
}

const NAME: &[u8; 16] = b"genesis-v-clock1";

/// While it lives, what this thread gives to streams takes no time.
pub(crate) struct Free(Option<&'static Clock>);

impl Clock {
    /// The clock, if there is one.
    pub(crate) fn get() -> Option<&'static Clock> {
        static CLOCK: OnceLock<Option<&'static Clock>> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            let name = CUuuid { bytes: NAME.map(|byte| byte as c_char) };
            let mut table = std::ptr::null();
            // SAFETY: both pointers are to values of ours.
            let result = unsafe { sys::cuGetExportTable(&mut table, &name) };
            let is_there = result == CUresult::CUDA_SUCCESS && !table.is_null();
            // SAFETY: a table of this name is the virtual driver's, and a static there.
            let clock = unsafe { is_there.then(|| &*table.cast::<Clock>()) };
            clock.filter(|clock| clock.bytes == size_of::<Clock>())
        })
    }

    /// When the stream came to the host function that runs, in ns.
    pub(crate) fn now(&self) -> u64 {
        (self.now)()
    }

    /// The host function that runs ends at a time.
    pub(crate) fn end(&self, time: u64) {
        (self.end)(time);
    }
}

impl Free {
    pub(crate) fn begin() -> Free {
        let clock = Clock::get();
        clock.iter().for_each(|clock| (clock.set_free)(1));
        Free(clock)
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        self.0.iter().for_each(|clock| (clock.set_free)(0));
    }
}
