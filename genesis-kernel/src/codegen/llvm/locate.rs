//! Lines of the kernel's source at its instructions, for whoever reads the code back.
//!
//! ```text
//! .loc 1 31 19      // of the file that `.file 1` names
//! ld.shared.b32 %r5, [%rd2];
//! ```

use std::cell::RefCell;

use inkwell::llvm_sys::LLVMModuleFlagBehavior;
use inkwell::llvm_sys::core::*;
use inkwell::llvm_sys::debuginfo::*;
use inkwell::llvm_sys::prelude::*;

use super::lines::Lines;
use super::{Emitter, Function};
use crate::ir::Loc;

/// The version of LLVM's own format.
const VERSION: u64 = 3;

impl Emitter {
    /// From here on instructions of this function say where they come from.
    pub(crate) fn start_lines(&self, function: Function, name: &str) {
        // SAFETY: the module and the function live; LLVM copies the strings.
        unsafe {
            let builder = LLVMCreateDIBuilder(self.module);
            let file = self.file(builder, "kernel");
            let none = std::ptr::null();
            let (lang, kind) = (
                LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC,
                LLVMDWARFEmissionKind::LLVMDWARFEmissionKindLineTablesOnly,
            );
            LLVMDIBuilderCreateCompileUnit(
                builder, lang, file, none, 0, 1, none, 0, 0, none, 0, kind, 0, 0, 0, none, 0, none,
                0,
            );
            let flags = LLVMDIFlagZero;
            let ty =
                LLVMDIBuilderCreateSubroutineType(builder, file, std::ptr::null_mut(), 0, flags);
            let text = name.as_ptr().cast();
            let scope = LLVMDIBuilderCreateFunction(
                builder,
                file,
                text,
                name.len(),
                text,
                name.len(),
                file,
                1,
                ty,
                0,
                1,
                1,
                flags,
                1,
            );
            LLVMSetSubprogram(function.value.0, scope);
            let key = "Debug Info Version";
            let version = LLVMValueAsMetadata(LLVMConstInt(self.i32().0, VERSION, 0));
            let behavior = LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning;
            LLVMAddModuleFlag(self.module, behavior, key.as_ptr().cast(), key.len(), version);
            let lines = Lines { builder, function: scope, files: RefCell::default() };
            // A module has one function.
            let _ = self.lines.set(lines);
        }
        self.locate(None);
    }

    /// What the next instructions come from.
    pub(crate) fn locate(&self, loc: Option<Loc>) {
        let Some(lines) = self.lines.get() else { return };
        let (line, column) = loc.map_or((0, 0), |loc| (loc.line, loc.column));
        let scope = loc.map_or(lines.function, |loc| self.scope(lines, loc.file));
        // SAFETY: the scope belongs to this module.
        unsafe {
            let none = std::ptr::null_mut();
            let place = LLVMDIBuilderCreateDebugLocation(self.context, line, column, scope, none);
            LLVMSetCurrentDebugLocation2(self.builder, place);
        }
    }

    /// Ends the tables; before the module is looked at.
    pub(crate) fn finish_lines(&self) {
        if let Some(lines) = self.lines.get() {
            // SAFETY: the builder was made by `start_lines`.
            unsafe { LLVMDIBuilderFinalize(lines.builder) }
        }
    }

    fn scope(&self, lines: &Lines, name: &'static str) -> LLVMMetadataRef {
        *lines.files.borrow_mut().entry(name).or_insert_with(|| {
            let file = self.file(lines.builder, name);
            // SAFETY: scope and file belong to this module.
            unsafe { LLVMDIBuilderCreateLexicalBlockFile(lines.builder, lines.function, file, 0) }
        })
    }

    fn file(&self, builder: LLVMDIBuilderRef, name: &str) -> LLVMMetadataRef {
        // SAFETY: the builder lives and copies the strings.
        unsafe {
            LLVMDIBuilderCreateFile(
                builder,
                name.as_ptr().cast(),
                name.len(),
                name.as_ptr().cast(),
                0,
            )
        }
    }
}
