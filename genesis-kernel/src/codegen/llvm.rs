//! A thin emitter of LLVM IR: what the back ends write, with LLVM's C interface behind it.
//!
//! Lowering code reads `let s = e.fadd(a, b);`. A value is an untyped handle, as in LLVM's C interface,
//! because the back ends choose types at run time; the verifier that runs before optimization turns a
//! wrong use into an error with the IR's own text. There are no fast-math, `nsw` or `nuw` flags, so that
//! LLVM can't give an operation another meaning than tile IR does.
//!
//! ```text
//! let f = e.function("twice", e.f32(), &[e.f32()]);
//! let x = e.param(f, 0);
//! let sum = e.fadd(x, x);
//! e.ret(sum);
//! ```
//!
//! Handles are valid while the [`Emitter`] that made them lives. Nothing outside `codegen` sees one.

mod build;
mod gate;
mod jit;
mod lines;
mod locate;
mod machine;
mod replace;

use std::cell::Cell;
use std::ffi::{CStr, CString};

use inkwell::llvm_sys::core::*;
use inkwell::llvm_sys::prelude::*;

use crate::ir::{DType, Scalar};

pub(crate) use build::{FloatPred, IntPred, Order, Rmw};
pub(crate) use jit::Jit;
pub(crate) use machine::{Level, Machine, host_cpu};
pub(crate) use replace::IntegerOp;

/// A value of LLVM IR. The order is only good for keys of maps that are not iterated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Val(pub(super) LLVMValueRef);

/// A type of LLVM IR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ty(pub(super) LLVMTypeRef);

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block(pub(super) LLVMBasicBlockRef);

/// A function: its value and its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    /// Its address.
    pub(crate) value: Val,
    /// Its signature.
    pub(crate) ty: Ty,
}

/// A context, one module in it, and the place where instructions go.
pub(crate) struct Emitter {
    context: LLVMContextRef,
    module: LLVMModuleRef,
    builder: LLVMBuilderRef,
    /// Lines of the source, where they are wanted.
    lines: lines::Slot,
    /// Whether there are functions that the kernel calls.
    has_routines: Cell<bool>,
    // The last field: it is dropped after what is LLVM's.
    _inside: gate::Inside,
}

/// A C string of text that we wrote ourselves.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).expect("every NUL was replaced")
}

const UNNAMED: *const std::ffi::c_char = c"".as_ptr();

impl Emitter {
    /// An empty module.
    pub(crate) fn new(module_name: &str) -> Emitter {
        let (name, inside) = (c_string(module_name), gate::Inside::again());
        // SAFETY: the context is fresh; module and builder are made in it and dropped before it.
        unsafe {
            let context = LLVMContextCreate();
            let module = LLVMModuleCreateWithNameInContext(name.as_ptr(), context);
            let builder = LLVMCreateBuilderInContext(context);
            let (lines, has_routines) = (lines::Slot::new(), Cell::new(false));
            Emitter { context, module, builder, lines, has_routines, _inside: inside }
        }
    }

    /// The module's IR as text.
    pub(crate) fn ir(&self) -> String {
        // SAFETY: the module lives; LLVM allocates the string and takes it back.
        unsafe {
            let text = LLVMPrintModuleToString(self.module);
            let ir = CStr::from_ptr(text).to_string_lossy().into_owned();
            LLVMDisposeMessage(text);
            ir
        }
    }

