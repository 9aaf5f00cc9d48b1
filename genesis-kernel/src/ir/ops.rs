//! The ops of tile IR: one enum, and one table of what passes may ask about an op.
//!
//! A group of ops that more than one place treats alike has a name, such as [`OpKind::is_view`], and no pass
//! keeps a list of its own of it. All names are read from one table, `OpKind::traits`, which has no `_ =>`.
//! What gives every op a meaning matches on the whole enum without `_ =>` too: printing, the verifier's rules,
//! folding, the interpreter, the analysis of axes and both back ends. So the compiler names every place
//! where a new op must be thought about.
//!
//! Elsewhere a pass picks the few ops that it knows something about, and `_ =>` is what is right of any op:
//! to leave it alone, or to know nothing. A new op is compiled correctly there before anybody thinks about it.

use super::number::Scalar;
use super::ordering::AtomicOrdering;

/// Elementwise ops of one operand. The result has the operand's type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each name is the operation; rules that are not obvious are noted")]
pub enum UnaryOp {
    Neg,
    /// Bitwise for integers, logical for bool.
    Not,
    Abs,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Log,
    Log2,
    Sin,
    Cos,
    Tanh,
    Erf,
    Sigmoid,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    Round,
    Trunc,
    /// How many bits are set, of an integer.
    PopCount,
    /// How many bits above the highest that is set are not, of an integer; of 0 all.
    LeadingZeros,
    /// 2 to the power of x by the target's own approximation: within 2 ULP, results below the
    /// smallest normal number may be flushed. Only passes make it.
    Exp2Approx,
    /// The same in a single instruction: results below the smallest normal number are zero. Only
    /// passes make it.
    Exp2Flush,
    /// The sine of what is above 2^45 in magnitude (of f32: 1.5 2^16), else zero: by more digits of pi, and only where
    /// there is such an element. Only passes make it.
    SinFar,
    /// The cosine of what is above 2^45 in magnitude, else zero. Only passes make it.
    CosFar,
    /// The tangent of what is above 2^45 in magnitude, the quotient of the two, else zero. Only passes make it.
    TanFar,
    /// 1 / x by the target's own approximation: within 1 ULP, and zero where that is below the
    /// smallest normal number. Only passes make it.
    RecipApprox,
    /// The logarithm to base 2 by the target's own approximation: off by `2^-22` of the result, or by that itself
    /// for an `x` between 1/2 and 2. Only passes make it.
    Log2Approx,
    /// The same in a single instruction: of what is below the smallest normal number it is minus infinity.
    Log2Flush,
    /// The square root by the target's own approximation: within 1 ULP, and zero where `x` is below the smallest
    /// normal number.
    SqrtApprox,
    /// `log(1 + x)`
    Log1p,
    Tan,
}

/// Elementwise ops of two operands of one type. The result has that type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each name is the operation; rules that are not obvious are noted")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// Integers truncate; by zero gives 0; `MIN / -1` wraps to `MIN`.
    Div,
    /// Sign of the dividend; by zero gives the dividend; `MIN % -1` is 0.
    Rem,
    And,
    Or,
    Xor,
    /// The amount is taken modulo the width.
    Shl,
    /// Arithmetic for signed, logical for unsigned; the amount is taken modulo the width.
    Shr,
    /// A NaN operand gives NaN; -0 is less than +0.
    Min,
    /// A NaN operand gives NaN; -0 is less than +0.
    Max,
    /// A number wins over NaN.
    MinNum,
    /// A number wins over NaN.
    MaxNum,
    /// The upper half of the full product of integers.
    MulHi,
    /// Of two ways to about the same float the first. Where only the 8 or 11 significant bits of bf16 or f16 are
    /// demanded of the result, a target that may approximate takes the second, which is shorter. `expand_math`
    /// decides.
    Short,
}

/// Comparisons; ordered and IEEE on floats (only `Ne` is true for NaN).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each name is the comparison")]
pub enum Predicate {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Read-modify-write ops on global memory. What one orders besides is its [`AtomicOrdering`]'s to say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each name is the operation")]
pub enum AtomicOp {
    Add,
    Max,
    Min,
    And,
    Or,
    Xor,
    Exchange,
}

/// How a reduction or scan combines two elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Combine {
    /// One operand, combined by this op: `Add`, `Mul`, `Min`, `Max`, `MinNum`, `MaxNum`, `And`,
    /// `Or` or `Xor`.
    Op(BinaryOp),
    /// The op's region: its arguments are the n left then the n right scalars, it yields n scalars.
    Region,
}

