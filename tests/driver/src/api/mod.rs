//! The functions that programs call, by their names in the library.
//!
//! All of them are unsafe in the same way: addresses they are given are null or point to what CUDA's
//! documentation says.

#![allow(non_snake_case, reason = "CUDA's names")]
#![allow(clippy::missing_safety_doc, reason = "see the top of this module")]
#![allow(unsafe_op_in_unsafe_fn, reason = "every function here is unsafe as a whole")]

mod clock;
mod copy;
mod device;
mod errors;
mod event;
mod graph;
mod launch;
mod memory;
mod module;
mod stream;

use std::ffi::{c_char, c_int};

use cudarc::driver::sys::CUresult;

use crate::answer::Answer;
use crate::calls;
use crate::driver::OPTIONS;

const WRONG: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn answer<F: FnOnce() -> Answer<()>>(body: F) -> CUresult {
    if OPTIONS.count {
        calls::count(std::any::type_name::<F>());
    }
    body().err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// Writes where the caller wants a value.
unsafe fn give<T>(to: *mut T, value: T) -> Answer<()> {
    if to.is_null() {
        return Err(WRONG);
    }
    to.write(value);
    Ok(())
}

/// Writes a text that ends in a nul, cut where there is no more room.
unsafe fn give_text(to: *mut c_char, room: c_int, text: &str) -> Answer<()> {
    let room = usize::try_from(room).ok().filter(|&room| room > 0 && !to.is_null()).ok_or(WRONG)?;
    let n = text.len().min(room - 1);
    to.cast::<u8>().copy_from(text.as_ptr(), n);
    to.cast::<u8>().add(n).write(0);
    Ok(())
}

/// A handle or an address as the driver's number for it.
fn number<T>(handle: *const T) -> u64 {
    handle as u64
}

/// The opposite of [`number`].
fn handle<T>(number: u64) -> *mut T {
    number as *mut T
}
