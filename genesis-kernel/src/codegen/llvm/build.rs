//! The instructions of the emitter.

use inkwell::llvm_sys::core::*;
use inkwell::llvm_sys::prelude::*;
use inkwell::llvm_sys::{
    LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMInlineAsmDialect, LLVMIntPredicate,
    LLVMRealPredicate,
};

use super::{Block, Emitter, Function, Ty, UNNAMED, Val, c_string};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $raw:ident { $($variant:ident = $of:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(dead_code, reason = "the whole of LLVM's list, for readers and later back ends")]
        pub(crate) enum $name { $($variant,)* }

        impl $name {
            fn raw(self) -> $raw {
                match self { $($name::$variant => $raw::$of,)* }
            }
        }
    )*};
}

names! {
    /// Comparisons of integers and pointers.
    IntPred: LLVMIntPredicate {
        Eq = LLVMIntEQ, Ne = LLVMIntNE,
        Slt = LLVMIntSLT, Sle = LLVMIntSLE, Sgt = LLVMIntSGT, Sge = LLVMIntSGE,
        Ult = LLVMIntULT, Ule = LLVMIntULE, Ugt = LLVMIntUGT, Uge = LLVMIntUGE,
    }
    /// Comparisons of floats: the ordered ones are false and the unordered ones true for NaN.
    FloatPred: LLVMRealPredicate {
        Oeq = LLVMRealOEQ, One = LLVMRealONE, Olt = LLVMRealOLT, Ole = LLVMRealOLE,
        Ogt = LLVMRealOGT, Oge = LLVMRealOGE, Ord = LLVMRealORD, Uno = LLVMRealUNO,
        Ueq = LLVMRealUEQ, Une = LLVMRealUNE, Ult = LLVMRealULT, Ule = LLVMRealULE,
        Ugt = LLVMRealUGT, Uge = LLVMRealUGE,
    }
    /// Read-modify-write operations.
    Rmw: LLVMAtomicRMWBinOp {
        Xchg = LLVMAtomicRMWBinOpXchg, Add = LLVMAtomicRMWBinOpAdd,
        And = LLVMAtomicRMWBinOpAnd, Or = LLVMAtomicRMWBinOpOr, Xor = LLVMAtomicRMWBinOpXor,
        Max = LLVMAtomicRMWBinOpMax, Min = LLVMAtomicRMWBinOpMin,
        UMax = LLVMAtomicRMWBinOpUMax, UMin = LLVMAtomicRMWBinOpUMin,
        FAdd = LLVMAtomicRMWBinOpFAdd,
    }
    /// What an atomic orders besides itself: nothing, or all that its thread does before and after.
    Order: LLVMAtomicOrdering {
        Relaxed = LLVMAtomicOrderingMonotonic, AcqRel = LLVMAtomicOrderingAcquireRelease,
    }
}

impl Order {
    /// The order of a compare-and-swap that wrote nothing.
    fn raw_missed(self) -> LLVMAtomicOrdering {
        match self {
            Order::Relaxed => LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic,
            Order::AcqRel => LLVMAtomicOrdering::LLVMAtomicOrderingAcquire,
        }
    }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $build:ident;)*) => {
        impl Emitter {$(
            $(#[$doc])*
            pub(crate) fn $name(&self, a: Val, b: Val) -> Val {
                // SAFETY: both belong to this module and have one type that the instruction takes;
                // the verifier looks again.
                Val(unsafe { $build(self.builder, a.0, b.0, UNNAMED) })
            }
        )*}
    };
}

binary! {
    /// a + b of integers.
    add = LLVMBuildAdd;
    /// a - b of integers.
    sub = LLVMBuildSub;
    /// a * b of integers.
    mul = LLVMBuildMul;
    /// a / b of signed integers; the caller guards zero and overflow.
    sdiv = LLVMBuildSDiv;
    /// a / b of unsigned integers; the caller guards zero.
    udiv = LLVMBuildUDiv;
    /// a % b of signed integers; the caller guards zero and overflow.
    srem = LLVMBuildSRem;
    /// a % b of unsigned integers; the caller guards zero.
    urem = LLVMBuildURem;
    /// Bitwise and.
    and = LLVMBuildAnd;
    /// Bitwise or.
    or = LLVMBuildOr;
    /// Bitwise exclusive or.
    xor = LLVMBuildXor;
    /// Shift to the left; the caller masks the amount.
    shl = LLVMBuildShl;
    /// Logical shift to the right; the caller masks the amount.
    lshr = LLVMBuildLShr;
    /// Arithmetic shift to the right; the caller masks the amount.
    ashr = LLVMBuildAShr;
    /// a + b of floats.
    fadd = LLVMBuildFAdd;
    /// a - b of floats.
    fsub = LLVMBuildFSub;
    /// a * b of floats.
    fmul = LLVMBuildFMul;
    /// a / b of floats.
    fdiv = LLVMBuildFDiv;
    /// C's fmod.
    frem = LLVMBuildFRem;
}