/// The number format in which `dot` multiplies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DotPrecision {
    /// The operands' own dtype, products exact in the accumulator's.
    Ieee,
    /// f32 operands rounded to tf32 first.
    Tf32,
    /// f32 operands, each as the sum of two tf32 where tensor cores multiply; f32 itself elsewhere.
    Tf32x3,
    /// Floats of 8 bits, whose sums may keep no more digits than the tensor cores' own 13 bits.
    Fast,
}

/// Options of a loop, from `range(..).stages(4).unroll(2)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LoopOptions {
    /// Iterations of loads in flight; 0 leaves the choice to the kernel's options.
    pub stages: u8,
    /// Copies of the body in one iteration, which the pass `unroll` makes; 0 leaves the choice to the assembler.
    pub unroll: u8,
}

/// How long what a load or store touches is of use: a hint for caches, without a meaning of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Cache {
    /// Nothing is said.
    #[default]
    Usual,
    /// Nobody comes back to it soon: the first to leave.
    Once,
    /// Many come back to it: the last to leave.
    Kept,
}

impl Cache {
    /// Its name in the text of tile IR; none where nothing is said.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Cache::Usual => None,
            Cache::Once => Some("once"),
            Cache::Kept => Some("kept"),
        }
    }
}

/// What an op does. Operands, results and regions are the op's own; see each variant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpKind {
    /// `const 3` : a scalar.
    Const(Scalar),
    /// `iota` : 0, 1, 2, ... along the one axis of the result.
    Iota,
    /// The index of this program along grid axis 0, 1 or 2; i64.
    ProgramId(u8),
    /// The number of programs along grid axis 0, 1 or 2; i64.
    NumPrograms(u8),
    /// Elementwise, one operand.
    Unary(UnaryOp),
    /// Elementwise, two operands of one type.
    Binary(BinaryOp),
    /// Two operands of one type; bool of their shape.
    Compare(Predicate),
    /// `select cond, a, b` : all of one shape.
    Select,
    /// `fma a, b, c` : a * b + c rounded once.
    Fma,
    /// `asm "text" "constraints" [pack n] [from n] inputs.. [, value]` : the value, which stands for the PTX where there
    /// is none; passes leave out one of the two. Of several results each is an op. The module `ir::asm` checks the
    /// constraints.
    Asm {
        /// PTX of `pack` elements: `$0` is the first register of the results, which those of the inputs follow.
        text: String,
        /// The registers of each operand, those of all results first.
        constraints: String,
        /// How many elements the text is of.
        pack: u8,
        /// The number of the first register of this result.
        from: u8,
    },
    /// To the result's dtype: float to int saturates and NaN gives 0, int to int wraps, to bool is `!= 0`.
    Cast,
    /// The same bits as another dtype of the same width.
    Bitcast,
    /// To the result's shape: from a scalar, or from an equal rank with extents 1.
    Broadcast,
    /// Inserts an axis of extent 1 before `axis`.
    ExpandDims {
        /// The axis of the result that is new.
        axis: u8,
    },
    /// To the result's shape with as many elements, in row-major order.
    Reshape,
    /// Result axis `i` is operand axis `perm[i]`.
    Transpose {
        /// A permutation of the axes.
        perm: Vec<u8>,
    },
    /// Two tiles of one type to one with a new last axis of extent 2.
    Join,
    /// The reverse of `join`: two results.
    Split,
    /// `ptr_add p, offset` : offsets count elements, i64, of the same shape as `p`.
    PtrAdd,
    /// `load p [, mask [, other]]` : false lanes give `other`, or zero, and touch no memory. Each load
    /// and store has a [`Cache`] hint, as in `load once p`.
    Load,
    /// `store p, value [, mask]`.
    Store,
    /// `atomic_rmw add [release] [system] p, value [, mask]` : gives the old value; zero where the mask is false.
    AtomicRmw(AtomicOp, AtomicOrdering),
    /// `atomic_cas [acquire] [system] p, expected, new [, mask]` : gives the old value; zero where the mask is false.
    AtomicCas(AtomicOrdering),
    /// The address of a view's first element, as a scalar pointer.
    ViewPtr,
    /// The extent of a view along an axis; i64.
    ViewDim(u8),
    /// The stride of a view along an axis, in elements; i64.
    ViewStride(u8),
    /// `view_load v, coords..` : the result's shape at these coordinates, zero past the edge.
    ViewLoad,
    /// `view_store v, value, coords.. [, mask]` : writes nothing past the edge, nor where the mask is false.
    ViewStore,
    /// `make_view p, extents.., strides..` : a view whose element with all coordinates 0 is at `p`. No extent is negative.
    MakeView,
    /// Reduces n operands of one shape along `axis`; the results drop it.
    Reduce {
        /// The axis that goes.
        axis: u8,
        /// How two elements combine.
        combine: Combine,
    },
    /// Inclusive scan of n operands of one shape along `axis`.
    Scan {
        /// The axis scanned.
        axis: u8,
        /// From the last element to the first.
        reverse: bool,
        /// How two elements combine.
        combine: Combine,
    },
    /// `gather axis x, index` : for each element of the index, an integer, the element of `x` that is there along the
    /// axis, at the same coordinates along the others; zero where there is none. Extents differ along the axis only.
    Gather {
        /// The axis that the index counts along.
        axis: u8,
    },
    /// `scatter axis x, index` : the tile whose element at an index, an integer, along the axis is that of `x` where the
    /// index stands, at the same coordinates along the others. Shapes are equal, and the indices along the axis are
    /// those of all its elements, each once: what [`Gather`](OpKind::Gather) by the result's places undoes.
    Scatter {
        /// The axis that the index counts along.
        axis: u8,
    },
    /// `histogram x` : of each element of x, `i32[N]`, how many equal ones come before it, `i32[N]`, and how many elements
    /// are 0, 1, .., `i32[BINS]`. What has no bin is counted nowhere, and 0 come before it. N is a power of two.
    Histogram,
    /// `dot a, b, acc` : acc + a b, with a `[M, K]`, b `[K, N]`, acc `[M, N]`.
    Dot {
        /// The number format of the products.
        precision: DotPrecision,
    },
    /// `for lower, upper, step, inits..` : region arguments are the index (i64) and the carried
    /// values, it yields the next carried values; the results are the last ones. A step of 0 or less
    /// runs no iteration.
    For(LoopOptions),
    /// `while inits..` : region 0 takes the carried values and yields a bool, region 1 takes them and
    /// yields the next ones.
    While,
    /// `if cond` : two regions without arguments that yield the results.
    If,
    /// Ends a region with its values.
    Yield,
    /// Ends the program. Stands where a `yield` could.
    Return,
    /// Stops with the message where the bool operand has a false element.
    Assert {
        /// What the user wrote.
        message: String,
    },
    /// Prints the operands with the format string's `{}` filled in. Operands past these are the extents
    /// that the printed tiles had before they were padded; only the pass `pad` adds them.
    Print {
        /// What the user wrote.
        format: String,
    },
    /// The operand, known to be a multiple of `n` in every element (a pointer: of n bytes).
    MultipleOf(u64),
    /// The operand in the layout that the layout table gives to the result. Only in layout IR.
    ConvertLayout,
    /// `tma_load n, coords..` : the tile of entry `n` of [`Tma::loads`](super::Tma) at these
    /// coordinates of its view, zero past the edge, in shared memory. Only the pass `tma` makes it.
    TmaLoad(u8),
    /// `tma_store n, value, coords..` : entry `n` of [`Tma::stores`](super::Tma); writes nothing past
    /// the edge. Only the pass `tma` makes it.
    TmaStore(u8),
}

