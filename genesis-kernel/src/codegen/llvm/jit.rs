//! Machine code in memory: an object file linked into this process.
//!
//! The object is made first and then linked by LLVM's ORC, so that the same bytes can be kept in a cache,
//! and so that nothing of the compiler needs to live while the code runs.

use std::ffi::CStr;

use inkwell::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::orc2::lljit::*;

use super::machine::initialize_host;
use super::{c_string, gate};
use crate::Error;
use crate::runtime::cpu::{Entry, HostCode, Print};

/// Code that can be called as long as this lives.
pub(crate) struct Jit {
    jit: LLVMOrcLLJITRef,
}

// SAFETY: after linking, the session is only dropped; its code is read-only memory.
unsafe impl Send for Jit {}
// SAFETY: as above; `address` only reads, and ORC's lookups are guarded by its own lock.
unsafe impl Sync for Jit {}

fn check(error: LLVMErrorRef) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is ours to consume; LLVM gives its text and takes it back.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(Error::bug(format!("linking machine code: {text}")))
    }
}

impl Jit {
    /// Links an object file.
    pub(crate) fn link(object: &[u8]) -> Result<Jit, Error> {
        let (mut jit, _inside) = (std::ptr::null_mut(), gate::enter()?);
        initialize_host()?;
        // SAFETY: the buffer is a copy that ORC takes over; no builder means the host's defaults.
        unsafe {
            check(LLVMOrcCreateLLJIT(&mut jit, std::ptr::null_mut()))?;
            let linked = Jit { jit };
            let (start, len) = (object.as_ptr().cast(), object.len());
            let name = c"kernel".as_ptr();
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(start, len, name);
            let library = LLVMOrcLLJITGetMainJITDylib(jit);
            check(LLVMOrcLLJITAddObjectFile(jit, library, buffer))?;
            Ok(linked)
        }
    }

    /// The address of a function.
    pub(crate) fn address(&self, name: &str) -> Result<u64, Error> {
        let (name, _inside) = (c_string(name), gate::enter()?);
        let mut address = 0;
        // SAFETY: the session lives.
        check(unsafe { LLVMOrcLLJITLookup(self.jit, &mut address, name.as_ptr()) })?;
        Ok(address)
    }

    /// A kernel by its function, to be run as long as this lives.
    pub(crate) fn kernel(
        &self,
        name: &str,
        scratch_bytes: usize,
        prints: Vec<Print>,
    ) -> Result<HostCode, Error> {
        let address = self.address(name)?;
        // SAFETY: the code generator of the CPU writes each of its kernels with this signature.
        let entry = unsafe { std::mem::transmute::<usize, Entry>(address as usize) };
        // SAFETY: as above; scratch and prints are those of the code generator.
        Ok(unsafe { HostCode::new(entry, scratch_bytes, prints) })
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // Where the process ends, its memory goes with it.
        let Ok(_inside) = gate::enter() else { return };
        // SAFETY: made in `link`, dropped once. An error can't be acted on here.
        let _ = check(unsafe { LLVMOrcDisposeLLJIT(self.jit) });
    }
}