macro_rules! convert {
    ($($(#[$doc:meta])* $name:ident = $build:ident;)*) => {
        impl Emitter {$(
            $(#[$doc])*
            pub(crate) fn $name(&self, value: Val, ty: Ty) -> Val {
                // SAFETY: the value belongs to this module; the verifier looks at the types again.
                Val(unsafe { $build(self.builder, value.0, ty.0, UNNAMED) })
            }
        )*}
    };
}

convert! {
    /// To a narrower integer.
    trunc = LLVMBuildTrunc;
    /// To a wider integer with copies of the sign.
    sext = LLVMBuildSExt;
    /// To a wider integer with zeros.
    zext = LLVMBuildZExt;
    /// To a narrower float, to nearest even.
    fptrunc = LLVMBuildFPTrunc;
    /// To a wider float.
    fpext = LLVMBuildFPExt;
    /// To a signed integer, toward zero; the caller makes sure that it fits.
    fptosi = LLVMBuildFPToSI;
    /// To an unsigned integer, toward zero; the caller makes sure that it fits.
    fptoui = LLVMBuildFPToUI;
    /// Signed integer to float, to nearest even.
    sitofp = LLVMBuildSIToFP;
    /// Unsigned integer to float, to nearest even.
    uitofp = LLVMBuildUIToFP;
    /// The same bits as another type.
    bitcast = LLVMBuildBitCast;
    /// Integer to pointer.
    inttoptr = LLVMBuildIntToPtr;
    /// Pointer to integer.
    ptrtoint = LLVMBuildPtrToInt;
    /// A pointer in another address space.
    addrspacecast = LLVMBuildAddrSpaceCast;
}

impl Emitter {
    /// -a of a float: the sign bit flips, also of NaN.
    pub(crate) fn fneg(&self, a: Val) -> Val {
        // SAFETY: a float of this module.
        Val(unsafe { LLVMBuildFNeg(self.builder, a.0, UNNAMED) })
    }

    /// The value, or, where LLVM leaves it undefined, some value that stays the same.
    pub(crate) fn freeze(&self, a: Val) -> Val {
        // SAFETY: a value of this module.
        Val(unsafe { LLVMBuildFreeze(self.builder, a.0, UNNAMED) })
    }

    /// All bits flipped.
    pub(crate) fn not(&self, a: Val) -> Val {
        // SAFETY: an integer of this module.
        Val(unsafe { LLVMBuildNot(self.builder, a.0, UNNAMED) })
    }

    /// Compares integers or pointers.
    pub(crate) fn icmp(&self, predicate: IntPred, a: Val, b: Val) -> Val {
        // SAFETY: both belong to this module and have one type.
        Val(unsafe { LLVMBuildICmp(self.builder, predicate.raw(), a.0, b.0, UNNAMED) })
    }

    /// Compares floats.
    pub(crate) fn fcmp(&self, predicate: FloatPred, a: Val, b: Val) -> Val {
        // SAFETY: both belong to this module and have one type.
        Val(unsafe { LLVMBuildFCmp(self.builder, predicate.raw(), a.0, b.0, UNNAMED) })
    }

    /// `cond ? a : b`; a scalar condition takes whole vectors.
    pub(crate) fn select(&self, cond: Val, a: Val, b: Val) -> Val {
        // SAFETY: all belong to this module; `a` and `b` have one type.
        Val(unsafe { LLVMBuildSelect(self.builder, cond.0, a.0, b.0, UNNAMED) })
    }

    /// The address of element `index` of type `ty`, counted from `ptr`. A vector of indices gives a
    /// vector of addresses.
    pub(crate) fn gep(&self, ty: Ty, ptr: Val, index: Val) -> Val {
        let mut indices = [index.0];
        // SAFETY: `ptr` is a pointer and `ty` is sized.
        Val(unsafe { LLVMBuildGEP2(self.builder, ty.0, ptr.0, indices.as_mut_ptr(), 1, UNNAMED) })
    }

    /// Reads a value from an address of known alignment, in bytes.
    pub(crate) fn load_aligned(&self, ty: Ty, ptr: Val, align: u32) -> Val {
        // SAFETY: `ptr` is a pointer and `ty` is sized.
        unsafe {
            let load = LLVMBuildLoad2(self.builder, ty.0, ptr.0, UNNAMED);
            LLVMSetAlignment(load, align);
            Val(load)
        }
    }

    /// Writes a value to an address of known alignment, in bytes; gives the instruction.
    pub(crate) fn store_aligned(&self, value: Val, ptr: Val, align: u32) -> Val {
        // SAFETY: `ptr` is a pointer.
        unsafe {
            let store = LLVMBuildStore(self.builder, value.0, ptr.0);
            LLVMSetAlignment(store, align);
            Val(store)
        }
    }

    /// Makes a load or store volatile.
    pub(crate) fn set_volatile(&self, access: Val) {
        // SAFETY: the value is a load or a store.
        unsafe { LLVMSetVolatile(access.0, 1) }
    }

    /// Makes a load atomic, in relaxed order.
    pub(crate) fn set_relaxed(&self, load: Val) {
        let relaxed = LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic;
        // SAFETY: the value is a load of an integer, a float or a pointer.
        unsafe { LLVMSetOrdering(load.0, relaxed) }
    }

    /// Says how an argument of a call, counted from 0, is aligned.
    pub(crate) fn set_arg_align(&self, call: Val, arg: u32, align: u32) {
        // SAFETY: the value is a call and `align` is an attribute LLVM knows.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(c"align".as_ptr(), 5);
            let attribute = LLVMCreateEnumAttribute(self.context, kind, u64::from(align));
            LLVMAddCallSiteAttribute(call.0, arg + 1, attribute);
        }
    }

    /// Adds metadata with no or one integer operand to an instruction, such as `invariant.load` or
    /// `nontemporal` with 1.
    pub(crate) fn set_metadata(&self, inst: Val, kind: &str, operand: Option<i64>) {
        let one = operand.map(|n| self.int(self.i32(), n));
        // SAFETY: the node is made in this context and the value is an instruction.
        unsafe {
            let kind =
                LLVMGetMDKindIDInContext(self.context, kind.as_ptr().cast(), kind.len() as u32);
            let mut operands: Vec<LLVMMetadataRef> =
                one.iter().map(|v| LLVMValueAsMetadata(v.0)).collect();
            let node = LLVMMDNodeInContext2(self.context, operands.as_mut_ptr(), operands.len());
            LLVMSetMetadata(inst.0, kind, LLVMMetadataAsValue(self.context, node));
        }
    }

    /// Marks the back edge of a loop so that LLVM leaves it as it is: `llvm.loop.unroll.disable`.
    pub(crate) fn set_no_unroll(&self, branch: Val) {
        // SAFETY: nodes are made in this context and the value is a branch. A loop's node names
        // itself as its first operand; a temporary node stands in until it exists.
        unsafe {
            let text = "llvm.loop.unroll.disable";
            let name = LLVMMDStringInContext2(self.context, text.as_ptr().cast(), text.len());
            let mut names = [name];
            let option = LLVMMDNodeInContext2(self.context, names.as_mut_ptr(), 1);
            let placeholder = inkwell::llvm_sys::debuginfo::LLVMTemporaryMDNode(
                self.context,
                std::ptr::null_mut(),
                0,
            );
            let mut operands = [placeholder, option];
            let node = LLVMMDNodeInContext2(self.context, operands.as_mut_ptr(), 2);
            inkwell::llvm_sys::debuginfo::LLVMMetadataReplaceAllUsesWith(placeholder, node);
            let kind = LLVMGetMDKindIDInContext(self.context, c"llvm.loop".as_ptr(), 9);
            LLVMSetMetadata(branch.0, kind, LLVMMetadataAsValue(self.context, node));
        }
    }

    /// Room on the stack for `ty`.
    pub(crate) fn alloca(&self, ty: Ty, align: u32) -> Val {
        // SAFETY: `ty` is sized.
        unsafe {
            let slot = LLVMBuildAlloca(self.builder, ty.0, UNNAMED);
            LLVMSetAlignment(slot, align);
            Val(slot)
        }
    }

    /// Reads, changes and writes in one step; gives the old value.
    pub(crate) fn atomic_rmw(&self, op: Rmw, ptr: Val, value: Val, order: Order) -> Val {
        // SAFETY: `ptr` is a pointer and the value has a type that `op` takes.
        Val(unsafe { LLVMBuildAtomicRMW(self.builder, op.raw(), ptr.0, value.0, order.raw(), 0) })
    }

    /// Writes `new` where memory holds `expected`; gives the old value.
    pub(crate) fn atomic_cas(&self, ptr: Val, expected: Val, new: Val, order: Order) -> Val {
        let (set, missed) = (order.raw(), order.raw_missed());
        // SAFETY: `ptr` is a pointer; both values are integers or pointers of one type.
        let pair = Val(unsafe {
            LLVMBuildAtomicCmpXchg(self.builder, ptr.0, expected.0, new.0, set, missed, 0)
        });
        self.extract_value(pair, 0)
    }

    /// A field of a struct.
    pub(crate) fn extract_value(&self, aggregate: Val, index: u32) -> Val {
        // SAFETY: the value is a struct with that field.
        Val(unsafe { LLVMBuildExtractValue(self.builder, aggregate.0, index, UNNAMED) })
    }

    /// A lane of a vector; a scalar itself.
    pub(crate) fn extract(&self, vector: Val, lane: u32) -> Val {
        if self.lanes(self.type_of(vector)) == 1 {
            return vector;
        }
        self.extract_at(vector, self.int(self.i32(), i64::from(lane)))
    }

    /// A lane of a vector, chosen at run time.
    pub(crate) fn extract_at(&self, vector: Val, lane: Val) -> Val {
        // SAFETY: the value is a vector and the lane an integer.
        Val(unsafe { LLVMBuildExtractElement(self.builder, vector.0, lane.0, UNNAMED) })
    }

    /// A vector with one lane replaced.
    pub(crate) fn insert(&self, vector: Val, value: Val, lane: u32) -> Val {
        self.insert_at(vector, value, self.int(self.i32(), i64::from(lane)))
    }

    /// A vector with one lane, chosen at run time, replaced.
    pub(crate) fn insert_at(&self, vector: Val, value: Val, lane: Val) -> Val {
        // SAFETY: the value is a vector and the lane an integer.
        Val(unsafe { LLVMBuildInsertElement(self.builder, vector.0, value.0, lane.0, UNNAMED) })
    }

    /// Lanes of `a` then `b` in the order of `lanes`.
    pub(crate) fn shuffle(&self, a: Val, b: Val, lanes: &[u32]) -> Val {
        let mask: Vec<Val> =
            lanes.iter().map(|&lane| self.int(self.i32(), i64::from(lane))).collect();
        let mask = self.const_vec(&mask);
        // SAFETY: `a` and `b` are vectors of one type, the mask is constant.
        Val(unsafe { LLVMBuildShuffleVector(self.builder, a.0, b.0, mask.0, UNNAMED) })
    }

    /// `n` copies of a scalar.
    pub(crate) fn splat(&self, scalar: Val, n: u32) -> Val {
        if n == 1 {
            return scalar;
        }
        let poison = self.poison(self.vec(self.type_of(scalar), n));
        let first = self.insert(poison, scalar, 0);
        self.shuffle(first, poison, &vec![0; n as usize])
    }

    /// A vector of these scalars; the scalar itself where there is one.
    pub(crate) fn build_vec(&self, elements: &[Val]) -> Val {
        if let [only] = elements {
            return *only;
        }
        let ty = self.vec(self.type_of(elements[0]), elements.len() as u32);
        let start = self.poison(ty);
        (0u32..).zip(elements).fold(start, |vector, (i, &v)| self.insert(vector, v, i))
    }

    /// Jumps; gives the branch.
    pub(crate) fn br(&self, to: Block) -> Val {
        // SAFETY: the block belongs to the function being written.
        Val(unsafe { LLVMBuildBr(self.builder, to.0) })
    }

    /// Jumps by a condition; gives the branch.
    pub(crate) fn cond_br(&self, cond: Val, then: Block, otherwise: Block) -> Val {
        // SAFETY: the blocks belong to the function being written and `cond` is an `i1`.
        Val(unsafe { LLVMBuildCondBr(self.builder, cond.0, then.0, otherwise.0) })
    }

    /// Returns a value.
    pub(crate) fn ret(&self, value: Val) {
        // SAFETY: the value has the function's result type.
        unsafe { LLVMBuildRet(self.builder, value.0) };
    }

    /// Returns nothing.
    pub(crate) fn ret_void(&self) {
        // SAFETY: the function's result is void.
        unsafe { LLVMBuildRetVoid(self.builder) };
    }

    /// Says that control can't come here.
    pub(crate) fn unreachable(&self) {
        // SAFETY: the builder stands in a block without a terminator.
        unsafe { LLVMBuildUnreachable(self.builder) };
    }

    /// A value that depends on the block control came from; the builder stands at the block's start.
    pub(crate) fn phi(&self, ty: Ty, incoming: &[(Val, Block)]) -> Val {
        // SAFETY: `ty` is a first-class type.
        let phi = Val(unsafe { LLVMBuildPhi(self.builder, ty.0, UNNAMED) });
        for &(value, block) in incoming {
            self.add_incoming(phi, value, block);
        }
        phi
    }

    /// Another way into a phi.
    pub(crate) fn add_incoming(&self, phi: Val, value: Val, block: Block) {
        let (mut values, mut blocks) = ([value.0], [block.0]);
        // SAFETY: `phi` is a phi of the value's type.
        unsafe { LLVMAddIncoming(phi.0, values.as_mut_ptr(), blocks.as_mut_ptr(), 1) }
    }

    /// Calls a function.
    pub(crate) fn call(&self, function: Function, args: &[Val]) -> Val {
        let mut raw: Vec<LLVMValueRef> = args.iter().map(|v| v.0).collect();
        // SAFETY: the function has that type; the verifier looks at the arguments.
        Val(unsafe {
            LLVMBuildCall2(
                self.builder,
                function.ty.0,
                function.value.0,
                raw.as_mut_ptr(),
                raw.len() as u32,
                UNNAMED,
            )
        })
    }

    /// Calls an intrinsic such as `llvm.fma`; `overloads` are the types in its full name.
    ///
    /// # Panics
    /// If LLVM knows no such intrinsic: names are ours.
    pub(crate) fn intrinsic(&self, name: &str, overloads: &[Ty], args: &[Val]) -> Val {
        let mut types: Vec<LLVMTypeRef> = overloads.iter().map(|t| t.0).collect();
        // SAFETY: the id is checked; the types are of this context.
        let function = unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            assert!(id != 0, "LLVM has no intrinsic {name}");
            let value =
                LLVMGetIntrinsicDeclaration(self.module, id, types.as_mut_ptr(), types.len());
            let ty = LLVMIntrinsicGetType(self.context, id, types.as_mut_ptr(), types.len());
            Function { value: Val(value), ty: Ty(ty) }
        };
        self.call(function, args)
    }

    /// Inline assembly; `side_effects` keeps it in place even if its result is unused.
    pub(crate) fn inline_asm(
        &self,
        result: Ty,
        text: &str,
        constraints: &str,
        args: &[Val],
        side_effects: bool,
    ) -> Val {
        let params: Vec<Ty> = args.iter().map(|&v| self.type_of(v)).collect();
        let ty = self.function_ty(result, &params);
        // SAFETY: the strings outlive the call, which copies them.
        let value = unsafe {
            LLVMGetInlineAsm(
                ty.0,
                text.as_ptr().cast(),
                text.len(),
                constraints.as_ptr().cast(),
                constraints.len(),
                i32::from(side_effects),
                0,
                LLVMInlineAsmDialect::LLVMInlineAsmDialectATT,
                0,
            )
        };
        self.call(Function { value: Val(value), ty }, args)
    }

    /// Marks a call as convergent, so that no pass moves it into other control flow.
    pub(crate) fn set_convergent(&self, call: Val) {
        // SAFETY: the value is a call; the attribute kind is one LLVM knows.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(c"convergent".as_ptr(), 10);
            let attribute = LLVMCreateEnumAttribute(self.context, kind, 0);
            LLVMAddCallSiteAttribute(call.0, u32::MAX, attribute);
        }
    }

    /// Marks a call as a function of its arguments that does nothing else: LLVM makes one of two that are equal.
    pub(crate) fn set_pure(&self, call: Val) {
        for name in ["memory", "nounwind", "willreturn"] {
            // SAFETY: the value is a call; the attribute kinds are some LLVM knows, and 0 is no memory.
            unsafe {
                let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
                let attribute = LLVMCreateEnumAttribute(self.context, kind, 0);
                LLVMAddCallSiteAttribute(call.0, u32::MAX, attribute);
            }
        }
    }

    /// Names a value, so that the printed IR can be read.
    pub(crate) fn set_name(&self, value: Val, name: &str) {
        let name = c_string(name);
        // SAFETY: the value belongs to this module.
        unsafe { LLVMSetValueName2(value.0, name.as_ptr(), name.as_bytes().len()) }
    }
}