/// What is true of an op whatever its operands: a set of bits, of which [`OpKind::traits`] is the table.
mod traits {
    /// It only computes its results.
    pub(super) const PURE: u16 = 1 << 0;
    /// Each element of the result depends only on the same element of the operands.
    pub(super) const ELEMENTWISE: u16 = 1 << 1;
    /// The operand's elements under another shape.
    pub(super) const VIEW: u16 = 1 << 2;
    /// A result of no operands.
    pub(super) const SOURCE: u16 = 1 << 3;
    /// It combines the elements along an axis by an op or a region.
    pub(super) const COLLECTIVE: u16 = 1 << 4;
    /// It reads or writes global memory at a tile of pointers.
    pub(super) const POINTERS: u16 = 1 << 5;
    /// It writes global memory at a tile of pointers.
    pub(super) const POINTER_WRITE: u16 = 1 << 6;
    /// It reads and writes memory in one step.
    pub(super) const ATOMIC: u16 = 1 << 7;
    /// It takes a hint for caches.
    pub(super) const CACHE: u16 = 1 << 8;
    /// What it does is seen outside of its results.
    pub(super) const EFFECT: u16 = 1 << 9;
    /// It decides which ops run, or how often.
    pub(super) const CONTROL: u16 = 1 << 10;
    /// It runs ops again and again.
    pub(super) const LOOP: u16 = 1 << 11;
    /// It ends a region.
    pub(super) const TERMINATOR: u16 = 1 << 12;
    /// Threads exchange elements for it, within a warp or through shared memory.
    pub(super) const EXCHANGE: u16 = 1 << 13;
}

