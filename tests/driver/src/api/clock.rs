//! The virtual clock, for libraries that stand for others on the machine, such as the virtual NCCL.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{CUresult, CUuuid};

use super::{answer, give};
use crate::clock;
use crate::driver::OPTIONS;

/// Functions of a driver that are no part of CUDA, as a table of a name.
#[repr(C)]
struct Table {
    /// Of this table, in bytes.
    bytes: usize,
    /// When the host function that this thread runs would end, in ns.
    now: extern "C" fn() -> u64,
    /// Lets it end no sooner than at a time.
    end: extern "C" fn(u64),
    /// Whether what this thread gives to streams costs nothing from now on: work that stands for something else.
    set_free: extern "C" fn(c_int),
}

/// The name of the table.
const NAME: &[u8; 16] = b"genesis-v-clock1";

static TABLE: Table = Table { bytes: size_of::<Table>(), now, end, set_free };

extern "C" fn now() -> u64 {
    clock::now_of_call()
}

extern "C" fn end(time: u64) {
    clock::end_call(time);
}

extern "C" fn set_free(is_free: c_int) {
    clock::set_free(is_free != 0);
}

/// The table of the clock, if that is on.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, name: *const CUuuid) -> CUresult {
    answer(|| {
        let is_ours = !name.is_null() && (*name).bytes.map(|byte| byte as u8) == *NAME;
        match is_ours && OPTIONS.clock {
            true => give(table, (&raw const TABLE).cast()),
            false => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    })
}