    /// An integer type of this many bits.
    pub(crate) fn int_ty(&self, bits: u32) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMIntTypeInContext(self.context, bits) })
    }

    /// `i1`.
    pub(crate) fn i1(&self) -> Ty {
        self.int_ty(1)
    }

    /// `i8`.
    pub(crate) fn i8(&self) -> Ty {
        self.int_ty(8)
    }

    /// `i16`.
    pub(crate) fn i16(&self) -> Ty {
        self.int_ty(16)
    }

    /// `i32`.
    pub(crate) fn i32(&self) -> Ty {
        self.int_ty(32)
    }

    /// `i64`.
    pub(crate) fn i64(&self) -> Ty {
        self.int_ty(64)
    }

    /// `half`.
    pub(crate) fn f16(&self) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMHalfTypeInContext(self.context) })
    }

    /// `bfloat`.
    pub(crate) fn bf16(&self) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMBFloatTypeInContext(self.context) })
    }

    /// `float`.
    pub(crate) fn f32(&self) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMFloatTypeInContext(self.context) })
    }

    /// `double`.
    pub(crate) fn f64(&self) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMDoubleTypeInContext(self.context) })
    }

    /// `void`.
    pub(crate) fn void(&self) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMVoidTypeInContext(self.context) })
    }

    /// A pointer in an address space; 0 is the generic one.
    pub(crate) fn ptr(&self, address_space: u32) -> Ty {
        // SAFETY: the context lives.
        Ty(unsafe { LLVMPointerTypeInContext(self.context, address_space) })
    }

    /// `<n x ty>`; `ty` itself for `n` of 1.
    pub(crate) fn vec(&self, ty: Ty, n: u32) -> Ty {
        // SAFETY: `ty` is a scalar type of this context.
        if n == 1 { ty } else { Ty(unsafe { LLVMVectorType(ty.0, n) }) }
    }

    /// `[n x ty]`.
    pub(crate) fn array(&self, ty: Ty, n: u64) -> Ty {
        // SAFETY: `ty` is a sized type of this context.
        Ty(unsafe { LLVMArrayType2(ty.0, n) })
    }

    /// `{ fields }`.
    pub(crate) fn structure(&self, fields: &[Ty]) -> Ty {
        let mut raw: Vec<LLVMTypeRef> = fields.iter().map(|t| t.0).collect();
        // SAFETY: the fields are types of this context.
        Ty(unsafe { LLVMStructTypeInContext(self.context, raw.as_mut_ptr(), raw.len() as u32, 0) })
    }

    /// The type of a dtype in a register: `i1` for bool, and `i8` and `i16` for floats of as many bits,
    /// which are only moved and cast, so that no target sees arithmetic of them.
    pub(crate) fn register_ty(&self, dtype: DType) -> Ty {
        match dtype {
            DType::F32 => self.f32(),
            DType::F64 => self.f64(),
            DType::F8E4M3 | DType::F8E5M2 => self.i8(),
            DType::F16 | DType::BF16 => self.i16(),
            other => self.int_ty(other.bits()),
        }
    }

    /// The type of a dtype in memory: as in a register, but bool is a byte.
    pub(crate) fn memory_ty(&self, dtype: DType) -> Ty {
        if dtype == DType::Bool { self.i8() } else { self.register_ty(dtype) }
    }

    /// The element type of a vector; the type itself for a scalar.
    pub(crate) fn element_ty(&self, ty: Ty) -> Ty {
        // SAFETY: `ty` is a type of this context; only vectors are asked for their element.
        if self.lanes(ty) == 1 { ty } else { Ty(unsafe { LLVMGetElementType(ty.0) }) }
    }

    /// The number of lanes of a vector type; 1 for a scalar.
    pub(crate) fn lanes(&self, ty: Ty) -> u32 {
        // SAFETY: `ty` is a type of this context; only vectors are asked for their size.
        unsafe {
            match LLVMGetTypeKind(ty.0) {
                inkwell::llvm_sys::LLVMTypeKind::LLVMVectorTypeKind => LLVMGetVectorSize(ty.0),
                _ => 1,
            }
        }
    }

    /// The bits of an integer type, or of the elements of a vector of integers.
    pub(crate) fn int_bits(&self, ty: Ty) -> u32 {
        // SAFETY: callers ask integers and vectors of integers only.
        unsafe { LLVMGetIntTypeWidth(self.element_ty(ty).0) }
    }

    /// A value's type.
    pub(crate) fn type_of(&self, value: Val) -> Ty {
        // SAFETY: the value belongs to this module.
        Ty(unsafe { LLVMTypeOf(value.0) })
    }

    /// An integer constant of an integer type or a vector of them, wrapped to its width.
    pub(crate) fn int(&self, ty: Ty, value: i64) -> Val {
        let element = self.element_ty(ty);
        // SAFETY: `element` is an integer type.
        let scalar = Val(unsafe { LLVMConstInt(element.0, value as u64, 1) });
        self.const_splat(scalar, self.lanes(ty))
    }

    /// `i1` true or false.
    pub(crate) fn bool(&self, value: bool) -> Val {
        self.int(self.i1(), i64::from(value))
    }

    /// A float constant of `float` or `double`, or a vector of them, from its bits.
    pub(crate) fn float_bits(&self, ty: Ty, bits: u64) -> Val {
        let element = self.element_ty(ty);
        let wide = element == self.f64();
        let width = if wide { self.i64() } else { self.i32() };
        // SAFETY: the integer has the width of the float it becomes.
        let scalar = Val(unsafe { LLVMConstBitCast(LLVMConstInt(width.0, bits, 0), element.0) });
        self.const_splat(scalar, self.lanes(ty))
    }

    /// A float constant of `float` or `double`, or a vector of them.
    pub(crate) fn float(&self, ty: Ty, value: f64) -> Val {
        let wide = self.element_ty(ty) == self.f64();
        let bits = if wide { value.to_bits() } else { u64::from((value as f32).to_bits()) };
        self.float_bits(ty, bits)
    }

    /// A constant of tile IR in its register type.
    pub(crate) fn scalar(&self, scalar: Scalar) -> Val {
        let ty = self.register_ty(scalar.dtype);
        match scalar.dtype {
            DType::F32 | DType::F64 => self.float_bits(ty, scalar.bits),
            _ => self.int(ty, scalar.bits as i64),
        }
    }

    /// All bits zero.
    pub(crate) fn zero(&self, ty: Ty) -> Val {
        // SAFETY: `ty` is a sized type of this context.
        Val(unsafe { LLVMConstNull(ty.0) })
    }

    /// A value that must not be observed; for lanes that are filled one by one.
    pub(crate) fn poison(&self, ty: Ty) -> Val {
        // SAFETY: `ty` is a sized type of this context.
        Val(unsafe { LLVMGetPoison(ty.0) })
    }

    /// A vector of constants.
    pub(crate) fn const_vec(&self, elements: &[Val]) -> Val {
        let mut raw: Vec<LLVMValueRef> = elements.iter().map(|v| v.0).collect();
        // SAFETY: the elements are constants of one type.
        Val(unsafe { LLVMConstVector(raw.as_mut_ptr(), raw.len() as u32) })
    }

    fn const_splat(&self, scalar: Val, n: u32) -> Val {
        if n == 1 { scalar } else { self.const_vec(&vec![scalar; n as usize]) }
    }

    /// `<start, start + step, ...>` of `n` lanes of an integer type; a scalar for `n` of 1.
    pub(crate) fn const_steps(&self, ty: Ty, start: i64, step: i64, n: u32) -> Val {
        let lane = |i: u32| self.int(ty, start.wrapping_add(step.wrapping_mul(i64::from(i))));
        if n == 1 { lane(0) } else { self.const_vec(&(0..n).map(lane).collect::<Vec<Val>>()) }
    }

    /// The value of an integer constant.
    pub(crate) fn const_int(&self, value: Val) -> Option<i64> {
        // SAFETY: the value belongs to this module; only integer constants are asked for their value.
        unsafe {
            let constant = LLVMIsAConstantInt(value.0);
            (!constant.is_null()).then(|| LLVMConstIntGetSExtValue(constant))
        }
    }

    /// A function type.
    pub(crate) fn function_ty(&self, result: Ty, params: &[Ty]) -> Ty {
        let mut raw: Vec<LLVMTypeRef> = params.iter().map(|t| t.0).collect();
        // SAFETY: all are types of this context.
        Ty(unsafe { LLVMFunctionType(result.0, raw.as_mut_ptr(), raw.len() as u32, 0) })
    }

    /// A function with an empty entry block, in which the builder then stands.
    pub(crate) fn function(&self, name: &str, result: Ty, params: &[Ty]) -> Function {
        let function = self.declare(name, result, params);
        let entry = self.append_block(function, "entry");
        self.position(entry);
        function
    }

    /// A function of this module that is inlined wherever it is called: what needs blocks of its own, for
    /// whoever writes straight code. It is written at its first use; `body` gives what it returns.
    pub(crate) fn helper(
        &self,
        name: &str,
        result: Ty,
        params: &[Ty],
        body: impl FnOnce(Function) -> Val,
    ) -> Function {
        let function = self.routine(name, result, params, body);
        self.add_enum_attr(function, "alwaysinline", 0);
        function
    }

    /// A function of this module that is called, once for all uses.
    pub(crate) fn routine(
        &self,
        name: &str,
        result: Ty,
        params: &[Ty],
        body: impl FnOnce(Function) -> Val,
    ) -> Function {
        let text = c_string(name);
        // SAFETY: the module lives; the string outlives the call.
        let known = unsafe { LLVMGetNamedFunction(self.module, text.as_ptr()) };
        if !known.is_null() {
            return Function { value: Val(known), ty: self.function_ty(result, params) };
        }
        let back = self.current_block();
        // SAFETY: the builder lives. Its lines belong to the function that calls.
        let line = unsafe { LLVMGetCurrentDebugLocation2(self.builder) };
        // SAFETY: the builder lives; no location is one too.
        unsafe { LLVMSetCurrentDebugLocation2(self.builder, std::ptr::null_mut()) };
        let function = self.function(name, result, params);
        let internal = inkwell::llvm_sys::LLVMLinkage::LLVMInternalLinkage;
        // SAFETY: the value is a function.
        unsafe { LLVMSetLinkage(function.value.0, internal) };
        self.add_enum_attr(function, "nounwind", 0);
        self.ret(body(function));
        self.position(back);
        // SAFETY: as above.
        unsafe { LLVMSetCurrentDebugLocation2(self.builder, line) };
        self.has_routines.set(true);
        function
    }

    /// Whether there is more than the kernel in this module.
    pub(crate) fn has_routines(&self) -> bool {
        self.has_routines.get()
    }

    /// A function without a body.
    pub(crate) fn declare(&self, name: &str, result: Ty, params: &[Ty]) -> Function {
        let ty = self.function_ty(result, params);
        let name = c_string(name);
        // SAFETY: the module lives and `ty` is a function type.
        let value = Val(unsafe { LLVMAddFunction(self.module, name.as_ptr(), ty.0) });
        Function { value, ty }
    }

    /// A parameter of a function.
    pub(crate) fn param(&self, function: Function, index: u32) -> Val {
        // SAFETY: callers ask for parameters that the function has.
        Val(unsafe { LLVMGetParam(function.value.0, index) })
    }

    /// The calling convention; 71 is an NVPTX kernel.
    pub(crate) fn set_call_convention(&self, function: Function, convention: u32) {
        // SAFETY: the value is a function.
        unsafe { LLVMSetFunctionCallConv(function.value.0, convention) }
    }

    /// A string attribute of a function, as `"nvvm.maxntid"="128"`.
    pub(crate) fn add_attr(&self, function: Function, key: &str, value: &str) {
        // SAFETY: the strings outlive the call, which copies them.
        unsafe {
            let attribute = LLVMCreateStringAttribute(
                self.context,
                key.as_ptr().cast(),
                key.len() as u32,
                value.as_ptr().cast(),
                value.len() as u32,
            );
            LLVMAddAttributeAtIndex(function.value.0, u32::MAX, attribute);
        }
    }

    /// A known attribute of a function, such as `nounwind`; `value` is 0 for those without one.
    pub(crate) fn add_enum_attr(&self, function: Function, name: &str, value: u64) {
        self.enum_attr_at(function, u32::MAX, name, value);
    }

    /// A known attribute of a parameter, such as `noalias`, `readonly` or `align`.
    pub(crate) fn add_param_attr(&self, function: Function, param: u32, name: &str, value: u64) {
        self.enum_attr_at(function, param + 1, name, value);
    }

    /// A parameter that is `bytes` of memory passed by value, which all threads read where it is.
    pub(crate) fn set_grid_constant(&self, function: Function, param: u32, bytes: u64, align: u64) {
        let ty = self.array(self.i8(), bytes);
        let (kind, constant) = ("byval", "nvvm.grid_constant");
        // SAFETY: the parameter is a pointer, the type is sized and the strings are copied.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(kind.as_ptr().cast(), kind.len());
            let by_value = LLVMCreateTypeAttribute(self.context, kind, ty.0);
            LLVMAddAttributeAtIndex(function.value.0, param + 1, by_value);
            let constant = LLVMCreateStringAttribute(
                self.context,
                constant.as_ptr().cast(),
                constant.len() as u32,
                UNNAMED,
                0,
            );
            LLVMAddAttributeAtIndex(function.value.0, param + 1, constant);
        }
        self.add_param_attr(function, param, "align", align);
    }

    fn enum_attr_at(&self, function: Function, index: u32, name: &str, value: u64) {
        // SAFETY: an unknown name gives kind 0, which is asserted against.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            assert!(kind != 0, "LLVM has no attribute {name}");
            let attribute = LLVMCreateEnumAttribute(self.context, kind, value);
            LLVMAddAttributeAtIndex(function.value.0, index, attribute);
        }
    }

    /// An external symbol in an address space, such as dynamic shared memory.
    pub(crate) fn external_global(&self, name: &str, ty: Ty, space: u32, align: u32) -> Val {
        let name = c_string(name);
        // SAFETY: the module lives and `ty` is sized.
        unsafe {
            let global = LLVMAddGlobalInAddressSpace(self.module, ty.0, name.as_ptr(), space);
            LLVMSetAlignment(global, align);
            Val(global)
        }
    }

    /// A constant string with its NUL, as a pointer.
    pub(crate) fn string(&self, name: &str, text: &str, space: u32) -> Val {
        let bytes = c_string(text);
        let len = bytes.as_bytes_with_nul().len();
        // SAFETY: the bytes outlive the call, which copies them.
        let init = Val(unsafe { LLVMConstStringInContext2(self.context, bytes.as_ptr(), len, 1) });
        let global = self.global(name, self.type_of(init), space, 1, init);
        // SAFETY: the value is a global.
        unsafe { LLVMSetGlobalConstant(global.0, 1) };
        global
    }

    fn global(&self, name: &str, ty: Ty, space: u32, align: u32, init: Val) -> Val {
        let name = c_string(name);
        let linkage = inkwell::llvm_sys::LLVMLinkage::LLVMInternalLinkage;
        // SAFETY: the module lives and `init` has type `ty`.
        unsafe {
            let global = LLVMAddGlobalInAddressSpace(self.module, ty.0, name.as_ptr(), space);
            LLVMSetInitializer(global, init.0);
            LLVMSetLinkage(global, linkage);
            LLVMSetAlignment(global, align);
            Val(global)
        }
    }

    /// A block at the end of a function.
    pub(crate) fn append_block(&self, function: Function, name: &str) -> Block {
        let name = c_string(name);
        // SAFETY: the value is a function of this context.
        Block(unsafe {
            LLVMAppendBasicBlockInContext(self.context, function.value.0, name.as_ptr())
        })
    }

    /// A block at the end of the function that is being written.
    pub(crate) fn block(&self, name: &str) -> Block {
        let name = c_string(name);
        // SAFETY: the builder stands in a block of a function.
        Block(unsafe {
            let function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(self.builder));
            LLVMAppendBasicBlockInContext(self.context, function, name.as_ptr())
        })
    }

    /// Goes on at the end of a block.
    pub(crate) fn position(&self, block: Block) {
        // SAFETY: the block belongs to this context.
        unsafe { LLVMPositionBuilderAtEnd(self.builder, block.0) }
    }

    /// The block that is being written.
    pub(crate) fn current_block(&self) -> Block {
        // SAFETY: the builder stands in a block.
        Block(unsafe { LLVMGetInsertBlock(self.builder) })
    }

    /// Whether the current block ends already.
    pub(crate) fn is_terminated(&self) -> bool {
        // SAFETY: the builder stands in a block.
        unsafe { !LLVMGetBasicBlockTerminator(LLVMGetInsertBlock(self.builder)).is_null() }
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        self.lines.take();
        // SAFETY: made in `new`, dropped once, owner last.
        unsafe {
            LLVMDisposeBuilder(self.builder);
            LLVMDisposeModule(self.module);
            LLVMContextDispose(self.context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice() -> Emitter {
        let e = Emitter::new("test");
        let f = e.function("twice", e.f32(), &[e.f32()]);
        let x = e.param(f, 0);
        e.ret(e.fadd(x, x));
        e
    }

    #[test]
    fn runs_what_it_emits() {
        for (level, passes) in [(Level::None, "default<O0>"), (Level::Aggressive, "default<O3>")] {
            let machine = Machine::host(level).unwrap();
            let e = twice();
            e.set_target(&machine);
            e.verify().unwrap();
            e.run_passes(passes, &machine).unwrap();
            let jit = Jit::link(&e.object(&machine).unwrap()).unwrap();
            let address = jit.address("twice").unwrap();
            // SAFETY: the function was emitted with this signature.
            let twice: extern "C" fn(f32) -> f32 = unsafe { std::mem::transmute(address) };
            assert_eq!(twice(21.0), 42.0);
        }
    }

    #[test]
    fn writes_ptx() {
        let machine = Machine::nvptx("sm_80", "+ptx83").unwrap();
        let e = twice();
        e.set_target(&machine);
        assert!(e.assembly(&machine).unwrap().contains("add.rn.f32"));
    }

    #[test]
    fn reports_invalid_ir() {
        let e = Emitter::new("test");
        e.function("unfinished", e.void(), &[]);
        assert!(e.verify().unwrap_err().to_string().contains("does not have terminator"));
    }
}