impl OpKind {
    /// The table of traits: one row for each group of kinds that no pass but its own tells apart.
    fn traits(&self) -> u16 {
        use traits::*;
        match self {
            OpKind::Const(_) | OpKind::Iota | OpKind::ProgramId(_) | OpKind::NumPrograms(_) => {
                PURE | SOURCE
            }
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Select
            | OpKind::Fma
            | OpKind::Asm { .. }
            | OpKind::Cast
            | OpKind::Bitcast
            | OpKind::PtrAdd
            | OpKind::MultipleOf(_) => PURE | ELEMENTWISE,
            OpKind::Broadcast
            | OpKind::ExpandDims { .. }
            | OpKind::Reshape
            | OpKind::Transpose { .. } => PURE | VIEW,
            OpKind::Join
            | OpKind::Split
            | OpKind::ViewPtr
            | OpKind::ViewDim(_)
            | OpKind::ViewStride(_)
            | OpKind::MakeView
            | OpKind::Dot { .. } => PURE,
            OpKind::Reduce { .. } | OpKind::Scan { .. } => PURE | COLLECTIVE | EXCHANGE,
            OpKind::ConvertLayout
            | OpKind::Gather { .. }
            | OpKind::Scatter { .. }
            | OpKind::Histogram => PURE | EXCHANGE,
            OpKind::Load => POINTERS | CACHE,
            OpKind::Store => POINTERS | POINTER_WRITE | CACHE | EFFECT,
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => {
                POINTERS | POINTER_WRITE | ATOMIC | EFFECT
            }
            OpKind::ViewLoad => CACHE,
            OpKind::ViewStore => CACHE | EFFECT,
            OpKind::TmaLoad(_)
            | OpKind::TmaStore(_)
            | OpKind::Assert { .. }
            | OpKind::Print { .. } => EFFECT,
            OpKind::For(_) | OpKind::While => CONTROL | LOOP,
            OpKind::If => CONTROL,
            OpKind::Yield | OpKind::Return => TERMINATOR,
        }
    }

    /// Whether it has one of these traits.
    fn has(&self, any: u16) -> bool {
        self.traits() & any != 0
    }

    /// Whether the op only computes its results: it may be moved, shared or dropped.
    pub fn is_pure(&self) -> bool {
        self.has(traits::PURE)
    }

    /// Whether it has a [`Cache`] hint.
    pub fn takes_cache(&self) -> bool {
        self.has(traits::CACHE)
    }

    /// Whether each element of the result depends only on the same element of the operands.
    pub fn is_elementwise(&self) -> bool {
        self.has(traits::ELEMENTWISE)
    }

    /// Whether the result has the elements of the one operand, each where it was, repeated or under other
    /// coordinates: `broadcast`, `expand_dims`, `reshape`, `transpose`. Not to be confused with the ops on
    /// views of memory.
    pub fn is_view(&self) -> bool {
        self.has(traits::VIEW)
    }

