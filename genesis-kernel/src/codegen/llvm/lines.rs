//! The tables of lines of a function, as LLVM keeps them.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use inkwell::llvm_sys::debuginfo::*;
use inkwell::llvm_sys::prelude::*;

/// The tables of lines of one function.
pub(super) struct Lines {
    pub(super) builder: LLVMDIBuilderRef,
    pub(super) function: LLVMMetadataRef,
    /// What instructions of a file are in.
    pub(super) files: RefCell<BTreeMap<&'static str, LLVMMetadataRef>>,
}

/// Where an emitter keeps them, once it has them.
pub(super) type Slot = OnceCell<Lines>;

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: made by `start_lines`, dropped once, before the module: the emitter's `drop` comes
        // first and takes this out of its slot.
        unsafe { LLVMDisposeDIBuilder(self.builder) }
    }
}
