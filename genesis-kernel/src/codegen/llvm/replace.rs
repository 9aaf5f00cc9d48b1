//! Instructions that are replaced once LLVM's passes are done, by what a target's assembler gets right.

use std::ffi::CStr;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::*;
use inkwell::llvm_sys::prelude::*;

use super::{Emitter, Val};

/// An operation on integers, or on vectors of them, as LLVM's passes leave all forms of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IntegerOp {
    /// `0 - x`.
    Negate(Val),
    /// `x * -(1 << shift)`, which is a negation to instruction selection.
    NegativeMultiple {
        /// The factor that is no constant.
        x: Val,
        /// The power of two.
        shift: u32,
    },
    /// `x / -(1 << shift)`, rounded to zero, likewise.
    NegativeQuotient {
        /// The dividend.
        x: Val,
        /// The power of two.
        shift: u32,
    },
    /// `llvm.abs`.
    Abs(Val),
    /// The smaller or the larger of two.
    Extremum {
        /// `llvm.smax` and the like.
        name: &'static str,
        /// Whether these are signed.
        signed: bool,
        /// The operands.
        operands: [Val; 2],
    },
}

const EXTREMA: [(&str, bool); 4] =
    [("llvm.smax", true), ("llvm.smin", true), ("llvm.umax", false), ("llvm.umin", false)];

impl Emitter {
    /// The instructions of the module that are such operations, in order.
    pub(crate) fn integer_ops(&self) -> Vec<Val> {
        let mut found = Vec::new();
        // SAFETY: the module lives, and nothing changes while it is walked.
        unsafe {
            let mut function = LLVMGetFirstFunction(self.module);
            while !function.is_null() {
                let mut block = LLVMGetFirstBasicBlock(function);
                while !block.is_null() {
                    let mut inst = LLVMGetFirstInstruction(block);
                    while !inst.is_null() {
                        found.extend(integer_op(inst).map(|_| Val(inst)));
                        inst = LLVMGetNextInstruction(inst);
                    }
                    block = LLVMGetNextBasicBlock(block);
                }
                function = LLVMGetNextFunction(function);
            }
        }
        found
    }

    /// What an instruction does now: its operands may have been replaced meanwhile.
    pub(crate) fn integer_op(&self, inst: Val) -> Option<IntegerOp> {
        // SAFETY: the instruction belongs to this module and was not erased.
        unsafe { integer_op(inst.0) }
    }

    /// Puts the code that `write` writes in place of an instruction; its users get the result.
    pub(crate) fn replace(&self, inst: Val, write: impl FnOnce() -> Val) {
        // SAFETY: the instruction belongs to this module, and is not used after it is erased.
        unsafe {
            LLVMPositionBuilderBefore(self.builder, inst.0);
            let new = write();
            LLVMReplaceAllUsesWith(inst.0, new.0);
            LLVMInstructionEraseFromParent(inst.0);
        }
    }
}

/// What an instruction is.
///
/// # Safety
/// The instruction must live.
unsafe fn integer_op(inst: LLVMValueRef) -> Option<IntegerOp> {
    // SAFETY: the instruction lives; operands are asked for only where its opcode has them.
    unsafe {
        let operand = |i| Val(LLVMGetOperand(inst, i));
        match LLVMGetInstructionOpcode(inst) {
            LLVMOpcode::LLVMSub if LLVMIsNull(operand(0).0) != 0 => {
                Some(IntegerOp::Negate(operand(1)))
            }
            LLVMOpcode::LLVMMul => {
                let shift = negated_power(operand(1))?;
                Some(IntegerOp::NegativeMultiple { x: operand(0), shift })
            }
            LLVMOpcode::LLVMSDiv => {
                let shift = negated_power(operand(1))?;
                Some(IntegerOp::NegativeQuotient { x: operand(0), shift })
            }
            LLVMOpcode::LLVMCall => {
                let name = callee(inst)?;
                if name.starts_with("llvm.abs.") {
                    return Some(IntegerOp::Abs(operand(0)));
                }
                let &(name, signed) = EXTREMA.iter().find(|(of, _)| name.starts_with(of))?;
                Some(IntegerOp::Extremum { name, signed, operands: [operand(0), operand(1)] })
            }
            _ => None,
        }
    }
}

/// The power of two that a constant is the negation of.
///
/// # Safety
/// The value must live.
unsafe fn negated_power(value: Val) -> Option<u32> {
    // SAFETY: the value lives, and is asked for its number only where it is a constant integer.
    let number = unsafe {
        let constant = LLVMIsAConstantInt(value.0);
        if constant.is_null() {
            return None;
        }
        LLVMConstIntGetSExtValue(constant)
    };
    let power = number.wrapping_neg() as u64;
    (number < 0 && power.is_power_of_two()).then(|| power.ilog2())
}

/// The name of the function that an instruction calls.
///
/// # Safety
/// The instruction must be a call that lives.
unsafe fn callee(call: LLVMValueRef) -> Option<String> {
    // SAFETY: a call has a called value; the name lives as long as that.
    unsafe {
        let function = LLVMIsAFunction(LLVMGetCalledValue(call));
        if function.is_null() {
            return None;
        }
        let mut length = 0;
        let name = LLVMGetValueName2(function, &mut length);
        Some(CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}