    /// Whether each thread computes it for itself, from what it holds: no memory and no message.
    pub fn is_per_thread(&self) -> bool {
        self.has(traits::ELEMENTWISE | traits::VIEW | traits::SOURCE)
    }

    /// Whether it combines elements along an axis, which threads may have to exchange: `reduce`, `scan`.
    pub fn is_collective(&self) -> bool {
        self.has(traits::COLLECTIVE)
    }

    /// Whether threads exchange elements for it, within a warp or through shared memory: `reduce`, `scan`, `gather`,
    /// `histogram`, `convert_layout`. Those of a `dot` are its plan's.
    pub fn is_exchange(&self) -> bool {
        self.has(traits::EXCHANGE)
    }

    /// Whether it reads or writes global memory at pointers, its first operand: `load`, `store`, atomics.
    pub fn is_pointer_access(&self) -> bool {
        self.has(traits::POINTERS)
    }

    /// Whether it writes global memory at pointers, its first operand: `store` and atomics.
    pub fn is_pointer_write(&self) -> bool {
        self.has(traits::POINTER_WRITE)
    }

    /// What it orders besides itself, of a read-modify-write of global memory.
    pub fn ordering(&self) -> Option<AtomicOrdering> {
        match self {
            OpKind::AtomicRmw(_, ordering) | OpKind::AtomicCas(ordering) => Some(*ordering),
            _ => None,
        }
    }

    /// Whether it is a read-modify-write of global memory.
    pub fn is_atomic(&self) -> bool {
        self.has(traits::ATOMIC)
    }

    /// The number of the operand that says which lanes of an access by pointers touch memory; the op may
    /// go without that operand. None for ops that take no mask.
    pub fn mask_operand(&self) -> Option<usize> {
        match self {
            OpKind::Load => Some(1),
            // Two values stand between the pointers and the mask.
            OpKind::AtomicCas(_) => Some(3),
            // One value does.
            kind => kind.is_pointer_write().then_some(2),
        }
    }

    /// Whether it writes global memory, moves a ring of shared memory on, stops the program or prints.
    pub fn has_effect(&self) -> bool {
        self.has(traits::EFFECT)
    }

    /// Whether its regions run by choice or again: `for`, `while`, `if`.
    pub fn is_control_flow(&self) -> bool {
        self.has(traits::CONTROL)
    }

    /// Whether its regions run again and again: `for`, `while`.
    pub fn is_loop(&self) -> bool {
        self.has(traits::LOOP)
    }

    /// Whether it ends a region.
    pub fn is_terminator(&self) -> bool {
        self.has(traits::TERMINATOR)
    }

    /// Whether recomputing it costs more than reading it back: transcendental functions, division,
    /// memory, reductions, dots and control flow.
    pub fn is_expensive(&self) -> bool {
        match self {
            OpKind::Unary(op) => op.is_expensive(),
            OpKind::Binary(op) => matches!(op, BinaryOp::Div | BinaryOp::Rem),
            OpKind::Dot { .. }
            | OpKind::Gather { .. }
            | OpKind::Scatter { .. }
            | OpKind::Histogram
            | OpKind::Asm { .. } => true,
            kind => kind.is_collective() || !kind.is_pure(),
        }
    }
}

impl UnaryOp {
    /// Whether it is more than an instruction or two.
    fn is_expensive(self) -> bool {
        match self {
            UnaryOp::Neg
            | UnaryOp::Not
            | UnaryOp::Abs
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::PopCount
            | UnaryOp::LeadingZeros => false,
            UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Log
            | UnaryOp::Log2
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tanh
            | UnaryOp::Erf
            | UnaryOp::Sigmoid
            | UnaryOp::Exp2Approx
            | UnaryOp::Exp2Flush
            | UnaryOp::SinFar
            | UnaryOp::CosFar
            | UnaryOp::TanFar
            | UnaryOp::RecipApprox
            | UnaryOp::Log2Approx
            | UnaryOp::Log2Flush
            | UnaryOp::SqrtApprox
            | UnaryOp::Log1p
            | UnaryOp::Tan => true,
        }
    }
}
